//! From samples to figures: a row per method, a cell per phase. Pure.

use super::data::{MethodData, Phase, RoundData, RunData};
use super::ratios::{self, finite_mean};
use super::record::{BOOTSTRAP, BUSY, Intervals, NAME, ROUND_TRIP, SERVICE, THROUGHPUT, TRACED};
use crate::{ExitCost, GuestCounts};
use std::collections::BTreeMap;
use steadyvm_load::netrt::{ClientRun, Counters};
use steadyvm_report::Figures;
use steadyvm_report::results::{Curve, Record, Version};
use steadyvm_stats::bootstrap::{BootstrapOptions, CONFIDENCE};
use steadyvm_stats::{HistogramError, Summary, hgrm};

/// All figures and ratios of a run.
///
/// Figures are of all samples; ratios are of the rounds that every method has, and of each method
/// to every one before it. What could not be computed is said in the notes. A few seconds for
/// three methods of 2,000 samples a phase in a debug build, well under one in a release build.
pub fn assemble(data: &RunData, options: BootstrapOptions) -> Record {
    let rounds = || data.methods.iter().map(|it| it.rounds.len());
    let paired = rounds().min().unwrap_or(0);
    let mut notes = Vec::new();
    for method in data.methods.iter().filter(|it| it.rounds.len() > paired) {
        notes.push(format!(
            "{} has {} rounds, ratios use the {paired} that every method has",
            method.name,
            method.rounds.len()
        ));
    }
    if paired == 1 && data.methods.len() > 1 {
        notes.push(
            "one round only: intervals cover the variation within it, not between rounds".into(),
        );
    }
    let (mut figures, mut curves) = (Figures::default(), Vec::new());
    for method in &data.methods {
        for phase in Phase::ALL {
            figures.at(&method.name, phase.cell());
            add_round_trips(&mut figures, method, phase);
            add_wake_ups(&mut figures, method, phase);
            add_guest(&mut figures, method, phase);
            add_exit_costs(&mut figures, method, phase);
            add_stream(&mut figures, method, phase);
            let busy = |round: &RoundData| round.phase(phase).host_cpu_busy_fraction;
            let busy = finite_mean(method.rounds.iter().map(busy));
            figures.value(BUSY, "fraction", method.rounds.len() as u64, busy);
            curves.push(Curve {
                row: method.name.clone(),
                cell: phase.cell().to_owned(),
                name: ROUND_TRIP.to_owned(),
                unit: "us".to_owned(),
                points: distribution(&sorted_trips(method, phase)),
            });
        }
    }
    ratios::add(&mut figures, data, paired, options, &mut notes);
    let intervals = Intervals {
        confidence: CONFIDENCE,
        replicates: options.effective_replicates() as u64,
        seed: options.seed,
        paired_rounds: paired as u64,
    };
    let settings = [
        (SERVICE, serde_json::to_value(data.service)),
        (BOOTSTRAP, serde_json::to_value(intervals)),
    ];
    let settings = settings.into_iter();
    Record {
        schema_version: Version,
        experiment: NAME.to_owned(),
        settings: settings
            .filter_map(|(key, value)| Some((key.to_owned(), value.ok()?)))
            .collect(),
        rounds: rounds().max().unwrap_or(0) as u64,
        rows: data.methods.iter().map(|it| it.name.clone()).collect(),
        cells: Phase::ALL.map(|it| it.cell().to_owned()).into(),
        figures: figures.all(),
        curves,
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

fn sorted_trips(method: &MethodData, phase: Phase) -> Vec<u64> {
    let mut sorted = method.round_trips_ns(phase).concat();
    sorted.sort_unstable();
    sorted
}

/// Round trips of a phase, all rounds pooled, and what the client counted. Percentiles are nearest-rank; all figures are
/// exact, of every sample.
fn add_round_trips(figures: &mut Figures, method: &MethodData, phase: Phase) {
    let sorted = sorted_trips(method, phase);
    let summary = Summary::of_sorted(&sorted);
    let n = sorted.len() as u64;
    let runs: Vec<&ClientRun> = (method.rounds.iter())
        .map(|round| &round.phase(phase).netrt)
        .collect();
    let count = |of: fn(&Counters) -> u64| runs.iter().map(|run| of(&run.counters)).sum();
    figures.count("n", "round trips", n);
    figures.count("lost", "requests", count(|it| it.lost));
    for (name, of) in SUMMARY {
        figures.value(name, "us", n, summary.as_ref().and_then(of));
    }
    for (name, unit, of) in COUNTERS {
        figures.count(name, unit, count(of));
    }
    // Of all rounds together there is none.
    figures.value("duration", "s", runs.len() as u64, None);
    figures.rounds(
        "duration",
        runs.iter().map(|run| run.duration_ns as f64 / 1e9),
    );
    let of_rounds: Vec<Option<Summary>> = (method.round_trips_ns(phase).iter())
        .map(|trips| Summary::of(trips))
        .collect();
    figures.rounds("n", runs.iter().map(|run| run.samples.len() as f64));
    figures.rounds("lost", runs.iter().map(|run| run.counters.lost as f64));
    for (name, of) in SUMMARY
        .into_iter()
        .filter(|(name, _)| OF_ROUNDS.contains(name))
    {
        figures.rounds(name, of_rounds.iter().map(|it| it.as_ref().and_then(of)));
    }
}

/// A figure of a summary, in microseconds.
type OfSummary = (&'static str, fn(&Summary) -> Option<f64>);

/// Those of round trips.
const SUMMARY: [OfSummary; 8] = [
    ("mean", |it| Some(us(it.mean_ns))),
    ("sd", |it| Some(us(it.sd_ns?))),
    ("min", |it| Some(us(it.min_ns as f64))),
    ("p50", |it| Some(us(it.p50_ns as f64))),
    ("p90", |it| Some(us(it.p90_ns as f64))),
    ("p99", |it| Some(us(it.p99_ns as f64))),
    ("p99.9", |it| Some(us(it.p999_ns as f64))),
    ("max", |it| Some(us(it.max_ns as f64))),
];

/// Those that are kept of each round, too.
const OF_ROUNDS: [&str; 5] = ["mean", "sd", "p50", "p99", "max"];

/// What the client counted: the figure's name, its unit, and which counter it is.
type OfCounters = (&'static str, &'static str, fn(&Counters) -> u64);

/// Beside what is lost.
const COUNTERS: [OfCounters; 8] = [
    ("late", "requests", |it| it.late),
    ("undecided", "requests", |it| it.undecided),
    ("reordered", "replies", |it| it.reordered),
    ("duplicates", "replies", |it| it.duplicates),
    ("malformed", "datagrams", |it| it.malformed),
    ("timed_by_kernel", "round trips", |it| it.timed_by_kernel),
    ("timed_by_monotonic", "round trips", |it| {
        it.timed_by_monotonic
    }),
    ("sent_over_1_ms_late", "requests", |it| {
        it.sent_over_1_ms_late
    }),
];

fn us(ns: f64) -> f64 {
    ns / 1_000.0
}

/// From hard interrupts to wake-ups, where they were traced: in a repetition of the phase, so they hold the cost of
/// tracing.
fn add_wake_ups(figures: &mut Figures, method: &MethodData, phase: Phase) {
    let Some(summary) = Summary::of(&method.wake_ups_ns(phase).concat()) else {
        return;
    };
    figures.count(TRACED, "packets", summary.n);
    for (name, of) in SUMMARY.into_iter().filter(|(name, _)| *name != "min") {
        figures.value(&format!("wake_up.{name}"), "us", summary.n, of(&summary));
    }
}

/// What the RT guest and its KVM counted, where there was a guest: network interrupts and softirqs in all, the rest a
/// request.
fn add_guest(figures: &mut Figures, method: &MethodData, phase: Phase) {
    let rounds = method.rounds.iter();
    let counts = rounds.filter_map(|round| round.phase(phase).guest.as_ref());
    let mut sum = GuestCounts::default();
    for round in counts {
        sum.requests += round.requests;
        sum.network_interrupts += round.network_interrupts;
        sum.network_softirqs += round.network_softirqs;
        sum.timer_interrupts += round.timer_interrupts;
        sum.injected_interrupts += round.injected_interrupts;
        sum.exits += round.exits;
        for (reason, count) in &round.exit_reasons {
            *sum.exit_reasons.entry(reason.clone()).or_default() += count;
        }
    }
    let n = sum.requests;
    if n == 0 {
        return;
    }
    figures.count("guest.requests", "requests", n);
    let interrupts = sum.network_interrupts;
    figures.count("guest.network_interrupts", "interrupts", interrupts);
    figures.count("guest.network_softirqs", "softirqs", sum.network_softirqs);
    let named: BTreeMap<String, u64> = sum.exit_reasons;
    let named = named
        .into_iter()
        .map(|(reason, it)| (format!("exits.{reason}"), it));
    let counted = [
        ("timer_interrupts".to_owned(), sum.timer_interrupts),
        ("injected_interrupts".to_owned(), sum.injected_interrupts),
        ("exits".to_owned(), sum.exits),
    ];
    for (name, count) in counted.into_iter().chain(named) {
        let a_request = count as f64 / n as f64;
        figures.value(&format!("guest.{name}"), "per request", n, a_request);
    }
}

/// What the RT guest's exits cost, by reason, where they were traced: their number per request, and the CPU time of one.
fn add_exit_costs(figures: &mut Figures, method: &MethodData, phase: Phase) {
    let rounds = method.rounds.iter();
    let traced = rounds.filter_map(|round| round.phase(phase).exit_costs.as_ref());
    let mut requests = 0;
    let mut sums: BTreeMap<&str, ExitCost> = BTreeMap::new();
    for costs in traced {
        requests += costs.requests;
        for (reason, cost) in &costs.reasons {
            let sum = sums.entry(reason).or_default();
            sum.exits += cost.exits;
            sum.cpu_us += cost.cpu_us;
        }
    }
    for (reason, ExitCost { exits, cpu_us }) in sums {
        let (number, each) = exit_figures(reason);
        let per_request = exits as f64 / requests as f64;
        figures.value(&number, "per request", requests, per_request);
        figures.value(&each, "us", exits, cpu_us as f64 / exits as f64);
    }
}

/// The names of both figures of a reason for exits.
pub(crate) fn exit_figures(reason: &str) -> (String, String) {
    (
        format!("{TRACED_EXITS}{reason}"),
        format!("guest.exit_cpu.{reason}"),
    )
}

/// How the name of the number of exits of a reason begins.
pub(crate) const TRACED_EXITS: &str = "guest.traced_exits.";

/// What `NetStream` carried: the mean over rounds.
fn add_stream(figures: &mut Figures, method: &MethodData, phase: Phase) {
    if phase == Phase::Idle {
        return;
    }
    let streams = || method.streams(phase).into_iter().flatten();
    let rates: Vec<f64> = streams().map(|it| it.mbit_per_s).collect();
    let mean = finite_mean(rates.iter().copied());
    figures.value(THROUGHPUT, "Mbit/s", method.rounds.len() as u64, mean);
    figures.rounds(THROUGHPUT, rates.iter().copied());
    if phase == Phase::Full && !rates.is_empty() {
        let retransmits: Option<u64> = streams().map(|it| it.retransmits).sum();
        if let Some(retransmits) = retransmits {
            figures.count("netstream.retransmits", "segments", retransmits);
        }
    }
}

/// Every percent, then ever finer steps towards the maximum, until single samples are reached: shares of the samples, and
/// the microseconds that so many are not above.
fn distribution(sorted: &[u64]) -> Vec<(f64, f64)> {
    const STEPS_PER_DECADE: i32 = 20;
    let n = sorted.len();
    let percents = (0..=90).map(|percent| f64::from(percent) / 100.0);
    let tail = (STEPS_PER_DECADE + 1..)
        .map(|step| 1.0 - 10_f64.powf(-f64::from(step) / f64::from(STEPS_PER_DECADE)))
        .take_while(|fraction| (1.0 - fraction) * n as f64 > 0.5);
    let mut points: Vec<(f64, f64)> = Vec::new();
    let mut last_rank = 0;
    for fraction in percents.chain(tail).chain([1.0]) {
        let rank = ((fraction * n as f64).ceil() as usize).max(1);
        let Some(&sample_ns) = sorted.get(rank - 1) else {
            continue;
        };
        // A few samples have fewer ranks than there are steps.
        if rank > last_rank || fraction >= 1.0 {
            let fraction = if rank == n { 1.0 } else { fraction };
            points.push((fraction, sample_ns as f64 / 1_000.0));
        }
        last_rank = rank;
    }
    points.dedup_by(|later, earlier| later.0 <= earlier.0);
    points
}
