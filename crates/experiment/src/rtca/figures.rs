//! From what was measured to figures and intervals.

use super::data::{Cost, LevelData};
use crate::engine::Figures;
use crate::engine::results::{Record, Version};
use crate::engine::rounds::RowData;
use crate::testbed::{Endpoints, Interference};
use steadyvm_stats::bootstrap::{BootstrapOptions, Draws, draw_percentiles, draw_rates, ratio};
use steadyvm_stats::{PerMille, mean, nearest_rank};

/// The experiment's name.
pub const NAME: &str = "rtca";
/// The setting that says what the packets went between.
pub const ENDPOINTS: &str = "endpoints";
/// What every configuration has at every level.
pub fn required(_level: &str) -> &'static [&'static str] {
    &[
        "n",
        "lost",
        "median",
        "p75",
        "p95",
        "max",
        "throughput",
        "cpu_busy.round_trips",
        "others.round_trips",
        "cpu_busy.stream",
        "others.stream",
    ]
}

/// Median and 95th percentile: what gets an interval, in this order.
const PERCENTILES: [PerMille; 2] = [PerMille::P50, PerMille::P95];

/// All figures. Deterministic: same data and options, same results.
pub fn assemble(
    data: &[RowData<LevelData>],
    endpoints: Endpoints,
    options: BootstrapOptions,
) -> Record {
    let drawn: Vec<[LevelDraws; 4]> = data
        .iter()
        .enumerate()
        .map(|(index, it)| {
            let draw =
                |level| LevelDraws::of(&it.of_cell(level as usize), options, stream(index, level));
            Interference::ALL.map(draw)
        })
        .collect();
    let mut figures = Figures::default();
    let first = data.iter().zip(&drawn).next();
    for (number, (it, draws)) in data.iter().zip(&drawn).enumerate() {
        // Over itself there is nothing to say.
        let first = first.filter(|_| number > 0);
        let first = first.map(|(first, draws)| (&*first.name, draws));
        for level in Interference::ALL {
            add(&mut figures, it, level, draws, first);
        }
    }
    Record {
        schema_version: Version,
        experiment: NAME.to_owned(),
        settings: [(ENDPOINTS.to_owned(), endpoints.key().into())].into(),
        rounds: data.first().map_or(0, |it| it.rounds.len() as u64),
        rows: data.iter().map(|it| it.name.clone()).collect(),
        cells: Interference::ALL.map(|it| it.key().to_owned()).into(),
        figures: figures.all(),
        ..Record::default()
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
    fn of(rounds: &[&LevelData], options: BootstrapOptions, stream: u64) -> Self {
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

/// The figures of one configuration at one level; `first` are the name and the draws of the first configuration.
fn add(
    figures: &mut Figures,
    configuration: &RowData<LevelData>,
    level: Interference,
    draws: &[LevelDraws; 4],
    first: Option<(&str, &[LevelDraws; 4])>,
) {
    let rounds = configuration.of_cell(level as usize);
    let mut trips: Vec<u64> = rounds.iter().flat_map(|it| round_trips_ns(it)).collect();
    trips.sort_unstable();
    let percentile = |percentile| nearest_rank(&trips, percentile).map(microseconds);
    let (n, of_rounds) = (trips.len() as u64, configuration.rounds.len() as u64);
    let (of, base) = (&draws[level as usize], &draws[Interference::Base as usize]);
    // Where nobody sends, there is nothing to say.
    let is_loaded = level != Interference::Base;
    let over_base = (&*configuration.name, Interference::Base.key());
    let streams = rounds.iter().flat_map(|it| it.stream.mbit_per_s.clone());
    figures.at(&configuration.name, level.key());
    figures.count("n", "round trips", n);
    let lost = rounds.iter().map(|it| it.round_trips.counters.lost).sum();
    figures.count("lost", "requests", lost);
    figures.value("median", "us", n, percentile(PerMille::P50));
    figures.value("p75", "us", n, percentile(PerMille::P75));
    figures.value("p95", "us", n, percentile(PerMille::P95));
    figures.value("max", "us", n, trips.last().copied().map(microseconds));
    figures.value("throughput", "Mbit/s", of_rounds, mean(streams));
    if is_loaded {
        let trips = |number| ratio(&of.round_trips, &base.round_trips, number);
        figures.ratio("median", over_base, trips(0));
        figures.ratio("p95", over_base, trips(1));
        let carried = ratio(&of.mbit_per_s, &base.mbit_per_s, 0);
        figures.ratio("throughput", over_base, carried);
    }
    let mut add_cost =
        |what: &str, cost: fn(&LevelData) -> Cost, draws: fn(&LevelDraws) -> &Draws<1>| {
            let costs = rounds.iter().map(|it| cost(it));
            let busy = mean(costs.clone().map(|it| it.cpu_busy_fraction));
            figures.value(&format!("cpu_busy.{what}"), "fraction", of_rounds, busy);
            let others = mean(costs.map(|it| it.others_packets_per_s));
            let name = format!("others.{what}");
            figures.value(&name, "packets/s", of_rounds, others);
            if let (true, Some((first, of_first))) = (is_loaded, first) {
                let over = ratio(draws(of), draws(&of_first[level as usize]), 0);
                figures.ratio(&name, (first, level.key()), over);
            }
        };
    add_cost("round_trips", |it| it.round_trips_cost, |it| &it.others);
    add_cost("stream", |it| it.stream.cost, |it| &it.others_of_stream);
}

fn round_trips_ns(level: &LevelData) -> Vec<u64> {
    let samples = level.round_trips.samples.iter();
    samples.map(|sample| sample.rtt_ns).collect()
}

fn microseconds(ns: u64) -> f64 {
    ns as f64 / 1e3
}
