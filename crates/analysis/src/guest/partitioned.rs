//! Partitioned guests: which task on which VCPU.
//!
//! Model: every task is pinned to one VCPU; each VCPU runs EDF or fixed priorities (DM) by itself.
//!
//! Rule: take the tasks in the order given; put each on the VCPU of the largest bandwidth among those
//! that can still schedule it on a whole processor; open a new VCPU when none can. Where the number of
//! VCPUs is limited and that order fails, tasks are tried once more by falling utilisation.
//!
//! Complexity: one test of one VCPU for each task and open VCPU. A heuristic: a failure is no proof.
//! Source: the dissertation's section 3.3.1.

use crate::{
    guest::{edf, fixed_priority},
    ratio::{Fraction, Interval, compare_sum},
    supply::{Dedicated, Supply},
    task::{PriorityOrder, Task},
    verdict::Verdict,
    work::Work,
};

/// The scheduler of one processor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LocalScheduler {
    /// EDF.
    EarliestDeadline,
    /// Deadline-monotonic fixed priorities.
    DeadlineMonotonic,
}

impl LocalScheduler {
    /// The share of a processor that `task` needs in the long run: under EDF suspension counts as
    /// execution.
    pub fn share(self, task: &Task) -> Fraction {
        match self {
            Self::EarliestDeadline => task.utilization(),
            Self::DeadlineMonotonic => task.execution_share(),
        }
    }

    /// Decides whether `tasks` meet their deadlines on one processor that supplies `supply`.
    /// A violation's index refers to `tasks`.
    pub fn test(self, tasks: &[Task], supply: &impl Supply, work: &mut Work) -> Verdict {
        match self {
            Self::EarliestDeadline => edf::test(tasks, supply, work),
            Self::DeadlineMonotonic => {
                let order = PriorityOrder::DeadlineMonotonic.order(tasks);
                let sorted: Vec<Task> = order.iter().map(|&i| tasks[i]).collect();
                match fixed_priority::test(&sorted, supply, work) {
                    Verdict::Unschedulable(mut violation) => {
                        violation.index = order[violation.index];
                        Verdict::Unschedulable(violation)
                    }
                    verdict => verdict,
                }
            }
        }
    }
}

/// The first task that fits on none of the VCPUs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Misfit {
    /// Its index.
    pub task: usize,
    /// What the VCPU of the least bandwidth says to it; a violation's index is a task.
    pub verdict: Verdict,
}

/// Task indices by VCPU.
pub type Partition = Result<Vec<Vec<usize>>, Misfit>;

/// Packs `tasks` on at most `limit` VCPUs.
pub fn best_fit(
    tasks: &[Task],
    scheduler: LocalScheduler,
    limit: usize,
    work: &mut Work,
) -> Partition {
    let mut order: Vec<usize> = (0..tasks.len()).collect();
    pack(tasks, &order, scheduler, limit, work).or_else(|misfit| {
        order.sort_by(|&a, &b| falling_utilization(&tasks[a], &tasks[b]));
        pack(tasks, &order, scheduler, limit, work).map_err(|_| misfit)
    })
}

fn falling_utilization(a: &Task, b: &Task) -> std::cmp::Ordering {
    // C_b / T_b against C_a / T_a: products of two inputs fit.
    let (a, b) = (a.utilization(), b.utilization());
    (b.numerator * a.denominator).cmp(&(a.numerator * b.denominator))
}

struct Bin {
    members: Vec<usize>,
    bandwidth: Interval,
    density: Interval,
}

fn pack(
    tasks: &[Task],
    order: &[usize],
    scheduler: LocalScheduler,
    limit: usize,
    work: &mut Work,
) -> Partition {
    let mut bins: Vec<Bin> = Vec::new();
    for &index in order {
        bins.sort_by_key(|bin| std::cmp::Reverse(bin.bandwidth));
        let home = bins
            .iter()
            .position(|bin| accepts(bin, index, tasks, scheduler, work));
        let home = match home {
            Some(home) => home,
            None if bins.len() < limit => {
                bins.push(Bin {
                    members: Vec::new(),
                    bandwidth: Interval::default(),
                    density: Interval::default(),
                });
                bins.len() - 1
            }
            None => return Err(misfit(bins.last(), index, tasks, scheduler, work)),
        };
        let bin = &mut bins[home];
        bin.members.push(index);
        bin.bandwidth = bin.bandwidth.plus(scheduler.share(&tasks[index]));
        bin.density = bin.density.plus(tasks[index].density());
    }
    let mut partition: Vec<Vec<usize>> = bins.into_iter().map(|bin| bin.members).collect();
    for members in &mut partition {
        members.sort_unstable();
    }
    partition.sort();
    Ok(partition)
}

/// Why `bin` refuses the task at `index`.
fn misfit(
    bin: Option<&Bin>,
    index: usize,
    tasks: &[Task],
    scheduler: LocalScheduler,
    work: &mut Work,
) -> Misfit {
    let members: Vec<usize> = bin
        .map_or(&[][..], |bin| &bin.members)
        .iter()
        .copied()
        .chain([index])
        .collect();
    let together: Vec<Task> = members.iter().map(|&member| tasks[member]).collect();
    let mut verdict = scheduler.test(&together, &Dedicated::new(1), work);
    if let Verdict::Unschedulable(violation) = &mut verdict {
        violation.index = members[violation.index];
    }
    Misfit {
        task: index,
        verdict,
    }
}

fn accepts(
    bin: &Bin,
    index: usize,
    tasks: &[Task],
    scheduler: LocalScheduler,
    work: &mut Work,
) -> bool {
    let one = Fraction::new(1, 1);
    let task = &tasks[index];
    if bin
        .bandwidth
        .plus(scheduler.share(task))
        .compare(one)
        .is_some_and(std::cmp::Ordering::is_gt)
    {
        return false;
    }
    let members = bin.members.iter().copied().chain([index]);
    // An interrupt comes before what is due earlier: density says nothing of that.
    let interrupts = members.clone().any(|i| tasks[i].interrupt() > 0);
    if scheduler == LocalScheduler::EarliestDeadline && !interrupts {
        // Density at most one suffices, without a walk over deadlines.
        if bin
            .density
            .plus(task.density())
            .compare(one)
            .is_some_and(std::cmp::Ordering::is_le)
        {
            return true;
        }
        let densities = members.clone().map(|i| tasks[i].density());
        if work.spend(bin.members.len() + 1, 0).is_ok()
            && compare_sum(densities, one).is_some_and(std::cmp::Ordering::is_le)
        {
            return true;
        }
    }
    let members: Vec<Task> = members.map(|i| tasks[i]).collect();
    scheduler
        .test(&members, &Dedicated::new(1), work)
        .is_schedulable()
}
