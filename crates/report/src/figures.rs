//! An experiment's figures on their way into a record: each by its row, its condition and its name.

use crate::results::{Figure, Interval, Over, RATIO};
use steadyvm_stats::bootstrap::Ratio;

/// Figures in the order in which they stand in results.json.
#[derive(Debug, Default)]
pub struct Figures {
    row: String,
    cell: String,
    all: Vec<Figure>,
}

impl Figures {
    /// What follows is of this row under this condition.
    pub fn at(&mut self, row: &str, cell: &str) {
        row.clone_into(&mut self.row);
        cell.clone_into(&mut self.cell);
    }

    /// A figure of `n` samples; one that is no number does not exist.
    pub fn value(&mut self, name: &str, unit: &str, n: u64, value: impl Into<Option<f64>>) {
        let value = value.into().filter(|it: &f64| it.is_finite());
        let figure = self.plain(name, unit, n, value);
        self.all.push(figure);
    }

    /// How many there were.
    pub fn count(&mut self, name: &str, unit: &str, value: u64) {
        self.value(name, unit, value, value as f64);
    }

    /// The rounds' own values of the figure that was last added by this name.
    pub fn rounds<V: Into<Option<f64>>>(
        &mut self,
        name: &str,
        values: impl IntoIterator<Item = V>,
    ) {
        let is_it = |it: &&mut Figure| it.name == name && it.over.is_none();
        if let Some(last) = self.all.iter_mut().rfind(is_it) {
            last.rounds = values.into_iter().map(Into::into).collect();
        }
    }

    /// The figure of this name over that of another row or condition, if there is such a ratio.
    pub fn ratio(&mut self, name: &str, (row, cell): (&str, &str), ratio: Option<Ratio>) {
        let Some(ratio) = ratio else { return };
        let interval = Interval {
            median: ratio.median,
            low: ratio.low,
            high: ratio.high,
        };
        self.plain_ratio(name, (row, cell), ratio.rounds as u64, Some(ratio.estimate));
        if let Some(last) = self.all.last_mut() {
            last.interval = Some(interval);
        }
    }

    /// One without an interval.
    pub fn plain_ratio(&mut self, name: &str, over: (&str, &str), n: u64, ratio: Option<f64>) {
        let Some(value) = ratio else { return };
        self.all.push(Figure {
            over: Some(Over {
                row: over.0.to_owned(),
                cell: over.1.to_owned(),
            }),
            ..self.plain(name, RATIO, n, Some(value))
        });
    }

    /// All of them.
    pub fn all(self) -> Vec<Figure> {
        self.all
    }

    fn plain(&self, name: &str, unit: &str, n: u64, value: Option<f64>) -> Figure {
        Figure {
            row: self.row.clone(),
            cell: self.cell.clone(),
            name: name.to_owned(),
            unit: unit.to_owned(),
            n,
            value,
            interval: None,
            over: None,
            rounds: Vec::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::Record;

    #[test]
    fn what_is_written_is_found() {
        let ratio = Ratio {
            estimate: 0.5,
            median: 0.6,
            low: None,
            high: Some(1.0),
            rounds: 3,
        };
        let mut figures = Figures::default();
        figures.at("row", "cell");
        figures.count("n", "jobs", 7);
        figures.value("mean", "us", 7, 0.25);
        figures.value("p99", "us", 7, None);
        figures.value("sd", "us", 7, f64::NAN);
        figures.rounds("mean", [0.25, 0.35]);
        figures.ratio("mean", ("row", "base"), Some(ratio));
        figures.ratio("p99", ("row", "base"), None);
        figures.plain_ratio("sd", ("row", "base"), 7, Some(1.5));
        let record = Record {
            figures: figures.all(),
            ..Record::default()
        };
        let at = record.at("row", "cell");
        assert_eq!((at.count("n"), at.value("mean")), (7, Some(0.25)));
        assert_eq!((at.value("p99"), at.value("sd")), (None, None));
        assert_eq!(at.figures().count(), 4);
        assert_eq!(at.rounds("mean"), [0.25, 0.35]);
        assert_eq!(at.ratio("mean"), Some(ratio));
        assert!(at.over("p99").is_none());
        let plain = at.over("sd").unwrap();
        assert_eq!((plain.value, plain.ratio()), (Some(1.5), None));
    }
}
