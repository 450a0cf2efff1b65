//! `steadyvm doctor`: what this machine can and cannot promise.

use std::fmt::Write;
use std::io::{IsTerminal, stdout};
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;
use serde::Serialize;
use steadyvm_calibration::store::{Found, State, Word};
use steadyvm_host::doctor::{self, Check, Report, Status};
use steadyvm_host::{DEFAULT_STATE_DIRECTORY, Machine, PacketWay, Way, printable};
use steadyvm_site::attacks::Exposed;
use steadyvm_site::{Control, DEFAULT_FILE, Source, calibration, status};

use steadyvm_cli::output;

/// Say what this machine can and cannot promise, and why. Warns, never refuses.
///
/// Of each VM that /etc/steadyvm.toml names, or that a method is in force for, it says which way its packets take: by a function
/// of a shared card, by a card of its own, or behind everybody's, and what is left to do. It names attacks against which
/// a setting is missing.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// Runs the verb. Whatever it finds, it ends with 0.
pub fn run(args: &Args) -> Result<ExitCode> {
    let report = doctor::examine(&Machine::real());
    let (packet_ways, exposed) = of_vms();
    let calibration = calibration::of_this_host();
    if args.json {
        output::json(&Examined {
            report: &report,
            packet_ways: &packet_ways,
            exposed: &exposed,
            calibration: Calibration {
                state: calibration.word(),
                note: note(&calibration),
            },
        })?;
    } else {
        let colour = stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none();
        // What is found has no control characters: `doctor::examine` sees to it.
        output::styled(&render(
            &report,
            (&packet_ways, &exposed),
            &calibration,
            colour,
        ))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// What JSON has.
#[derive(Serialize)]
struct Examined<'a> {
    #[serde(flatten)]
    report: &'a Report,
    packet_ways: &'a [PacketWay],
    exposed: &'a [Exposed],
    calibration: Calibration,
}

/// Whether plans of this host count what its own work costs.
#[derive(Serialize)]
struct Calibration {
    state: Word,
    /// What to know of it.
    note: String,
}

/// The calibration in words: nothing is wrong with a host that has none.
fn note(found: &Found) -> String {
    let said = match &found.state {
        State::Missing => {
            "nothing was measured here, so bounds of plans count only the costs that steadyvm.toml \
                           names; run `steadyvm calibrate`"
                .to_owned()
        }
        State::Valid(it) => format!("measured {}", steadyvm_calibration::date(it.unix_s)),
        State::Stale(..) | State::Unusable(_) => found.refused().unwrap_or_default(),
    };
    printable(&said).into_owned()
}

/// Of the VMs that are known, the ways of their packets and the attacks that they do not withstand; none where there is no file,
/// or it cannot be read: `status` says why.
fn of_vms() -> (Vec<PacketWay>, Vec<Exposed>) {
    let control = Control {
        directory: DEFAULT_STATE_DIRECTORY.into(),
        patience: Duration::ZERO,
    };
    let source = Source::of(Path::new(DEFAULT_FILE));
    let looked = status::look(&source, false, &control);
    looked.map_or_else(
        |_| (Vec::new(), Vec::new()),
        |(status, _)| (status.in_force.packet_ways, status.exposed),
    )
}

/// Lines are wrapped at this column.
const WIDTH: usize = 100;
/// Where the details of a check begin.
const INDENT: usize = 10;

fn render(
    report: &Report,
    (packet_ways, exposed): (&[PacketWay], &[Exposed]),
    calibration: &Found,
    colour: bool,
) -> String {
    let mut text = format!("steadyvm doctor: kernel {}\n", report.kernel);
    let column = report
        .checks
        .iter()
        .map(|check| check.title.len())
        .max()
        .unwrap_or(0);
    let mut group = "";
    for check in &report.checks {
        if check.group != group {
            group = &check.group;
            let _ = write!(text, "\n{group}\n");
        }
        render_check(&mut text, check, column, colour);
    }
    render_ways(&mut text, packet_ways, column, colour);
    render_attacks(&mut text, exposed, column, colour);
    text.push_str("\nplans\n");
    let status = match calibration.word() {
        Word::Valid => label(Status::Ok, colour),
        Word::Missing | Word::Stale | Word::Unusable => format!("{:<6}", "note"),
    };
    let _ = write!(text, "  {status}  {:column$}  ", "calibration");
    let indent = INDENT + column.max("calibration".len()) + 2;
    wrap(&mut text, &note(calibration), indent);
    text.push_str("\nmethods\n");
    for verdict in &report.methods {
        let status = if verdict.possible {
            Status::Ok
        } else {
            Status::Bad
        };
        let word = if verdict.possible { "can" } else { "cannot" };
        let reasons = verdict.reasons.join("; ");
        let separator = if verdict.possible { ", " } else { ": " };
        let found = if reasons.is_empty() {
            "be held".into()
        } else {
            format!("be held{separator}{reasons}")
        };
        let indent = INDENT + column + 2;
        let start = format!(
            "  {}  {:column$}  ",
            label(status, colour),
            verdict.method.name()
        );
        let _ = write!(text, "{start}");
        wrap(&mut text, &format!("{word} {found}"), indent);
    }
    let count = |status| {
        report
            .checks
            .iter()
            .filter(|check| check.status == status)
            .count()
    };
    let _ = writeln!(
        text,
        "\n{} ok, {} warnings, {} bad, {} unknown",
        count(Status::Ok),
        count(Status::Warn),
        count(Status::Bad),
        count(Status::Unknown)
    );
    text
}

fn render_ways(text: &mut String, packet_ways: &[PacketWay], column: usize, colour: bool) {
    let running = packet_ways.iter().filter(|it| it.way != Way::NotRunning);
    for (place, packets) in running.enumerate() {
        if place == 0 {
            text.push_str("\npackets\n");
        }
        let status = if packets.waits_behind_others() {
            Status::Warn
        } else {
            Status::Ok
        };
        let title = format!("VM {}", printable(&packets.vm));
        let _ = write!(text, "  {}  {title:column$}  ", label(status, colour));
        wrap(
            text,
            &packets.sentence(),
            INDENT + column.max(title.chars().count()) + 2,
        );
    }
}

fn render_attacks(text: &mut String, exposed: &[Exposed], column: usize, colour: bool) {
    for (place, it) in exposed.iter().enumerate() {
        if place == 0 {
            text.push_str("\nattacks\n");
        }
        let title = format!("VM {}", printable(&it.vm));
        let _ = write!(text, "  {}  {title:column$}  ", label(Status::Warn, colour));
        let indent = INDENT + column.max(title.chars().count()) + 2;
        let attacks = it.attacks.join(", ");
        wrap(
            text,
            &format!("{attacks}: {}; {}", it.why, it.to_do),
            indent,
        );
    }
}

fn render_check(text: &mut String, check: &Check, column: usize, colour: bool) {
    let _ = write!(
        text,
        "  {}  {:column$}  ",
        label(check.status, colour),
        check.title
    );
    wrap(text, &check.found, INDENT + column + 2);
    if check.status == Status::Ok {
        return;
    }
    for (name, what) in [("why", &check.why), ("do", &check.fix)] {
        if !what.is_empty() {
            let _ = write!(text, "{:INDENT$}{name:>3}: ", "");
            wrap(text, what, INDENT + 5);
        }
    }
}

/// The status in six columns.
fn label(status: Status, colour: bool) -> String {
    let (word, code) = match status {
        Status::Ok => ("ok", "32"),
        Status::Warn => ("warn", "33"),
        Status::Bad => ("bad", "31"),
        Status::Unknown => ("?", "36"),
    };
    if colour {
        format!("\x1b[{code}m{word:<6}\x1b[0m")
    } else {
        format!("{word:<6}")
    }
}

/// Writes words from the current column on, and further lines from `indent` on.
fn wrap(text: &mut String, words: &str, indent: usize) {
    let mut used = indent;
    for (place, word) in words.split_whitespace().enumerate() {
        let length = word.chars().count();
        if place > 0 && used + 1 + length > WIDTH {
            let _ = write!(text, "\n{:indent$}{word}", "");
            used = indent + length;
        } else {
            let space = usize::from(place > 0);
            let _ = write!(text, "{:space$}{word}", "");
            used += space + length;
        }
    }
    text.push('\n');
}

#[cfg(test)]
mod tests {
    use steadyvm_host::Method;
    use steadyvm_host::doctor::Verdict;

    use super::*;

    fn report() -> Report {
        let check = |status, title: &str| Check {
            id: title.into(),
            group: "kernel".into(),
            title: title.into(),
            status,
            found: "found it in /proc ".repeat(12),
            why: "it matters".into(),
            fix: "do something".into(),
        };
        Report {
            schema_version: 1,
            kernel: "6.12".into(),
            checks: vec![check(Status::Ok, "one"), check(Status::Warn, "longer")],
            methods: vec![Verdict {
                method: Method::Dedicated,
                possible: false,
                reasons: vec!["one CPU".into()],
            }],
        }
    }

    fn ways() -> [PacketWay; 2] {
        let way = |vm: &str, way| PacketWay {
            vm: vm.into(),
            way,
            why: "eth0 has no virtual functions".into(),
            to_do: "give it a card of its own".into(),
        };
        let cards = vec!["eth0".to_owned()];
        [
            way("web", Way::SharedRing { cards }),
            way("off", Way::NotRunning),
        ]
    }

    fn calibration() -> Found {
        Found {
            file: "calibration.toml".into(),
            state: State::Missing,
        }
    }

    #[test]
    fn text_is_grouped_wrapped_and_plain() {
        let exposed = Exposed {
            vm: "web".into(),
            attacks: &["udp-small", "arp"],
            why: "a flood".into(),
            to_do: "name the card".into(),
        };
        let text = render(&report(), (&ways(), &[exposed]), &calibration(), false);
        assert!(text.lines().all(|line| line.len() <= WIDTH), "{text}");
        assert!(!text.contains('\x1b'));
        assert!(text.contains("\nkernel\n") && text.contains("why: it matters"));
        assert_eq!(
            text.matches("why:").count(),
            1,
            "only what is not ok is explained"
        );
        assert!(
            text.contains("dedicated  cannot be held: one CPU"),
            "{text}"
        );
        let packets = "\npackets\n  warn    VM web  by the shared ring of eth0: eth0 has no virtual functions; give it a";
        assert!(text.contains(packets) && !text.contains("VM off"), "{text}");
        let attacks = "\nattacks\n  warn    VM web  udp-small, arp: a flood; name the card\n";
        assert!(text.contains(attacks), "{text}");
        // No fault: it is not counted.
        let note = "\nplans\n  note    calibration  nothing was measured here";
        assert!(text.contains(note), "{text}");
        assert!(text.ends_with("1 ok, 1 warnings, 0 bad, 0 unknown\n"));
    }

    #[test]
    fn colour_is_used_when_asked() {
        assert!(render(&report(), (&[], &[]), &calibration(), true).contains("\x1b[33mwarn"));
    }
}
