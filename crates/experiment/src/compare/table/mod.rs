//! The comparison as text for a terminal, at most [`WIDTH`](steadyvm_report::text::WIDTH) columns wide.

mod ratios;

pub(crate) use ratios::{figure_words, ratio_words};

use crate::compare::results::{
    GuestResult, HostResult, LatencyResult, NetStreamResult, Phase, Results, Service, WakeUpResult,
};
use std::fmt::Write;
use steadyvm_report::text::{cut, figure, line, printable, wrapped};

/// Columns of a method's name; longer ones are cut.
const NAME_WIDTH: usize = 17;
pub(crate) const FIGURE_HEADERS: [&str; 7] = ["mean", "SD", "p50", "p90", "p99", "p99.9", "max"];

/// Everything a terminal should show: where the loads were received, figures by phase and method, traffic and CPU, ratios with
/// their intervals, notes. Ends with a newline.
pub fn render(results: &Results) -> String {
    let mut text = format!("{}\n\n", results.service.title());
    for &phase in results.service.phases() {
        let title = results.service.phase_title(phase);
        line(&mut text, &format!("NetRT round trips in µs, {title}"));
        line(&mut text, &latency_header());
        for method in &results.methods {
            line(&mut text, &latency_row(&method.name, method.latency(phase)));
        }
        line(&mut text, "");
    }
    wake_ups(&mut text, results);
    if results.service == Service::Own {
        busy(&mut text, results);
    } else {
        traffic(&mut text, results);
    }
    guests(&mut text, results);
    text += &ratios::tables(results);
    for note in &results.notes {
        line(&mut text, "");
        wrapped(&mut text, &format!("Note: {}.", printable(note)));
    }
    text
}

fn traffic(text: &mut String, results: &Results) {
    line(
        text,
        "NetStream received in Mbit/s, and the host's busy CPU time in % of all CPUs",
    );
    line(text, &traffic_header());
    for method in &results.methods {
        line(
            text,
            &traffic_row(&method.name, &method.netstream, &method.host),
        );
    }
}

/// The host's CPU time where there is no traffic of ours.
fn busy(text: &mut String, results: &Results) {
    line(text, "The host's busy CPU time in % of all CPUs");
    for method in &results.methods {
        let percent = method.host.idle_cpu_busy_fraction.map(|it| it * 100.0);
        let name = cut(&method.name, NAME_WIDTH);
        line(text, &format!("  {name} {:>10}", figure(percent)));
    }
}

/// The seven figures of a latency row, in the order of its header.
pub(crate) fn latency_figures(latency: &LatencyResult) -> [Option<f64>; 7] {
    [
        latency.mean_us,
        latency.sd_us,
        latency.p50_us,
        latency.p90_us,
        latency.p99_us,
        latency.p999_us,
        latency.max_us,
    ]
}

fn latency_header() -> String {
    let mut header = format!("  {:NAME_WIDTH$} {:>7} {:>5}", "method", "n", "lost");
    for name in FIGURE_HEADERS {
        let _ = write!(header, " {name:>8}");
    }
    header
}

fn latency_row(name: &str, latency: &LatencyResult) -> String {
    let name = cut(name, NAME_WIDTH);
    let row = format!("  {name} {:>7} {:>5}", latency.n, latency.lost);
    row + &figure_columns(latency_figures(latency))
}

/// A table for each phase in which the receive path was traced.
fn wake_ups(text: &mut String, results: &Results) {
    for phase in Phase::ALL {
        let traced = results.methods.iter();
        let traced: Vec<_> = traced
            .filter_map(|method| Some((&method.name, method.wake_up(phase)?)))
            .collect();
        if traced.is_empty() {
            continue;
        }
        let title = phase.title();
        line(
            text,
            &format!("Hard interrupt to the reader's wake-up in µs, traced, {title}"),
        );
        line(text, &latency_header());
        for (name, wake_up) in traced {
            let (name, n) = (cut(name, NAME_WIDTH), wake_up.n);
            let row = format!("  {name} {n:>7} {:>5}", "");
            line(text, &(row + &figure_columns(wake_up_figures(wake_up))));
        }
        line(text, "");
    }
}

/// The seven figures of a row, in the order of its header.
pub(crate) fn wake_up_figures(wake_up: &WakeUpResult) -> [Option<f64>; 7] {
    [
        wake_up.mean_us,
        wake_up.sd_us,
        wake_up.p50_us,
        wake_up.p90_us,
        wake_up.p99_us,
        wake_up.p999_us,
        wake_up.max_us,
    ]
}

/// Titles of [`guest_figures`].
pub(crate) const GUEST_HEADERS: [&str; 9] = [
    "net irqs", "softirqs", "timer", "injected", "exits", "io", "mmio", "halt", "other",
];
pub(crate) const GUEST_TITLE: &str = "The RT guest without NetStream: network interrupts and softirqs in all; per request, its \
     timer interrupts, KVM's injected interrupts, and exits by reason";

/// What the RT guest counted, in the order of its header: two counts, then figures a request.
pub(crate) fn guest_figures(guest: &GuestResult) -> [String; 9] {
    let reason = |name: &str| guest.exit_reasons_per_request.get(name).copied();
    let named = ["io_exits", "mmio_exits", "halt_exits"].map(|name| reason(name).unwrap_or(0.0));
    let other = guest.exits_per_request - named.iter().sum::<f64>();
    let [io, mmio, halt] = named.map(|count| format!("{count:.2}"));
    [
        guest.network_interrupts.to_string(),
        guest.network_softirqs.to_string(),
        format!("{:.2}", guest.timer_interrupts_per_request),
        format!("{:.2}", guest.injected_interrupts_per_request),
        format!("{:.2}", guest.exits_per_request),
        io,
        mmio,
        halt,
        format!("{other:.2}"),
    ]
}

fn guests(text: &mut String, results: &Results) {
    let methods = results.methods.iter();
    let counted: Vec<_> = methods
        .filter_map(|method| Some((&method.name, method.guest_idle.as_ref()?)))
        .collect();
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
    for (name, guest) in counted {
        let name = cut(name, NAME_WIDTH);
        line(text, &format!("  {name}{}", columns(guest_figures(guest))));
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

fn traffic_row(name: &str, netstream: &NetStreamResult, host: &HostResult) -> String {
    let percent = |fraction: Option<f64>| figure(fraction.map(|it| it * 100.0));
    format!(
        "  {} {:>12} {:>12} {:>10} {:>10} {:>10}",
        cut(name, NAME_WIDTH),
        figure(netstream.mbit_per_s),
        figure(netstream.equal_mbit_per_s),
        percent(host.cpu_busy_fraction),
        percent(host.equal_cpu_busy_fraction),
        percent(host.idle_cpu_busy_fraction),
    )
}
