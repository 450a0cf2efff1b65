//! `steadyvm status`: what is planned, what is in force, what has drifted.

mod in_force;

use std::fmt::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use steadyvm_analysis::plan::ReceiveReport;
use steadyvm_host::{CardPackets, ReceiveWork, Received, State, Way, printable};
use steadyvm_site::checks::Checks;
use steadyvm_site::status::{self, Running, Status};
use steadyvm_site::{ago, now_unix_s};

use crate::arguments::{ControlArgs, FileArgs, print_json};
use crate::snapshot;
use steadyvm_cli::output;

/// Show what a steadyvm.toml plans, what of it is in force, and what has drifted.
///
/// Drift is a setting that steadyvm made and that no longer holds, or one that the file wants and that is not made yet,
/// for example for a VM that has started since. `watch` restores drifted settings at once. A drifted setting that it
/// cannot restore is listed with the time since which it has been wrong. A VM, a card or a file that cannot be served is
/// listed with the reason. Exit code 1: something has drifted or is not in force, or the kernel has ended the scheduler
/// of VCPU budgets. If the file itself is wrong, status still shows what is in force and ends with the code of the error.
///
/// Unless FILE is named, what is in force is shown alone where there is no file, or where `apply --method` has put a method
/// in force: each setting, with its value of before.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    file: FileArgs,
    /// Print all scheduling state of this host that steadyvm can change, as JSON.
    #[arg(long, conflicts_with_all = ["file", "strict", "vms"])]
    snapshot: bool,
    /// Print what differs from an earlier snapshot instead; exit with 1 if anything does.
    #[arg(long, value_name = "FILE", requires = "snapshot")]
    compare: Option<PathBuf>,
    #[command(flatten)]
    control: ControlArgs,
}

/// Runs the verb.
pub fn run(args: &Args) -> Result<ExitCode> {
    let control = args.control.control();
    if args.snapshot {
        return snapshot::run(&control.open(), args.compare.as_deref());
    }
    let (status, error) = status::look(&args.file.source(), args.file.is_named(), &control)?;
    if args.control.json {
        print_json(&status)?;
    } else {
        output::print(&render(&status))?;
    }
    match error {
        Some(error) => Err(error.into()),
        None if status.is_in_force() => Ok(ExitCode::SUCCESS),
        None => Ok(ExitCode::from(1)),
    }
}

fn render(status: &Status) -> String {
    let mut text = String::new();
    // Writing to a String cannot fail.
    let _ = write(status, &mut text);
    text
}

fn write(status: &Status, text: &mut String) -> std::fmt::Result {
    let in_force = &status.in_force;
    let count = in_force.settings.len();
    let state = match in_force.state {
        State::None => "nothing is in force: run `steadyvm apply`".to_owned(),
        State::Applied if status.file.is_some() => format!("{} settings hold", status.holding),
        State::Applied => format!("{} of {count} settings hold", status.holding),
        State::Incomplete => "an apply or undo was interrupted: run `steadyvm undo`".to_owned(),
        State::BeforeReboot => {
            "nothing is in force since the reboot: run `steadyvm apply`".to_owned()
        }
    };
    match (&status.file, in_force.method) {
        (Some(file), _) => writeln!(text, "{file}: {state}")?,
        (None, Some(method)) if status.is_of_method => writeln!(text, "method {method}: {state}")?,
        (None, _) => writeln!(text, "{state}")?,
    }
    if status.file.is_none() {
        in_force::write_settings(in_force, text)?;
    }
    in_force::write_rest(in_force, text)?;
    if let Some(why) = &status.kept_off {
        writeln!(text, "watches and hooks keep off: {why}")?;
    }
    for (name, vcpus) in &status.vms {
        let budgets: Vec<String> = vcpus
            .iter()
            .map(|vcpu| {
                format!(
                    "{} of {}",
                    milliseconds(vcpu.budget),
                    milliseconds(vcpu.period)
                )
            })
            .collect();
        writeln!(text, "VM {name}: planned {}", budgets.join(", "))?;
    }
    for (name, servers) in &status.vms_receive {
        let budgets: Vec<String> = servers.iter().map(receive_budget).collect();
        writeln!(text, "VM {name}: receive planned {}", budgets.join(", "))?;
    }
    for (name, running) in &status.running {
        write_running(running, name, text)?;
    }
    for packets in &in_force.packet_ways {
        if packets.way != Way::NotRunning {
            writeln!(text, "packets of VM {}: {}", packets.vm, packets.sentence())?;
        }
    }
    for work in &status.receive_work {
        writeln!(text, "{}", receive_line(work))?;
    }
    write_services(status, text)?;
    let now_unix_s = now_unix_s();
    for drifted in &status.drifted {
        let setting = &drifted.setting;
        let now = setting.now.as_deref().unwrap_or("gone");
        writeln!(
            text,
            "drifted: {}: {} expected, now {now}; {}",
            setting.subject,
            setting.new,
            seen_since(drifted.drifted_since_unix_s, now_unix_s)
        )?;
    }
    for step in &status.missing {
        writeln!(text, "missing: {step}")?;
    }
    let oldest = status.missing_since_unix_s.values().flatten().min();
    if let Some(oldest) = oldest {
        let ago = ago(*oldest, now_unix_s);
        writeln!(text, "missing, as a watch saw first {ago}")?;
    }
    if let Some(last) = status.mended.last() {
        let ago = ago(last.held_again_unix_s, now_unix_s);
        let count = status.mended.len();
        writeln!(
            text,
            "a watch has set {count} settings, the last {ago}: {}",
            last.subject
        )?;
    }
    for fault in &status.not_served {
        writeln!(text, "{}", fault.sentence())?;
    }
    for subject in &status.unwanted {
        writeln!(text, "no longer wanted: {subject}")?;
    }
    for warning in &in_force.warnings {
        writeln!(text, "warning: {warning}")?;
    }
    Ok(())
}

