//! `steadyvm simulate`: a plan, played: which jobs are late, what every VCPU got.
//!
//! Exit codes: 0 no job was late but those of soft VMs, 1 some were, 2 bad input.

mod cluster;

use std::{
    fmt::Write as _,
    fs,
    path::{Path, PathBuf},
    process::ExitCode,
};

use anyhow::{Context, Result, anyhow};
use steadyvm_analysis::plan::InputError;
use steadyvm_config::{File, Simulate};
use steadyvm_host::Machine;
use steadyvm_sim::{
    Engine, Nobody, Outcome, Recorder, gantt, perfetto,
    plan::{self, Scenario},
    shares::{self, TaskShare},
};

use steadyvm_cli::output::print;

use steadyvm_site::{CpusHere, calibration};

use crate::arguments::{CostArgs, warn_of_refused};

/// The longest stretch that a chart shows, ns.
const CHART_NS: u64 = 200_000_000;

/// Runs that the share of a soft VM's jobs is of.
const RUNS_OF_SOFT_VMS: u32 = 20;

/// The longest recording, ns: a trace of more is of no use to anybody.
const MAX_RECORDING_NS: u64 = 60_000_000_000;

/// What simulate.toml may say.
const WITH_HELP: &str = r#"simulate.toml (--with) says how the plan is played; every key is optional:

  duration = "10s"                # simulated time
  seed = 1
  scheduler = "grm"               # another order of VCPUs than the plan's:
                                  # gedf, gdm, grm; pedf, pdm, prm
  server = "deferrable"           # periodic, polling, sporadic, cbs,
                                  # work-conserving, capacity-reclaiming
  quantum = "1ms"                 # decisions at this interval; 0ns: exact times
  decision = "1us"                # cost of a switch: of the decision,
  context_switch = "2us"          # of the switch itself,
  migration = "5us"               # of a start on another CPU,
  cache_reload = "50us"           # of cold caches at each start
  execution_factor_percent = 50   # jobs take 50 to 100 % of c
  longest_gap_percent = 150       # jobs come t to 1.5 t apart
  random_offsets = true           # first releases within t; else at 0
  adversary = true                # VMs without tasks wake at bad moments
  late = "drop"                   # a late job ends at its deadline

Default of scheduler, server, quantum and costs: the plan's.
"#;

/// Play a plan on the scheduling policy that the BPF scheduler runs
///
/// Reads the plan file of `steadyvm plan`, takes its VMs, tasks and budgets, and simulates the host. Costs that the file leaves out
/// are those that "steadyvm calibrate" measured, as in the plan.
#[derive(clap::Args)]
#[command(after_long_help = WITH_HELP, args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub struct Args {
    #[command(subcommand)]
    what: Option<What>,
    /// The plan file (steadyvm.toml); one that is called cluster is ./cluster
    #[arg(required = true)]
    file: Option<PathBuf>,
    /// How it is played: simulate.toml, see below
    #[arg(long, value_name = "FILE")]
    with: Option<PathBuf>,
    #[command(flatten)]
    costs: CostArgs,
    /// Print the outcome as JSON; all times are nanoseconds
    #[arg(long)]
    json: bool,
    /// Draw the first 200 ms into this SVG file
    #[arg(long, value_name = "OUT.svg")]
    gantt: Option<PathBuf>,
    /// Write a trace for Perfetto (ui.perfetto.dev) into this file
    #[arg(long, value_name = "OUT.json")]
    trace: Option<PathBuf>,
    /// The seed of random numbers, instead of that of --with
    #[arg(long)]
    seed: Option<u64>,
    /// Say which share of each task's jobs is in time, over so many runs with other seeds and first releases; 20 if a VM of the plan
    /// is soft
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(2..=100_000), conflicts_with_all = ["gantt", "trace"])]
    runs: Option<u32>,
    /// Simulated time, such as "10s", instead of that of --with
    #[arg(long, value_name = "T")]
    duration: Option<String>,
}

#[derive(clap::Subcommand)]
enum What {
    Cluster(cluster::Args),
}

