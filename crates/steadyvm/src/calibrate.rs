//! `steadyvm calibrate`: what this host's own work costs, for its plans.

use std::fmt::Write as _;
use std::io::{stdin, stdout};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use serde::Serialize;
use steadyvm_calibration::measure::{self, MOST_SECONDS, Partner};
use steadyvm_calibration::store::Found;
use steadyvm_calibration::{Calibration, Cost, Here, SCHEMA_VERSION, date, store};
use steadyvm_host::{DEFAULT_STATE_DIRECTORY, HostControl, HostError, Machine, PacketAccount};
use steadyvm_site::peers::{self, Role};

use steadyvm_cli::output;

use crate::this_program;

/// Long beside a tick, by which the kernel counts.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// Measure what this host's own work costs, for its plans
///
/// It measures switches, cold caches, moves between CPUs, wake-ups, timers and interruptions, and writes them into a file that
/// plan and apply read. It needs root, and neither a VM nor a CPU that is set aside.
///
/// It sets nothing but the rank and the CPUs of its own threads. Those that compute have the lowest real-time rank and sleep half
/// of the time, so VMs and services run on. The figures have the interference of all that runs meanwhile: VMs are
/// counted and told. Measure under the load that plans are to hold for.
///
/// The figures count for 90 days, on the same kernel and CPU. While steadyvm measure runs, calibrate is refused with exit
/// code 3: it would be measured.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The file to write
    #[arg(long, value_name = "FILE", default_value = store::DEFAULT_FILE)]
    out: PathBuf,
    /// A VM that gets packets meanwhile: what receiving one costs is measured, too
    ///
    /// The VM has a way of its own (nic). CPU time of the threads that receive for it is divided by the packets that its guest got,
    /// ten times per second, for as long again as --seconds. Send it what it is to receive later. Without this option the figure that
    /// was measured last is kept, for 90 days.
    #[arg(long, value_name = "VM")]
    receive: Option<String>,
    /// Print the figures as JSON
    #[arg(long)]
    json: bool,
    /// For how long to measure, about; more finds rarer interruptions
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=MOST_SECONDS))]
    seconds: u64,
    /// Send back what is sent: the other side of a switch
    #[arg(long, hide = true, exclusive = true)]
    echo: bool,
}

/// What JSON has.
#[derive(Serialize)]
struct Answer<'a> {
    schema_version: u32,
    file: &'a Path,
    date: String,
    #[serde(flatten)]
    calibration: &'a Calibration,
    notes: &'a [String],
}

/// Runs the verb.
pub fn run(args: &Args) -> Result<ExitCode> {
    if args.echo {
        measure::echo(stdin().lock(), stdout().lock()).context("cannot send back what was sent")?;
        return Ok(ExitCode::SUCCESS);
    }
    refuse_under_a_measurement(Path::new(DEFAULT_STATE_DIRECTORY))?;
    let account = args.receive.as_deref().map(account).transpose()?;
    let partner = Partner {
        program: this_program(),
        arguments: vec!["calibrate".into(), "--echo".into()],
    };
    output::say(&format!("measuring for about {} s", args.seconds));
    let now = steadyvm_site::now_unix_s();
    let measured = measure::measure(&Machine::real(), &partner, args.seconds, now)?;
    let measure::Measured {
        mut calibration,
        mut notes,
    } = measured;
    if let Some(account) = account {
        output::say("counting what packets cost");
        calibration.packet = packet(&account, Duration::from_secs(args.seconds));
        if calibration.packet.is_none() {
            notes.push("packet: the VM got hardly any".to_owned());
        }
    }
    let earlier = Found::here(&args.out, &Here::of(&Machine::real()), now);
    let kept = earlier.valid().and_then(|it| calibration.keep_packet(it));
    store::write(&args.out, &calibration)?;
    if let Some(unix_s) = kept {
        output::say(&format!(
            "steadyvm: the cost of a packet is that of {}; --receive VM measures it again",
            date(unix_s)
        ));
    }
    for note in &notes {
        output::say(&format!("steadyvm: not measured: {note}"));
    }
    if args.json {
        output::json(&Answer {
            schema_version: SCHEMA_VERSION,
            file: &args.out,
            date: date(calibration.unix_s),
            calibration: &calibration,
            notes: &notes,
        })?;
    } else {
        output::print(&render(&calibration, &args.out))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// The account of a VM's packets.
fn account(vm: &str) -> Result<PacketAccount, HostError> {
    let machine = Machine::real();
    let control = HostControl::new(machine.clone(), Path::new(DEFAULT_STATE_DIRECTORY));
    let status = control.show()?;
    PacketAccount::of(&machine, vm, status.profile.as_ref(), &status.packet_ways)
}

/// What receiving a packet costs; none if too few came.
fn packet(account: &PacketAccount, time: Duration) -> Option<Cost> {
    let machine = Machine::real();
    let until = Instant::now() + time;
    let mut costs = Vec::new();
    let mut before = account.look(&machine);
    while Instant::now() < until {
        thread::sleep(LOOK_EVERY);
        let now = account.look(&machine);
        if let (Some(now), Some(before)) = (&now, &before) {
            costs.extend(now.cost_since_ns(before));
        }
        before = now;
    }
    Cost::of(&costs)
}

/// The figures of a `measure` that runs would have ours in them.
fn refuse_under_a_measurement(directory: &Path) -> Result<(), HostError> {
    if !peers::is_held(directory, Role::Measure) {
        return Ok(());
    }
    let measure = peers::holder(directory, Role::Measure);
    let process = measure.map_or_else(String::new, |held| format!(" ({held})"));
    Err(HostError::KeptOff {
        why: format!("`steadyvm measure` runs{process}, and would measure what calibrate does"),
        fix: "wait for its end".into(),
    })
}

fn render(calibration: &Calibration, file: &Path) -> String {
    let mut text = format!(
        "kernel {}, {}\n\n{:<36}{:>9}{:>11}{:>11}{:>11}\n",
        calibration.kernel, calibration.cpu, "\u{b5}s", "samples", "median", "p99", "max"
    );
    for (name, cost) in calibration.costs() {
        let Some(cost) = cost else { continue };
        let times = [cost.median_ns, cost.p99_ns, cost.max_ns]
            .map(|ns| format!("{:>11.1}", ns as f64 / 1e3));
        let _ = writeln!(
            text,
            "{:<36}{:>9}{}",
            words(name, calibration.working_set_kib),
            cost.samples,
            times.concat()
        );
    }
    text.push('\n');
    if calibration.vms > 0 {
        let vms = match calibration.vms {
            1 => "1 VM runs".to_owned(),
            vms => format!("{vms} VMs run"),
        };
        let _ = writeln!(
            text,
            "{vms} on this host, and the figures include what they do."
        );
    }
    let _ = writeln!(
        text,
        "{} is written: `plan` and `apply` read it",
        file.display()
    );
    text
}

fn words(name: &str, working_set_kib: Option<u64>) -> String {
    match (name, working_set_kib) {
        ("context_switch", _) => "switch, with the wake-up".to_owned(),
        ("cache_reload", Some(kib)) => format!("cold caches, {kib} KiB"),
        ("cache_reload", None) => "cold caches".to_owned(),
        ("migration", _) => "move to another CPU".to_owned(),
        ("wake_up", _) => "wake-up of a sleeping thread".to_owned(),
        ("timer", _) => "timer to the thread it wakes".to_owned(),
        ("interruption", _) => "longest interruption in 10 ms".to_owned(),
        ("packet", _) => "receiving a packet for a VM".to_owned(),
        (other, _) => other.to_owned(),
    }
}
