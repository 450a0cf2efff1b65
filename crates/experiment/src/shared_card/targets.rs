//! What the ways of a shared card are to reach, and whether a run says that they do.

use crate::engine::results::Record;
use crate::engine::{Bound, Figures};
use crate::service::Beside;
use steadyvm_report::text::ratio_words;
use steadyvm_report::{Grid, headers};
use steadyvm_stats::bootstrap::{BootstrapOptions, Draws, draw_latency, draw_rates, ratio};

/// A figure of a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Of {
    Mean,
    Deviation,
    P99,
    Stream,
}

impl Of {
    const fn title(self) -> &'static str {
        match self {
            Self::Mean => "mean",
            Self::Deviation => "SD",
            Self::P99 => "p99",
            Self::Stream => "stream",
        }
    }
}

/// A bound for a row's figure over another row's.
struct Target {
    row: &'static str,
    over: &'static str,
    of: Of,
    beside: Beside,
    bound: Bound,
}

const fn beside_a_stream(row: &'static str, over: &'static str, of: Of, bound: Bound) -> Target {
    Target {
        row,
        over,
        of,
        beside: Beside::NetStream,
        bound,
    }
}

const fn idle(row: &'static str, over: &'static str, bound: Bound) -> Target {
    Target {
        row,
        over,
        of: Of::Mean,
        beside: Beside::Nothing,
        bound,
    }
}

use Bound::{AtLeast, AtMost};

const OWN: &str = "7.3-rt-own-card";
const RT: &str = "7.3-rt";
const FUNCTION: &str = "7.3-rt-function";
const RANKED: &str = "7.3-rt-function-ranked";
const BY_INTERRUPT: &str = "7.3-rt-function-irq";
const SPLIT: &str = "7.3-rt-function-split";
const PASSTHROUGH: &str = "7.3-rt-passthrough";

const TARGETS: [Target; 21] = [
    beside_a_stream(FUNCTION, OWN, Of::P99, AtMost(1.0)),
    beside_a_stream("7.3-rt-xdp", OWN, Of::P99, AtMost(1.2)),
    beside_a_stream(FUNCTION, RT, Of::P99, AtMost(0.4)),
    beside_a_stream(FUNCTION, RT, Of::Deviation, AtMost(0.4)),
    beside_a_stream(FUNCTION, RT, Of::Stream, AtLeast(1.0)),
    beside_a_stream(RANKED, RT, Of::P99, AtMost(0.4)),
    beside_a_stream(RANKED, RT, Of::Stream, AtLeast(1.0)),
    beside_a_stream(BY_INTERRUPT, RT, Of::P99, AtMost(0.4)),
    beside_a_stream(BY_INTERRUPT, RT, Of::Stream, AtLeast(1.0)),
    beside_a_stream(SPLIT, RT, Of::P99, AtMost(0.4)),
    beside_a_stream(SPLIT, RT, Of::Stream, AtLeast(1.0)),
    beside_a_stream(FUNCTION, PASSTHROUGH, Of::P99, AtMost(1.3)),
    beside_a_stream(FUNCTION, PASSTHROUGH, Of::Deviation, AtMost(1.3)),
    beside_a_stream("6.12-profile", "6.12", Of::P99, AtMost(0.25)),
    beside_a_stream("6.12-profile", "6.12", Of::Stream, AtLeast(0.95)),
    idle("6.12-profile", "6.12", AtMost(1.1)),
    beside_a_stream("7.3-profile", "7.3", Of::P99, AtMost(0.25)),
    beside_a_stream("7.3-profile", "7.3", Of::Stream, AtLeast(0.95)),
    idle("7.3-profile", "7.3", AtMost(1.1)),
    beside_a_stream("7.3-function", "7.3", Of::P99, AtMost(0.25)),
    beside_a_stream("7.3-function", "7.3", Of::Stream, AtLeast(0.85)),
];

/// What one row had under one condition.
#[derive(Debug)]
pub(super) struct Condition {
    pub row: &'static str,
    pub beside: Beside,
    /// Round trips in nanoseconds, by round.
    pub rounds: Vec<Vec<u64>>,
    /// The stream's rate, by round, in Mbit/s.
    pub streams: Vec<f64>,
}

