//! How much execution tasks can demand in a window.
//!
//! All functions take a window t >= 0 and one task (C counts suspension, see [`crate::task`]):
//! - demand bound (EDF): jobs that arrive and are due within the window:
//!   dbf(t) = max(0, floor((t + J - D) / T) + 1) C;
//! - request bound (fixed priority): jobs that arrive in the window: rbf(t) = ceil((t + J) / T) C;
//! - carry-in forms for several processors, at [`edf_carry_in`] and [`fixed_priority_window`].
//!
//! Complexity: O(1) each. Sources: Baruah, Mok and Rosier, RTSS 1990; Audsley et al. 1993; Baruah,
//! RTSS 2007; Bertogna, Cirinei and Lipari, ECRTS 2005.

use crate::{task::Task, time::Time};

/// Jobs of `task` that can arrive and be due within a window.
pub(crate) const fn jobs_due(task: &Task, window: Time) -> Time {
    let slack = window + task.jitter() - task.deadline();
    if slack < 0 {
        0
    } else {
        task.periods_in(slack) + 1
    }
}

/// The demand bound function of one task.
pub const fn demand(task: &Task, window: Time) -> Time {
    jobs_due(task, window) * task.demand() + early_interrupts(task, window)
}

/// Interrupts of jobs that arrive in a window and are due after it.
pub(crate) const fn early_interrupts(task: &Task, window: Time) -> Time {
    if task.interrupt() == 0 {
        0
    } else {
        (jobs_released(task, window + task.jitter()) - jobs_due(task, window)) * task.interrupt()
    }
}

/// Interrupts of jobs that arrive in a window, with those that may be unfinished as it begins: all end by their jobs'
/// deadlines.
pub(crate) const fn all_interrupts(task: &Task, window: Time) -> Time {
    if task.interrupt() == 0 {
        0
    } else {
        jobs_released(task, window + task.deadline()) * task.interrupt()
    }
}

/// The last window shorter than `below` at which the task's demand bound steps up.
pub const fn previous_deadline(task: &Task, below: Time) -> Option<Time> {
    let past = below - 1 - task.window();
    if past < 0 {
        None
    } else {
        Some(task.window() + task.periods_in(past) * task.period())
    }
}

/// `ceil(length / T)` for `length >= 0`: jobs released in a window of that length.
pub const fn jobs_released(task: &Task, length: Time) -> Time {
    if length == 0 {
        0
    } else {
        task.periods_in(length - 1) + 1
    }
}

/// The request bound function of one task, with `jitter` in place of its own.
pub const fn requests(task: &Task, jitter: Time, window: Time) -> Time {
    jobs_released(task, window + jitter) * task.demand()
}

/// The jitter that stands for a higher-priority task's own delays: its release jitter, or D - C where
/// it suspends itself.
pub const fn interference_jitter(task: &Task) -> Time {
    if task.suspension() == 0 {
        task.jitter()
    } else {
        task.deadline() - task.execution()
    }
}

/// Work of one task in a window, without and with a job carried in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CarryIn {
    /// No job of the task is unfinished at the window's start.
    pub without: Time,
    /// One job may be.
    pub with: Time,
}

/// EDF: work due within the window. With n jobs due, a carried-in job is due t - n T after the start
/// and so adds at most min(C, max(0, t - n T)).
pub fn edf_carry_in(task: &Task, window: Time) -> CarryIn {
    let jobs = jobs_due(task, window);
    let without = jobs * task.demand();
    let carried = (window - jobs * task.period()).clamp(0, task.demand());
    CarryIn {
        without,
        with: without + carried,
    }
}

/// Fixed priority: work executed in the window. Without carry-in the first job arrives at the start (as
/// late as its jitter allows, so that the next follow sooner); with carry-in the first job executes at
/// the very end of its deadline, at the window's start.
pub fn fixed_priority_window(task: &Task, window: Time) -> CarryIn {
    let without = packed(task, window + task.jitter());
    let with = packed(task, window + task.deadline() - task.demand());
    CarryIn { without, with }
}

/// Execution in a window of length `length` whose jobs start T apart from its start.
pub const fn packed(task: &Task, length: Time) -> Time {
    let jobs = task.periods_in(length);
    let rest = length - jobs * task.period();
    jobs * task.demand()
        + if rest < task.demand() {
            rest
        } else {
            task.demand()
        }
}
