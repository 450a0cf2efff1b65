//! The two plots of a phase's round trips.

use crate::compare::results::{MethodResult, Phase, Results};
use steadyvm_report::curves::{self, Curve};
use steadyvm_report::duration_words;

/// Both plots of one phase, as cards with legends.
pub(super) fn cards(results: &Results, phase: Phase) -> String {
    let curves: Vec<Curve> = results.methods.iter().map(|it| curve(it, phase)).collect();
    let when = results.service.phase_title(phase);
    curves::cards(&curves, "round trip", when)
}

fn curve(method: &MethodResult, phase: Phase) -> Curve<'_> {
    let latency = method.latency(phase);
    let (n, lost) = (latency.n, latency.lost);
    let max = latency.max_us.map_or("-".to_owned(), duration_words);
    let points = latency.distribution.iter();
    Curve {
        name: &method.name,
        about: format!("n = {n}, lost {lost}, max {max}"),
        n,
        points: points.map(|point| (point.us, point.fraction)).collect(),
    }
}
