//! The two plots of a phase's round trips.

use crate::data::Phase;
use crate::record::{ROUND_TRIP, service_of};
use steadyvm_report::curves::{self, Curve};
use steadyvm_report::duration_words;
use steadyvm_report::results::Record;

/// Both plots of one phase, as cards with legends.
pub(super) fn cards(record: &Record, phase: Phase) -> String {
    let rows = record.rows.iter();
    let curves: Vec<Curve> = rows.map(|row| curve(record, row, phase)).collect();
    let when = service_of(record).phase_title(phase);
    curves::cards(&curves, "round trip", when)
}

fn curve<'r>(record: &'r Record, method: &'r str, phase: Phase) -> Curve<'r> {
    let at = record.at(method, phase.cell());
    let (n, lost) = (at.count("n"), at.count("lost"));
    let max = at.value("max").map_or("-".to_owned(), duration_words);
    let wanted = (method, phase.cell(), ROUND_TRIP);
    let mut curves = record.curves.iter();
    let found = curves.find(|it| (&*it.row, &*it.cell, &*it.name) == wanted);
    let points = found.map_or(&[][..], |it| &it.points);
    Curve {
        name: method,
        about: format!("n = {n}, lost {lost}, max {max}"),
        n,
        points: points.iter().map(|(share, us)| (*us, *share)).collect(),
    }
}
