//! Figures of latencies in results.json: what else a figure or the results have must be named here, too.

use super::Form;
use super::latency::{Figure, Results};
use super::results::{AnySettings, Record, ResultsError, Version};

/// The setting that holds a deadline.
const DEADLINE_US: &str = "deadline_us";

impl From<Results> for Record<AnySettings> {
    fn from(results: Results) -> Self {
        let mut form = Form::writing();
        let mut figures = results.figures;
        for it in &mut figures {
            let first = first_of(&results.rows, it);
            form.at(&it.row, &it.cell);
            form.value(&it.name, &it.unit, it.n, &mut it.value);
            let rounds = it.rounds.iter().map(|&late| Some(late as f64)).collect();
            form.rounds(&it.name, rounds);
            form.ratio(&it.name, (&first, &it.cell), &mut it.to_first);
        }
        let deadline = results
            .deadline_us
            .map(|us| (DEADLINE_US.to_owned(), us.into()));
        Self {
            schema_version: Version,
            experiment: results.experiment,
            settings: deadline.into_iter().collect(),
            rounds: results.rounds,
            rows: results.rows,
            cells: results.cells,
            figures: form.written(),
            curves: Vec::new(),
            notes: results.notes,
        }
    }
}

/// The row that a figure's ratio is over.
fn first_of(rows: &[String], figure: &Figure) -> String {
    rows.first().unwrap_or(&figure.row).clone()
}

impl TryFrom<Record<AnySettings>> for Results {
    type Error = ResultsError;

    fn try_from(record: Record<AnySettings>) -> Result<Self, ResultsError> {
        let plain = record.figures.iter().filter(|it| it.over.is_none());
        let mut figures: Vec<Figure> = plain
            .map(|it| Figure {
                row: it.row.clone(),
                cell: it.cell.clone(),
                name: it.name.clone(),
                unit: it.unit.clone(),
                n: it.n,
                value: it.value,
                to_first: None,
                rounds: it
                    .rounds
                    .iter()
                    .flatten()
                    .map(|&late| late as u64)
                    .collect(),
            })
            .collect();
        let mut form = Form::reading(record.figures);
        for it in &mut figures {
            let first = first_of(&record.rows, it);
            form.at(&it.row, &it.cell);
            form.ratio(&it.name, (&first, &it.cell), &mut it.to_first);
        }
        form.read()?;
        Ok(Self {
            experiment: record.experiment,
            rows: record.rows,
            cells: record.cells,
            rounds: record.rounds,
            deadline_us: record
                .settings
                .get(DEADLINE_US)
                .and_then(serde_json::Value::as_f64),
            figures,
            notes: record.notes,
            tables: Vec::new(),
        })
    }
}
