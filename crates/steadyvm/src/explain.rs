//! `steadyvm explain`: where a packet's time goes on this host.

mod recorded;
mod terms;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use serde::Serialize;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use steadyvm_analysis::plan::{self, ServiceReport};
use steadyvm_host::discover::{self, Processes};
use steadyvm_host::{HostError, Machine, Thread, printable};
use steadyvm_trace::receive_path::{
    Findings, Legs, Rank, Report, Setup, VmThreads, Wanted, analyse, render, render_worst,
};
use steadyvm_trace::{Name, Recorder, socket, softirq_lock_offset};

use recorded::Recorded;
use steadyvm_cli::output;
use terms::Comparison;

/// Say where a packet's time goes on this host, by the kernel's own tracepoints.
///
/// --receive-path follows every real-time packet from the hard interrupt of its network card to
/// the wake-up of the thread that reads it (the service, or the vhost worker that carries it into a
/// VM), and says what the CPU did in between:
///
///   own        the card's own interrupt, thread and poll: the necessary work
///   poll X     packets of another device X, or of the backlog, went first
///   softirq X  other softirq work (timers, RCU) went first
///   interrupt  another hard interrupt
///   thread X   the CPU ran X: at a higher priority, or because it owned a lock
///   idle       on the way out of the idle state
///
/// "(own thread)" marks other work that the kernel does in the card's own interrupt thread; no priority helps there. The
/// report also has the time that this thread was blocked on a lock (above all the softirq lock of `PREEMPT_RT`), the owner
/// of the lock, and the slowest packets as timelines. Means and percentiles are over all packets, with 0 for those that a
/// cause did not touch, so means add up to the total.
///
/// --worst N shows the N slowest packets. Each is followed from its hard interrupt through the vhost worker and the VCPU
/// into the guest, until the guest sends, and back out to the card's driver. The page shows how long each woken thread
/// waited for a CPU, and which thread ran there instead. Inside the guest the host sees only when the VCPU runs and when it
/// notifies its card.
///
/// --plan FILE shows each term of a service's bound beside its measured n, median, 99th percentile and maximum, or the
/// reason why the host cannot measure it. Exit code 1: a term took longer than planned, or no packet was followed into the
/// service's VM.
///
/// --record FILE keeps the events; --from FILE explains them later, without root, on any machine.
///
/// Needs root and Linux 6.3. Recording costs about as much as perf does, and its own figures
/// include it. Nothing is changed on the host, and nothing is left when it ends, however it ends.
/// Ctrl-C ends the recording early and prints what there is.
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
#[command(after_help = "Examples:
  steadyvm explain --receive-path --device eth1
  steadyvm explain --worst 5 --device eth1 --seconds 30
  steadyvm explain --plan steadyvm.toml --service netrt --device eth1
  steadyvm explain --receive-path --port 7700 --seconds 30 --json")]
pub struct Args {
    /// Measure from hard interrupts to wake-ups, with all causes.
    #[arg(long, required_unless_present_any = ["worst", "plan", "record"])]
    receive_path: bool,
    /// The packets that this network interface receives.
    #[arg(long, value_name = "DEV", required_unless_present_any = ["port", "from"])]
    device: Option<String>,
    /// The packets that wake the process that listens on this UDP or TCP port (in this network
    /// namespace), whatever interface they come from.
    #[arg(long, value_name = "N", conflicts_with = "device", value_parser = clap::value_parser!(u16).range(1..))]
    port: Option<u16>,
    /// How long to record; 10 if left out, and 600 with --packets. Events are kept in memory until
    /// then: some MB/s for a busy CPU.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=MOST_SECONDS))]
    seconds: Option<u64>,
    /// End when about this many packets were seen.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    packets: Option<u64>,
    /// How many of the slowest packets to show; 3 if left out. Without --receive-path only these are shown, and
    /// they are the slowest of the whole way, the guest's part included.
    #[arg(long, value_name = "K")]
    worst: Option<usize>,
    /// Memory for each CPU's events until they are fetched, several times a second.
    #[arg(long, value_name = "MIB", default_value_t = 8, value_parser = clap::value_parser!(u64).range(1..=1024))]
    buffer_mib: u64,
    /// Print JSON, with every packet's time.
    #[arg(long)]
    json: bool,
    /// Compare the terms of a service's bound in this plan file with what is measured.
    #[arg(long, value_name = "FILE")]
    plan: Option<PathBuf>,
    /// Which service of the plan; needless if it has one.
    #[arg(long, value_name = "NAME", requires = "plan")]
    service: Option<String>,
    /// Also keep the recording in this file.
    #[arg(long, value_name = "FILE", conflicts_with = "from")]
    record: Option<PathBuf>,
    /// Explain this recording instead of a new one.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["device", "port", "seconds", "packets", "buffer_mib"])]
    from: Option<PathBuf>,
}

