//! Global scheduling on VCPUs with supplies of their own (multi-supply function).
//!
//! Model: sporadic tasks under preemptive global EDF or fixed priorities on VCPUs with different
//! budgets and periods. Suspension counts as execution.
//!
//! Formula: schedulable if for every task k there is a parallelism l with
//! l C_k + sum over interferers of Ī_i <= sum of the l largest VCPU supplies, all in the window
//! D_k - J_k: while k waits, the l chosen VCPUs execute others whenever they are supplied. Ī is the work
//! with carry-in ([`crate::workload`]), of all others under EDF, of higher priorities otherwise. Besides, interrupts
//! ([`crate::task`]) of jobs that come later in these orders.
//!
//! Complexity: O(n (n + v log v)) for n tasks on v VCPUs. Sufficient.
//! Source: Bini, Buttazzo and Bertogna, RTCSA 2009.

use crate::{
    supply::MultiSupply,
    task::Task,
    time::Amount,
    verdict::{Verdict, Violation},
    workload::{all_interrupts, edf_carry_in, fixed_priority_window},
};

/// The global scheduler of a guest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GlobalScheduler {
    /// Global EDF.
    EarliestDeadline,
    /// Global fixed priorities in the order of the slice.
    FixedPriority,
}

/// Decides whether `tasks` meet their deadlines on `supply`.
pub fn test(tasks: &[Task], scheduler: GlobalScheduler, supply: &MultiSupply) -> Verdict {
    (0..tasks.len())
        .try_for_each(|index| check(tasks, index, scheduler, supply))
        .into()
}

fn check(
    tasks: &[Task],
    index: usize,
    scheduler: GlobalScheduler,
    supply: &MultiSupply,
) -> Result<(), Verdict> {
    let task = &tasks[index];
    let window = task.window();
    let interference: Amount = match scheduler {
        GlobalScheduler::EarliestDeadline => tasks
            .iter()
            .enumerate()
            .filter(|&(position, _)| position != index)
            .map(|(_, other)| Amount::from(edf_carry_in(other, window).with + other.interrupt()))
            .sum(),
        GlobalScheduler::FixedPriority => tasks[..index]
            .iter()
            .map(|other| fixed_priority_window(other, window).with)
            .chain(
                tasks[index + 1..]
                    .iter()
                    .map(|other| all_interrupts(other, window)),
            )
            .map(Amount::from)
            .sum(),
    };
    let demand = |level: usize| interference + level as Amount * Amount::from(task.demand());
    let supplies = supply.by_parallelism(window);
    if supplies
        .iter()
        .enumerate()
        .any(|(l, &supplied)| demand(l + 1) <= supplied)
    {
        return Ok(());
    }
    // Explain with the level that comes closest.
    let closest = supplies
        .iter()
        .enumerate()
        .map(|(l, &supplied)| (demand(l + 1), supplied))
        .min_by_key(|&(demand, supplied)| demand - supplied)
        .unwrap_or((demand(1), 0));
    Err(Verdict::Unschedulable(Violation {
        index,
        at: window,
        demand: closest.0,
        supply: closest.1,
    }))
}
