//! From what was measured to figures and intervals.

use super::data::{RateData, RunData};
use crate::engine::Figures;
use crate::engine::results::{Record, Version};
use crate::engine::rounds::RowData;
use crate::nisp::jobs::Jobs;
use steadyvm_load::job::{Done, between_finishes_ns, counted};
use steadyvm_stats::bootstrap::{BootstrapOptions, Draws, draw_latency, draw_rates, ratio};
use steadyvm_stats::mean;

/// The experiment's name.
pub const NAME: &str = "nisp-udp";
/// The condition next to jobs of no length.
pub(super) const ALONE: &str = "without jobs";
/// Of all conditions: what the low-priority process received, in packets a second.
pub(super) const RECEIVED: &str = "received";

/// What every method has under a condition.
pub fn required(cell: &str) -> &'static [&'static str] {
    match cell {
        ALONE => &["peak", RECEIVED],
        _ => &[
            "sent",
            RECEIVED,
            "cpu_busy",
            "n",
            "response_mean",
            "response_sd",
            "response_p99",
            "response_max",
            "jitter_mean",
            "jitter_sd",
            "waited_mean",
        ],
    }
}

/// Random streams of the generator that a method uses at one rate.
const FIGURES: u64 = 3;
/// Mean and standard deviation among the figures of [`draw_latency`].
const MEAN: usize = 0;
const SD: usize = 1;

/// The condition of one rate.
fn cell(asked_packets_per_s: f64) -> String {
    format!("{asked_packets_per_s} packets/s")
}

/// The rates of the source, in packets a second, and their conditions.
pub(super) fn rates_of(record: &Record) -> Vec<(f64, String)> {
    let asked: Vec<f64> = record.setting("asked_packets_per_s").unwrap_or_default();
    asked.into_iter().map(|it| (it, cell(it))).collect()
}

/// Computes all figures; `None` if a method has a rate that is missing in a round, or at which no round
/// has three jobs. Deterministic: same data and options, same results.
pub fn assemble(data: &RunData, options: BootstrapOptions) -> Option<Record> {
    let measured: Vec<Measured> = (0..data.methods.len())
        .map(|number| Measured::of(data, number, options))
        .collect::<Option<_>>()?;
    let mut figures = Figures::default();
    for (number, method) in measured.iter().enumerate() {
        // Over itself there is nothing to say.
        let first = measured.first().filter(|_| number > 0);
        method.add(
            &mut figures,
            data,
            data.peaks_packets_per_s.get(number),
            first,
        )?;
    }
    let best = data.peaks_packets_per_s.iter().copied().fold(0.0, f64::max);
    let found = [
        ("peak_packets_per_s", best.into()),
        (
            "alone_asked_packets_per_s",
            data.alone_asked_packets_per_s.into(),
        ),
        (
            "asked_packets_per_s",
            data.asked_packets_per_s.clone().into(),
        ),
    ];
    let mut settings = data.times.settings();
    settings.extend(found.map(|(key, value)| (key.to_owned(), value)));
    let rates = data.asked_packets_per_s.iter().map(|it| cell(*it));
    Some(Record {
        schema_version: Version,
        experiment: NAME.to_owned(),
        settings,
        rounds: data.methods.first().map_or(0, |it| it.rounds.len() as u64),
        rows: data.methods.iter().map(|it| it.name.clone()).collect(),
        cells: std::iter::once(ALONE.to_owned()).chain(rates).collect(),
        figures: figures.all(),
        ..Record::default()
    })
}

/// One method.
struct Measured<'a> {
    name: &'a str,
    rates: Vec<Rate<'a>>,
    /// What it received without jobs, in each round.
    alone: Vec<f64>,
    alone_draws: Draws<1>,
}

