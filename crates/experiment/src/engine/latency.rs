//! Experiments whose figures are percentiles of latencies: one list of figures, from which tables, plots and
//! samples.csv follow.

use super::results::{At, Record, Settings, Version};
use super::{Figures, Page};
use std::fmt::Write;
use steadyvm_report::bars::{Bar, draw};
use steadyvm_report::text::{figure, ratio_words};
use steadyvm_report::{Grid, headers, joined, page};
use steadyvm_stats::Summary;
use steadyvm_stats::bootstrap::{BootstrapOptions, Draws, draw_latency, ratio};

/// Figures of [`draw_latency`] by their number there.
const PERCENTILES: [(&str, usize); 3] = [("p50", 2), ("p99", 3), ("p99.9", 4)];
/// The setting that holds a deadline.
const DEADLINE_US: &str = "deadline_us";
/// The unit of a [`Count`]'s figure.
const SAMPLES: &str = "samples";

/// What one row had under one condition, all rounds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Latencies {
    /// What is compared, such as a method.
    pub row: String,
    /// The condition.
    pub cell: String,
    /// Latencies in nanoseconds by round, in the order of sending.
    pub rounds: Vec<Vec<u64>>,
    /// What was not answered in time.
    pub lost: u64,
    /// Which of the samples were of a kind that matters here.
    pub counts: Vec<Count>,
    /// What is later is missed, and what is lost; in nanoseconds.
    pub deadline_ns: Option<u64>,
}

/// How many samples were of a kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Count {
    /// The kind, and its column's title.
    pub name: &'static str,
    /// How many.
    pub samples: u64,
}

/// Words of an experiment's page.
#[derive(Debug, Clone, Copy)]
pub struct Words {
    /// The verb and the experiment's name.
    pub name: &'static str,
    /// What was done, a sentence.
    pub introduction: &'static str,
    /// What the columns mean, a sentence each.
    pub reading: &'static [&'static str],
    /// A table of the paper's own figures, if there is a paper.
    pub paper: Option<fn() -> Grid>,
}

/// Figures of latencies. The first row is what the others are held against.
pub fn assemble(name: &str, all: &[Latencies], options: BootstrapOptions) -> Record {
    let mut rows: Vec<String> = Vec::new();
    let mut cells: Vec<String> = Vec::new();
    for it in all {
        for (names, name) in [(&mut rows, &it.row), (&mut cells, &it.cell)] {
            if !names.contains(name) {
                names.push(name.clone());
            }
        }
    }
    let drawn: Vec<Draws<5>> = (1..)
        .zip(all)
        .map(|(stream, it)| {
            let rounds: Vec<&[u64]> = it.rounds.iter().map(Vec::as_slice).collect();
            draw_latency(&rounds, options, stream)
        })
        .collect();
    let mut figures = Figures::default();
    for (it, of) in all.iter().zip(&drawn) {
        figures.at(&it.row, &it.cell);
        // The first row under the same condition, and its draws.
        let first = all
            .iter()
            .zip(&drawn)
            .find(|(other, _)| other.cell == it.cell);
        let first = first.filter(|(other, _)| other.row != it.row);
        let pooled: Vec<u64> = it.rounds.concat();
        let summary = Summary::of(&pooled);
        let n = pooled.len() as u64;
        for (name, number) in PERCENTILES {
            let us = summary.as_ref().map(|it| percentile_us(it, number));
            figures.value(name, "us", n, us);
            if let Some((first, draws)) = first {
                figures.ratio(name, (&first.row, &first.cell), ratio(of, draws, number));
            }
        }
        let max = summary.as_ref().map(|it| it.max_ns as f64 / 1e3);
        figures.value("max", "us", n, max);
        figures.value("lost", "requests", n + it.lost, it.lost as f64);
        for count in &it.counts {
            figures.value(count.name, SAMPLES, n, count.samples as f64);
        }
        misses(&mut figures, it);
    }
    let deadline_us = all.iter().find_map(|it| it.deadline_ns);
    let deadline_us = deadline_us.map(|ns| (DEADLINE_US.to_owned(), (ns as f64 / 1e3).into()));
    Record {
        schema_version: Version,
        experiment: name.to_owned(),
        settings: Settings::from_iter(deadline_us),
        rounds: all.first().map_or(0, |it| it.rounds.len() as u64),
        rows,
        cells,
        figures: figures.all(),
        ..Record::default()
    }
}

/// How many were too late or lost, where there is a deadline; and how many were late in each round.
fn misses(figures: &mut Figures, it: &Latencies) {
    let Some(deadline_ns) = it.deadline_ns else {
        return;
    };
    let late = |round: &Vec<u64>| round.iter().filter(|ns| **ns > deadline_ns).count() as f64;
    let rounds: Vec<f64> = it.rounds.iter().map(late).collect();
    let answered: usize = it.rounds.iter().map(Vec::len).sum();
    let missed = rounds.iter().sum::<f64>() + it.lost as f64;
    figures.value("misses", "jobs", answered as u64 + it.lost, missed);
    figures.rounds("misses", rounds);
}

