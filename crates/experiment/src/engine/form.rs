//! An experiment's own figures to and from results.json, by one list of names for both directions.

use super::results::{Figure, Interval, Over, RATIO, ResultsError};
use std::collections::BTreeMap;
use steadyvm_stats::bootstrap::Ratio;

/// Writes the figures that it is shown, or fills them in from those of a record.
#[derive(Debug)]
pub struct Form {
    direction: Direction,
    row: String,
    cell: String,
}

#[derive(Debug)]
enum Direction {
    Writes(Vec<Figure>),
    Reads {
        figures: BTreeMap<Key, Figure>,
        missing: Option<ResultsError>,
    },
}

/// Row, cell and name, and whether it is a ratio.
type Key = (String, String, String, bool);

impl Form {
    /// One that writes.
    pub fn writing() -> Self {
        Self {
            direction: Direction::Writes(Vec::new()),
            row: String::new(),
            cell: String::new(),
        }
    }

    /// One that reads a record's figures.
    pub fn reading(figures: Vec<Figure>) -> Self {
        let keyed = figures.into_iter().map(|it| {
            let key = (it.row.clone(), it.cell.clone(), it.name.clone());
            ((key.0, key.1, key.2, it.over.is_some()), it)
        });
        Self {
            direction: Direction::Reads {
                figures: keyed.collect(),
                missing: None,
            },
            ..Self::writing()
        }
    }

    /// What follows is of this row under this condition.
    pub fn at(&mut self, row: &str, cell: &str) {
        row.clone_into(&mut self.row);
        cell.clone_into(&mut self.cell);
    }

    /// A figure of `n` samples that may not exist.
    pub fn value(&mut self, name: &str, unit: &str, n: u64, value: &mut Option<f64>) {
        if let Some(figure) = self.figure(name, unit, n, *value) {
            *value = figure.value;
        }
    }

    /// A figure of `n` samples that always exists.
    pub fn number(&mut self, name: &str, unit: &str, n: u64, value: &mut f64) {
        if let Some(figure) = self.figure(name, unit, n, Some(*value)) {
            match figure.value {
                Some(found) => *value = found,
                None => self.miss(name),
            }
        }
    }

    /// How many there were.
    pub fn count(&mut self, name: &str, unit: &str, value: &mut u64) {
        let mut number = *value as f64;
        self.number(name, unit, *value, &mut number);
        if matches!(self.direction, Direction::Reads { .. }) {
            // Saturates at what no count is.
            *value = number as u64;
        }
    }

    /// The rounds' own values of the figure that was last shown by this name.
    pub fn rounds(&mut self, name: &str, values: Vec<Option<f64>>) -> Vec<Option<f64>> {
        match &mut self.direction {
            Direction::Writes(figures) => {
                if let Some(last) = figures
                    .iter_mut()
                    .rfind(|it| it.name == name && it.over.is_none())
                {
                    last.rounds.clone_from(&values);
                }
                values
            }
            Direction::Reads { figures, .. } => {
                let key = (self.row.clone(), self.cell.clone(), name.to_owned(), false);
                figures
                    .get(&key)
                    .map(|it| it.rounds.clone())
                    .unwrap_or_default()
            }
        }
    }

    /// As [`rounds`](Self::rounds), where no round lacks a value.
    pub fn all_rounds(&mut self, name: &str, values: &mut Vec<f64>) {
        let found = self.rounds(name, values.iter().copied().map(Some).collect());
        *values = found.into_iter().flatten().collect();
    }

    /// The figure of this name over that of another row or cell.
    pub fn ratio(&mut self, name: &str, over: (&str, &str), ratio: &mut Option<Ratio>) {
        let (row, cell) = (self.row.clone(), self.cell.clone());
        match &mut self.direction {
            Direction::Writes(figures) => {
                figures.extend(ratio.map(|it| ratio_figure([&row, &cell, name], over, it)));
            }
            Direction::Reads { figures, .. } => {
                let found = figures.get(&(row, cell, name.to_owned(), true));
                *ratio = found.and_then(ratio_of);
            }
        }
    }

    /// A ratio without an interval.
    pub fn plain_ratio(&mut self, name: &str, over: (&str, &str), n: u64, ratio: &mut Option<f64>) {
        let (row, cell) = (self.row.clone(), self.cell.clone());
        match &mut self.direction {
            Direction::Writes(figures) => figures.extend(ratio.map(|value| Figure {
                unit: RATIO.to_owned(),
                over: Some(over_of(over)),
                ..plain([&row, &cell, name], "", n, Some(value))
            })),
            Direction::Reads { figures, .. } => {
                let found = figures.get(&(row, cell, name.to_owned(), true));
                *ratio = found.and_then(|it| it.value);
            }
        }
    }

