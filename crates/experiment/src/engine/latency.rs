//! Results of experiments whose figures are percentiles of latencies: one shape, from which tables,
//! plots and samples.csv follow.

use super::Meta;
use super::results::{AnySettings, Record};
use serde::{Deserialize, Serialize};
use std::fmt::Write;
use std::path::Path;
use steadyvm_report::bars::{Bar, draw};
use steadyvm_report::text::{figure, ratio_words};
use steadyvm_report::{Grid, document, headers, joined, page};
use steadyvm_stats::Summary;
use steadyvm_stats::bootstrap::{BootstrapOptions, Draws, Ratio, draw_latency, ratio};

/// Figures of [`draw_latency`] by their number there.
const PERCENTILES: [(&str, usize); 3] = [("p50", 2), ("p99", 3), ("p99.9", 4)];

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
}

/// What tables and plots are made of: a view of results.json.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(into = "Record<AnySettings>", try_from = "Record<AnySettings>")]
pub struct Results {
    /// The experiment's name.
    pub experiment: String,
    /// Rows in the order shown.
    pub rows: Vec<String>,
    /// Conditions in the order shown.
    pub cells: Vec<String>,
    /// Rounds; with one, intervals cover variation within it only.
    pub rounds: u64,
    /// Every figure of every row and cell.
    pub figures: Vec<Figure>,
    /// What a reader must know.
    pub notes: Vec<String>,
}

/// A figure of all rounds.
#[derive(Debug, Clone, PartialEq)]
pub struct Figure {
    /// Whose.
    pub row: String,
    /// Under which condition.
    pub cell: String,
    /// Its name, such as `p99`.
    pub name: String,
    /// Its unit.
    pub unit: String,
    /// How many samples it is of.
    pub n: u64,
    /// Its value; `None` without a sample.
    pub value: Option<f64>,
    /// It over the first row's under the same condition; `None` for the first row.
    pub to_first: Option<Ratio>,
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
    /// A table of the paper's own figures.
    pub paper: fn() -> Grid,
}

/// Figures of latencies. The first row is what the others are held against.
pub fn assemble(name: &str, all: &[Latencies], options: BootstrapOptions) -> Results {
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
    let mut figures = Vec::new();
    for (it, of) in all.iter().zip(&drawn) {
        let first = all.iter().position(|other| other.cell == it.cell);
        let first = first.filter(|&index| all[index].row != it.row);
        let pooled: Vec<u64> = it.rounds.concat();
        let summary = Summary::of(&pooled);
        let mut add = |name: &str, unit: &str, n, value, to_first| {
            figures.push(Figure {
                row: it.row.clone(),
                cell: it.cell.clone(),
                name: name.to_owned(),
                unit: unit.to_owned(),
                n,
                value,
                to_first,
            });
        };
        let n = pooled.len() as u64;
        for (name, number) in PERCENTILES {
            let us = summary.as_ref().map(|it| percentile_us(it, number));
            let to_first = first.and_then(|index| ratio(of, &drawn[index], number));
            add(name, "us", n, us, to_first);
        }
        let max = summary.as_ref().map(|it| it.max_ns as f64 / 1e3);
        add("max", "us", n, max, None);
        add("lost", "requests", n + it.lost, Some(it.lost as f64), None);
    }
    Results {
        experiment: name.to_owned(),
        rows,
        cells,
        rounds: all.first().map_or(0, |it| it.rounds.len() as u64),
        figures,
        notes: Vec::new(),
    }
}

fn percentile_us(summary: &Summary, number: usize) -> f64 {
    let ns = match number {
        2 => summary.p50_ns,
        3 => summary.p99_ns,
        _ => summary.p999_ns,
    };
    ns as f64 / 1e3
}

impl Results {
    /// A figure by its row, cell and name.
    pub fn figure(&self, row: &str, cell: &str, name: &str) -> Option<&Figure> {
        let mut figures = self.figures.iter();
        figures.find(|it| (&*it.row, &*it.cell, &*it.name) == (row, cell, name))
    }

    /// A table for each cell.
    pub fn grids(&self) -> Vec<Grid> {
        let grid = |cell: &String| Grid {
            title: format!("{cell}, µs"),
            words: 1,
            headers: headers([
                "",
                "n",
                "lost",
                "p50",
                "p99",
                "p99.9",
                "max",
                "p50/first",
                "p99/first",
            ]),
            rows: self
                .rows
                .iter()
                .map(|row| self.cells_of(row, cell))
                .collect(),
        };
        self.cells.iter().map(grid).collect()
    }

