//! The comparison as text for a terminal, at most [`WIDTH`](steadyvm_report::text::WIDTH) columns wide.

pub(crate) mod exits;
mod ratios;

pub(crate) use ratios::figure_words;
pub use ratios::ratio_words;

use super::data::Phase;
use super::published;
use super::record::{BUSY, THROUGHPUT, TRACED, service_of};
use crate::Service;
use std::fmt::Write;
use steadyvm_report::results::{At, Record};
use steadyvm_report::text::{cut, figure, line, printable, wrapped};

/// Columns of a method's name; longer ones are cut.
const NAME_WIDTH: usize = 17;
pub(super) const FIGURE_HEADERS: [&str; 7] = ["mean", "SD", "p50", "p90", "p99", "p99.9", "max"];

/// Everything a terminal should show: where the loads were received, figures by phase and method, traffic and CPU, ratios with
/// their intervals, notes. Ends with a newline.
pub fn render(record: &Record) -> String {
    let service = service_of(record);
    let mut text = format!("{}\n\n", service.title());
    for &phase in service.phases() {
        let title = service.phase_title(phase);
        line(&mut text, &format!("NetRT round trips in µs, {title}"));
        line(&mut text, &latency_header());
        for method in &record.rows {
            line(&mut text, &latency_row(record.at(method, phase.cell())));
        }
        line(&mut text, "");
    }
    wake_ups(&mut text, record);
    if service == Service::Own {
        busy(&mut text, record);
    } else {
        traffic(&mut text, record);
    }
    guests(&mut text, record);
    exits::table(&mut text, record);
    text += &ratios::tables(record);
    if let Some(grid) = published::grid(record) {
        line(&mut text, "");
        grid.write(&mut text);
        wrapped(&mut text, &format!("{}.", published::SOURCE));
    }
    for note in &record.notes {
        line(&mut text, "");
        wrapped(&mut text, &format!("Note: {}.", printable(note)));
    }
    text
}

fn traffic(text: &mut String, record: &Record) {
    line(
        text,
        "NetStream received in Mbit/s, and the host's busy CPU time in % of all CPUs",
    );
    line(text, &traffic_header());
    for method in &record.rows {
        line(text, &traffic_row(record, method));
    }
}

/// The host's CPU time where there is no traffic of ours.
fn busy(text: &mut String, record: &Record) {
    line(text, "The host's busy CPU time in % of all CPUs");
    for method in &record.rows {
        let percent = busy_percent(record, method, Phase::Idle);
        let name = cut(method, NAME_WIDTH);
        line(text, &format!("  {name} {:>10}", figure(percent)));
    }
}

/// The host's busy CPU time, per cent of all CPUs.
pub(super) fn busy_percent(record: &Record, method: &str, phase: Phase) -> Option<f64> {
    let busy = record.at(method, phase.cell()).value(BUSY);
    busy.map(|it| it * 100.0)
}

/// The seven figures of a latency row, in the order of its header; of wake-ups with their prefix.
pub(super) fn latency_figures(at: At, prefix: &str) -> [Option<f64>; 7] {
    ["mean", "sd", "p50", "p90", "p99", "p99.9", "max"]
        .map(|name| at.value(&format!("{prefix}{name}")))
}

/// Those of the round trips.
pub(super) const ROUND_TRIPS: &str = "";
/// Those of the ways from hard interrupts to wake-ups.
pub(super) const WAKE_UPS: &str = "wake_up.";

/// The methods whose receive path was traced in a phase.
pub(super) fn traced(record: &Record, phase: Phase) -> Vec<At<'_>> {
    having(record, phase, TRACED)
}

/// The methods whose RT guest was counted without NetStream.
pub(super) fn counted(record: &Record) -> Vec<At<'_>> {
    having(record, Phase::Idle, "guest.requests")
}

fn having<'r>(record: &'r Record, phase: Phase, name: &str) -> Vec<At<'r>> {
    let methods = record.rows.iter().map(|row| record.at(row, phase.cell()));
    methods.filter(|at| at.figure(name).is_some()).collect()
}

