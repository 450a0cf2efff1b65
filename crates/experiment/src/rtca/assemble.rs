//! From what was measured to figures and intervals.

use super::data::{ConfigurationData, Cost, Interference, LevelData, RunData};
use super::results::{ConfigurationResult, CostResult, LevelResult, Results};
use steadyvm_stats::bootstrap::{
    BootstrapOptions, Draws, Ratio, draw_percentiles, draw_rates, ratio,
};
use steadyvm_stats::{PerMille, mean, nearest_rank};

/// Median and 95th percentile: what gets an interval, in this order.
const PERCENTILES: [PerMille; 2] = [PerMille::P50, PerMille::P95];

/// Computes all figures. Deterministic: same data and options, same results.
pub fn assemble(data: &RunData, options: BootstrapOptions) -> Results {
    let drawn: Vec<[LevelDraws; 4]> = data
        .configurations
        .iter()
        .enumerate()
        .map(|(index, it)| {
            let draw = |level| LevelDraws::of(it, level, options, stream(index, level));
            Interference::ALL.map(draw)
        })
        .collect();
    let configurations = data.configurations.iter().zip(&drawn);
    Results {
        endpoints: data.endpoints,
        rounds: data
            .configurations
            .first()
            .map_or(0, |it| it.rounds.len() as u64),
        configurations: configurations
            .map(|(it, draws)| ConfigurationResult {
                name: it.name.clone(),
                levels: Interference::ALL
                    .map(|level| level_result(it, level, draws, drawn.first()))
                    .into(),
            })
            .collect(),
        notes: Vec::new(),
    }
}

/// The generator's stream for one configuration at one level: independent of the others'.
fn stream(configuration: usize, level: Interference) -> u64 {
    const FIGURES: u64 = 4;
    1 + FIGURES * (4 * configuration as u64 + level as u64)
}

/// Everything of one level that gets an interval.
struct LevelDraws {
    round_trips: Draws<2>,
    mbit_per_s: Draws<1>,
    /// Packets of the others while round trips were measured.
    others: Draws<1>,
    /// And while the stream flowed.
    others_of_stream: Draws<1>,
}

impl LevelDraws {
    fn of(
        configuration: &ConfigurationData,
        level: Interference,
        options: BootstrapOptions,
        stream: u64,
    ) -> Self {
        let rounds = of_level(configuration, level);
        let trips: Vec<Vec<u64>> = rounds.iter().map(|it| round_trips_ns(it)).collect();
        let trips: Vec<&[u64]> = trips.iter().map(Vec::as_slice).collect();
        let streams: Vec<&[f64]> = rounds.iter().map(|it| &*it.stream.mbit_per_s).collect();
        let others = |cost: fn(&LevelData) -> Cost, stream| {
            let values: Vec<[f64; 1]> = rounds
                .iter()
                .map(|it| [cost(it).others_packets_per_s])
                .collect();
            let values: Vec<&[f64]> = values.iter().map(<[f64; 1]>::as_slice).collect();
            draw_rates(&values, options, stream)
        };
        Self {
            round_trips: draw_percentiles(&trips, PERCENTILES, options, stream),
            mbit_per_s: draw_rates(&streams, options, stream + 1),
            others: others(|it| it.round_trips_cost, stream + 2),
            others_of_stream: others(|it| it.stream.cost, stream + 3),
        }
    }
}

fn level_result(
    configuration: &ConfigurationData,
    level: Interference,
    draws: &[LevelDraws; 4],
    first: Option<&[LevelDraws; 4]>,
) -> LevelResult {
    let rounds = of_level(configuration, level);
    let mut trips: Vec<u64> = rounds.iter().flat_map(|it| round_trips_ns(it)).collect();
    trips.sort_unstable();
    let percentile = |percentile| nearest_rank(&trips, percentile).map(microseconds);
    let (of, base) = (&draws[level as usize], &draws[Interference::Base as usize]);
    let streams = rounds.iter().flat_map(|it| it.stream.mbit_per_s.clone());
    // Over itself, or where nobody sends, there is nothing to say.
    let to_base = |found: Option<Ratio>| found.filter(|_| level != Interference::Base);
    let first = first.filter(|first| !std::ptr::eq(*first, draws));
    let to_first = |others: fn(&LevelDraws) -> &Draws<1>| {
        let first = &first?[level as usize];
        to_base(interval(others(of), others(first), 0))
    };
    LevelResult {
        interference: level,
        n: trips.len() as u64,
        lost: rounds.iter().map(|it| it.round_trips.counters.lost).sum(),
        median_us: percentile(PerMille::P50),
        p75_us: percentile(PerMille::P75),
        p95_us: percentile(PerMille::P95),
        max_us: trips.last().copied().map(microseconds),
        median_to_base: to_base(interval(&of.round_trips, &base.round_trips, 0)),
        p95_to_base: to_base(interval(&of.round_trips, &base.round_trips, 1)),
        mbit_per_s: mean(streams),
        mbit_per_s_to_base: to_base(interval(&of.mbit_per_s, &base.mbit_per_s, 0)),
        round_trips_cost: cost_result(
            rounds.iter().map(|it| it.round_trips_cost),
            to_first(|it| &it.others),
        ),
        stream_cost: cost_result(
            rounds.iter().map(|it| it.stream.cost),
            to_first(|it| &it.others_of_stream),
        ),
    }
}

fn cost_result(
    costs: impl Iterator<Item = Cost> + Clone,
    others_to_first: Option<Ratio>,
) -> CostResult {
    CostResult {
        cpu_busy_fraction: mean(costs.clone().map(|cost| cost.cpu_busy_fraction)),
        others_packets_per_s: mean(costs.map(|cost| cost.others_packets_per_s)),
        others_to_first,
    }
}

fn interval<const K: usize>(of: &Draws<K>, to: &Draws<K>, figure: usize) -> Option<Ratio> {
    ratio(of, to, figure)
}

fn of_level(configuration: &ConfigurationData, level: Interference) -> Vec<&LevelData> {
    let rounds = configuration.rounds.iter();
    rounds.map(|round| &round.0[level as usize]).collect()
}

fn round_trips_ns(level: &LevelData) -> Vec<u64> {
    let samples = level.round_trips.samples.iter();
    samples.map(|sample| sample.rtt_ns).collect()
}

fn microseconds(ns: u64) -> f64 {
    ns as f64 / 1e3
}
