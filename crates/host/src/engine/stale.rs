//! What is in force and no longer wanted.

use super::failure::Failure;
use crate::planner::{Step, Wanted};
use crate::settings::Machine;

/// The recorded steps of settings that are no longer wanted. What a group that failed has in force, it keeps, but for
/// what has ended.
pub(super) fn stale(
    own: &[Step],
    wanted: &Wanted,
    failed: &[Failure],
    machine: &Machine,
) -> Vec<Step> {
    let is_wanted = |step: &Step| {
        let mut all = wanted.steps.iter();
        all.any(|wanted| wanted.change.same_subject(&step.change))
    };
    let is_left = |step: &Step| {
        let has_ended = || matches!(step.change.read(machine), Err(error) if error.is_vanished());
        failed.iter().any(|failure| failure.group == step.group) && !has_ended()
    };
    own.iter()
        .filter(|step| !is_wanted(step) && !is_left(step))
        .cloned()
        .collect()
}