fn latency_header() -> String {
    let mut header = format!("  {:NAME_WIDTH$} {:>7} {:>5}", "method", "n", "lost");
    for name in FIGURE_HEADERS {
        let _ = write!(header, " {name:>8}");
    }
    header
}

fn latency_row(at: At) -> String {
    let name = cut(at.row, NAME_WIDTH);
    let row = format!("  {name} {:>7} {:>5}", at.count("n"), at.count("lost"));
    row + &figure_columns(latency_figures(at, ROUND_TRIPS))
}

/// A table for each phase in which the receive path was traced.
fn wake_ups(text: &mut String, record: &Record) {
    for phase in Phase::ALL {
        let traced = traced(record, phase);
        if traced.is_empty() {
            continue;
        }
        let title = phase.title();
        line(
            text,
            &format!("Hard interrupt to the reader's wake-up in µs, traced, {title}"),
        );
        line(text, &latency_header());
        for at in traced {
            let (name, n) = (cut(at.row, NAME_WIDTH), at.count(TRACED));
            let row = format!("  {name} {n:>7} {:>5}", "");
            line(
                text,
                &(row + &figure_columns(latency_figures(at, WAKE_UPS))),
            );
        }
        line(text, "");
    }
}

/// Titles of [`guest_figures`].
pub(super) const GUEST_HEADERS: [&str; 9] = [
    "net irqs", "softirqs", "timer", "injected", "exits", "io", "mmio", "halt", "other",
];
pub(super) const GUEST_TITLE: &str = "The RT guest without NetStream: network interrupts and softirqs in all; per request, its \
     timer interrupts, KVM's injected interrupts, and exits by reason";

/// What the RT guest counted, in the order of its header: two counts, then figures a request.
pub(super) fn guest_figures(at: At) -> [String; 9] {
    let value = |name: &str| at.value(&format!("guest.{name}")).unwrap_or(0.0);
    let exits = value("exits");
    let named = ["io_exits", "mmio_exits", "halt_exits"].map(|it| value(&format!("exits.{it}")));
    let other = exits - named.iter().sum::<f64>();
    let [io, mmio, halt] = named.map(|count| format!("{count:.2}"));
    [
        at.count("guest.network_interrupts").to_string(),
        at.count("guest.network_softirqs").to_string(),
        format!("{:.2}", value("timer_interrupts")),
        format!("{:.2}", value("injected_interrupts")),
        format!("{exits:.2}"),
        io,
        mmio,
        halt,
        format!("{other:.2}"),
    ]
}

fn guests(text: &mut String, record: &Record) {
    let counted = counted(record);
    if counted.is_empty() {
        return;
    }
    line(text, "");
    wrapped(text, GUEST_TITLE);
    let columns = |cells: [String; 9]| cells.map(|cell| format!(" {cell:>8}")).concat();
    let headers = GUEST_HEADERS.map(str::to_owned);
    line(
        text,
        &format!("  {:NAME_WIDTH$}{}", "method", columns(headers)),
    );
    for at in counted {
        let name = cut(at.row, NAME_WIDTH);
        line(text, &format!("  {name}{}", columns(guest_figures(at))));
    }
}

fn figure_columns(figures: [Option<f64>; 7]) -> String {
    figures
        .map(|value| format!(" {:>8}", figure(value)))
        .concat()
}

fn traffic_header() -> String {
    format!(
        "  {:NAME_WIDTH$} {:>12} {:>12} {:>10} {:>10} {:>10}",
        "method", "full speed", "equal rate", "CPU full", "CPU equal", "CPU idle"
    )
}

fn traffic_row(record: &Record, method: &str) -> String {
    let carried = |phase: Phase| figure(record.at(method, phase.cell()).value(THROUGHPUT));
    let percent = |phase| figure(busy_percent(record, method, phase));
    format!(
        "  {} {:>12} {:>12} {:>10} {:>10} {:>10}",
        cut(method, NAME_WIDTH),
        carried(Phase::Full),
        carried(Phase::Equal),
        percent(Phase::Full),
        percent(Phase::Equal),
        percent(Phase::Idle),
    )
}
