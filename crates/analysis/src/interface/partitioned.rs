//! Interfaces of partitioned EDF guests.
//!
//! Model: best fit of [`crate::guest::partitioned`], EDF on each VCPU. Formula: with q_v the least PRM
//! budget of VCPU v's tasks,
//! PRM: each VCPU gets q_v;
//! MPR: with q the greatest q_v and c the number of VCPUs that need it, the total is
//! m (q - 1) + c, the least whose even spread gives c VCPUs q and the others q - 1;
//! DMPR: the VCPU with the least q_v gets it, every other one the whole period.
//!
//! Complexity: the packing and one bisection a VCPU. Minimal for the partition found, not over all
//! partitions. Sources: Shin and Lee 2003; the dissertation's section 3.3.1.

use super::{
    Infeasible, Interface, InterfaceKind, MAX_VCPUS, Resource, reason, uniprocessor::least_on_whole,
};
use crate::{
    guest::partitioned::{LocalScheduler, best_fit},
    task::Task,
    time::Time,
    verdict::Verdict,
    work::Work,
};

pub fn minimal(
    tasks: &[Task],
    resource: Resource,
    period: Time,
    vcpus: Option<u32>,
    work: &mut Work,
) -> Result<Interface, Infeasible> {
    let Resource {
        kind,
        replenishment,
    } = resource;
    let scheduler = LocalScheduler::EarliestDeadline;
    let limit = vcpus.unwrap_or(MAX_VCPUS) as usize;
    // Half of the work is kept for the budgets.
    let mut packing = work.take(Work::DEFAULT_STEPS / 2);
    let partition =
        best_fit(tasks, scheduler, limit, &mut packing).map_err(|misfit| match misfit.verdict {
            Verdict::Unschedulable(closest) => Infeasible::DoesNotFit {
                task: misfit.task,
                closest,
            },
            verdict => reason(&verdict),
        })?;
    work.give_back(&packing);
    let mut needed = Vec::with_capacity(partition.len());
    let mut exact = true;
    for members in &partition {
        let members: Vec<Task> = members.iter().map(|&i| tasks[i]).collect();
        let interface = least_on_whole(&members, scheduler, period, replenishment, work);
        exact &= interface.exact;
        needed.push(interface.budget);
    }
    let mut by_need: Vec<(Time, Vec<usize>)> = needed.into_iter().zip(partition).collect();
    if kind != InterfaceKind::PeriodicResource {
        by_need.sort_by_key(|&(budget, _)| std::cmp::Reverse(budget));
    }
    let (budgets, partition): (Vec<Time>, Vec<Vec<usize>>) = by_need.into_iter().unzip();
    let vcpu_budgets = match kind {
        InterfaceKind::PeriodicResource => budgets,
        InterfaceKind::Multiprocessor => even(&budgets),
        InterfaceKind::DeterministicMultiprocessor => all_but_last_full(budgets, period),
    };
    Ok(Interface {
        period,
        budget: vcpu_budgets.iter().sum(),
        vcpu_budgets,
        partition: Some(partition),
        due: None,
        replenishment,
        exact,
    })
}

/// `budgets` in falling order: those that need the greatest keep it, the others get one less.
fn even(budgets: &[Time]) -> Vec<Time> {
    let greatest = budgets.first().copied().unwrap_or_default();
    budgets
        .iter()
        .map(|&budget| {
            if budget == greatest {
                greatest
            } else {
                greatest - 1
            }
        })
        .collect()
}

fn all_but_last_full(mut budgets: Vec<Time>, period: Time) -> Vec<Time> {
    if let Some((_, full)) = budgets.split_last_mut() {
        full.fill(period);
    }
    budgets
}
