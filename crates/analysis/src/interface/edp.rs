//! The least explicit deadline periodic resource for one VCPU.
//!
//! Formula: the least whole Theta <= Delta for which the test of [`crate::guest`] passes on
//! EDP(Pi, Theta, Delta). EDF: [`super::earliest_deadline`]. DM: bisection, exact as sbf_EDP is monotone in
//! Theta. Complexity, DM: log2 Delta tests. Source: Easwaran, Anand and Lee, RTSS 2007.

use super::{Infeasible, Least, budget, earliest_deadline, reason};
use crate::{
    error::Error,
    guest::partitioned::LocalScheduler,
    supply::ExplicitDeadlinePeriodic,
    task::Task,
    time::Time,
    verdict::{Stop, Verdict},
    work::Work,
};

/// The least EDP budget of `period` and `deadline` for `tasks` on one VCPU.
///
/// # Errors
/// Times out of range; inside, the reason if Theta = Delta does not suffice.
pub fn minimal_edp(
    tasks: &[Task],
    scheduler: LocalScheduler,
    period: Time,
    deadline: Time,
    work: &mut Work,
) -> Result<Result<Least, Infeasible>, Error> {
    let resource = |budget| ExplicitDeadlinePeriodic::new(period, budget, deadline);
    let whole = resource(deadline)?;
    let at_most = scheduler.test(tasks, &whole, work);
    if !at_most.is_schedulable() {
        return Ok(Err(reason(&at_most)));
    }
    Ok(Ok(match scheduler {
        LocalScheduler::EarliestDeadline => {
            earliest_deadline::least(tasks, period, deadline, resource, work)
        }
        LocalScheduler::DeadlineMonotonic => {
            let floor = budget::floor(tasks.iter().map(Task::execution_share), period);
            budget::least_below(floor, deadline, |budget| {
                resource(budget).map_or(Verdict::Undecided(Stop::precision()), |resource| {
                    scheduler.test(tasks, &resource, work)
                })
            })
        }
    }))
}
