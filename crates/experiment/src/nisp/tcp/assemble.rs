//! From what was measured to figures and intervals.

use super::data::{MethodData, RoundData, RunData, StreamData};
use super::results::{MethodResult, Results, StreamResult};
use super::segments::Segments;
use crate::nisp::JobsResult;
use crate::nisp::jobs::durations;
use std::time::Duration;
use steadyvm_stats::bootstrap::{BootstrapOptions, Draws, draw_rates, ratio};
use steadyvm_stats::mean;

/// Random streams of the generator that a method uses.
const FIGURES: u64 = 4;

/// Computes all figures; `None` if a method has fewer than three jobs in every round.
/// Deterministic: same data and options, same results.
pub fn assemble(data: &RunData, options: BootstrapOptions) -> Option<Results> {
    let deadlines = durations(&data.deadlines_us);
    let methods = data.methods.iter().enumerate();
    let methods = methods.map(|(index, method)| {
        let stream = 1 + FIGURES * index as u64;
        method_result(method, &deadlines, options, stream)
    });
    Some(Results {
        period_us: data.period_us,
        execution_us: data.execution_us,
        deadlines_us: data.deadlines_us.clone(),
        rounds: data.methods.first().map_or(0, |it| it.rounds.len() as u64),
        methods: methods.collect::<Option<_>>()?,
        notes: Vec::new(),
    })
}

fn method_result(
    method: &MethodData,
    deadlines: &[Duration],
    options: BootstrapOptions,
    stream: u64,
) -> Option<MethodResult> {
    let rounds = &method.rounds;
    let unloaded = JobsResult::of(rounds.iter().map(|round| &round.unloaded), deadlines)?;
    let loaded = JobsResult::of(rounds.iter().map(|round| &round.loaded), deadlines)?;
    let draw = |rates: fn(&RoundData) -> &[f64], number| -> Draws<1> {
        let rates: Vec<&[f64]> = rounds.iter().map(rates).collect();
        draw_rates(&rates, options, stream + number)
    };
    let before = draw(|round| &round.before.mbit_per_s, 0);
    let to_before = |of: Draws<1>| ratio(&of, &before, 0);
    let jitter = (
        loaded.punctuality.jitter_sd_us,
        unloaded.punctuality.jitter_sd_us,
    );
    Some(MethodResult {
        name: method.name.clone(),
        unloaded,
        loaded,
        jitter_sd_to_unloaded: Some(jitter.0 / jitter.1).filter(|ratio| ratio.is_finite()),
        before: stream_result(rounds, |round| &round.before),
        during: stream_result(rounds, |round| &round.during),
        after: stream_result(rounds, |round| &round.after),
        during_to_before: to_before(draw(|round| &round.during.mbit_per_s, 1)),
        after_to_before: to_before(draw(|round| &round.after.mbit_per_s, 2)),
        first_second_mbit_per_s: mean(rounds.iter().flat_map(first_second).copied()),
        first_second_to_before: to_before(draw(first_second, 3)),
    })
}

fn first_second(round: &RoundData) -> &[f64] {
    let seconds = &round.after.mbit_per_s;
    &seconds[..seconds.len().min(1)]
}

fn stream_result(rounds: &[RoundData], stream: fn(&RoundData) -> &StreamData) -> StreamResult {
    let mut segments = Segments::default();
    for round in rounds {
        segments += stream(round).segments;
    }
    let rates = |round| stream(round).mbit_per_s.iter().copied();
    StreamResult {
        mbit_per_s: mean(rounds.iter().flat_map(rates)),
        rounds_mbit_per_s: rounds
            .iter()
            .filter_map(|round| mean(rates(round)))
            .collect(),
        segments,
        retransmitted_fraction: segments.retransmitted_fraction(),
    }
}
