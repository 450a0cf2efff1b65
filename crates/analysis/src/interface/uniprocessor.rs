//! The least periodic resource for one VCPU.
//!
//! Model: sporadic tasks under EDF or DM on a PRM. Formula: the least whole Theta for which the test of
//! [`crate::guest`] passes. EDF: [`super::earliest_deadline`]. DM: the greatest of the tasks' least
//! budgets, each by bisection from floor(Pi sum C / T), exact as sbf_PRM is monotone in Theta.
//! Complexity, DM: one test a task and log2 Pi where the budget has to grow.
//! Source: Shin and Lee, RTSS 2003.

use super::{Infeasible, Interface, budget, earliest_deadline, reason};
use crate::{
    error::Error,
    guest::{fixed_priority, partitioned::LocalScheduler},
    supply::{PeriodicResource, Replenishment, Supply},
    task::{PriorityOrder, Task},
    time::Time,
    verdict::{Stop, Verdict},
    work::Work,
};

/// The least PRM budget of `period` for `tasks` on one VCPU.
///
/// # Errors
/// The reason, if even a whole processor does not suffice.
pub fn minimal_prm(
    tasks: &[Task],
    scheduler: LocalScheduler,
    period: Time,
    replenishment: Replenishment,
    work: &mut Work,
) -> Result<Interface, Infeasible> {
    let verdict = super::whole_processor(tasks, scheduler, work);
    if !verdict.is_schedulable() {
        return Err(reason(&verdict));
    }
    Ok(least_on_whole(
        tasks,
        scheduler,
        period,
        replenishment,
        work,
    ))
}

/// The same for tasks that a whole processor is known to hold.
pub(super) fn least_on_whole(
    tasks: &[Task],
    scheduler: LocalScheduler,
    period: Time,
    replenishment: Replenishment,
    work: &mut Work,
) -> Interface {
    let vcpu =
        |budget| PeriodicResource::new(period, budget).map(|vcpu| vcpu.replenished(replenishment));
    let least = match scheduler {
        LocalScheduler::EarliestDeadline => {
            earliest_deadline::least(tasks, period, period, vcpu, work)
        }
        LocalScheduler::DeadlineMonotonic => {
            let floor = budget::floor(tasks.iter().map(Task::execution_share), period);
            let order = PriorityOrder::DeadlineMonotonic.order(tasks);
            let sorted: Vec<Task> = order.iter().map(|&i| tasks[i]).collect();
            least_fixed_priority(&sorted, period, floor, vcpu, work)
        }
    };
    Interface {
        period,
        budget: least.budget,
        vcpu_budgets: vec![least.budget],
        partition: None,
        due: None,
        replenishment,
        exact: least.exact,
    }
}

/// The least budget in `floor..=period`; a whole processor (`period`) is known to suffice.
fn least_budget(
    period: Time,
    floor: Time,
    vcpu: impl Fn(Time) -> Result<PeriodicResource, Error>,
    mut test: impl FnMut(&PeriodicResource) -> Verdict,
) -> budget::Least {
    budget::least_below(floor, period, |budget| {
        vcpu(budget).map_or(Verdict::Undecided(Stop::precision()), |vcpu| test(&vcpu))
    })
}

/// The greatest of the tasks' least budgets, found task by task.
fn least_fixed_priority(
    sorted: &[Task],
    period: Time,
    floor: Time,
    vcpu: impl Fn(Time) -> Result<PeriodicResource, Error>,
    work: &mut Work,
) -> budget::Least {
    let mut least = budget::Least {
        budget: floor.min(period),
        exact: true,
    };
    for (index, bound) in fixed_priority::load_bounds(sorted).into_iter().enumerate() {
        let window = sorted[index].window();
        if vcpu(least.budget).is_ok_and(|vcpu| bound <= vcpu.supply(window)) {
            continue;
        }
        let mut test =
            |resource: &PeriodicResource| fixed_priority::test_task(sorted, index, resource, work);
        let current = vcpu(least.budget)
            .map_or(Verdict::Undecided(Stop::precision()), |resource| {
                test(&resource)
            });
        if !current.is_schedulable() {
            let raised = least_budget(period, least.budget, &vcpu, test);
            least = budget::Least {
                exact: least.exact && raised.exact,
                ..raised
            };
        }
    }
    least
}