/// Runs the verb.
///
/// # Errors
/// Input that cannot be read or simulated, output that cannot be written.
pub fn run(args: &Args) -> Result<ExitCode> {
    if let Some(What::Cluster(args)) = &args.what {
        return cluster::run(args);
    }
    let file = args.file.as_ref().context("give the plan file")?;
    let place = file.display();
    let text = read(file)?;
    let how = match &args.with {
        Some(with) => Simulate::parse(&with.display().to_string(), &read(with)?)?,
        None => Simulate::default(),
    };
    let parsed = File::parse("", &text).map_err(InputError::from);
    let parsed = parsed.with_context(|| format!("{place}"))?;
    // A file that does not say its CPUs is for those of this host.
    let here = CpusHere::of(&Machine::real()).map(|here| here.numbers());
    let calibration = args.costs.found()?;
    warn_of_refused(&calibration);
    let measured = calibration::measured(&calibration);
    let scenario = plan::scenario(&parsed, &how, here.as_deref().ok(), &measured);
    let mut scenario = scenario.with_context(|| format!("{place}"))?;
    if let Some(seed) = args.seed {
        scenario = scenario.with_seed(seed);
    }
    if let Some(duration) = &args.duration {
        scenario.duration_ns = steadyvm_analysis::plan::duration_ns(duration)
            .and_then(|time| u64::try_from(time).ok())
            .ok_or_else(|| anyhow!("--duration is \"{duration}\"; give a time such as \"10s\""))?;
    }
    let outcome = simulate(args, &scenario)?;
    let is_soft = scenario.report.vms.iter().any(|vm| vm.soft);
    let runs = args.runs.or(is_soft.then_some(RUNS_OF_SOFT_VMS));
    let shares = runs.map_or(Ok(Vec::new()), |runs| shares::shares(&scenario, runs))?;
    let text = if args.json {
        json(&scenario, &outcome, &shares)?
    } else {
        table(&scenario, &outcome) + &statement(&scenario, &shares)
    };
    print(&text)?;
    Ok(ExitCode::from(u8::from(late_hard(&scenario, &outcome) > 0)))
}

/// Late jobs of VMs that are not soft.
fn late_hard(scenario: &Scenario, outcome: &Outcome) -> u64 {
    let guests = scenario.system.guests.iter();
    let owners = guests.flat_map(|guest| guest.tasks.iter().map(|_| guest.name.as_str()));
    let soft = |name: &str| (scenario.report.vms.iter()).any(|vm| vm.name == name && vm.soft);
    let hard = owners.zip(&outcome.tasks).filter(|(vm, _)| !soft(vm));
    hard.map(|(_, task)| task.late()).sum()
}

/// Which share of jobs was in time.
fn statement(scenario: &Scenario, shares: &[TaskShare]) -> String {
    let Some(runs) = shares.iter().find_map(|it| it.in_time.map(|it| it.runs)) else {
        return String::new();
    };
    let mut text = format!(
        "\nJobs in time over {runs} runs of {} s (seeds from {}, first releases drawn), 95 % intervals:\n",
        scenario.duration_ns as f64 / 1e9,
        scenario.seed
    );
    for it in shares {
        let Some(found) = it.in_time else { continue };
        let (low, high) = found.interval.unwrap_or((0.0, 1.0));
        // Writing to a string does not fail.
        let _ = writeln!(
            text,
            "  {} {}: {:.3} % [{:.3}, {:.3}], n = {} jobs{}",
            it.vm,
            it.task,
            100.0 * found.share,
            100.0 * low,
            100.0 * high,
            found.jobs,
            if it.soft {
                "; soft: a simulation's statement, no promise"
            } else {
                ""
            }
        );
    }
    text
}

fn read(file: &Path) -> Result<String> {
    fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))
}

