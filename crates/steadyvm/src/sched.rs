//! `steadyvm sched`: VCPU budgets, enforced and shown.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use clap::{Subcommand, ValueEnum};
use steadyvm_host::{Machine, discover};
use steadyvm_sched::config::{Config, Mechanism};
use steadyvm_sched::service::{self, Reply, Request, Service};
use steadyvm_sched::show::{DecisionTimes, Standing};
use steadyvm_sched::{Error, Record, ReplayError, Scheduler, is_attached};

use crate::output;

/// Give the VCPUs of VMs a budget of CPU time in every period, and show how they stand.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    verb: Verb,
    /// Where the loader is asked.
    #[arg(long, global = true, value_name = "PATH", default_value = service::SOCKET)]
    socket: PathBuf,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// By `sched_ext`: the scheduler as a BPF program.
    #[command(subcommand)]
    Ext(Ext),
    /// Show each VCPU's budget, what it used, and how often it had to stop.
    Show(ShowArgs),
    /// Show it again and again.
    Top {
        /// Seconds between two.
        #[arg(long, default_value_t = 1.0, value_parser = seconds)]
        interval: f64,
        /// How often; without end by default.
        #[arg(long)]
        count: Option<u64>,
        #[command(flatten)]
        show: ShowArgs,
    },
    /// Replay a record on the policy; the first difference ends it with exit code 1.
    Replay {
        /// What `steadyvm sched ext run --record` wrote.
        file: PathBuf,
        /// How long the host may take to react to what happens, in microseconds.
        #[arg(long, value_name = "US", default_value_t = 1000)]
        reaction_us: u64,
    },
}

#[derive(Debug, Subcommand)]
enum Ext {
    /// Load the scheduler and keep it until `steadyvm sched ext stop`, or until this process ends.
    ///
    /// However it ends, the kernel's own scheduler has all threads again.
    Run {
        #[command(flatten)]
        what: What,
        /// Record what the policy is told, in the format of crates/sched-policy/policy/event.h.
        #[arg(long, value_name = "FILE")]
        record: Option<PathBuf>,
    },
    /// Have a running loader enforce this from now on.
    Apply(What),
    /// End a running loader.
    Stop,
}

#[derive(Debug, clap::Args)]
struct What {
    /// The file with the section [sched].
    #[arg(long, value_name = "FILE")]
    config: PathBuf,
    /// A VM of the file: the process of its monitor.
    #[arg(long = "vm", value_name = "NAME=PID", value_parser = named)]
    vms: Vec<(String, u32)>,
    /// A VM of the file that is only a thread.
    #[arg(long = "thread", value_name = "NAME=TID", value_parser = named)]
    threads: Vec<(String, u32)>,
    /// Refuse budgets that add up to more than the host's CPUs.
    #[arg(long)]
    strict: bool,
}

