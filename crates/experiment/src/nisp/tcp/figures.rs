//! From what was measured to figures and intervals.

use super::data::{RoundData, StreamData};
use super::segments::Segments;
use crate::engine::Figures;
use crate::engine::results::{Record, Version};
use crate::engine::rounds::RowData;
use crate::nisp::Times;
use crate::nisp::jobs::Jobs;
use steadyvm_stats::bootstrap::{BootstrapOptions, Draws, draw_rates, ratio};
use steadyvm_stats::mean;

/// The experiment's name.
pub const NAME: &str = "nisp-tcp";

/// Jobs without the stream, and next to it.
pub(super) const UNLOADED: &str = "unloaded";
pub(super) const LOADED: &str = "loaded";
/// The stream before, during and after the jobs.
pub(super) const BEFORE: &str = "before";
pub(super) const DURING: &str = "during";
pub(super) const AFTER: &str = "after";
pub(super) const FIRST_SECOND: &str = "first second after";
const CELLS: [&str; 6] = [UNLOADED, LOADED, BEFORE, DURING, AFTER, FIRST_SECOND];
/// What the stream carried.
pub(super) const THROUGHPUT: &str = "throughput";

/// What every method has under a condition.
pub fn required(cell: &str) -> &'static [&'static str] {
    match cell {
        UNLOADED | LOADED => &[
            "n",
            "response_mean",
            "response_sd",
            "response_p99",
            "response_max",
            "jitter_mean",
            "jitter_sd",
            "waited_mean",
        ],
        FIRST_SECOND => &[THROUGHPUT],
        _ => &[
            THROUGHPUT,
            "segments",
            "retransmitted",
            "loss_probes",
            "timeouts",
            "retransmitted_share",
        ],
    }
}

/// Random streams of the generator that a method uses.
const FIGURES: u64 = 4;

/// Computes all figures; `None` if a method has fewer than three jobs in every round.
/// Deterministic: same data and options, same results.
pub fn assemble(
    data: &[RowData<RoundData>],
    times: &Times,
    options: BootstrapOptions,
) -> Option<Record> {
    let mut figures = Figures::default();
    for (stream, method) in (1..).step_by(FIGURES as usize).zip(data) {
        add(&mut figures, method, times, options, stream)?;
    }
    Some(Record {
        schema_version: Version,
        experiment: NAME.to_owned(),
        settings: times.settings(),
        rounds: data.first().map_or(0, |it| it.rounds.len() as u64),
        rows: data.iter().map(|it| it.name.clone()).collect(),
        cells: CELLS.map(str::to_owned).into(),
        figures: figures.all(),
        ..Record::default()
    })
}

/// The figures of one method; `stream` is the first of its random streams.
fn add(
    figures: &mut Figures,
    method: &RowData<RoundData>,
    times: &Times,
    options: BootstrapOptions,
    stream: u64,
) -> Option<()> {
    let (name, rounds) = (&method.name, method.of_cell(0));
    let unloaded = Jobs::of(rounds.iter().map(|round| &round.unloaded), times)?;
    let loaded = Jobs::of(rounds.iter().map(|round| &round.loaded), times)?;
    figures.at(name, UNLOADED);
    unloaded.add(figures, times);
    figures.at(name, LOADED);
    loaded.add(figures, times);
    let [quiet, busy] = [&unloaded, &loaded].map(|it| &it.punctuality);
    let jitter = Some(busy.jitter_sd_us / quiet.jitter_sd_us).filter(|ratio| ratio.is_finite());
    figures.plain_ratio("jitter_sd", (name, UNLOADED), busy.jobs, jitter);

    let draw = |rates: fn(&RoundData) -> &[f64], number| -> Draws<1> {
        let rates: Vec<&[f64]> = rounds.iter().map(|round| rates(round)).collect();
        draw_rates(&rates, options, stream + number)
    };
    let before = draw(|round| &round.before.mbit_per_s, 0);
    let to_before = |of: Draws<1>| ratio(&of, &before, 0);
    let over = (&**name, BEFORE);
    figures.at(name, BEFORE);
    add_stream(figures, &rounds, |round| &round.before);
    figures.at(name, DURING);
    add_stream(figures, &rounds, |round| &round.during);
    let during = draw(|round| &round.during.mbit_per_s, 1);
    figures.ratio(THROUGHPUT, over, to_before(during));
    figures.at(name, AFTER);
    add_stream(figures, &rounds, |round| &round.after);
    let after = draw(|round| &round.after.mbit_per_s, 2);
    figures.ratio(THROUGHPUT, over, to_before(after));
    figures.at(name, FIRST_SECOND);
    let first = mean(rounds.iter().flat_map(|round| first_second(round)).copied());
    figures.value(THROUGHPUT, "Mbit/s", rounds.len() as u64, first);
    figures.ratio(THROUGHPUT, over, to_before(draw(first_second, 3)));
    Some(())
}

fn first_second(round: &RoundData) -> &[f64] {
    let seconds = &round.after.mbit_per_s;
    &seconds[..seconds.len().min(1)]
}

fn add_stream(figures: &mut Figures, rounds: &[&RoundData], stream: fn(&RoundData) -> &StreamData) {
    let mut sum = Segments::default();
    for round in rounds {
        sum += stream(round).segments;
    }
    let rates = |round| stream(round).mbit_per_s.iter().copied();
    let all = mean(rounds.iter().flat_map(|round| rates(round)));
    figures.value(THROUGHPUT, "Mbit/s", rounds.len() as u64, all);
    figures.rounds(
        THROUGHPUT,
        rounds.iter().filter_map(|round| mean(rates(round))),
    );
    figures.count("segments", "segments", sum.segments);
    figures.count("retransmitted", "segments", sum.retransmitted);
    figures.count("loss_probes", "segments", sum.loss_probes);
    figures.count("timeouts", "timeouts", sum.timeouts);
    let share = sum.retransmitted_fraction();
    figures.value("retransmitted_share", "fraction", sum.segments, share);
}