/// Draws of the engine's own figures have lower numbers.
const FIRST_DRAW: u64 = 20_000;

/// Adds the ratio of each target whose rows were measured.
pub(super) fn add(figures: &mut Figures, all: &[Condition], options: BootstrapOptions) {
    let drawn: Vec<(Draws<5>, Draws<1>)> = (0..)
        .zip(all)
        .map(|(number, it)| draws(it, FIRST_DRAW + 2 * number, options))
        .collect();
    let find = |row: &str, beside: Beside| {
        let mut conditions = all.iter().zip(&drawn);
        conditions.find(|(it, _)| it.row == row && it.beside == beside)
    };
    for target in &TARGETS {
        let (Some((_, of)), Some((_, over))) = (
            find(target.row, target.beside),
            find(target.over, target.beside),
        ) else {
            continue;
        };
        let found = match target.of {
            Of::Mean => ratio(&of.0, &over.0, 0),
            Of::Deviation => ratio(&of.0, &over.0, 1),
            Of::P99 => ratio(&of.0, &over.0, 3),
            Of::Stream => ratio(&of.1, &over.1, 0),
        };
        let cell = super::cell_of(target.beside);
        figures.at(target.row, &cell);
        figures.ratio(&target.name(), (target.over, &cell), found);
    }
}

fn draws(of: &Condition, number: u64, options: BootstrapOptions) -> (Draws<5>, Draws<1>) {
    let rounds: Vec<&[u64]> = of.rounds.iter().map(Vec::as_slice).collect();
    let streams: Vec<&[f64]> = of.streams.iter().map(std::slice::from_ref).collect();
    (
        draw_latency(&rounds, options, number),
        draw_rates(&streams, options, number + 1),
    )
}

impl Target {
    /// Of its figure in a record.
    fn name(&self) -> String {
        format!("{} over {}", self.of.title(), self.over)
    }
}

/// A line for each target whose rows were measured.
pub(super) fn grid(record: &Record) -> Grid {
    let line = |target: &Target| {
        let cell = super::cell_of(target.beside);
        let found = record.at(target.row, &cell).ratio(&target.name())?;
        Some(vec![
            target.row.to_owned(),
            target.over.to_owned(),
            format!("{}, {}", target.of.title(), target.beside),
            target.bound.words(),
            ratio_words(Some(found)),
            target.bound.verdict(&found).to_owned(),
        ])
    };
    Grid {
        title: "targets; open: the interval has both sides".to_owned(),
        words: 4,
        headers: headers(["", "over", "figure", "asked", "reached", "verdict"]),
        rows: TARGETS.iter().filter_map(line).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::SETTINGS;
    use super::*;

    #[test]
    fn every_target_is_of_rows_that_there_are() {
        for target in &TARGETS {
            for row in [target.row, target.over] {
                assert!(SETTINGS.iter().any(|it| it.name == row), "{row}");
            }
        }
    }

    #[test]
    fn a_target_is_judged_by_both_rows_of_one_run() {
        let condition = |row, us: u64, mbit_per_s: f64| Condition {
            row,
            beside: Beside::NetStream,
            rounds: vec![(0..400).map(|it| (us + it % 7) * 1000).collect(); 3],
            streams: vec![mbit_per_s, mbit_per_s + 1.0, mbit_per_s],
        };
        let all = [
            condition("7.3", 1000, 400.0),
            condition("7.3-profile", 100, 300.0),
        ];
        let mut figures = Figures::default();
        add(&mut figures, &all, BootstrapOptions::default());
        let record = Record {
            figures: figures.all(),
            ..Record::default()
        };
        let verdicts: Vec<(String, String)> = grid(&record)
            .rows
            .into_iter()
            .map(|row| (row[2].clone(), row[5].clone()))
            .collect();
        let of = |what: &str| format!("{what}, {}", Beside::NetStream);
        assert_eq!(
            verdicts,
            [
                (of("p99"), "met".to_owned()),
                (of("stream"), "missed".to_owned())
            ]
        );
    }
}
