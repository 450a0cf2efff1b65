//! `steadyvm simulate cluster`: policies that place VMs, compared on a simulated cluster.
//!
//! Exit codes: 0 done, 2 bad input.

use std::{fmt::Write as _, fs, num::NonZero, path::PathBuf, process::ExitCode, thread};

use anyhow::{Context, Result};
use serde_json::json;
use steadyvm_cli::output::print;
use steadyvm_sim::cluster::{FIGURES, Figure, Scenario, Study, study};

const FILE_HELP: &str = r#"The file:

  length = "86400s"           # simulated time
  seed = 1
  seeds = 5                   # runs of each policy; all see the same arrivals
  policies = ["nova", "worst-fit"]
  arrivals_per_hour = 100

  [[host]]
  name = "small"
  count = 10
  cpus = 8
  memory_mib = 65536
  usable_percent = 90         # for real-time VMs, of each CPU
  vcpus_per_cpu = 4           # of all VMs

  [[vm]]                      # a flavour
  name = "control"
  weight = 2                  # share of arrivals
  vcpus = 1
  memory_mib = 1024
  budget = "2ms"              # of each VCPU; or tasks = [{ c, t }]; or neither
  period = "10ms"
  lifetime = "7200s"          # mean; exponential, as all times are
  migrations_per_day = 0.5
  resizes_per_day = 0.5
  resize_to = ["control"]

  [[start]]                   # VMs that are there at the beginning
  vm = "control"
  count = 20

  [failure]                   # of each host
  every = "2592000s"
  repair = "3600s"

  [maintenance]               # hosts are emptied, batch by batch
  begin = "14400s"
  hosts_at_once = 2
  each = "1200s"

Policies:

  nova          RT-Filter's claims, one sum a host; most real-time CPU left
  nova-per-cpu  the same with a sum for each CPU
  nova-stock    Nova alone: most memory left; no budget counts
  first-fit     the first host that the analysis admits
  best-fit      of those the one with least real-time CPU left
  worst-fit     of those the one with most left
"#;

/// Compare policies that place VMs on a simulated cluster
///
/// VMs come, go, move and change their size; hosts fail and are emptied. What is drawn is the same for all policies.
#[derive(clap::Args)]
#[command(after_long_help = FILE_HELP)]
pub struct Args {
    /// What is simulated, see below
    file: PathBuf,
    /// Print all runs as JSON
    #[arg(long)]
    json: bool,
    /// Print which VMs each host has at the end of the first run
    #[arg(long)]
    placement: bool,
    /// The seed of the first run, instead of the file's
    #[arg(long)]
    seed: Option<u64>,
    /// Policies at a time; all CPUs where it is not given
    #[arg(long)]
    threads: Option<NonZero<usize>>,
}

/// Runs the verb.
///
/// # Errors
/// Input that cannot be read or simulated.
pub fn run(args: &Args) -> Result<ExitCode> {
    let place = args.file.display().to_string();
    let text = fs::read_to_string(&args.file).with_context(|| format!("cannot read {place}"))?;
    let mut scenario = Scenario::parse(&place, &text)?;
    if let Some(seed) = args.seed {
        scenario.seed = seed;
    }
    let threads = (args.threads.map(NonZero::get))
        .or_else(|| thread::available_parallelism().ok().map(NonZero::get))
        .unwrap_or(1);
    let found = study(&scenario, threads).with_context(|| place.clone())?;
    let mut text = if args.json {
        json(&scenario, &found, args.placement)?
    } else {
        table(&scenario, &found)
    };
    if args.placement && !args.json {
        text += &placements(&scenario, &found);
    }
    print(&text)?;
    Ok(ExitCode::SUCCESS)
}

fn table(scenario: &Scenario, found: &Study) -> String {
    let mut text = format!(
        "{} hosts, {} s, {} runs from seed {}; mean [95 % interval]\n",
        scenario.hosts.len(),
        scenario.length_ns as f64 / 1e9,
        scenario.seeds,
        scenario.seed,
    );
    for of_policy in &found.policies {
        // Writing to a string does not fail.
        let _ = writeln!(text, "\n{}", of_policy.policy.word());
        for figure in FIGURES {
            let _ = writeln!(
                text,
                "  {:<48} {}",
                figure.name,
                figure.words(&of_policy.runs)
            );
        }
    }
    text
}

/// The hosts and the flavours of their VMs at the end of the first run, by policy.
fn placed<'s>(
    scenario: &'s Scenario,
    found: &Study,
    policy: usize,
) -> Vec<(&'s str, Vec<&'s str>)> {
    let name = |&vm: &u32| {
        let flavour = found.first_flavours[vm as usize];
        scenario.flavours[usize::from(flavour)].name.as_str()
    };
    let runs = &found.policies[policy].runs;
    let hosts = runs.first().map_or(&[][..], |run| &run.placement);
    (scenario.hosts.iter().zip(hosts))
        .map(|(&kind, vms)| {
            let vms = vms.iter().map(name).collect();
            (scenario.kinds[kind].name.as_str(), vms)
        })
        .collect()
}

fn placements(scenario: &Scenario, found: &Study) -> String {
    let mut text = String::new();
    for (number, of_policy) in found.policies.iter().enumerate() {
        let _ = writeln!(
            text,
            "\n{}: flavours that VMs came with",
            of_policy.policy.word()
        );
        for (host, vms) in placed(scenario, found, number) {
            let _ = writeln!(text, "  {host}: {}", vms.join(", "));
        }
    }
    text
}

fn json(scenario: &Scenario, found: &Study, placement: bool) -> Result<String> {
    let figure = |figure: &Figure, runs| {
        let found = figure.mean(runs);
        let interval = found.and_then(|found| found.interval);
        json!({
            "name": figure.name,
            "mean": found.map(|found| found.mean),
            "low": interval.map(|(low, _)| low),
            "high": interval.map(|(_, high)| high),
        })
    };
    let policies: Vec<_> = (found.policies.iter().enumerate())
        .map(|(number, of_policy)| {
            let figures: Vec<_> = (FIGURES.iter())
                .map(|it| figure(it, &of_policy.runs))
                .collect();
            let hosts = placement.then(|| {
                let hosts = placed(scenario, found, number).into_iter();
                hosts
                    .map(|(host, vms)| json!({"host": host, "vms": vms}))
                    .collect::<Vec<_>>()
            });
            json!({
                "policy": of_policy.policy,
                "figures": figures,
                "runs": of_policy.runs,
                "placement": hosts,
            })
        })
        .collect();
    let value = json!({
        "schema_version": 1,
        "hosts": scenario.hosts.len(),
        "length_ns": scenario.length_ns,
        "seed": scenario.seed,
        "seeds": scenario.seeds,
        "policies": policies,
    });
    Ok(serde_json::to_string_pretty(&value).context("cannot write the outcome as JSON")? + "\n")
}