fn percentile_us(summary: &Summary, number: usize) -> f64 {
    let ns = match number {
        2 => summary.p50_ns,
        3 => summary.p99_ns,
        _ => summary.p999_ns,
    };
    ns as f64 / 1e3
}

/// What every row has under every condition.
pub fn required(_cell: &str) -> &'static [&'static str] {
    &["p50", "p99", "p99.9", "max", "lost"]
}

/// Deadlines where there is one, and a table for each cell.
pub fn grids(record: &Record) -> Vec<Grid> {
    let of_cells = record.cells.iter().map(|cell| of_cell(record, cell));
    of_deadline(record).into_iter().chain(of_cells).collect()
}

fn of_cell(record: &Record, cell: &str) -> Grid {
    let counts = counts_of(record, cell);
    let counted = counts.iter().copied().map(str::to_owned);
    let figures = headers(["p50", "p99", "p99.9", "max", "p50/first", "p99/first"]);
    let rows = record.rows.iter();
    Grid {
        title: format!("{cell}, µs"),
        words: 1,
        headers: headers(["", "n", "lost"])
            .into_iter()
            .chain(counted)
            .chain(figures)
            .collect(),
        rows: rows
            .map(|row| cells_of(record.at(row, cell), &counts))
            .collect(),
    }
}

/// A row for each row, a column for each cell: median and longest over the deadline, misses.
fn of_deadline(record: &Record) -> Option<Grid> {
    let deadline_us: f64 = record.setting(DEADLINE_US)?;
    let over = |us: Option<f64>| {
        let ratio = us.map(|us| us / deadline_us);
        ratio.map_or_else(|| "-".to_owned(), |ratio| format!("{ratio:.2}"))
    };
    let of = |at: At| -> Option<String> {
        let missed = at.figure("misses")?;
        let rounds = at.rounds("misses");
        let least = rounds.iter().copied().reduce(f64::min)?;
        let most = rounds.iter().copied().reduce(f64::max)?;
        Some(format!(
            "{} {} {:.0}/{} [{least}, {most}]",
            over(at.value("p50")),
            over(at.value("max")),
            missed.value?,
            missed.n
        ))
    };
    let cells_of = |row: &String| {
        let cells = record.cells.iter();
        let cells = cells.map(|cell| of(record.at(row, cell)).unwrap_or_else(|| "-".to_owned()));
        std::iter::once(row.clone()).chain(cells).collect()
    };
    let names = std::iter::once(String::new()).chain(record.cells.clone());
    Some(Grid {
        title:
            "Median and longest over the deadline, missed of n [late in a round, least and most]"
                .to_owned(),
        words: 1,
        headers: names.collect(),
        rows: record.rows.iter().map(cells_of).collect(),
    })
}

/// The kinds of samples that were counted in a cell.
fn counts_of<'r>(record: &'r Record, cell: &str) -> Vec<&'r str> {
    let mut names: Vec<&str> = Vec::new();
    let figures = record.figures.iter();
    for figure in figures.filter(|it| it.cell == cell && it.unit == SAMPLES) {
        if !names.contains(&&*figure.name) {
            names.push(&figure.name);
        }
    }
    names
}

fn cells_of(at: At, counts: &[&str]) -> Vec<String> {
    let n = at.figure("p50").map_or(0, |it| it.n);
    let mut cells = vec![
        at.row.to_owned(),
        n.to_string(),
        at.count("lost").to_string(),
    ];
    cells.extend(counts.iter().map(|name| at.count(name).to_string()));
    cells.extend(["p50", "p99", "p99.9", "max"].map(|name| figure(at.value(name))));
    cells.extend(["p50", "p99"].map(|name| ratio_words(at.ratio(name))));
    cells
}

/// What is shown of a record; `tables` are more tables, whose figures are in the record too.
pub fn page(record: &Record, words: &Words, tables: Vec<Grid>) -> Page {
    let cards = joined(&record.cells, |cell| card(record, cell));
    let mut grids = grids(record);
    grids.extend(tables);
    grids.extend(words.paper.map(|paper| paper()));
    Page {
        introduction: words.introduction.to_owned(),
        plots: page::cards("Percentiles", &cards),
        grids,
        reading: words.reading,
        notes: record.notes.clone(),
    }
}

fn card(record: &Record, cell: &str) -> String {
    let bars = |row: &String| {
        let bar = |(name, _)| Bar {
            name,
            value: record.at(row, cell).value(name),
            rounds: &[],
        };
        PERCENTILES.map(bar).into()
    };
    let rows = record.rows.iter();
    let groups: Vec<(&str, Vec<Bar>)> = rows.map(|row| (&**row, bars(row))).collect();
    draw(&groups, &format!("{cell}, µs"))
}

