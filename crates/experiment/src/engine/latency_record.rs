//! Figures of latencies in results.json: what else a figure or the results have must be named here, too.

use super::Form;
use super::latency::{Figure, Results};
use super::results::{AnySettings, Record, ResultsError, Version};

impl From<Results> for Record<AnySettings> {
    fn from(results: Results) -> Self {
        let mut form = Form::writing();
        let mut figures = results.figures;
        for it in &mut figures {
            let first = first_of(&results.rows, it);
            form.at(&it.row, &it.cell);
            form.value(&it.name, &it.unit, it.n, &mut it.value);
            form.ratio(&it.name, (&first, &it.cell), &mut it.to_first);
        }
        Self {
            schema_version: Version,
            experiment: results.experiment,
            settings: AnySettings::new(),
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
            figures,
            notes: record.notes,
        })
    }
}
