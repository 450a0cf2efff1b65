//! From what was measured to figures and intervals.

use super::data::{MethodData, RateData, RunData};
use super::results::{MethodResult, Point, Results, SCHEMA_VERSION};
use crate::bootstrap::{BootstrapOptions, Draws, draw_latency, draw_rates, ratio};
use crate::job::{Done, between_finishes_ns, counted};
use crate::nisp::JobsResult;
use crate::nisp::jobs::durations;
use crate::rtca::RatioToBase;
use crate::statistics::mean;

/// Random streams of the generator that a method uses at one rate.
const FIGURES: u64 = 3;
/// Mean and standard deviation among the figures of [`draw_latency`].
const MEAN: usize = 0;
const SD: usize = 1;

/// Computes all figures; `None` if a method has a rate that is missing in a round, or at which no round
/// has three jobs. Deterministic: same data and options, same results.
pub fn assemble(data: &RunData, options: BootstrapOptions) -> Option<Results> {
    let measured: Vec<Vec<Rate>> = data
        .methods
        .iter()
        .enumerate()
        .map(|(index, method)| rates_of(data, index, method, options))
        .collect::<Option<_>>()?;
    let first = data.methods.first().zip(measured.first());
    let methods = data.methods.iter().zip(&measured).enumerate();
    let methods = methods.map(|(index, (method, rates))| {
        // Over itself there is nothing to say.
        let first = first.filter(|_| index > 0);
        method_result(data, method, rates, first)
    });
    let peaks = data.methods.iter().map(|method| method.peak_packets_per_s);
    Some(Results {
        schema_version: SCHEMA_VERSION,
        period_us: data.period_us,
        execution_us: data.execution_us,
        deadlines_us: data.deadlines_us.clone(),
        peak_packets_per_s: peaks.fold(0.0, f64::max),
        rounds: data.methods.first().map_or(0, |it| it.rounds.len() as u64),
        methods: methods.collect::<Option<_>>()?,
        notes: Vec::new(),
    })
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
        let received: Vec<[f64; 1]> = rounds
            .iter()
            .map(|round| [round.received_packets_per_s])
            .collect();
        let received: Vec<&[f64]> = received.iter().map(<[f64; 1]>::as_slice).collect();
        Self {
            responses: draw_latency(&slices(&responses), options, stream),
            jitter: draw_latency(&slices(&jitter), options, stream + 1),
            received: draw_rates(&received, options, stream + 2),
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
    rates: &[Rate],
    first: Option<(&MethodData, &Vec<Rate>)>,
) -> Option<MethodResult> {
    let deadlines = durations(&data.deadlines_us);
    let unloaded = rates.first();
    let point = |(index, rate): (usize, &Rate)| {
        let unloaded = unloaded.filter(|_| index > 0);
        let first = first.and_then(|(_, rates)| rates.get(index));
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
    let peak_to_first = first.map(|(first, _)| RatioToBase {
        estimate: method.peak_packets_per_s / first.peak_packets_per_s,
        low: None,
        high: None,
    });
    Some(MethodResult {
        name: method.name.clone(),
        peak_packets_per_s: method.peak_packets_per_s,
        peak_to_first: peak_to_first.filter(|ratio| ratio.estimate.is_finite()),
        points: rates.iter().enumerate().map(point).collect::<Option<_>>()?,
    })
}

fn interval<const K: usize>(of: &Draws<K>, to: &Draws<K>, figure: usize) -> Option<RatioToBase> {
    ratio(of, to, figure).map(RatioToBase::from)
}

fn slices(rounds: &[Vec<u64>]) -> Vec<&[u64]> {
    rounds.iter().map(Vec::as_slice).collect()
}