/// The planned bounds, and what was measured of them.
fn write_services(status: &Status, text: &mut String) -> std::fmt::Result {
    for service in &status.services {
        let bound = service.bound.map_or("none".to_owned(), milliseconds);
        let limit = service.limit.map_or(String::new(), |limit| {
            format!(", limit {}", milliseconds(limit))
        });
        writeln!(
            text,
            "service {} in {}: bound {bound}{limit}",
            service.name, service.vm
        )?;
    }
    for measured in &status.measured {
        let found = measured.round_trips.sentence(&measured.bound);
        let when = ago(measured.unix_s, now_unix_s());
        writeln!(
            text,
            "service {}, measured {when}: {found}",
            measured.bound.service
        )?;
    }
    status
        .checks
        .as_ref()
        .map_or(Ok(()), |checks| write_checks(checks, text))
}

/// How near requests came to the bounds, as a watch has seen it.
fn write_checks(checks: &Checks, text: &mut String) -> std::fmt::Result {
    let now_unix_s = now_unix_s();
    if let Some(why) = &checks.why_not {
        writeln!(text, "bounds are not checked: {why}")?;
    }
    let when = ago(checks.unix_s, now_unix_s);
    for checked in &checks.vms {
        writeln!(text, "{}, {when}", printable(&checked.sentence()))?;
    }
    if let Some(last) = checks.broken.last() {
        let when = ago(last.unix_s, now_unix_s);
        writeln!(text, "{when}: {}", printable(&last.sentence()))?;
    }
    Ok(())
}

fn write_running(running: &Running, name: &str, text: &mut String) -> std::fmt::Result {
    let Some(process) = running.process else {
        return writeln!(text, "VM {name}: does not run");
    };
    if running.in_force.is_empty() {
        return writeln!(
            text,
            "VM {name} (process {process}): nothing of its own in force"
        );
    }
    writeln!(text, "VM {name} (process {process}): in force")?;
    for one in &running.in_force {
        writeln!(text, "  {}: {}: {}", one.what, one.subject, one.value)?;
    }
    Ok(())
}

/// CPU time of a VM's receive work, by what its threads do.
fn receive_line(work: &ReceiveWork) -> String {
    let seconds = |ns: u64| format!("{:.3} s", ns as f64 / 1e9);
    let kinds = work.by_kind();
    let parts = kinds
        .iter()
        .map(|(kind, ns)| format!("{} {}", kind.word(), seconds(*ns)));
    let mut parts: Vec<String> = parts.collect();
    if parts.is_empty() {
        parts.push("no thread of its own".to_owned());
    }
    let total = seconds(work.cpu_ns);
    let mut text = format!(
        "receive work of VM {}: {total} of CPU time since its threads began ({})",
        work.vm,
        parts.join(", ")
    );
    if let Some(CardPackets { card, received }) = &work.card_packets {
        let Received {
            packets, discarded, ..
        } = received;
        let _ = write!(
            text,
            "; {packets} packets by {card}, {discarded} of them over its budget and dropped"
        );
    }
    if !work.shared_cards.is_empty() {
        let cards = work.shared_cards.join(", ");
        let _ = write!(text, "; without polls of {cards}, which others share");
    }
    printable(&text).into_owned()
}

fn seen_since(since_unix_s: Option<u64>, now_unix_s: u64) -> String {
    since_unix_s.map_or_else(
        || "since when is not known: no watch saw it".to_owned(),
        |since| format!("a watch saw it first {}", ago(since, now_unix_s)),
    )
}

fn receive_budget(server: &ReceiveReport) -> String {
    format!(
        "{} of {} ({})",
        milliseconds(server.budget),
        milliseconds(server.period),
        server.work.words()
    )
}

/// A time of the analysis, nanoseconds, for people.
fn milliseconds(time: steadyvm_analysis::time::Time) -> String {
    format!("{} ms", time as f64 / 1e6)
}