impl<'a> Measured<'a> {
    fn of(data: &'a RunData, number: usize, options: BootstrapOptions) -> Option<Self> {
        let method = &data.methods[number];
        let count = data.asked_packets_per_s.len();
        let rates = data.asked_packets_per_s.iter().enumerate();
        let rates = rates.map(|(index, &asked)| {
            // Independent of the streams of other methods and rates.
            let stream = 1 + FIGURES * (count * number + index) as u64;
            Some(Rate::of(asked, all_of(method, index)?, options, stream))
        });
        // Behind those of all rates.
        let stream = 1 + FIGURES * (count * data.methods.len()) as u64 + number as u64;
        let alone = all_of(method, count)?.into_iter();
        let alone: Vec<f64> = alone.map(|round| round.received_packets_per_s).collect();
        Some(Self {
            name: &method.name,
            rates: rates.collect::<Option<_>>()?,
            alone_draws: draw_means(&alone, options, stream),
            alone,
        })
    }

    fn add(
        &self,
        figures: &mut Figures,
        data: &RunData,
        peak: Option<&f64>,
        first: Option<&Self>,
    ) -> Option<()> {
        let rounds = self.alone.len() as u64;
        figures.at(self.name, ALONE);
        figures.value("peak", "packets/s", 1, peak.copied());
        let alone = mean(self.alone.iter().copied())?;
        figures.value(RECEIVED, "packets/s", rounds, alone);
        figures.rounds(RECEIVED, self.alone.iter().copied());
        if let Some(first) = first {
            let over = ratio(&self.alone_draws, &first.alone_draws, MEAN);
            figures.ratio(RECEIVED, (first.name, ALONE), over);
        }
        let unloaded = self.rates.first();
        for (index, rate) in self.rates.iter().enumerate() {
            let cell = cell(rate.asked_packets_per_s);
            figures.at(self.name, &cell);
            rate.add(figures)?;
            Jobs::of(rate.rounds.iter().map(|round| &round.ran), &data.times)?
                .add(figures, &data.times);
            if let Some((first, of_first)) = first.and_then(|it| Some((it, it.rates.get(index)?))) {
                let over = ratio(&rate.received, &of_first.received, MEAN);
                figures.ratio(RECEIVED, (first.name, &cell), over);
            }
            if let Some(unloaded) = unloaded.filter(|_| index > 0) {
                let place = self::cell(unloaded.asked_packets_per_s);
                let mean = ratio(&rate.responses, &unloaded.responses, MEAN);
                figures.ratio("response_mean", (self.name, &place), mean);
                let jitter = ratio(&rate.jitter, &unloaded.jitter, SD);
                figures.ratio("jitter_sd", (self.name, &place), jitter);
            }
        }
        Some(())
    }
}

/// A method's samples of one turn; `None` if a round lacks it.
fn all_of(method: &RowData<RateData>, turn: usize) -> Option<Vec<&RateData>> {
    let rounds = method.rounds.iter();
    rounds.map(|turns| turns.get(turn)).collect()
}

/// One method at one rate: its rounds, and what of them gets an interval.
struct Rate<'a> {
    asked_packets_per_s: f64,
    rounds: Vec<&'a RateData>,
    responses: Draws<5>,
    jitter: Draws<5>,
    received: Draws<1>,
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

    /// What was sent, received, and taken of the CPUs.
    fn add(&self, figures: &mut Figures) -> Option<()> {
        let mut add = |name: &str, unit: &str, figure: fn(&RateData) -> f64| {
            let mean = mean(self.rounds.iter().map(|round| figure(round)))?;
            figures.value(name, unit, self.rounds.len() as u64, mean);
            Some(())
        };
        add("sent", "packets/s", |round| round.sent_packets_per_s)?;
        add(RECEIVED, "packets/s", |round| round.received_packets_per_s)?;
        add("cpu_busy", "fraction", |round| round.cpu_busy_fraction)?;
        let rounds = self.rounds.iter().map(|round| round.received_packets_per_s);
        figures.rounds(RECEIVED, rounds);
        Some(())
    }
}

/// Of one figure a round.
fn draw_means(rounds: &[f64], options: BootstrapOptions, stream: u64) -> Draws<1> {
    let rounds: Vec<&[f64]> = rounds.iter().map(std::slice::from_ref).collect();
    draw_rates(&rounds, options, stream)
}

fn slices(rounds: &[Vec<u64>]) -> Vec<&[u64]> {
    rounds.iter().map(Vec::as_slice).collect()
}