const DEFAULT_WORST: usize = 3;
const DEFAULT_SECONDS: u64 = 10;
const MOST_SECONDS: u64 = 600;

/// How often the buffers are emptied while the host is measured.
const FETCH_INTERVAL: Duration = Duration::from_millis(200);

/// What `--json` prints.
#[derive(Serialize)]
struct Answer<'a> {
    #[serde(flatten)]
    report: &'a Report,
    /// With `--plan`.
    #[serde(skip_serializing_if = "Option::is_none")]
    plan: Option<&'a Comparison>,
}

/// Runs the verb.
pub fn run(args: &Args) -> Result<ExitCode> {
    let service = args
        .plan
        .as_deref()
        .map(|file| planned(file, args.service.as_deref()));
    let service = service.transpose()?;
    let recorded = match &args.from {
        Some(file) => Recorded::load(file)?,
        None => measured(args, service.as_ref())?,
    };
    let findings = analyse(&recorded.recording, &recorded.setup);
    let report = report(args, &recorded, &findings);
    let comparison = service.map(|service| {
        let legs = legs(&findings, &recorded.setup, &service)?;
        Ok::<_, HostError>(terms::compare(&service, &legs))
    });
    let comparison = comparison.transpose()?;
    if args.json {
        let plan = comparison.as_ref();
        output::json(&Answer {
            report: &report,
            plan,
        })?;
    } else {
        output::print(&words(args, &report, comparison.as_ref()))?;
    }
    if report.total.n == 0 {
        eprintln!(
            "steadyvm: no such packet reached a reader; does traffic flow, and is the interface \
             the physical one?"
        );
    }
    let within = comparison.is_none_or(|comparison| comparison.within);
    Ok(ExitCode::from(u8::from(!within)))
}

fn words(args: &Args, report: &Report, comparison: Option<&Comparison>) -> String {
    let path = if args.receive_path {
        render(report)
    } else if args.worst.is_some() {
        render_worst(report)
    } else {
        String::new()
    };
    let Some(comparison) = comparison else {
        return path;
    };
    let gap = if path.is_empty() { "" } else { "\n" };
    path + gap + &terms::render(comparison)
}

/// The service of a plan file.
fn planned(file: &Path, name: Option<&str>) -> Result<ServiceReport> {
    let bad = |error: &anyhow::Error| HostError::BadInput {
        what: format!("{}: {error:#}", file.display()),
        fix: "try it with `steadyvm plan`".into(),
    };
    let read = || -> Result<ServiceReport> {
        let text = fs::read_to_string(file).context("cannot be read")?;
        let plan = plan::run(&crate::plan::request(file, &text)?)?;
        terms::service(&plan, name).cloned()
    };
    read().map_err(|error| bad(&error).into())
}

/// What was measured of the service's VM.
fn legs(findings: &Findings, setup: &Setup, service: &ServiceReport) -> Result<Legs, HostError> {
    Legs::of(findings, setup, &service.vm).ok_or_else(|| {
        let known: Vec<&str> = setup.vms.iter().map(|vm| vm.name.as_str()).collect();
        HostError::BadInput {
            what: format!(
                "service \"{}\" is in VM \"{}\", and no such VM runs here (running: {})",
                service.name,
                service.vm,
                if known.is_empty() {
                    "none".to_owned()
                } else {
                    known.join(", ")
                }
            ),
            fix: "start it, or give it the plan's name".into(),
        }
    })
}

