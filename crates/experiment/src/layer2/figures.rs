//! Figures of streams: longest gaps, who handed frames on, and p99 over stock of the same way in.

use super::cell::BESIDE_NEIGHBOUR;
use super::row::{Row, SETTINGS, Set};
use crate::engine::Figures;
use crate::engine::answer::{code, count, groups};
use crate::engine::latency::Latencies;
use crate::engine::results::{Figure, Record};
use steadyvm_report::text::{figure, ms, ratio_words};
use steadyvm_report::{Answer, Finding, Grid, Picture, duration_words, headers};
use steadyvm_stats::bootstrap::{BootstrapOptions, Draws, draw_latency, ratio};
use steadyvm_stats::mean;

/// The figures' names.
const P99: &str = "p99 over stock";
const GAP: &str = "longest gap";
const BY_NORMAL: &str = "handed on by normal threads";
const DISORDER: &str = "out of order";
const SENT: &str = "sent";
const STREAM: &str = "stream";
/// Of the draws of latencies, the p99's number.
const P99_NUMBER: usize = 3;
/// Draws of the engine's own figures have lower numbers.
const FIRST_DRAW: u64 = 10_000;
/// What a stream of a relay's host may be without a frame.
const LONGEST_GAP_US: f64 = 5_000.0;

/// What one row had under one condition.
#[derive(Debug)]
pub(super) struct Condition {
    pub row: Row,
    /// How much longer frames took than the fastest.
    pub latencies: Latencies,
    pub sent: u64,
    /// The longest time without a frame of a stream, by round.
    pub longest_gaps_us: Vec<f64>,
    pub out_of_order: u64,
    /// Frames that were handed to the relay's device, and those of them by normal threads.
    pub handed: (u64, u64),
    /// What the TCP stream carried, by round, in Mbit/s.
    pub streams: Vec<f64>,
}

/// The figures of all conditions.
pub(super) fn figures(all: &[Condition], options: BootstrapOptions) -> Vec<Figure> {
    let mut figures = Figures::default();
    let numbers = FIRST_DRAW..;
    let drawn: Vec<Draws<5>> = numbers
        .zip(all)
        .map(|(number, it)| {
            let rounds: Vec<&[u64]> = it.latencies.rounds.iter().map(Vec::as_slice).collect();
            draw_latency(&rounds, options, number)
        })
        .collect();
    for (it, draws) in all.iter().zip(&drawn) {
        let cell = &*it.latencies.cell;
        figures.at(&it.latencies.row, cell);
        figures.count(SENT, "frames", it.sent);
        let received = it.latencies.rounds.iter().map(Vec::len).sum::<usize>() as u64;
        let longest = it.longest_gaps_us.iter().copied().reduce(f64::max);
        figures.value(GAP, "us", received, longest);
        figures.rounds(GAP, it.longest_gaps_us.iter().copied());
        figures.value(DISORDER, "frames", received, it.out_of_order as f64);
        let (handed, by_normal) = it.handed;
        figures.value(BY_NORMAL, "frames", handed, by_normal as f64);
        if !it.streams.is_empty() {
            let rounds = it.streams.len() as u64;
            figures.value(STREAM, "Mbit/s", rounds, mean(it.streams.iter().copied()));
            figures.rounds(STREAM, it.streams.iter().copied());
        }
        let Some(stock) = it.row.stock() else {
            continue;
        };
        let mut others = all.iter().zip(&drawn);
        let found = others.find(|(other, _)| other.row == stock && other.latencies.cell == cell);
        if let Some((other, over)) = found {
            let place = (&*other.latencies.row, cell);
            figures.ratio(P99, place, ratio(draws, over, P99_NUMBER));
        }
    }
    figures.all()
}

/// A table for each condition, with a line for each row.
pub(super) fn tables(record: &Record) -> Vec<Grid> {
    let table = |cell: &String| Grid {
        title: format!("{cell}: frames"),
        words: 1,
        headers: headers([
            "",
            "sent",
            "disorder",
            "gap, ms",
            "normal, %",
            "Mbit/s",
            "p99/stock",
        ]),
        rows: record
            .rows
            .iter()
            .map(|row| line(record, cell, row))
            .collect(),
    };
    record.cells.iter().map(table).collect()
}

fn line(record: &Record, cell: &str, row: &str) -> Vec<String> {
    let at = record.at(row, cell);
    let by_normal = at.figure(BY_NORMAL).filter(|it| it.n > 0);
    let share = by_normal.and_then(|it| Some(100.0 * it.value? / it.n as f64));
    vec![
        row.to_owned(),
        at.count(SENT).to_string(),
        figure(at.value(DISORDER)),
        at.value(GAP).map_or_else(|| "-".to_owned(), ms),
        figure(share),
        figure(at.value(STREAM)),
        ratio_words(at.ratio(P99)),
    ]
}

