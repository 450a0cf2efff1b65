//! Global fixed priorities on several VCPUs.
//!
//! Model: sporadic tasks under preemptive global fixed priorities (global DM when ordered by deadline)
//! on a supply of parallelism m'; the slice is in priority order, highest first. Suspension counts as
//! execution.
//!
//! Formula: the condition of [`super::global`] with the tasks of higher priority as interferers:
//! Î = work of jobs that arrive at the window's start at the earliest, Ī = the same with a first job
//! that executes at the very end of its deadline ([`crate::workload::fixed_priority_window`]). The
//! window is extended while all that is supplied executes higher priorities, so the task's own jobs do
//! not interfere. On parallelism 1 the exact test of [`super::fixed_priority`] takes its place.
//!
//! Complexity and "where to look": see [`super::global`]. Sufficient. Sources: Guan et al., RTSS 2009
//! (limited carry-in); Bertogna, Cirinei and Lipari 2005 (workload).

use super::{
    fixed_priority,
    global::{self, Interference},
};
use crate::{
    supply::Supply,
    task::{Task, share},
    time::{Time, last_in_sequence},
    verdict::Verdict,
    work::Work,
    workload::{CarryIn, fixed_priority_window},
};

/// Decides whether `tasks`, highest priority first, meet their deadlines under global fixed priorities.
pub fn test(tasks: &[Task], supply: &impl Supply, work: &mut Work) -> Verdict {
    global::test(&HigherPriority, tasks, supply, work)
}

struct HigherPriority;

impl Interference for HigherPriority {
    fn test_on_one(&self, tasks: &[Task], supply: &impl Supply, work: &mut Work) -> Verdict {
        fixed_priority::test(tasks, supply, work)
    }

    fn interferers<'a>(&self, tasks: &'a [Task], index: usize) -> &'a [Task] {
        &tasks[..index]
    }

    fn work(&self, other: &Task, window: Time) -> CarryIn {
        fixed_priority_window(other, window)
    }

    fn own_work(&self, _task: &Task, _window: Time) -> CarryIn {
        CarryIn {
            without: 0,
            with: 0,
        }
    }

    fn previous_corner(&self, other: &Task, below: Time) -> Time {
        // Both forms are ramps of length C that start T apart, shifted by J and by D - C.
        [other.jitter(), other.deadline() - other.demand()]
            .into_iter()
            .flat_map(|shift| [-shift, other.demand() - shift])
            .map(|offset| offset.rem_euclid(other.period()))
            .filter_map(|offset| last_in_sequence(offset, other.period(), below - 1))
            .max()
            .unwrap_or(0)
    }

    fn lead(&self, other: &Task) -> Time {
        // packed(length) <= U length + C, with length up to t + max(J, D - C).
        let shift = other.jitter().max(other.deadline() - other.demand());
        other.demand() + share(other, shift)
    }
}
