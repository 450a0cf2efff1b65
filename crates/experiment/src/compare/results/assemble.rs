//! From samples to results. Pure.

use super::data::{MethodData, Phase, RunData, Service};
use super::document::{
    BootstrapResult, DistributionPoint, HostResult, LatencyResult, LatencyRound, MethodResult,
    NetStreamResult, RatioResult, Results, WakeUpResult,
};
use super::guest::guest_result;
use steadyvm_load::netrt::Counters;
use steadyvm_load::netstream::NetStreamRun;
use steadyvm_stats::bootstrap::{
    BootstrapOptions, CONFIDENCE, Draws, FEWEST_BEYOND, Ratio, draw_latency, draw_rates, ratio,
};
use steadyvm_stats::{HistogramError, Summary, hgrm};

/// How to assemble.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct AssembleOptions {
    /// How to make the intervals.
    pub bootstrap: BootstrapOptions,
}

/// The figures of [`draw_latency`], as results.json names them, in its order.
const LATENCY_FIGURES: [&str; 5] = ["mean_us", "sd_us", "p50_us", "p99_us", "p999_us"];

/// The host's CPU time without `NetStream`.
const IDLE_BUSY: &str = "host.idle_cpu_busy_fraction";

/// All figures and ratios of a run.
///
/// Figures are of all samples; ratios are of the rounds that every method has, and of each method
/// to every one before it. What could not be computed is said in the notes. A few seconds for
/// three methods of 2,000 samples a phase in a debug build, well under one in a release build.
pub fn assemble(data: &RunData, options: AssembleOptions) -> Results {
    let mut notes = Vec::new();
    let paired_rounds = data
        .methods
        .iter()
        .map(|it| it.rounds.len())
        .min()
        .unwrap_or(0);
    for method in &data.methods {
        if method.rounds.len() > paired_rounds {
            notes.push(format!(
                "{} has {} rounds, ratios use the {paired_rounds} that every method has",
                method.name,
                method.rounds.len()
            ));
        }
    }
    if paired_rounds == 1 && data.methods.len() > 1 {
        notes.push(
            "one round only: intervals cover the variation within it, not between rounds".into(),
        );
    }
    let ratios = all_ratios(data, paired_rounds, options.bootstrap, &mut notes);
    Results {
        service: data.service,
        methods: data.methods.iter().map(method_result).collect(),
        ratios,
        bootstrap: BootstrapResult {
            confidence: CONFIDENCE,
            replicates: options.bootstrap.effective_replicates() as u64,
            seed: options.bootstrap.seed,
            paired_rounds: paired_rounds as u64,
        },
        notes,
    }
}

/// One method's round trips of a phase, as .hgrm text.
///
/// # Errors
/// A round trip that a histogram cannot hold (146 years).
pub fn hgrm_of_method(method: &MethodData, phase: Phase) -> Result<String, HistogramError> {
    hgrm(&method.round_trips_ns(phase).concat())
}

fn method_result(method: &MethodData) -> MethodResult {
    let mean_busy = |phase| {
        mean(
            method
                .rounds
                .iter()
                .map(|round| round.phase(phase).host_cpu_busy_fraction),
        )
    };
    MethodResult {
        name: method.name.clone(),
        netrt: latency_result(method, Phase::Full),
        netrt_equal: latency_result(method, Phase::Equal),
        netrt_idle: latency_result(method, Phase::Idle),
        wake_up: wake_up_result(method, Phase::Full),
        wake_up_equal: wake_up_result(method, Phase::Equal),
        wake_up_idle: wake_up_result(method, Phase::Idle),
        netstream: netstream_result(method),
        host: HostResult {
            cpu_busy_fraction: mean_busy(Phase::Full),
            equal_cpu_busy_fraction: mean_busy(Phase::Equal),
            idle_cpu_busy_fraction: mean_busy(Phase::Idle),
        },
        guest: guest_result(method, Phase::Full),
        guest_equal: guest_result(method, Phase::Equal),
        guest_idle: guest_result(method, Phase::Idle),
    }
}