fn simulate(args: &Args, scenario: &Scenario) -> Result<Outcome> {
    let Scenario {
        system,
        seed,
        duration_ns,
        ..
    } = scenario;
    if args.gantt.is_none() && args.trace.is_none() {
        return Ok(Engine::new(system, *seed, *duration_ns, &mut Nobody)?.run());
    }
    if args.trace.is_some() && *duration_ns > MAX_RECORDING_NS {
        return Err(anyhow!(
            "a trace holds at most 60 s; give --duration 60s or less"
        ));
    }
    let mut recorder = Recorder::default();
    let outcome = Engine::new(system, *seed, *duration_ns, &mut recorder)?.run();
    let write = |path: &Path, text: String| {
        steadyvm_files::write(path, text)
            .with_context(|| format!("cannot write {}", path.display()))
    };
    if let Some(path) = &args.gantt {
        write(
            path,
            gantt::render(system, &recorder, CHART_NS.min(*duration_ns)),
        )?;
    }
    if let Some(path) = &args.trace {
        write(path, perfetto::render(system, &recorder))?;
    }
    Ok(outcome)
}

fn json(scenario: &Scenario, outcome: &Outcome, shares: &[TaskShare]) -> Result<String> {
    let (mut tasks, mut vcpus) = (outcome.tasks.iter(), outcome.vcpus.iter());
    let vms: Vec<serde_json::Value> = scenario
        .system
        .guests
        .iter()
        .map(|guest| {
            let tasks: Vec<_> = guest
                .tasks
                .iter()
                .zip(tasks.by_ref())
                .map(|(task, outcome)| serde_json::json!({"name": task.name, "outcome": outcome}))
                .collect();
            let vcpus: Vec<_> = guest
                .vcpus
                .iter()
                .zip(vcpus.by_ref())
                .map(|(_, outcome)| outcome)
                .collect();
            serde_json::json!({"name": guest.name, "tasks": tasks, "vcpus": vcpus})
        })
        .collect();
    let value = serde_json::json!({
        "schema_version": 1,
        "feasible": scenario.report.feasible,
        "seed": scenario.seed,
        "duration_ns": outcome.duration_ns,
        "events": outcome.events,
        "late_jobs": outcome.late(),
        "jobs": outcome.due(),
        "vms": vms,
        "shares": shares,
    });
    Ok(serde_json::to_string_pretty(&value).context("cannot write the outcome as JSON")? + "\n")
}

fn table(scenario: &Scenario, outcome: &Outcome) -> String {
    let seconds = outcome.duration_ns as f64 / 1e9;
    let mut text = format!(
        "{} of {} jobs late in {seconds} s (seed {}); the plan {}\n\n",
        outcome.late(),
        outcome.due(),
        scenario.seed,
        if scenario.report.feasible {
            "is feasible"
        } else {
            "is not feasible"
        },
    );
    let (mut tasks, mut vcpus) = (outcome.tasks.iter(), outcome.vcpus.iter());
    // What receives for VMs comes after all of them.
    let vms = scenario.report.vms.len();
    for (place, guest) in scenario.system.guests.iter().enumerate() {
        let what = if place < vms { "vcpu" } else { "thread" };
        // Writing to a string does not fail.
        let _ = writeln!(text, "{}", guest.name);
        for (number, (vcpu, got)) in guest.vcpus.iter().zip(vcpus.by_ref()).enumerate() {
            let share = 100.0 * got.supplied_ns as f64 / outcome.duration_ns.max(1) as f64;
            let granted = if vcpu.parameters.is_rt() {
                let granted =
                    vcpu.parameters.budget_ns() as f64 / vcpu.parameters.period_ns() as f64;
                format!("of {:.2} % granted", 100.0 * granted)
            } else {
                "of what is left".to_owned()
            };
            let _ = writeln!(
                text,
                "  {what} {number}: ran {share:.2} % {granted}, {} preemptions, {} migrations",
                got.preemptions, got.migrations
            );
        }
        for (task, found) in guest.tasks.iter().zip(tasks.by_ref()) {
            let mean = found.total_response_ns as f64 / found.jobs.max(1) as f64 / 1e6;
            let _ = writeln!(
                text,
                "  task {}: {} of {} late, response mean {mean:.3} ms, longest {:.3} ms, deadline {:.3} ms",
                task.name,
                found.late(),
                found.due(),
                found.longest_response_ns as f64 / 1e6,
                task.deadline_ns as f64 / 1e6
            );
        }
    }
    text
}
