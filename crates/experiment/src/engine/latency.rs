//! Results of experiments whose figures are percentiles of latencies: one shape, from which tables,
//! plots and samples.csv follow.

use super::Meta;
use serde::{Deserialize, Serialize};
use std::fmt::Write;
use std::path::Path;
use steadyvm_lab::Result;
use steadyvm_report::bars::{Bar, draw};
use steadyvm_report::text::{figure, ratio_words};
use steadyvm_report::{Grid, document, headers, joined, page};
use steadyvm_stats::Summary;
use steadyvm_stats::bootstrap::{BootstrapOptions, Draws, Ratio, draw_latency, ratio};

/// The version of results.json's shape.
pub const SCHEMA_VERSION: u32 = 1;
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
    /// What is later is missed, and what is lost; in nanoseconds.
    pub deadline_ns: Option<u64>,
}

/// results.json.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Results {
    /// [`SCHEMA_VERSION`].
    pub schema_version: u32,
    /// The experiment's name.
    pub experiment: String,
    /// Rows in the order shown.
    pub rows: Vec<String>,
    /// Conditions in the order shown.
    pub cells: Vec<String>,
    /// Rounds; with one, intervals cover variation within it only.
    pub rounds: u64,
    /// The deadline, where there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline_us: Option<f64>,
    /// Every figure of every row and cell.
    pub figures: Vec<Figure>,
    /// What a reader must know.
    pub notes: Vec<String>,
}

/// A figure of all rounds.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
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
    /// Of `misses`: how many were too late in each round.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rounds: Vec<u64>,
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
                rounds: Vec::new(),
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
        figures.extend(misses(it));
    }
    Results {
        schema_version: SCHEMA_VERSION,
        experiment: name.to_owned(),
        rows,
        cells,
        rounds: all.first().map_or(0, |it| it.rounds.len() as u64),
        deadline_us: all
            .iter()
            .find_map(|it| it.deadline_ns)
            .map(|ns| ns as f64 / 1e3),
        figures,
        notes: Vec::new(),
    }
}

/// How many were too late or lost, where there is a deadline.
fn misses(it: &Latencies) -> Option<Figure> {
    let deadline_ns = it.deadline_ns?;
    let late = |round: &Vec<u64>| round.iter().filter(|ns| **ns > deadline_ns).count() as u64;
    let rounds: Vec<u64> = it.rounds.iter().map(late).collect();
    let answered: usize = it.rounds.iter().map(Vec::len).sum();
    Some(Figure {
        row: it.row.clone(),
        cell: it.cell.clone(),
        name: "misses".to_owned(),
        unit: "jobs".to_owned(),
        n: answered as u64 + it.lost,
        value: Some((rounds.iter().sum::<u64>() + it.lost) as f64),
        to_first: None,
        rounds,
    })
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

    /// Deadlines where there is one, then a table for each cell.
    pub fn grids(&self) -> Vec<Grid> {
        self.of_deadline()
            .into_iter()
            .chain(self.of_cells())
            .collect()
    }

    /// A row for each row, a column for each cell: median and longest over the deadline, misses.
    fn of_deadline(&self) -> Option<Grid> {
        let deadline_us = self.deadline_us?;
        let over = |figure: &Figure| {
            let ratio = figure.value.map(|us| us / deadline_us);
            ratio.map_or_else(|| "-".to_owned(), |ratio| format!("{ratio:.2}"))
        };
        let of = |row: &String, cell: &String| -> Option<String> {
            let missed = self.figure(row, cell, "misses")?;
            let [median, longest] = [
                self.figure(row, cell, "p50")?,
                self.figure(row, cell, "max")?,
            ];
            let least = missed.rounds.iter().min()?;
            let most = missed.rounds.iter().max()?;
            Some(format!(
                "{} {} {:.0}/{} [{least}, {most}]",
                over(median),
                over(longest),
                missed.value?,
                missed.n
            ))
        };
        let cells_of = |row: &String| {
            let cells = self.cells.iter();
            let cells = cells.map(|cell| of(row, cell).unwrap_or_else(|| "-".to_owned()));
            std::iter::once(row.clone()).chain(cells).collect()
        };
        let names = std::iter::once(String::new()).chain(self.cells.clone());
        Some(Grid {
            title: "Median and longest over the deadline, missed of n [late in a round, least and most]"
                .to_owned(),
            words: 1,
            headers: names.collect(),
            rows: self.rows.iter().map(cells_of).collect(),
        })
    }

    fn of_cells(&self) -> Vec<Grid> {
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
) -> Result<()> {
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

    fn latencies(row: &str, cell: &str, us: u64) -> Latencies {
        let round = |shift: u64| (0..500).map(|it| (us + it % 7 + shift) * 1000).collect();
        Latencies {
            row: row.to_owned(),
            cell: cell.to_owned(),
            rounds: vec![round(0), round(1)],
            lost: 3,
            deadline_ns: None,
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
    fn what_is_late_or_lost_is_missed_and_shown_over_the_deadline() {
        let with_deadline = |row| Latencies {
            deadline_ns: Some(1_006_000),
            ..latencies(row, "alone", 1000)
        };
        let all = ["a", "b"].map(with_deadline);
        let results = assemble("x", &all, BootstrapOptions::default());
        let missed = results.figure("b", "alone", "misses").unwrap();
        // Of each seven, none of the first round is later than 1,006 us, and one of the second.
        assert_eq!(missed.rounds, [0, 71]);
        assert_eq!((missed.n, missed.value), (1003, Some(74.0)));
        let grids = results.grids();
        assert_eq!(grids.len(), 2);
        assert_eq!(
            grids[0].rows[1],
            ["b", "1.00 1.00 74/1003 [0, 71]"].map(str::to_owned)
        );
        let text = serde_json::to_string(&results).unwrap();
        assert_eq!(serde_json::from_str::<Results>(&text).unwrap(), results);
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