fn latency_result(method: &MethodData, phase: Phase) -> LatencyResult {
    let mut sorted = method.round_trips_ns(phase).concat();
    sorted.sort_unstable();
    let summary = Summary::of_sorted(&sorted);
    let figure = |of: fn(&Summary) -> u64| summary.as_ref().map(|it| microseconds(of(it) as f64));
    let count = |of: fn(&Counters) -> u64| {
        method
            .rounds
            .iter()
            .map(|it| of(&it.phase(phase).netrt.counters))
            .sum::<u64>()
    };
    LatencyResult {
        n: sorted.len() as u64,
        lost: count(|it| it.lost),
        mean_us: summary.map(|it| microseconds(it.mean_ns)),
        sd_us: summary.and_then(|it| it.sd_ns).map(microseconds),
        min_us: figure(|it| it.min_ns),
        p50_us: figure(|it| it.p50_ns),
        p90_us: figure(|it| it.p90_ns),
        p99_us: figure(|it| it.p99_ns),
        p999_us: figure(|it| it.p999_ns),
        max_us: figure(|it| it.max_ns),
        late: count(|it| it.late),
        undecided: count(|it| it.undecided),
        reordered: count(|it| it.reordered),
        duplicates: count(|it| it.duplicates),
        malformed: count(|it| it.malformed),
        timed_by_kernel: count(|it| it.timed_by_kernel),
        timed_by_monotonic: count(|it| it.timed_by_monotonic),
        sent_over_1_ms_late: count(|it| it.sent_over_1_ms_late),
        rounds: method
            .rounds
            .iter()
            .map(|round| latency_round(&round.phase(phase).netrt))
            .collect(),
        distribution: distribution(&sorted),
    }
}

fn wake_up_result(method: &MethodData, phase: Phase) -> Option<WakeUpResult> {
    let summary = Summary::of(&method.wake_ups_ns(phase).concat())?;
    let figure = |ns: u64| Some(microseconds(ns as f64));
    Some(WakeUpResult {
        n: summary.n,
        mean_us: Some(microseconds(summary.mean_ns)),
        sd_us: summary.sd_ns.map(microseconds),
        p50_us: figure(summary.p50_ns),
        p90_us: figure(summary.p90_ns),
        p99_us: figure(summary.p99_ns),
        p999_us: figure(summary.p999_ns),
        max_us: figure(summary.max_ns),
    })
}

fn latency_round(run: &steadyvm_load::netrt::ClientRun) -> LatencyRound {
    let round_trips: Vec<u64> = run.samples.iter().map(|sample| sample.rtt_ns).collect();
    let summary = Summary::of(&round_trips);
    LatencyRound {
        n: round_trips.len() as u64,
        lost: run.counters.lost,
        mean_us: summary.map(|it| microseconds(it.mean_ns)),
        sd_us: summary.and_then(|it| it.sd_ns).map(microseconds),
        p50_us: summary.map(|it| microseconds(it.p50_ns as f64)),
        p99_us: summary.map(|it| microseconds(it.p99_ns as f64)),
        max_us: summary.map(|it| microseconds(it.max_ns as f64)),
        duration_s: run.duration_ns as f64 / 1e9,
    }
}

/// Every percent, then ever finer steps towards the maximum, until single samples are reached.
fn distribution(sorted: &[u64]) -> Vec<DistributionPoint> {
    const STEPS_PER_DECADE: i32 = 20;
    let n = sorted.len();
    let percents = (0..=90).map(|percent| f64::from(percent) / 100.0);
    let tail = (STEPS_PER_DECADE + 1..)
        .map(|step| 1.0 - 10_f64.powf(-f64::from(step) / f64::from(STEPS_PER_DECADE)))
        .take_while(|fraction| (1.0 - fraction) * n as f64 > 0.5);
    let mut points: Vec<DistributionPoint> = Vec::new();
    let mut last_rank = 0;
    for fraction in percents.chain(tail).chain([1.0]) {
        let rank = ((fraction * n as f64).ceil() as usize).max(1);
        let Some(&sample_ns) = sorted.get(rank - 1) else {
            continue;
        };
        // A few samples have fewer ranks than there are steps.
        if rank > last_rank || fraction >= 1.0 {
            let fraction = if rank == n { 1.0 } else { fraction };
            points.push(DistributionPoint {
                fraction,
                us: microseconds(sample_ns as f64),
            });
        }
        last_rank = rank;
    }
    points.dedup_by(|later, earlier| later.fraction <= earlier.fraction);
    points
}

fn netstream_result(method: &MethodData) -> NetStreamResult {
    let streams = |phase| netstreams(method, phase).into_iter().flatten();
    let rates = |phase| streams(phase).map(|it| it.mbit_per_s).collect::<Vec<_>>();
    let (full, equal) = (rates(Phase::Full), rates(Phase::Equal));
    NetStreamResult {
        mbit_per_s: mean(full.iter().copied()),
        equal_mbit_per_s: mean(equal.iter().copied()),
        retransmits: if full.is_empty() {
            None
        } else {
            streams(Phase::Full).map(|it| it.retransmits).sum()
        },
        rounds_mbit_per_s: full,
        rounds_equal_mbit_per_s: equal,
    }
}