/// Beside the neighbour: what is lost, the longest gap, and who hands frames on.
pub(super) fn answer(record: &Record) -> Answer {
    let cell = BESIDE_NEIGHBOUR.to_string();
    let rows = record.rows.iter();
    let of = |name: &'static str, what: &'static str| {
        let cell = &cell;
        rows.clone()
            .map(move |row| count(row, what, record.at(row, cell).figure(name)))
    };
    let lost = of("lost", "frames are lost beside a FIFO neighbour");
    let normal = of(BY_NORMAL, "there normal threads hand on");
    let gaps = rows.clone().filter_map(|row| {
        let gap_us = record.at(row, &cell).value(GAP)?;
        let asked = is_ours(row).then(|| ("at most 5 ms".to_owned(), gap_us <= LONGEST_GAP_US));
        Some(Finding::Bound {
            of: code(row),
            figure: "the longest gap there".to_owned(),
            words: duration_words(gap_us),
            bound: asked,
        })
    });
    let cells: Vec<(&str, &str)> = record.cells.iter().map(|it| (&**it, &**it)).collect();
    Answer {
        question: QUESTION.to_owned(),
        findings: lost.chain(gaps).chain(normal).collect(),
        picture: Picture {
            title: "longest time without a frame of a stream; shorter is better".to_owned(),
            groups: groups(record, &cells, GAP, duration_words),
        },
    }
}

const QUESTION: &str = "Does a relay in a VM get every frame of its streams in time?";

/// Whether something is set in a row.
fn is_ours(row: &str) -> bool {
    let setting = SETTINGS.iter().find(|it| it.name == row);
    let row = setting.and_then(Row::of);
    row.is_some_and(|it| it.set != Set::Nothing)
}

#[cfg(test)]
mod tests {
    use super::super::NAME;
    use super::super::cell::CELLS;
    use super::super::row::ROWS;
    use super::*;
    use crate::engine::latency::assemble;

    /// A row that waits so long in each condition, and loses and hands on so much.
    fn conditions(name: &str, us: u64, lost: u64, by_normal: u64) -> Vec<Condition> {
        let row = ROWS.into_iter().find(|it| it.setting.name == name).unwrap();
        let round = |shift: u64| (0..600).map(|it| (us + it % 5 + shift) * 1000).collect();
        let condition = |cell: super::super::cell::Cell| Condition {
            row,
            latencies: Latencies {
                row: row.to_string(),
                cell: cell.to_string(),
                rounds: vec![round(0), round(1), round(2)],
                lost,
                counts: Vec::new(),
                deadline_ns: None,
            },
            sent: 1800 + lost,
            longest_gaps_us: vec![us as f64, 3.0 * us as f64, 2.0 * us as f64],
            out_of_order: 7,
            handed: (1800, by_normal),
            streams: Vec::new(),
        };
        CELLS.map(condition).into()
    }

    fn record_of(all: &[Condition]) -> Record {
        let options = BootstrapOptions::default();
        let latencies: Vec<Latencies> = all.iter().map(|it| it.latencies.clone()).collect();
        let mut record = assemble(NAME, &latencies, options);
        record.figures.extend(figures(all, options));
        record
    }

    fn rows() -> Record {
        let mut all = conditions("7.3-macvtap", 40_000, 20, 1800);
        all.extend(conditions("7.3-bridge", 20_000, 5, 90));
        all.extend(conditions("7.3-rt-macvtap-steadyvm", 1000, 0, 0));
        record_of(&all)
    }

    #[test]
    fn p99_is_over_stock_of_the_same_way_in_under_the_same_condition() {
        let record = rows();
        let cell = BESIDE_NEIGHBOUR.to_string();
        let over = record
            .at("7.3-rt-macvtap-steadyvm", &cell)
            .ratio(P99)
            .unwrap();
        assert!((0.024..0.026).contains(&over.estimate), "{over:?}");
        assert!(record.at("7.3-bridge", &cell).ratio(P99).is_none());
        let alone = record_of(&conditions("7.3-rt-macvtap-steadyvm", 1000, 0, 0));
        assert!(alone.figures.iter().all(|it| it.name != P99));
    }

    #[test]
    fn the_longest_gap_is_that_of_all_rounds_and_judged_where_something_is_set() {
        let record = rows();
        let said = answer(&record).in_short();
        assert!(said.contains("20 of 1820 with"), "{said}");
        assert!(said.contains("1800 of 1800 with"), "{said}");
        assert!(
            said.contains("3 ms with `7.3-rt-macvtap-steadyvm`, kept"),
            "{said}"
        );
        let cell = CELLS[0].to_string();
        assert_eq!(record.at("7.3-macvtap", &cell).value(GAP), Some(120_000.0));
        assert!(is_ours("7.3-bridge-steadyvm") && !is_ours("7.3-rt-bridge"));
        assert!(!is_ours("another"));
    }

    #[test]
    fn every_condition_has_a_table_with_a_line_for_each_row_that_fits() {
        let grids = tables(&rows());
        assert_eq!(grids.len(), CELLS.len());
        for grid in &grids {
            assert_eq!(grid.rows.len(), 3);
            assert!(grid.rows.iter().all(|row| row.len() == grid.headers.len()));
            let mut text = String::new();
            grid.write(&mut text);
            let fits = text.lines().all(|line| line.chars().count() <= 100);
            assert!(fits, "{text}");
        }
        let shares = [0, 2].map(|row| &*grids[0].rows[row][4]);
        assert_eq!(shares, ["100.0", "0.0"]);
    }

    #[test]
    fn what_nobody_handed_on_has_no_share() {
        let mut all = conditions("7.3-bridge", 1000, 0, 0);
        for it in &mut all {
            it.handed = (0, 0);
            it.longest_gaps_us.clear();
            it.latencies.rounds = vec![Vec::new(); 3];
        }
        let grid = &tables(&record_of(&all))[0];
        assert_eq!((&*grid.rows[0][3], &*grid.rows[0][4]), ("-", "-"));
    }
}
