//! CPU time lost to scheduling: what many tasks get done together, against one on each CPU.
//!
//! Every task has jobs of a millisecond without a pause, and enough of them that all tasks compute to the window's end.
//! What is not done in it was lost: decisions, switches, cold caches, and CPUs that idle.

use serde::{Deserialize, Serialize};
use steadyvm_load::job::{Ran, Task};

/// One on each CPU: nothing has to be scheduled.
pub const ALONE: usize = 2;
/// Those with a budget, and as many normal ones.
pub const TOGETHER: usize = 8;

/// What each of so many tasks is told. `units_per_ms`: of work.
pub fn task(tasks: usize, window_s: u64, units_per_ms: f64) -> Task {
    let length_ms = window_s * 1000;
    Task {
        // Twice as often as a CPU can do them: a job is always there.
        period_us: 500,
        work: units_per_ms.round().max(1.0) as u64,
        // Together none gets half of a CPU: budgets are 40 % of one.
        jobs: if tasks > ALONE {
            length_ms / 2
        } else {
            length_ms * 5 / 4
        },
        backlog: true,
    }
}

/// What was done in the window, per cent of so many milliseconds as both CPUs have in it; `None` if a task had done all its
/// jobs before the window's end, so that a CPU may have had nothing to do.
pub fn done_percent(ran: &[Ran], window_s: u64) -> Option<f64> {
    let end_ns = window_s * 1_000_000_000;
    let mut done = 0;
    for it in ran {
        if it.done.last()?.finished_ns < end_ns {
            return None;
        }
        done += it.done.partition_point(|job| job.finished_ns <= end_ns);
    }
    Some(done as f64 / (window_s * 2 * 1000) as f64 * 100.0)
}

/// What all tasks did under a mechanism: a value for each round.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct WorkResult {
    /// Who schedules.
    pub mechanism: super::Mechanism,
    /// What [`TOGETHER`] tasks did, per cent of what one on each CPU did under the stock scheduler in the same round.
    pub done_percent: Vec<f64>,
}

impl WorkResult {
    /// What was lost, per cent; `None` without rounds.
    pub fn lost_percent(&self) -> Option<f64> {
        let lost = self.done_percent.iter().map(|done| 100.0 - done);
        steadyvm_stats::mean(lost)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use steadyvm_load::job::Done;

    fn ran(finished_ms: impl Iterator<Item = u64>) -> Ran {
        let done = |ms| Done {
            released_ns: 0,
            finished_ns: ms * 1_000_000,
        };
        Ran {
            done: finished_ms.map(done).collect(),
            waited_ns: 0,
        }
    }

    #[test]
    fn work_is_what_was_done_by_the_end_of_the_window() {
        // A job in every 2 ms, and one in every 4.
        let two = [
            ran((1..=600).map(|job| job * 2)),
            ran((1..=400).map(|job| job * 4)),
        ];
        assert_eq!(done_percent(&two, 1), Some(37.5));
    }

    #[test]
    fn a_task_without_work_makes_a_window_worthless() {
        let two = [
            ran((1..=600).map(|job| job * 2)),
            ran((1..=249).map(|job| job * 4)),
        ];
        assert_eq!(done_percent(&two, 1), None);
        assert_eq!(done_percent(&[ran(std::iter::empty())], 1), None);
    }

    #[test]
    fn a_task_has_work_beyond_its_window() {
        let alone = task(ALONE, 4, 100.0);
        assert_eq!((alone.work, alone.jobs), (100, 5000));
        // 40 % of a CPU need 5 s for it.
        assert_eq!(task(TOGETHER, 4, 100.0).jobs, 2000);
    }

    #[test]
    fn what_is_lost_is_what_is_missing() {
        let it = WorkResult {
            mechanism: crate::vcpu::Mechanism::Ext,
            done_percent: vec![98.0, 96.0],
        };
        assert_eq!(it.lost_percent(), Some(3.0));
    }
}