    /// What is there if the figure of this name is.
    pub fn optional<'a, T: Default>(
        &self,
        name: &str,
        value: &'a mut Option<T>,
    ) -> Option<&'a mut T> {
        if let Direction::Reads { figures, .. } = &self.direction {
            let key = (self.row.clone(), self.cell.clone(), name.to_owned(), false);
            *value = figures.contains_key(&key).then(T::default);
        }
        value.as_mut()
    }

    /// Figures whose names are in what was measured: each is called `prefix` and its key.
    pub fn keyed(&mut self, prefix: &str, unit: &str, n: u64, values: &mut BTreeMap<String, f64>) {
        if let Direction::Reads { figures, .. } = &self.direction {
            let here = figures
                .keys()
                .filter(|it| (&it.0, &it.1) == (&self.row, &self.cell));
            let keys = here.filter_map(|it| it.2.strip_prefix(prefix));
            *values = keys.map(|it| (it.to_owned(), 0.0)).collect();
        }
        for (key, value) in values {
            self.number(&format!("{prefix}{key}"), unit, n, value);
        }
    }

    /// The figures that were shown.
    pub fn written(self) -> Vec<Figure> {
        match self.direction {
            Direction::Writes(figures) => figures,
            Direction::Reads { figures, .. } => figures.into_values().collect(),
        }
    }

    /// Ends the reading.
    ///
    /// # Errors
    /// A figure that always exists was not there.
    pub fn read(self) -> Result<(), ResultsError> {
        match self.direction {
            Direction::Reads {
                missing: Some(missing),
                ..
            } => Err(missing),
            _ => Ok(()),
        }
    }

    /// Writes it; or finds what is read.
    fn figure(&mut self, name: &str, unit: &str, n: u64, value: Option<f64>) -> Option<Figure> {
        let (row, cell) = (self.row.clone(), self.cell.clone());
        let found = match &mut self.direction {
            Direction::Writes(figures) => {
                figures.push(plain([&row, &cell, name], unit, n, value));
                return None;
            }
            Direction::Reads { figures, .. } => {
                figures.get(&(row, cell, name.to_owned(), false)).cloned()
            }
        };
        if found.is_none() {
            self.miss(name);
        }
        found
    }

    fn miss(&mut self, name: &str) {
        let (row, cell) = (self.row.clone(), self.cell.clone());
        if let Direction::Reads { missing, .. } = &mut self.direction {
            missing.get_or_insert_with(|| ResultsError::Missing {
                name: name.to_owned(),
                row,
                cell,
            });
        }
    }
}

fn plain([row, cell, name]: [&str; 3], unit: &str, n: u64, value: Option<f64>) -> Figure {
    Figure {
        row: row.to_owned(),
        cell: cell.to_owned(),
        name: name.to_owned(),
        unit: unit.to_owned(),
        n,
        value,
        interval: None,
        over: None,
        rounds: Vec::new(),
    }
}

fn over_of((row, cell): (&str, &str)) -> Over {
    Over {
        row: row.to_owned(),
        cell: cell.to_owned(),
    }
}

/// A ratio as a figure, by row, cell and name.
pub fn ratio_figure(place: [&str; 3], over: (&str, &str), ratio: Ratio) -> Figure {
    Figure {
        interval: Some(Interval {
            median: ratio.median,
            low: ratio.low,
            high: ratio.high,
        }),
        over: Some(over_of(over)),
        ..plain(place, RATIO, ratio.rounds as u64, Some(ratio.estimate))
    }
}

/// A figure as a ratio, if it is one with an interval.
pub fn ratio_of(figure: &Figure) -> Option<Ratio> {
    let interval = figure.interval?;
    Some(Ratio {
        estimate: figure.value?,
        median: interval.median,
        low: interval.low,
        high: interval.high,
        rounds: figure.n as usize,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, Clone, Default, PartialEq)]
    struct View {
        n: u64,
        mean: f64,
        p99: Option<f64>,
        to_base: Option<Ratio>,
        more: Option<u64>,
        by_name: BTreeMap<String, f64>,
        each: Vec<f64>,
    }

    fn describe(form: &mut Form, it: &mut View) {
        form.at("row", "cell");
        form.count("n", "jobs", &mut it.n);
        form.number("mean", "us", it.n, &mut it.mean);
        form.all_rounds("mean", &mut it.each);
        form.value("p99", "us", it.n, &mut it.p99);
        form.ratio("p99", ("row", "base"), &mut it.to_base);
        if let Some(more) = form.optional("more", &mut it.more) {
            form.count("more", "jobs", more);
        }
        form.keyed("by.", "per job", it.n, &mut it.by_name);
    }

    fn there_and_back(mut view: View) -> View {
        let mut form = Form::writing();
        describe(&mut form, &mut view);
        let mut form = Form::reading(form.written());
        let mut again = View::default();
        describe(&mut form, &mut again);
        form.read().unwrap();
        assert_eq!(again, view);
        again
    }

    #[test]
    fn what_is_written_is_read() {
        there_and_back(View::default());
        there_and_back(View {
            n: 7,
            mean: 0.1 + 0.2,
            p99: Some(5.0),
            to_base: Some(Ratio {
                estimate: 0.5,
                median: 0.6,
                low: None,
                high: Some(1.0),
                rounds: 3,
            }),
            more: Some(0),
            by_name: [("x".to_owned(), 1.5)].into(),
            each: vec![0.25, 0.35],
        });
    }

    #[test]
    fn a_figure_that_must_be_there_and_is_not_is_named() {
        let mut form = Form::writing();
        describe(&mut form, &mut View::default());
        let mut figures = form.written();
        figures.retain(|it| it.name != "mean");
        let mut form = Form::reading(figures);
        describe(&mut form, &mut View::default());
        let said = form.read().unwrap_err().to_string();
        assert!(said.contains("`mean` of `row` under `cell`"), "{said}");
    }
}