fn netstreams(method: &MethodData, phase: Phase) -> Vec<Option<&NetStreamRun>> {
    method
        .rounds
        .iter()
        .map(|round| round.phase(phase).netstream.as_ref())
        .collect()
}

/// The draws of all of one method's figures.
struct MethodDraws {
    latency: [Draws<5>; 3],
    /// `None` where they were not traced.
    wake_ups: [Option<Draws<5>>; 3],
    rates: Vec<(&'static str, Draws<1>)>,
}

fn all_ratios(
    data: &RunData,
    rounds: usize,
    options: BootstrapOptions,
    notes: &mut Vec<String>,
) -> Vec<RatioResult> {
    if data.methods.len() < 2 || rounds == 0 {
        return Vec::new();
    }
    let draws: Vec<MethodDraws> = data
        .methods
        .iter()
        .enumerate()
        .map(|(index, method)| draw_method(method, rounds, options, index as u64 * 16))
        .collect();
    let (mut ratios, mut missing) = (Vec::new(), Vec::new());
    for (of_index, of) in draws.iter().enumerate() {
        for (to_index, to) in draws.iter().enumerate().take(of_index) {
            let names = (&*data.methods[of_index].name, &*data.methods[to_index].name);
            missing.push((names, add_ratios(names, data.service, of, to, &mut ratios)));
        }
    }
    note_missing(&missing, notes);
    ratios
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
    let streamed = |phase| {
        netstreams(method, phase)
            .into_iter()
            .map(rates_of_seconds)
            .collect()
    };
    let busy = |phase| {
        method
            .rounds
            .iter()
            .map(|round| vec![round.phase(phase).host_cpu_busy_fraction])
            .collect()
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
            ("netstream.mbit_per_s", rates(streamed(full), stream + 4)),
            (
                "netstream.equal_mbit_per_s",
                rates(streamed(equal), stream + 5),
            ),
            ("host.cpu_busy_fraction", rates(busy(full), stream + 6)),
            (
                "host.equal_cpu_busy_fraction",
                rates(busy(equal), stream + 7),
            ),
            (IDLE_BUSY, rates(busy(idle), stream + 8)),
        ],
    }
}

/// The sender's rates, scaled so that their mean is what was received; one value if there are no
/// rates.
fn rates_of_seconds(run: Option<&NetStreamRun>) -> Vec<f64> {
    let Some(run) = run else { return Vec::new() };
    match mean(run.intervals.iter().map(|interval| interval.mbit_per_s)) {
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

fn add_ratios(
    (of_name, to_name): (&str, &str),
    service: Service,
    of: &MethodDraws,
    to: &MethodDraws,
    ratios: &mut Vec<RatioResult>,
) -> Vec<String> {
    let mut missing = Vec::new();
    let mut add = |figure: String, found: Option<Ratio>| match found {
        None => missing.push(figure),
        Some(found) => ratios.push(RatioResult {
            of: of_name.to_owned(),
            to: to_name.to_owned(),
            figure,
            median: found.median,
            low: found.low,
            high: found.high,
            estimate: Some(found.estimate),
            rounds: found.rounds as u64,
        }),
    };
    let is_measured = |phase: &Phase| service.phases().contains(phase);
    for (phase, (of, to)) in Phase::ALL.iter().zip(of.latency.iter().zip(&to.latency)) {
        if !is_measured(phase) {
            continue;
        }
        for (index, name) in LATENCY_FIGURES.iter().enumerate() {
            add(format!("{}.{name}", phase.key()), ratio(of, to, index));
        }
    }
    for (phase, (of, to)) in Phase::ALL.iter().zip(of.wake_ups.iter().zip(&to.wake_ups)) {
        let (Some(of), Some(to)) = (of, to) else {
            continue;
        };
        for (index, name) in LATENCY_FIGURES.iter().enumerate() {
            add(
                format!("{}.{name}", phase.wake_up_key()),
                ratio(of, to, index),
            );
        }
    }
    for ((name, of), (_, to)) in of.rates.iter().zip(&to.rates) {
        if service == Service::Own && *name != IDLE_BUSY {
            continue;
        }
        add((*name).to_owned(), ratio(of, to, 0));
    }
    missing
}

/// The mean of the finite values; `None` if there are none.
fn mean(values: impl Iterator<Item = f64>) -> Option<f64> {
    let finite: Vec<f64> = values.filter(|value| value.is_finite()).collect();
    (!finite.is_empty()).then(|| finite.iter().sum::<f64>() / finite.len() as f64)
}

fn microseconds(ns: f64) -> f64 {
    ns / 1_000.0
}
