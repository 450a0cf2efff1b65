//! Each method's figures over those of every one before it, with their intervals.

use super::data::{MethodData, Phase, RunData};
use super::record::{BUSY, THROUGHPUT};
use crate::Service;
use steadyvm_load::netstream::NetStreamRun;
use steadyvm_report::Figures;
use steadyvm_stats::bootstrap::{
    BootstrapOptions, Draws, FEWEST_BEYOND, Ratio, draw_latency, draw_rates, ratio,
};

/// The figures of [`draw_latency`], in its order.
const LATENCY_FIGURES: [&str; 5] = ["mean", "sd", "p50", "p99", "p99.9"];

/// The draws of all of one method's figures.
struct MethodDraws {
    latency: [Draws<5>; 3],
    /// `None` where they were not traced.
    wake_ups: [Option<Draws<5>>; 3],
    rates: Vec<(Phase, &'static str, Draws<1>)>,
}

/// Adds all of them, of so many rounds, and notes what has none.
pub(super) fn add(
    figures: &mut Figures,
    data: &RunData,
    rounds: usize,
    options: BootstrapOptions,
    notes: &mut Vec<String>,
) {
    if data.methods.len() < 2 || rounds == 0 {
        return;
    }
    let methods = (0..).zip(&data.methods);
    let draws: Vec<MethodDraws> = methods
        .map(|(index, method)| draw_method(method, rounds, options, index * 16))
        .collect();
    let mut missing = Vec::new();
    for (of_index, of) in draws.iter().enumerate() {
        for (to_index, to) in draws.iter().enumerate().take(of_index) {
            let names = (&*data.methods[of_index].name, &*data.methods[to_index].name);
            missing.push((names, add_pair(names, data.service, of, to, figures)));
        }
    }
    note_missing(&missing, notes);
}

/// The methods of a ratio, and the figures that have none.
type Missing<'a> = ((&'a str, &'a str), Vec<String>);

/// One note for the figures that no pair has (p99.9 of a short run), one for each pair with more.
fn note_missing(missing: &[Missing], notes: &mut Vec<String>) {
    const WHY: &str = "not measured, zero, or (percentiles) too few samples beyond it";
    let Some((_, of_first)) = missing.first() else {
        return;
    };
    let everywhere: Vec<&String> = of_first
        .iter()
        .filter(|figure| missing.iter().all(|(_, figures)| figures.contains(figure)))
        .collect();
    let mut note = |whose: &str, figures: Vec<&str>| {
        if !figures.is_empty() {
            let figures = figures.join(", ");
            notes.push(format!(
                "no ratio{whose} of {figures}: {WHY} ({FEWEST_BEYOND} are needed)"
            ));
        }
    };
    note(
        "",
        everywhere.iter().map(|figure| figure.as_str()).collect(),
    );
    for ((of, to), figures) in missing {
        let others = figures.iter().filter(|figure| !everywhere.contains(figure));
        note(
            &format!(" {of} / {to}"),
            others.map(String::as_str).collect(),
        );
    }
}

fn draw_method(
    method: &MethodData,
    rounds: usize,
    options: BootstrapOptions,
    stream: u64,
) -> MethodDraws {
    let latency = |phase: Phase, stream| {
        let round_trips = method.round_trips_ns(phase);
        let slices: Vec<&[u64]> = round_trips.iter().take(rounds).map(Vec::as_slice).collect();
        draw_latency(&slices, options, stream)
    };
    let wake_ups = |phase: Phase, stream| {
        let rounds = &method.wake_ups_ns(phase)[..rounds];
        let is_traced = rounds.iter().any(|round| !round.is_empty());
        is_traced.then(|| draw_latency(rounds, options, stream))
    };
    let rates = |values: Vec<Vec<f64>>, stream| {
        let slices: Vec<&[f64]> = values.iter().take(rounds).map(Vec::as_slice).collect();
        draw_rates(&slices, options, stream)
    };
    let streamed = |phase, stream| {
        let values = method.streams(phase).into_iter().map(rates_of_seconds);
        (phase, THROUGHPUT, rates(values.collect(), stream))
    };
    let busy = |phase, stream| {
        let values = method.rounds.iter();
        let values = values.map(|round| vec![round.phase(phase).host_cpu_busy_fraction]);
        (phase, BUSY, rates(values.collect(), stream))
    };
    let [full, equal, idle] = Phase::ALL;
    MethodDraws {
        latency: [
            latency(full, stream + 1),
            latency(equal, stream + 2),
            latency(idle, stream + 3),
        ],
        wake_ups: [
            wake_ups(full, stream + 9),
            wake_ups(equal, stream + 10),
            wake_ups(idle, stream + 11),
        ],
        rates: vec![
            streamed(full, stream + 4),
            streamed(equal, stream + 5),
            busy(full, stream + 6),
            busy(equal, stream + 7),
            busy(idle, stream + 8),
        ],
    }
}

/// The sender's rates, scaled so that their mean is what was received; one value if there are no
/// rates.
fn rates_of_seconds(run: Option<&NetStreamRun>) -> Vec<f64> {
    let Some(run) = run else { return Vec::new() };
    match finite_mean(run.intervals.iter().map(|interval| interval.mbit_per_s)) {
        Some(sent) if sent > 0.0 => {
            let scale = run.mbit_per_s / sent;
            run.intervals
                .iter()
                .map(|interval| interval.mbit_per_s * scale)
                .collect()
        }
        _ => vec![run.mbit_per_s],
    }
}

/// Adds the ratios of two methods; gives the figures without one.
fn add_pair(
    (of_name, to_name): (&str, &str),
    service: Service,
    of: &MethodDraws,
    to: &MethodDraws,
    figures: &mut Figures,
) -> Vec<String> {
    let mut missing = Vec::new();
    let mut add = |phase: Phase, name: &str, found: Option<Ratio>| {
        figures.at(of_name, phase.cell());
        figures.ratio(name, (to_name, phase.cell()), found);
        if found.is_none() {
            missing.push(path(phase, name));
        }
    };
    let is_measured = |phase: &Phase| service.phases().contains(phase);
    for (phase, (of, to)) in Phase::ALL.iter().zip(of.latency.iter().zip(&to.latency)) {
        if !is_measured(phase) {
            continue;
        }
        for (index, name) in LATENCY_FIGURES.iter().enumerate() {
            add(*phase, name, ratio(of, to, index));
        }
    }
    for (phase, (of, to)) in Phase::ALL.iter().zip(of.wake_ups.iter().zip(&to.wake_ups)) {
        let (Some(of), Some(to)) = (of, to) else {
            continue;
        };
        for (index, name) in LATENCY_FIGURES.iter().enumerate() {
            add(*phase, &format!("wake_up.{name}"), ratio(of, to, index));
        }
    }
    for ((phase, name, of), (_, _, to)) in of.rates.iter().zip(&to.rates) {
        if is_measured(phase) {
            add(*phase, name, ratio(of, to, 0));
        }
    }
    missing
}

/// What a figure is called in the notes.
fn path(phase: Phase, name: &str) -> String {
    let before = match phase {
        Phase::Full => "",
        Phase::Equal => "equal_",
        Phase::Idle => "idle_",
    };
    match name {
        THROUGHPUT => format!("netstream.{before}mbit_per_s"),
        BUSY => format!("host.{before}cpu_busy_fraction"),
        name => {
            let (key, name) = match name.strip_prefix("wake_up.") {
                Some(name) => (phase.wake_up_key(), name),
                None => (phase.key(), name),
            };
            format!("{key}.{}_us", name.replace("p99.9", "p999"))
        }
    }
}

/// The mean of the finite values; `None` if there are none.
pub(super) fn finite_mean(values: impl Iterator<Item = f64>) -> Option<f64> {
    let finite: Vec<f64> = values.filter(|value| value.is_finite()).collect();
    (!finite.is_empty()).then(|| finite.iter().sum::<f64>() / finite.len() as f64)
}
