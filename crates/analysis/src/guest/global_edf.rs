//! Global EDF on several VCPUs.
//!
//! Model: sporadic tasks under preemptive global EDF on a supply of parallelism m'. Preconditions:
//! none beyond the task model; suspension counts as execution.
//!
//! Formula: the condition of [`super::global`] with every task as interferer. With t the window and n
//! the jobs that arrive and are due in it: Î = n C, Ī = n C + min(C, max(0, t - n T)); the task's own
//! earlier jobs: the same less C_k, cut at A_k. Another task's one job that arrives in the window and is due after
//! it adds its interrupt ([`crate::task`]). On parallelism 1 the exact test of [`super::edf`]
//! takes its place (no task carries in, the condition is the demand bound).
//!
//! Complexity and "where to look": see [`super::global`]. Sufficient. Sources: Baruah, RTSS 2007;
//! Shin, Easwaran and Lee, ECRTS 2008 (Theorem 1).

use super::{
    edf,
    global::{self, Interference},
};
use crate::{
    supply::Supply,
    task::{Task, share},
    time::{Time, last_in_sequence},
    verdict::Verdict,
    work::Work,
    workload::{CarryIn, edf_carry_in},
};

/// Decides whether `tasks` meet their deadlines under global EDF on `supply`.
pub fn test(tasks: &[Task], supply: &impl Supply, work: &mut Work) -> Verdict {
    global::test(&EarliestDeadline, tasks, supply, work)
}

struct EarliestDeadline;

impl Interference for EarliestDeadline {
    fn test_on_one(&self, tasks: &[Task], supply: &impl Supply, work: &mut Work) -> Verdict {
        edf::test(tasks, supply, work)
    }

    fn interferers<'a>(&self, tasks: &'a [Task], _index: usize) -> &'a [Task] {
        tasks
    }

    fn work(&self, other: &Task, window: Time) -> CarryIn {
        let CarryIn { without, with } = edf_carry_in(other, window);
        CarryIn {
            without: without + other.interrupt(),
            with: with + other.interrupt(),
        }
    }

    fn constant(&self, other: &Task) -> Time {
        other.interrupt()
    }

    fn own_work(&self, task: &Task, window: Time) -> CarryIn {
        let CarryIn { without, with } = edf_carry_in(task, window);
        CarryIn {
            without: without - task.demand(),
            with: with - task.demand(),
        }
    }

    fn previous_corner(&self, other: &Task, below: Time) -> Time {
        // The steps of n, and the start and end of each carried-in job's ramp.
        [other.window(), 0, other.demand()]
            .into_iter()
            .filter_map(|offset| last_in_sequence(offset, other.period(), below - 1))
            .max()
            .unwrap_or(0)
    }

    fn lead(&self, other: &Task) -> Time {
        // n C <= U (t + T + J - D), and a carried-in job adds at most C.
        other.interrupt()
            + other.demand()
            + share(other, other.period() + other.jitter() - other.deadline())
    }
}
