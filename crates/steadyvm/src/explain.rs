//! `steadyvm explain`: where a packet's time goes on this host.

mod terms;

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::mpsc::{Receiver, channel};
use std::thread;

use anyhow::Result;
use serde::Serialize;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use steadyvm_analysis::plan::ServiceReport;
use steadyvm_host::HostError;
use steadyvm_site::explain::{self, Comparison, MOST_SECONDS, Recorded, Wish};
use steadyvm_trace::receive_path::{Findings, Rank, Report, analyse, render, render_worst};

use steadyvm_cli::output;

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
        .map(|file| explain::planned(file, args.service.as_deref(), args.from.is_none()));
    let service = service.transpose()?;
    let recorded = match &args.from {
        Some(file) => Recorded::load(file)?,
        None => measured(args, service.as_ref())?,
    };
    let findings = analyse(&recorded.recording, &recorded.setup);
    let report = report(args, &recorded, &findings);
    let comparison = service.map(|service| {
        let legs = explain::legs(&findings, &recorded.setup, &service)?;
        Ok::<_, HostError>(explain::compare(&service, &legs))
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

/// Records this host.
fn measured(args: &Args, service: Option<&ServiceReport>) -> Result<Recorded> {
    let wish = Wish {
        device: args.device.clone(),
        port: args.port,
        seconds: args.seconds,
        packets: args.packets,
        buffer_mib: args.buffer_mib,
    };
    let begun = || eprintln!("recording for at most {} s", wish.seconds());
    let recorded = explain::record(&wish, service, &stop_signals()?, begun)?;
    if let Some(file) = &args.record {
        recorded.save(file)?;
    }
    Ok(recorded)
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
