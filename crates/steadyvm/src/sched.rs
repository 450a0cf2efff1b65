//! `steadyvm sched`: VCPU budgets, enforced and shown.

pub mod deadline;
pub mod report;

use std::collections::BTreeMap;
use std::fs;
use std::io::{IsTerminal, stdout};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use clap::{Subcommand, ValueEnum};
use steadyvm_host::{Machine, discover, printable};
use steadyvm_sched::config::{Config, Mechanism};
use steadyvm_sched::enforcement::Enforcement;
use steadyvm_sched::exposition;
use steadyvm_sched::service::{self, Reply, Request, Service};
use steadyvm_sched::show::Standing;
use steadyvm_sched::{Error, Record, ReplayError, Scheduler, ejection, is_attached};

use self::report::Reports;
use steadyvm_cli::output;

/// Give the VCPUs of VMs a budget of CPU time in every period, and show how they stand.
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
    /// Show each VCPU's budget, its use, how often it was throttled, and its guest's missed deadlines.
    ///
    /// Where the `sched_ext` loader does not run, these are the VCPUs with a `SCHED_DEADLINE` budget. Exit code 1: no budget
    /// is enforced.
    Show(ShowArgs),
    /// Like show, refreshed every --interval seconds.
    ///
    /// "now" and "last" are the CPU time used in the current period and in the one before. "short" counts periods that did
    /// not give a VCPU its budget although it had work. "-": this mechanism does not count it. Counts begin when the VCPU
    /// gets its budget; those of `SCHED_DEADLINE` when the thread begins.
    #[command(after_help = "Examples:
  steadyvm sched top
  steadyvm sched top --once --json
  steadyvm sched top --interval 15 --format prometheus \\
      --out /var/lib/steadyvm/metrics/sched.prom")]
    Top(TopArgs),
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

#[derive(Debug, clap::Args)]
struct TopArgs {
    /// Refresh interval in seconds.
    #[arg(long, value_name = "SECONDS", default_value_t = 1.0, value_parser = seconds)]
    interval: f64,
    /// Stop after N frames; default: until interrupted.
    #[arg(long, value_name = "N")]
    count: Option<u64>,
    /// Show one frame and end.
    #[arg(long, conflicts_with = "count")]
    once: bool,
    /// Write each frame to this file instead, in one step, so that a collector never reads a part.
    ///
    /// The directory must not be writable by others when root writes.
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    #[command(flatten)]
    show: ShowArgs,
}

#[derive(Debug, clap::Args)]
struct ShowArgs {
    /// Output format.
    #[arg(long, value_enum, default_value_t = Format::Table)]
    format: Format,
    /// Print JSON, as --format json.
    #[arg(long)]
    json: bool,
    /// Also show this thread, which is not a VCPU and has a `SCHED_DEADLINE` budget.
    #[arg(long = "thread", value_name = "NAME=TID", value_parser = named)]
    threads: Vec<(String, u32)>,
    /// Directory with a file or FIFO per VM, in which its guest reports jobs and misses.
    #[arg(long, value_name = "DIRECTORY", default_value = report::DIRECTORY)]
    reports: PathBuf,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Format {
    Table,
    Json,
    /// OpenMetrics, for a collector that asks for it.
    #[value(name = "openmetrics", alias = "open-metrics")]
    OpenMetrics,
    /// Prometheus's text format, for the node exporter's textfile collector.
    Prometheus,
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
        Verb::Show(show) => {
            let standing = show.look(&args.socket, &mut Reports::at(&show.reports))?;
            output::print(&show.text(&standing)?)?;
            Ok(ExitCode::from(u8::from(!standing.attached)))
        }
        Verb::Top(top) => {
            top.run(&args.socket)?;
            Ok(ExitCode::SUCCESS)
        }
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

impl TopArgs {
    fn run(&self, socket: &Path) -> Result<()> {
        let mut reports = Reports::at(&self.show.reports);
        let mut left = if self.once { Some(1) } else { self.count };
        while left != Some(0) {
            let text = self.show.text(&self.show.look(socket, &mut reports)?)?;
            let is_screen =
                self.show.format() == Format::Table && !self.once && stdout().is_terminal();
            match &self.out {
                Some(file) => crate::top::replace(file, &text)?,
                None if is_screen => output::screen(&text)?,
                None => output::print(&text)?,
            }
            left = left.map(|left| left - 1);
            if left != Some(0) {
                thread::sleep(Duration::from_secs_f64(self.interval));
            }
        }
        Ok(())
    }
}

impl ShowArgs {
    fn format(&self) -> Format {
        if self.json { Format::Json } else { self.format }
    }

    fn text(&self, standing: &Standing) -> Result<String> {
        if self.format() == Format::Json {
            return Ok(serde_json::to_string(standing)? + "\n");
        }
        // A line is a VCPU's, whatever its VM is called.
        let mut shown = standing.clone();
        for vcpu in &mut shown.vcpus {
            vcpu.vm = printable(&vcpu.vm).into_owned();
        }
        Ok(match self.format() {
            Format::OpenMetrics => shown.metrics(exposition::Format::OpenMetrics),
            Format::Prometheus => shown.metrics(exposition::Format::Prometheus),
            Format::Table | Format::Json => shown.table(),
        })
    }

    /// How the VCPUs stand; without a loader those of `SCHED_DEADLINE`, or that nothing is enforced.
    fn look(&self, socket: &Path, reports: &mut Reports) -> Result<Standing> {
        let mut standing = if let Some(standing) = ext_standing(socket)? {
            standing
        } else {
            let machine = Machine::real();
            let candidates = deadline::candidates(&machine, &self.threads)?;
            deadline::standing(&machine, &candidates).unwrap_or_else(Standing::nothing)
        };
        for vcpu in &mut standing.vcpus {
            vcpu.guest = reports.of(&vcpu.vm);
        }
        Ok(standing)
    }
}

/// How the VCPUs of our `sched_ext` scheduler stand; none if it does not have this host's threads.
///
/// # Errors
/// Its loader does not answer.
pub fn ext_standing(socket: &Path) -> Result<Option<Standing>> {
    if !is_attached() {
        return Ok(None);
    }
    match service::ask(socket, &Request::Show)? {
        Reply::Standing(standing) => Ok(Some(standing)),
        other => bail!("the scheduler's loader answers another question: {other:?}"),
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
