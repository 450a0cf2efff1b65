//! CPU time lost to scheduling: what many tasks get done together, against one on each CPU.
//!
//! Every task has jobs of a millisecond without a pause, and enough of them that all tasks compute to the window's end.
//! What is not done in it was lost: decisions, switches, cold caches, and CPUs that idle.

use super::window::Window;
use crate::testbed::Decisions;
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

/// What one window gives.
#[derive(Debug)]
pub struct Work {
    /// As of [`done_percent`].
    pub done_percent: Option<f64>,
    /// Where the CPU time went.
    pub spent: Spent,
}

/// Where the host's CPU time goes while all tasks compute, per cent of both its CPUs. The rest is the kernel's: interrupts, and
/// the switches themselves.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Spent {
    /// The tasks' own, as the kernel counts it.
    pub tasks_percent: f64,
    /// The threads of the `ext` scheduler's loader, and `irq_work/N`, which wakes them.
    pub loader_percent: f64,
    /// Decisions of the `ext` scheduler: part of the rest.
    pub decisions_percent: f64,
    /// Nothing to do.
    pub idle_percent: f64,
    /// Context switches per second.
    pub context_switches_per_s: f64,
    /// Interrupts per second.
    pub interrupts_per_s: f64,
}

impl Spent {
    /// Of a window that counted so many tasks first, then the loader's threads.
    pub fn of(window: &Window, tasks: usize, decisions: Option<&Decisions>) -> Self {
        let cpus = ALONE as f64;
        let sum = |shares: &[f64]| shares.iter().sum::<f64>() / cpus;
        let (of_tasks, of_loader) = window
            .shares_percent
            .split_at(tasks.min(window.shares_percent.len()));
        let decided_s = decisions.map_or(0.0, |them| them.total_ns as f64 / 1e9);
        Self {
            tasks_percent: sum(of_tasks),
            loader_percent: sum(of_loader),
            decisions_percent: decided_s / (cpus * window.passed_s) * 100.0,
            idle_percent: window.idle_percent / cpus,
            context_switches_per_s: window.context_switches_per_s,
            interrupts_per_s: window.interrupts_per_s,
        }
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
    fn cpu_time_is_of_the_tasks_the_loader_or_nobody() {
        let window = Window {
            passed_s: 2.0,
            shares_percent: vec![90.0, 80.0, 6.0, 4.0],
            context_switches_per_s: 500.0,
            interrupts_per_s: 900.0,
            idle_percent: 3.0,
        };
        let decisions = Decisions {
            total_ns: 40_000_000,
            ..Decisions::default()
        };
        let spent = Spent::of(&window, 2, Some(&decisions));
        let of = |it: Spent| {
            [it.tasks_percent, it.loader_percent, it.decisions_percent]
                .map(|it| (it * 10.0).round() as u64)
        };
        assert_eq!(of(spent), [850, 50, 10]);
        assert!((spent.idle_percent - 1.5).abs() < 1e-9);
    }
}
