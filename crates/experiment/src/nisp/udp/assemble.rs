//! From what was measured to figures and intervals.

use super::data::{MethodData, RateData, RunData};
use super::results::{MethodResult, Point, Results};
use crate::nisp::JobsResult;
use crate::nisp::jobs::durations;
use steadyvm_load::job::{Done, between_finishes_ns, counted};
use steadyvm_stats::bootstrap::Ratio;
use steadyvm_stats::bootstrap::{BootstrapOptions, Draws, draw_latency, draw_rates, ratio};
use steadyvm_stats::mean;

/// Random streams of the generator that a method uses at one rate.
const FIGURES: u64 = 3;
/// Mean and standard deviation among the figures of [`draw_latency`].
const MEAN: usize = 0;
const SD: usize = 1;

/// Computes all figures; `None` if a method has a rate that is missing in a round, or at which no round
/// has three jobs. Deterministic: same data and options, same results.
pub fn assemble(data: &RunData, options: BootstrapOptions) -> Option<Results> {
    let measured: Vec<Measured> = data
        .methods
        .iter()
        .enumerate()
        .map(|(index, method)| Measured::of(data, index, method, options))
        .collect::<Option<_>>()?;
    let first = measured.first();
    let methods = data.methods.iter().zip(&measured).enumerate();
    let methods = methods.map(|(index, (method, measured))| {
        // Over itself there is nothing to say.
        let first = first.filter(|_| index > 0);
        method_result(data, method, measured, first)
    });
    let peaks = data.methods.iter().map(|method| method.peak_packets_per_s);
    Some(Results {
        period_us: data.period_us,
        execution_us: data.execution_us,
        deadlines_us: data.deadlines_us.clone(),
        peak_packets_per_s: peaks.fold(0.0, f64::max),
        alone_asked_packets_per_s: data.alone_asked_packets_per_s,
        rounds: data.methods.first().map_or(0, |it| it.rounds.len() as u64),
        methods: methods.collect::<Option<_>>()?,
        notes: Vec::new(),
    })
}

/// One method.
struct Measured<'a> {
    rates: Vec<Rate<'a>>,
    /// What it received without jobs, in each round.
    alone: Vec<f64>,
    alone_draws: Draws<1>,
}

impl<'a> Measured<'a> {
    fn of(
        data: &RunData,
        method_index: usize,
        method: &'a MethodData,
        options: BootstrapOptions,
    ) -> Option<Self> {
        let rounds = method.rounds.iter().map(|round| round.alone_packets_per_s);
        let alone: Vec<f64> = rounds.collect();
        // Behind those of all rates.
        let stream = FIGURES * (data.asked_packets_per_s.len() * data.methods.len()) as u64;
        let stream = 1 + stream + method_index as u64;
        Some(Self {
            rates: rates_of(data, method_index, method, options)?,
            alone_draws: draw_means(&alone, options, stream),
            alone,
        })
    }
}

/// One method at one rate: its rounds, and what of them gets an interval.
struct Rate<'a> {
    asked_packets_per_s: f64,
    rounds: Vec<&'a RateData>,
    responses: Draws<5>,
    jitter: Draws<5>,
    received: Draws<1>,
}

fn rates_of<'a>(
    data: &RunData,
    method_index: usize,
    method: &'a MethodData,
    options: BootstrapOptions,
) -> Option<Vec<Rate<'a>>> {
    let count = data.asked_packets_per_s.len();
    let rates = data.asked_packets_per_s.iter().enumerate();
    let rates = rates.map(|(index, &asked_packets_per_s)| {
        let rounds = method.rounds.iter().map(|round| round.rates.get(index));
        // Independent of the streams of other methods and rates.
        let stream = 1 + FIGURES * (count * method_index + index) as u64;
        Some(Rate::of(
            asked_packets_per_s,
            rounds.collect::<Option<_>>()?,
            options,
            stream,
        ))
    });
    rates.collect()
}

impl<'a> Rate<'a> {
    fn of(
        asked_packets_per_s: f64,
        rounds: Vec<&'a RateData>,
        options: BootstrapOptions,
        stream: u64,
    ) -> Self {
        let jobs = || rounds.iter().map(|round| counted(&round.ran.done));
        let responses: Vec<Vec<u64>> = jobs()
            .map(|done| done.iter().map(Done::response_ns).collect())
            .collect();
        let jitter: Vec<Vec<u64>> = jobs().map(between_finishes_ns).collect();
        let received = rounds.iter().map(|round| round.received_packets_per_s);
        let received: Vec<f64> = received.collect();
        Self {
            responses: draw_latency(&slices(&responses), options, stream),
            jitter: draw_latency(&slices(&jitter), options, stream + 1),
            received: draw_means(&received, options, stream + 2),
            asked_packets_per_s,
            rounds,
        }
    }

    /// The mean of the rounds.
    fn mean(&self, figure: fn(&RateData) -> f64) -> Option<f64> {
        mean(self.rounds.iter().map(|round| figure(round)))
    }
}

fn method_result(
    data: &RunData,
    method: &MethodData,
    measured: &Measured,
    first: Option<&Measured>,
) -> Option<MethodResult> {
    let rates = &measured.rates;
    let deadlines = durations(&data.deadlines_us);
    let unloaded = rates.first();
    let point = |(index, rate): (usize, &Rate)| {
        let unloaded = unloaded.filter(|_| index > 0);
        let first = first.and_then(|first| first.rates.get(index));
        Some(Point {
            asked_packets_per_s: rate.asked_packets_per_s,
            sent_packets_per_s: rate.mean(|round| round.sent_packets_per_s)?,
            received_packets_per_s: rate.mean(|round| round.received_packets_per_s)?,
            rounds_received_packets_per_s: rate
                .rounds
                .iter()
                .map(|round| round.received_packets_per_s)
                .collect(),
            received_to_first: first.and_then(|it| interval(&rate.received, &it.received, MEAN)),
            cpu_busy_fraction: rate.mean(|round| round.cpu_busy_fraction)?,
            jobs: JobsResult::of(rate.rounds.iter().map(|round| &round.ran), &deadlines)?,
            response_mean_to_unloaded: unloaded
                .and_then(|it| interval(&rate.responses, &it.responses, MEAN)),
            jitter_sd_to_unloaded: unloaded.and_then(|it| interval(&rate.jitter, &it.jitter, SD)),
        })
    };
    Some(MethodResult {
        name: method.name.clone(),
        peak_packets_per_s: method.peak_packets_per_s,
        alone_packets_per_s: mean(measured.alone.iter().copied())?,
        rounds_alone_packets_per_s: measured.alone.clone(),
        alone_to_first: first
            .and_then(|first| interval(&measured.alone_draws, &first.alone_draws, MEAN)),
        points: rates.iter().enumerate().map(point).collect::<Option<_>>()?,
    })
}

fn interval<const K: usize>(of: &Draws<K>, to: &Draws<K>, figure: usize) -> Option<Ratio> {
    ratio(of, to, figure)
}

/// Of one figure a round.
fn draw_means(rounds: &[f64], options: BootstrapOptions, stream: u64) -> Draws<1> {
    let rounds: Vec<&[f64]> = rounds.iter().map(std::slice::from_ref).collect();
    draw_rates(&rounds, options, stream)
}

fn slices(rounds: &[Vec<u64>]) -> Vec<&[u64]> {
    rounds.iter().map(Vec::as_slice).collect()
}
