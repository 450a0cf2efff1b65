//! What attacks cost: a row's figures under each attack over those without one.

use super::account::{Account, charged_fraction};
use crate::engine::Figures;
use crate::engine::answer::{code, groups};
use crate::engine::latency::Latencies;
use crate::engine::results::{Figure, Record};
use steadyvm_report::text::{figure, ratio_words};
use steadyvm_report::{Answer, Finding, Grid, Over, Picture, duration_words, headers};
use steadyvm_stats::bootstrap::{BootstrapOptions, Draws, draw_latency, draw_rates, ratio};
use steadyvm_stats::mean;

/// The ratios' names.
pub(super) const P99: &str = "p99 over without";
pub(super) const STREAM: &str = "stream over without";
const RATE: &str = "attempts per second";
const CARRIED: &str = "stream";
/// Of the CPU time of packets, what is charged to a VM.
pub(super) const CHARGED: &str = "charged of spent";
/// Of the draws of latencies, the p99's number.
const P99_NUMBER: usize = 3;
/// Draws of the engine's own figures have lower numbers.
const FIRST_DRAW: u64 = 10_000;

/// What one row had under one condition.
#[derive(Debug)]
pub(super) struct Condition {
    /// The round trips.
    pub latencies: Latencies,
    /// The stream's rates of each second, by round, in Mbit/s.
    pub streams: Vec<Vec<f64>>,
    /// What the attack took of its machine, by round: attempts per second.
    pub attempts_per_s: Vec<f64>,
    /// CPU time of packets, by round, where steadyvm counts threads for a VM.
    pub accounts: Vec<Account>,
}

/// The figures of all conditions; each row's first is without an attack.
pub(super) fn figures(all: &[Condition], options: BootstrapOptions) -> Vec<Figure> {
    let mut figures = Figures::default();
    let drawn: Vec<(Draws<5>, Draws<1>)> = (0..)
        .zip(all)
        .map(|(number, it)| draws(it, number, options))
        .collect();
    for (it, (latency, stream)) in all.iter().zip(&drawn) {
        let (row, cell) = (&*it.latencies.row, &*it.latencies.cell);
        figures.at(row, cell);
        let rates = it.streams.iter().flatten().copied();
        let n = it.streams.iter().map(Vec::len).sum::<usize>() as u64;
        figures.value(CARRIED, "Mbit/s", n, mean(rates));
        figures.rounds(
            CARRIED,
            it.streams.iter().map(|round| mean(round.iter().copied())),
        );
        let rounds = it.attempts_per_s.len() as u64;
        figures.value(RATE, "1/s", rounds, mean(it.attempts_per_s.iter().copied()));
        let accounts = it.accounts.len() as u64;
        let percent = charged_fraction(&it.accounts).map(|it| 100.0 * it);
        figures.value(CHARGED, "%", accounts, percent);
        let mut others = all.iter().zip(&drawn);
        let Some((without, (latency_without, stream_without))) =
            others.find(|(other, _)| other.latencies.row == row)
        else {
            continue;
        };
        if without.latencies.cell == cell {
            continue;
        }
        let over = (row, &*without.latencies.cell);
        figures.ratio(P99, over, ratio(latency, latency_without, P99_NUMBER));
        figures.ratio(STREAM, over, ratio(stream, stream_without, 0));
    }
    figures.all()
}

fn draws(of: &Condition, number: u64, options: BootstrapOptions) -> (Draws<5>, Draws<1>) {
    let rounds: Vec<&[u64]> = of.latencies.rounds.iter().map(Vec::as_slice).collect();
    let streams: Vec<&[f64]> = of.streams.iter().map(Vec::as_slice).collect();
    let first = FIRST_DRAW + 2 * number;
    (
        draw_latency(&rounds, options, first),
        draw_rates(&streams, options, first + 1),
    )
}

/// A line for each row and attack.
pub(super) fn table(record: &Record) -> Grid {
    let line = |row: &String, cell: &String| {
        let at = record.at(row, cell);
        vec![
            row.clone(),
            cell.clone(),
            figure(at.value(RATE)),
            figure(at.value(CARRIED)),
            figure(at.value(CHARGED)),
            ratio_words(at.ratio(P99)),
            ratio_words(at.ratio(STREAM)),
        ]
    };
    let rows = record.rows.iter();
    Grid {
        title: "attacks, each row over its own without one".to_owned(),
        words: 2,
        headers: headers([
            "",
            "attack",
            "attempts/s",
            "Mbit/s",
            "charged, %",
            "p99/without",
            "stream/without",
        ]),
        rows: rows
            .flat_map(|row| record.cells.iter().map(move |cell| line(row, cell)))
            .collect(),
    }
}

/// The attack under which a row's ratio is the worst: the highest, or the lowest.
fn worst(record: &Record, row: &str, name: &str, highest: bool) -> Option<Over> {
    let ratios = record
        .cells
        .iter()
        .filter_map(|cell| record.at(row, cell).ratio(name));
    let sign = if highest { 1.0 } else { -1.0 };
    let worst =
        ratios.max_by(|one, other| (sign * one.estimate).total_cmp(&(sign * other.estimate)));
    worst.map(|it| Over::estimate(&it))
}

