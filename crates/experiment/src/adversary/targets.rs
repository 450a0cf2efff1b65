//! What a host is to keep under attacks, and under how many of them each row does.

use super::figures::{CHARGED, P99, STREAM};
use crate::engine::Bound;
use crate::engine::results::Record;
use steadyvm_report::{Grid, headers};

/// A figure's title, its name in a record, and the bound.
const TARGETS: [(&str, &str, Bound); 2] = [
    ("p99/without", P99, Bound::AtMost(1.3)),
    ("stream/without", STREAM, Bound::AtLeast(0.95)),
];

/// Percent of the CPU time of packets that is charged to a VM. An exact count: no interval.
const LEAST_CHARGED: f64 = 95.0;

/// The line of what a row charges; `None` where it counts no VM's threads.
fn charged(record: &Record, row: &str) -> Option<Vec<String>> {
    let attacks = record.cells.iter().skip(1);
    let charged: Vec<f64> = attacks
        .filter_map(|cell| record.at(row, cell).value(CHARGED))
        .collect();
    let met = charged.iter().filter(|it| **it >= LEAST_CHARGED).count();
    let missed = charged.len() - met;
    let number = |it: usize| it.to_string();
    (!charged.is_empty()).then(|| {
        vec![
            row.to_owned(),
            "charged".to_owned(),
            format!("at least {LEAST_CHARGED} %"),
            number(met),
            number(0),
            number(missed),
        ]
    })
}

/// A line for each row and target.
pub(super) fn grid(record: &Record) -> Grid {
    let line = |row: &String, (title, name, bound): (&str, &str, Bound)| {
        // The first condition has no attack.
        let attacks = record.cells.iter().skip(1);
        let verdicts: Vec<&str> = (attacks.map(|cell| record.at(row, cell)))
            .map(|at| match at.ratio(name) {
                Some(ratio) => bound.verdict(&ratio),
                // So few replies came that there is no p99.
                None if at.count("lost") > 0 => "missed",
                None => "open",
            })
            .collect();
        let number = |verdict: &str| verdicts.iter().filter(|it| **it == verdict).count();
        let mut cells = vec![row.clone(), title.to_owned(), bound.words()];
        cells.extend(["met", "open", "missed"].map(|it| number(it).to_string()));
        cells
    };
    let rows = record.rows.iter();
    Grid {
        title: "targets: under how many attacks each is kept; open: the interval has both sides"
            .to_owned(),
        words: 3,
        headers: headers(["", "figure", "asked", "met", "open", "missed"]),
        rows: rows
            .flat_map(|row| {
                let ratios = TARGETS.map(|target| line(row, target));
                ratios.into_iter().chain(charged(record, row))
            })
            .collect(),
    }
}
