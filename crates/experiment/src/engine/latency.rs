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
    /// The deadline, where there is one.
    pub deadline_us: Option<f64>,
    /// Every figure of every row and cell.
    pub figures: Vec<Figure>,
    /// What a reader must know.
    pub notes: Vec<String>,
    /// More tables of the page. What they show is among the figures.
    pub tables: Vec<Grid>,
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
    /// Of `misses`: how many were too late in each round.
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
    /// A table of the paper's own figures, if there is a paper.
    pub paper: Option<fn() -> Grid>,
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
        for count in &it.counts {
            add(count.name, "samples", n, Some(count.samples as f64), None);
        }
        figures.extend(misses(it));
    }
    Results {
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
        tables: Vec::new(),
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

    /// Deadlines where there is one, a table for each cell, and the other tables.
    pub fn grids(&self) -> Vec<Grid> {
        let of_cells = self.cells.iter().map(|cell| self.of_cell(cell));
        self.of_deadline()
            .into_iter()
            .chain(of_cells)
            .chain(self.tables.iter().cloned())
            .collect()
    }

    fn of_cell(&self, cell: &str) -> Grid {
        let counts = self.counts_of(cell);
        let counted = counts.iter().copied().map(str::to_owned);
        let figures = headers(["p50", "p99", "p99.9", "max", "p50/first", "p99/first"]);
        Grid {
            title: format!("{cell}, µs"),
            words: 1,
            headers: headers(["", "n", "lost"])
                .into_iter()
                .chain(counted)
                .chain(figures)
                .collect(),
            rows: self
                .rows
                .iter()
                .map(|row| self.cells_of(row, cell, &counts))
                .collect(),
        }
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

    /// The kinds of samples that were counted in a cell.
    fn counts_of(&self, cell: &str) -> Vec<&str> {
        let mut names: Vec<&str> = Vec::new();
        let figures = self.figures.iter();
        for figure in figures.filter(|it| it.cell == cell && it.unit == "samples") {
            if !names.contains(&&*figure.name) {
                names.push(&figure.name);
            }
        }
        names
    }

    fn cells_of(&self, row: &str, cell: &str, counts: &[&str]) -> Vec<String> {
        let found = |name: &str| self.figure(row, cell, name);
        let value = |name| figure(found(name).and_then(|it| it.value));
        let over_first = |name| ratio_words(found(name).and_then(|it| it.to_first));
        let whole = |name| {
            let value = found(name).and_then(|it| it.value);
            value.unwrap_or(0.0).to_string()
        };
        let mut cells = vec![
            row.to_owned(),
            found("p50").map_or(0, |it| it.n).to_string(),
            whole("lost"),
        ];
        cells.extend(counts.iter().copied().map(whole));
        cells.extend([
            value("p50"),
            value("p99"),
            value("p99.9"),
            value("max"),
            over_first("p50"),
            over_first("p99"),
        ]);
        cells
    }

    /// The tables for a terminal. Ends with a newline.
    pub fn text(&self, words: &Words) -> String {
        let mut grids = self.grids();
        grids.extend(words.paper.map(|paper| paper()));
        document(words.introduction, &grids, words.reading, &self.notes)
    }

    /// The report as HTML.
    pub fn html(&self, words: &Words, meta: &Meta) -> String {
        let about = super::report_meta(words.name, meta);
        let mut html = page::introduced(&about, words.introduction, &self.notes);
        html += &page::cards("Percentiles", &joined(&self.cells, |cell| self.card(cell)));
        html += &joined(self.grids(), |grid| grid.html());
        html += &words.paper.map_or_else(String::new, |paper| paper().html());
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
            counts: Vec::new(),
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
        let figure = results.figure("a", "alone", "late").unwrap();
        assert_eq!((figure.value, figure.n), (Some(7.0), 1000));
        let grids = results.grids();
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