/// Records this host.
fn measured(args: &Args, service: Option<&ServiceReport>) -> Result<Recorded> {
    let setup = setup(args)?;
    if let Some(service) = service {
        // Said before anything is recorded.
        legs(&Findings::default(), &setup, service)?;
    }
    let cpus: Vec<usize> = Machine::real().online()?.iter().collect();
    let buffer_bytes = (args.buffer_mib << 20) as usize;
    let mut recorder = Recorder::open(&cpus, buffer_bytes, args.device.as_deref())?;
    let stop = stop_signals()?;
    recorder.start()?;
    let begun = Instant::now();
    record(args, &setup.wanted, &mut recorder, &stop);
    recorder.stop()?;
    let duration_s = begun.elapsed().as_secs_f64();
    let packets = match (&args.device, args.port) {
        (None, Some(port)) => format!("port {port}"),
        (device, _) => format!("device {}", device.as_deref().unwrap_or_default()),
    };
    let recording = Recorded::new(packets, duration_s, setup, recorder.finish());
    if let Some(file) = &args.record {
        recording.save(file)?;
    }
    Ok(recording)
}

/// Empties the buffers until the time is over, enough packets were seen, or a signal comes.
fn record(args: &Args, wanted: &Wanted, recorder: &mut Recorder, stop: &Receiver<()>) {
    let limit = args.packets.map(|_| MOST_SECONDS);
    let seconds = args.seconds.or(limit).unwrap_or(DEFAULT_SECONDS);
    eprintln!("recording for at most {seconds} s");
    let end = Instant::now() + Duration::from_secs(seconds);
    let mut seen = 0;
    loop {
        let left = end.saturating_duration_since(Instant::now());
        let told = stop.recv_timeout(left.min(FETCH_INTERVAL));
        recorder.drain();
        // Events are decoded while the host is measured only if somebody has to count them.
        let enough = args.packets.is_some_and(|packets| {
            let latest = recorder.latest();
            seen += latest.filter(|event| wanted.is_seen_in(event)).count() as u64;
            seen >= packets
        });
        if enough || left.is_zero() || told != Err(RecvTimeoutError::Timeout) {
            return;
        }
    }
}

/// Tells of the first signal that asks this process to end.
fn stop_signals() -> Result<Receiver<()>> {
    let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP])?;
    let (told, stop) = channel();
    thread::spawn(move || {
        if signals.forever().next().is_some() {
            let _ = told.send(());
        }
    });
    Ok(stop)
}

fn setup(args: &Args) -> Result<Setup> {
    let machine = Machine::real();
    let threads = machine.all_threads()?;
    let devices = match &args.device {
        Some(device) => vec![device.clone()],
        None => machine.tree.list("/sys/class/net").unwrap_or_default(),
    };
    let mut interrupts = BTreeMap::new();
    for device in &devices {
        let nic = discover::nic(&machine, &threads, device)?;
        let name = Name::from(device.as_str());
        interrupts.extend(nic.irqs.keys().map(|irq| (*irq, name)));
    }
    if interrupts.is_empty() {
        let which = args.device.as_deref().unwrap_or("any interface");
        return Err(HostError::BadInput {
            what: format!("{which} has no interrupt in /proc/interrupts"),
            fix: "name the physical interface, not the bridge or tap, and bring it up first".into(),
        }
        .into());
    }
    let wanted = match (&args.device, args.port) {
        (None, Some(port)) => Wanted::Threads(socket::threads_on_port(port)?),
        (device, _) => Wanted::Device(device.as_deref().unwrap_or_default().into()),
    };
    Ok(Setup {
        interrupts,
        wanted,
        softirq_lock_offset: softirq_lock_offset(),
        vms: vms(&machine, &threads),
    })
}

/// The VMs that packets are followed into.
fn vms(machine: &Machine, threads: &[Thread]) -> Vec<VmThreads> {
    let all = discover::all_vms(machine, &Processes::of(threads)).into_iter();
    all.map(|(name, vm)| VmThreads {
        name: printable(&name).into_owned(),
        carriers: vm.vhost_workers.iter().map(|thread| thread.tid).collect(),
        vcpus: vm
            .vcpus
            .iter()
            .map(|(number, thread)| (thread.tid, *number))
            .collect(),
    })
    .collect()
}

fn report(args: &Args, recorded: &Recorded, findings: &Findings) -> Report {
    let worst = args.worst.unwrap_or(DEFAULT_WORST);
    let rank = if args.receive_path {
        Rank::WakeUp
    } else {
        Rank::Whole
    };
    let packets = recorded.packets.clone();
    Report {
        lost_events: recorded.recording.lost,
        missing: recorded.recording.missing.clone(),
        ..Report::new(packets, recorded.duration_s, findings, worst, rank)
    }
}