    fn cells_of(&self, row: &str, cell: &str) -> Vec<String> {
        let found = |name: &str| self.figure(row, cell, name);
        let value = |name| figure(found(name).and_then(|it| it.value));
        let over_first = |name| ratio_words(found(name).and_then(|it| it.to_first));
        vec![
            row.to_owned(),
            found("p50").map_or(0, |it| it.n).to_string(),
            found("lost")
                .map_or(0.0, |it| it.value.unwrap_or(0.0))
                .to_string(),
            value("p50"),
            value("p99"),
            value("p99.9"),
            value("max"),
            over_first("p50"),
            over_first("p99"),
        ]
    }

    /// The tables for a terminal. Ends with a newline.
    pub fn text(&self, words: &Words) -> String {
        let mut grids = self.grids();
        grids.push((words.paper)());
        document(words.introduction, &grids, words.reading, &self.notes)
    }

    /// The report as HTML.
    pub fn html(&self, words: &Words, meta: &Meta) -> String {
        let about = super::report_meta(words.name, meta);
        let mut html = page::introduced(&about, words.introduction, &self.notes);
        html += &page::cards("Percentiles", &joined(&self.cells, |cell| self.card(cell)));
        html += &joined(self.grids(), |grid| grid.html());
        html += &(words.paper)().html();
        html + &page::reading(words.reading)
    }

    fn card(&self, cell: &str) -> String {
        let bar = |row: &String, name: &'static str| Bar {
            name,
            value: self.figure(row, cell, name).and_then(|it| it.value),
            rounds: &[],
        };
        let bars = |row: &String| PERCENTILES.map(|(name, _)| bar(row, name)).into();
        let groups: Vec<(&str, Vec<Bar>)> =
            self.rows.iter().map(|row| (&**row, bars(row))).collect();
        draw(&groups, &format!("{cell}, µs"))
    }
}

/// Writes results.json, meta.json, samples.csv and report.html.
///
/// # Errors
/// A file that cannot be written.
pub fn write_output(
    directory: &Path,
    all: &[Latencies],
    results: &Results,
    words: &Words,
    meta: &Meta,
) -> steadyvm_lab::Result<()> {
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
    let report = results.html(words, meta);
    super::write_run(directory, results, meta, &report, &[("samples.csv", table)])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::results::tests::{require_old_shape_refused, require_shown_from_json};

    fn latencies(row: &str, cell: &str, us: u64) -> Latencies {
        let round = |shift: u64| (0..500).map(|it| (us + it % 7 + shift) * 1000).collect();
        Latencies {
            row: row.to_owned(),
            cell: cell.to_owned(),
            rounds: vec![round(0), round(1)],
            lost: 3,
        }
    }

    fn results() -> Results {
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
        let p99 = results.figure("b", "beside", "p99").unwrap();
        assert_eq!((p99.n, p99.value), (1000, Some(1007.0)));
        let ratio = p99.to_first.unwrap();
        assert!((ratio.estimate - 1007.0 / 4007.0).abs() < 1e-9, "{ratio:?}");
        assert_eq!(results.figure("a", "beside", "p99").unwrap().to_first, None);
        let lost = results.figure("a", "alone", "lost").unwrap();
        assert_eq!((lost.value, lost.n), (Some(3.0), 1003));
    }

    #[test]
    fn the_tables_follow_from_results_json_alone_and_the_old_shape_is_refused() {
        require_shown_from_json(&results(), |it| joined(it.grids(), |grid| grid.html()));
        let old = r#"{"schema_version":1,"experiment":"x","rows":[],"cells":[],"rounds":1,"figures":[],"notes":[]}"#;
        require_old_shape_refused::<Results>(old);
    }

    #[test]
    fn a_row_without_an_answer_has_no_figure() {
        let nothing = Latencies {
            rounds: vec![Vec::new()],
            ..latencies("a", "alone", 1)
        };
        let results = assemble("x", &[nothing], BootstrapOptions::default());
        assert_eq!(results.figure("a", "alone", "p99").unwrap().value, None);
        assert!(results.grids()[0].rows[0].contains(&"-".to_owned()));
    }

    #[test]
    fn a_table_has_a_row_for_each_row_and_fits() {
        let grids = results().grids();
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