/// Each row's p99 and stream under the attack that is the worst for it.
pub(super) fn answer(record: &Record) -> Answer {
    let of = |row: &String, name, highest, over: &str| Finding::Ratio {
        of: code(row),
        over: over.to_owned(),
        ratio: worst(record, row, name, highest),
    };
    let p99 = |row| of(row, P99, true, "its p99 without an attack, under its worst");
    let stream = |row| {
        of(
            row,
            STREAM,
            false,
            "its stream without an attack, under its worst",
        )
    };
    let rows = record.rows.iter();
    let cells: Vec<(&str, &str)> = record.cells.iter().map(|it| (&**it, &**it)).collect();
    Answer {
        question: QUESTION.to_owned(),
        findings: rows.clone().map(p99).chain(rows.map(stream)).collect(),
        picture: Picture {
            title: "p99 of a round trip; shorter is better".to_owned(),
            groups: groups(record, &cells, "p99", duration_words),
        },
    }
}

const QUESTION: &str = "What does a neighbour that means harm cost a real-time VM?";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::adversary::NAME;
    use crate::engine::latency::assemble;

    /// A row whose p99 and stream are these under an attack and without.
    fn conditions(row: &str, cells: &[(&str, u64, f64)]) -> Vec<Condition> {
        let condition = |&(cell, us, mbit_per_s): &(&str, u64, f64)| {
            let round = |shift: u64| (0..600).map(|it| (us + it % 5 + shift) * 1000).collect();
            Condition {
                latencies: Latencies {
                    row: row.to_owned(),
                    cell: cell.to_owned(),
                    rounds: vec![round(0), round(1), round(2)],
                    lost: 0,
                    counts: Vec::new(),
                    deadline_ns: None,
                },
                streams: vec![
                    vec![mbit_per_s; 4],
                    vec![mbit_per_s + 1.0; 4],
                    vec![mbit_per_s; 4],
                ],
                attempts_per_s: vec![5000.0, 4000.0, 3000.0],
                accounts: match row {
                    "7.3" => Vec::new(),
                    _ => vec![
                        Account {
                            spent_ns: 1000,
                            charged_ns: 970,
                            ..Account::default()
                        };
                        3
                    ],
                },
            }
        };
        cells.iter().map(condition).collect()
    }

    fn record() -> Record {
        let mut all = conditions(
            "7.3",
            &[
                ("no attack", 1000, 800.0),
                ("flood", 5000, 200.0),
                ("arp", 2000, 790.0),
            ],
        );
        all.extend(conditions(
            "7.3-rt",
            &[
                ("no attack", 500, 600.0),
                ("flood", 505, 590.0),
                ("arp", 500, 300.0),
            ],
        ));
        let options = BootstrapOptions::default();
        let latencies: Vec<Latencies> = all.iter().map(|it| it.latencies.clone()).collect();
        let mut record = assemble(NAME, &latencies, options);
        record.figures.extend(figures(&all, options));
        record
    }

    #[test]
    fn an_attack_is_held_against_its_own_row_without_one() {
        let record = record();
        let flood = record.at("7.3", "flood").ratio(P99).unwrap();
        assert!(
            (4.8..5.1).contains(&flood.estimate) && flood.low.unwrap() > 4.0,
            "{flood:?}"
        );
        let stream = record.at("7.3", "flood").ratio(STREAM).unwrap();
        assert!((0.24..0.26).contains(&stream.estimate), "{stream:?}");
        let own = record.at("7.3-rt", "flood").ratio(P99).unwrap();
        assert!(
            (1.0..1.02).contains(&own.estimate),
            "not over the first row: {own:?}"
        );
        assert!(record.at("7.3", "no attack").ratio(P99).is_none());
        let rate = record.at("7.3", "arp").figure(RATE).unwrap();
        assert_eq!((rate.n, rate.value), (3, Some(4000.0)));
    }

    #[test]
    fn the_answer_is_of_each_rows_worst_attack() {
        let answer = answer(&record());
        let ratios: Vec<f64> = answer
            .findings
            .iter()
            .map(|it| match it {
                Finding::Ratio { ratio, .. } => ratio.unwrap().value,
                other => panic!("{other:?}"),
            })
            .collect();
        let expected = [5.0, 1.01, 0.25, 0.5];
        for (ratio, expected) in ratios.iter().zip(expected) {
            assert!((ratio / expected - 1.0).abs() < 0.03, "{ratios:?}");
        }
        let said = answer.in_short();
        assert!(said.starts_with("`7.3` has 4.9"), "{said}");
    }

    #[test]
    fn a_table_has_a_line_for_each_row_and_attack() {
        let record = record();
        let grid = table(&record);
        assert_eq!(grid.rows.len(), 6);
        assert!(grid.rows.iter().all(|row| row.len() == grid.headers.len()));
        assert_eq!(grid.rows[0][5], "-");
        assert_eq!((&*grid.rows[0][4], &*grid.rows[3][4]), ("-", "97.0"));
    }

    #[test]
    fn a_target_is_judged_under_each_attack() {
        let lines = crate::adversary::targets::grid(&record()).rows;
        let of = |row: usize| lines[row].join(" ");
        assert_eq!(of(0), "7.3 p99/without at most 1.3 0 0 2");
        assert_eq!(of(1), "7.3 stream/without at least 0.95 1 0 1");
        assert_eq!(of(2), "7.3-rt p99/without at most 1.3 2 0 0");
        assert_eq!(of(3), "7.3-rt stream/without at least 0.95 1 0 1");
        assert_eq!(of(4), "7.3-rt charged at least 95 % 2 0 0");
    }

    #[test]
    fn a_row_that_answers_nothing_under_an_attack_has_no_ratio() {
        let mut all = conditions("7.3", &[("no attack", 1000, 800.0), ("flood", 5000, 0.0)]);
        all[1].latencies.rounds = vec![Vec::new(); 3];
        all[1].streams = vec![vec![0.0]; 3];
        let figures = figures(&all, BootstrapOptions::default());
        assert!(figures.iter().all(|it| it.name != P99));
    }
}
