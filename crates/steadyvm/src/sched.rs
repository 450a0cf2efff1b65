//! `steadyvm sched`: VCPU budgets, enforced and shown.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::Subcommand;
use steadyvm_host::{Machine, discover};
use steadyvm_sched::config::{Config, Mechanism};
use steadyvm_sched::enforcement::Enforcement;
use steadyvm_sched::service::{self, Request, Service};
use steadyvm_sched::{Error, Record, ReplayError, Scheduler, ejection};

use crate::arguments::named;
use crate::gone;
use steadyvm_cli::output;

/// Load the scheduler of VCPU budgets by hand, and replay its records. `steadyvm apply` does the former by itself.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    verb: Verb,
    /// Control socket of the `sched_ext` loader.
    #[arg(long, global = true, value_name = "PATH", default_value = service::SOCKET)]
    socket: PathBuf,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Load and control the `sched_ext` scheduler.
    #[command(subcommand)]
    Ext(Ext),
    /// Is a frame of `steadyvm top --budgets` now.
    #[command(hide = true)]
    Show(gone::Args),
    /// Is `steadyvm top --budgets` now.
    #[command(hide = true)]
    Top(gone::Args),
    /// Replay a record on the policy; the first difference ends it with exit code 1.
    Replay {
        /// The record that `steadyvm sched ext run --record` wrote.
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
        /// Record the scheduler's events in this file, for `steadyvm sched replay`.
        #[arg(long, value_name = "FILE")]
        record: Option<PathBuf>,
    },
    /// Replace the budgets of a running loader.
    Apply(What),
    /// Load the scheduler for `steadyvm apply`, which then says who has a budget.
    #[command(hide = true)]
    Serve,
    /// End a running loader.
    Stop,
}

#[derive(Debug, clap::Args)]
struct What {
    /// The file with [host] and the VMs' budgets.
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

/// Runs the verb.
pub fn run(args: &Args) -> Result<ExitCode> {
    match &args.verb {
        Verb::Ext(Ext::Run { what, record }) => {
            let (config, threads) = what.read()?;
            load(
                &args.socket,
                &config.enforcement(&threads),
                record.as_deref(),
            )
        }
        Verb::Ext(Ext::Serve) => serve(&args.socket),
        Verb::Ext(Ext::Apply(what)) => {
            let (config, threads) = what.read()?;
            service::ask(&args.socket, &Request::Apply { config, threads })?;
            Ok(ExitCode::SUCCESS)
        }
        Verb::Ext(Ext::Stop) => {
            service::end(&args.socket)?;
            Ok(ExitCode::SUCCESS)
        }
        Verb::Show(_) => gone::run("sched", "show"),
        Verb::Top(_) => gone::run("sched", "top"),
        Verb::Replay { file, reaction_us } => replay(file, *reaction_us),
    }
}

/// Of the server that differs, up to where it does.
const RECORDS_SHOWN: usize = 12;

fn replay(file: &Path, reaction_us: u64) -> Result<ExitCode> {
    let input = |why: String| anyhow::Error::new(Error::Input(why));
    let bytes = fs::read(file)
        .map_err(|error| input(format!("cannot read {}: {error}", file.display())))?;
    let record = Record::parse(&bytes);
    let replayed = record
        .as_ref()
        .map_err(Clone::clone)
        .and_then(|record| record.replay(reaction_us.saturating_mul(1000)));
    match replayed {
        Ok(done) => {
            output::line(&format!(
                "{} records, {} decisions ({} on the budget of a VCPU without work), {} CPUs held without work, none differs; \
                 longest inversion {} us; {} of {} us went to interrupts and decisions, {} us were charged",
                done.events,
                done.decisions,
                done.lent,
                done.holds,
                done.longest_inversion_ns / 1000,
                done.interrupted_ns / 1000,
                done.held_ns / 1000,
                done.charged_ns / 1000
            ))?;
            Ok(ExitCode::SUCCESS)
        }
        Err(error @ (ReplayError::NotARecord(_) | ReplayError::Lost(_))) => {
            Err(input(format!("{}: {error}", file.display())))
        }
        Err(error) => {
            output::line(&format!("{}: {error}", file.display()))?;
            if let (Ok(record), ReplayError::Difference { index, server, .. }) = (&record, &error) {
                for event in record.before(*index, *server, RECORDS_SHOWN) {
                    output::line(&format!("  {event}"))?;
                }
            }
            Ok(ExitCode::FAILURE)
        }
    }
}

impl What {
    /// What the file asks for, and the threads of its VMs.
    fn read(&self) -> Result<(Config, BTreeMap<String, Vec<u32>>)> {
        let input = |what: String| anyhow::Error::new(Error::Input(what));
        let text = fs::read_to_string(&self.config)
            .map_err(|error| input(format!("cannot read {}: {error}", self.config.display())))?;
        let config = Config::parse(&self.config.display().to_string(), &text)?;
        let other = match config.mechanism {
            Mechanism::Auto | Mechanism::Ext => None,
            Mechanism::Deadline => Some("deadline"),
            Mechanism::None => Some("none"),
        };
        if let Some(word) = other {
            return Err(input(format!(
                "enforce = \"{word}\" is not `sched ext`'s; write \"ext\" or \"auto\""
            )));
        }
        let machine = Machine::real();
        let all = if self.vms.is_empty() {
            Vec::new()
        } else {
            machine.all_threads()?
        };
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
                "{} has no [[vm]] \"{name}\" with a budget and a period",
                self.config.display()
            )));
        }
        let online: Vec<u32> = machine.online()?.iter().map(|cpu| cpu as u32).collect();
        config
            .check_cpus(&online)
            .map_err(|error| input(format!("{}: {error}", self.config.display())))?;
        let count = |name: &str| threads.get(name).map_or(0, Vec::len);
        if let Some(why) = config.beyond(&online, count) {
            if self.strict {
                return Err(input(format!("{}: {why}", self.config.display())));
            }
            eprintln!(
                "steadyvm: {why}: some will get less than their budget, and threads without one may get no CPU; the kernel \
                 ends a sched_ext scheduler that keeps a thread waiting for 30 s"
            );
        }
        Ok((config, threads))
    }
}