#[derive(Debug, clap::Args)]
struct ShowArgs {
    /// As what.
    #[arg(long, value_enum, default_value_t = Format::Table)]
    format: Format,
    /// As JSON: the same as --format json.
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Format {
    Table,
    Json,
    OpenMetrics,
}

fn named(text: &str) -> Result<(String, u32), String> {
    let (name, number) = text.split_once('=').ok_or("write NAME=NUMBER")?;
    let number = number
        .parse()
        .map_err(|error| format!("{number}: {error}"))?;
    Ok((name.to_owned(), number))
}

fn seconds(text: &str) -> Result<f64, String> {
    let number: f64 = text.parse().map_err(|error| format!("{error}"))?;
    if (0.01..=3600.0).contains(&number) {
        Ok(number)
    } else {
        Err("between 0.01 and 3600".into())
    }
}

/// Runs the verb.
pub fn run(args: &Args) -> Result<ExitCode> {
    match &args.verb {
        Verb::Ext(Ext::Run { what, record }) => load(&args.socket, what, record.as_deref()),
        Verb::Ext(Ext::Apply(what)) => {
            let (config, threads) = what.read()?;
            service::ask(&args.socket, &Request::Apply { config, threads })?;
            Ok(ExitCode::SUCCESS)
        }
        Verb::Ext(Ext::Stop) => {
            service::ask(&args.socket, &Request::Stop)?;
            Ok(ExitCode::SUCCESS)
        }
        Verb::Show(show) => {
            let standing = standing(&args.socket)?;
            show.print(&standing)?;
            Ok(ExitCode::from(u8::from(!standing.attached)))
        }
        Verb::Top {
            interval,
            count,
            show,
        } => {
            let mut left = *count;
            while left != Some(0) {
                show.print(&standing(&args.socket)?)?;
                left = left.map(|left| left - 1);
                if left != Some(0) {
                    thread::sleep(Duration::from_secs_f64(*interval));
                }
            }
            Ok(ExitCode::SUCCESS)
        }
        Verb::Replay { file, reaction_us } => replay(file, *reaction_us),
    }
}

fn replay(file: &Path, reaction_us: u64) -> Result<ExitCode> {
    let input = |why: String| anyhow::Error::new(Error::Input(why));
    let bytes = fs::read(file)
        .map_err(|error| input(format!("cannot read {}: {error}", file.display())))?;
    let outcome =
        Record::parse(&bytes).and_then(|record| record.replay(reaction_us.saturating_mul(1000)));
    match outcome {
        Ok(done) => {
            output::line(&format!(
                "{} records, {} decisions, none differs; longest inversion {} us; {} of {} us went to interrupts",
                done.events,
                done.decisions,
                done.longest_inversion_ns / 1000,
                done.interrupted_ns / 1000,
                done.held_ns / 1000
            ))?;
            Ok(ExitCode::SUCCESS)
        }
        Err(error @ ReplayError::NotARecord(_)) => {
            Err(input(format!("{}: {error}", file.display())))
        }
        Err(error) => {
            output::line(&format!("{}: {error}", file.display()))?;
            Ok(ExitCode::FAILURE)
        }
    }
}

impl ShowArgs {
    fn print(&self, standing: &Standing) -> Result<()> {
        let format = if self.json { Format::Json } else { self.format };
        let text = match format {
            Format::Table => standing.table(),
            Format::Json => serde_json::to_string(standing)?,
            Format::OpenMetrics => standing.open_metrics(),
        };
        output::line(text.trim_end())
    }
}

/// How the VCPUs stand; without a loader: that nothing is enforced.
fn standing(socket: &Path) -> Result<Standing> {
    if !is_attached() {
        return Ok(Standing {
            schema_version: 1,
            mechanism: "ext".into(),
            attached: false,
            at_ns: 0,
            decisions: DecisionTimes::default(),
            vcpus: Vec::new(),
        });
    }
    match service::ask(socket, &Request::Show)? {
        Reply::Standing(standing) => Ok(standing),
        other => bail!("the scheduler's loader answers another question: {other:?}"),
    }
}

impl What {
    /// The section, and the threads of its VMs.
    fn read(&self) -> Result<(Config, BTreeMap<String, Vec<u32>>)> {
        let input = |what: String| anyhow::Error::new(Error::Input(what));
        let text = fs::read_to_string(&self.config)
            .map_err(|error| input(format!("cannot read {}: {error}", self.config.display())))?;
        let config = Config::parse(&text)
            .map_err(|error| input(format!("{}: {error}", self.config.display())))?;
        if config.mechanism == Mechanism::Deadline {
            return Err(input(
                "mechanism = \"deadline\" is not `sched ext`'s; write \"ext\" or \"auto\"".into(),
            ));
        }
        let machine = Machine::real();
        let all = machine.all_threads()?;
        let mut threads: BTreeMap<String, Vec<u32>> = BTreeMap::new();
        for (name, pid) in &self.vms {
            let vm = discover::vm(&machine, &all, *pid)?;
            let tids = vm.vcpus.values().map(|thread| thread.tid);
            threads.entry(name.clone()).or_default().extend(tids);
        }
        for (name, tid) in &self.threads {
            threads.entry(name.clone()).or_default().push(*tid);
        }
        if let Some(name) = threads.keys().find(|name| !config.vm.contains_key(*name)) {
            return Err(input(format!(
                "{} has no [sched.vm.{name}]",
                self.config.display()
            )));
        }
        let count = |name: &String| threads.get(name).map_or(0, Vec::len);
        let needed = Config::utilization(config.vm.iter().map(|(name, vm)| (vm, count(name))));
        let cpus = host_cpus()?;
        if needed > f64::from(cpus) {
            let why = format!("the budgets add up to {needed:.2} CPUs, and this host has {cpus}");
            if self.strict {
                return Err(input(why));
            }
            eprintln!("steadyvm: {why}: some will get less than their budget");
        }
        Ok((config, threads))
    }
}

fn host_cpus() -> Result<u32> {
    let online = Machine::real().online()?;
    Ok(online.last().map_or(1, |last| last as u32 + 1))
}

/// Loads the scheduler and serves until it is told to end.
fn load(socket: &Path, what: &What, record: Option<&Path>) -> Result<ExitCode> {
    let (config, threads) = what.read()?;
    let scheduler = Scheduler::start(config.host(), record)?;
    let mut service = Service::new(scheduler, host_cpus()?);
    service.apply(&config, &threads)?;
    service
        .serve(socket, || {
            output::line("scheduling").map_err(|error| std::io::Error::other(error.to_string()))
        })
        .context("serve")?;
    Ok(ExitCode::SUCCESS)
}