/// samples.csv: every latency, a line each.
pub fn samples_table(all: &[Latencies]) -> String {
    let mut table = String::from("row,cell,round,latency_ns\n");
    for it in all {
        for (round, latencies) in it.rounds.iter().enumerate() {
            for latency_ns in latencies {
                let (row, cell, round) = (&it.row, &it.cell, round + 1);
                // Writing to a string cannot fail.
                let _ = writeln!(table, "{row},{cell},{round},{latency_ns}");
            }
        }
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::results_checks::{require_old_shape_refused, require_shown_from_json};

    fn latencies(row: &str, cell: &str, us: u64) -> Latencies {
        let round = |shift: u64| (0..500).map(|it| (us + it % 7 + shift) * 1000).collect();
        Latencies {
            row: row.to_owned(),
            cell: cell.to_owned(),
            rounds: vec![round(0), round(1)],
            lost: 3,
            counts: Vec::new(),
            deadline_ns: None,
        }
    }

    fn results() -> Record {
        let all = [
            latencies("a", "alone", 1000),
            latencies("b", "alone", 500),
            latencies("a", "beside", 4000),
            latencies("b", "beside", 1000),
        ];
        assemble("x", &all, BootstrapOptions::default())
    }

    #[test]
    fn figures_are_of_all_rounds_and_over_the_first_row_under_the_same_condition() {
        let results = results();
        let p99 = results.at("b", "beside").figure("p99").unwrap();
        assert_eq!((p99.n, p99.value), (1000, Some(1007.0)));
        let ratio = results.at("b", "beside").ratio("p99").unwrap();
        assert!((ratio.estimate - 1007.0 / 4007.0).abs() < 1e-9, "{ratio:?}");
        assert_eq!(results.at("a", "beside").ratio("p99"), None);
        let lost = results.at("a", "alone").figure("lost").unwrap();
        assert_eq!((lost.value, lost.n), (Some(3.0), 1003));
    }

    #[test]
    fn the_tables_follow_from_results_json_alone_and_the_old_shape_is_refused() {
        require_shown_from_json(&results(), required, |it| {
            joined(grids(it), |grid| grid.html())
        });
        let old = r#"{"schema_version":1,"experiment":"x","rows":[],"cells":[],"rounds":1,"figures":[],"notes":[]}"#;
        require_old_shape_refused(old);
    }

    #[test]
    fn a_row_without_an_answer_has_no_figure() {
        let nothing = Latencies {
            rounds: vec![Vec::new()],
            ..latencies("a", "alone", 1)
        };
        let results = assemble("x", &[nothing], BootstrapOptions::default());
        assert_eq!(results.at("a", "alone").value("p99"), None);
        assert!(grids(&results)[0].rows[0].contains(&"-".to_owned()));
    }

    #[test]
    fn kinds_of_samples_have_columns_where_they_were_counted() {
        let late = Count {
            name: "late",
            samples: 7,
        };
        let counted = Latencies {
            counts: vec![late],
            ..latencies("a", "alone", 1)
        };
        let all = [counted, latencies("a", "beside", 1)];
        let results = assemble("x", &all, BootstrapOptions::default());
        let figure = results.at("a", "alone").figure("late").unwrap();
        assert_eq!((figure.value, figure.n), (Some(7.0), 1000));
        let grids = grids(&results);
        assert_eq!(
            (&*grids[0].headers[3], &*grids[0].rows[0][3]),
            ("late", "7")
        );
        assert!(!grids[1].headers.contains(&"late".to_owned()));
    }

    #[test]
    fn what_is_late_or_lost_is_missed_and_shown_over_the_deadline() {
        let with_deadline = |row| Latencies {
            deadline_ns: Some(1_006_000),
            ..latencies(row, "alone", 1000)
        };
        let all = ["a", "b"].map(with_deadline);
        let results = assemble("x", &all, BootstrapOptions::default());
        let missed = results.at("b", "alone").figure("misses").unwrap();
        // Of each seven, none of the first round is later than 1,006 us, and one of the second.
        assert_eq!(missed.rounds, [Some(0.0), Some(71.0)]);
        assert_eq!((missed.n, missed.value), (1003, Some(74.0)));
        let grids = grids(&results);
        assert_eq!(grids.len(), 2);
        assert_eq!(
            grids[0].rows[1],
            ["b", "1.00 1.00 74/1003 [0, 71]"].map(str::to_owned)
        );
        let text = serde_json::to_string(&results).unwrap();
        assert_eq!(serde_json::from_str::<Record>(&text).unwrap(), results);
    }

    #[test]
    fn a_table_has_a_row_for_each_row_and_fits() {
        let grids = grids(&results());
        assert_eq!(grids.len(), 2);
        for grid in grids {
            let mut text = String::new();
            grid.write(&mut text);
            assert_eq!(text.lines().count(), 4);
            assert!(
                text.lines().all(|line| line.chars().count() <= 100),
                "{text}"
            );
        }
    }
}