/// CPUs that may come, too: their numbers are below this.
fn host_cpus() -> Result<u32> {
    let path = "/sys/devices/system/cpu/possible";
    let text = fs::read_to_string(path).with_context(|| format!("cannot read {path}"))?;
    let last = text.trim().rsplit(['-', ',']).next();
    let last: u32 = last
        .unwrap_or_default()
        .parse()
        .with_context(|| format!("{path} has no list: {text}"))?;
    Ok(last + 1)
}

/// As a loader that `steadyvm apply` has started.
fn serve(socket: &Path) -> Result<ExitCode> {
    stay_in_memory();
    let ended = load(socket, &Enforcement::default(), None);
    if let Err(error) = &ended
        && let Some(Error::Ejected { reason }) = error.downcast_ref()
    {
        ejection::note(socket, reason).context("note why the kernel has ended the scheduler")?;
    }
    ended
}

/// The thread that ends budgets neither waits for a page nor is ended for want of memory. What is refused is told in the log.
fn stay_in_memory() {
    use nix::sys::mman::{MlockAllFlags, mlockall};
    if let Err(error) = mlockall(MlockAllFlags::MCL_CURRENT | MlockAllFlags::MCL_FUTURE) {
        eprintln!("steadyvm: cannot lock the loader's memory: {error}");
    }
    if let Err(error) = fs::write("/proc/self/oom_score_adj", "-900") {
        eprintln!("steadyvm: cannot keep the loader from being ended for want of memory: {error}");
    }
}

/// Loads the scheduler and serves until it is told to end.
fn load(socket: &Path, wanted: &Enforcement, record: Option<&Path>) -> Result<ExitCode> {
    let scheduler = Scheduler::start(wanted.host(), record)?;
    let mut service = Service::new(scheduler, host_cpus()?);
    service.enforce(wanted)?;
    service
        .serve(socket, || {
            output::line("scheduling").map_err(|error| std::io::Error::other(error.to_string()))
        })
        .context("serve")?;
    Ok(ExitCode::SUCCESS)
}
