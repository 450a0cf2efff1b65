//! The least explicit deadline periodic resource for one VCPU.
//!
//! Formula: the least whole Theta <= Delta for which the test of [`crate::guest`] passes on
//! EDP(Pi, Theta, Delta). sbf_EDP is monotone in Theta, so bisection is exact.
//! Complexity: log2 Delta tests. Source: Easwaran, Anand and Lee, RTSS 2007.

use super::{Infeasible, Least, budget, reason};
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
    ExplicitDeadlinePeriodic::new(period, deadline, deadline)?;
    let floor = budget::floor(tasks.iter().map(Task::utilization), period);
    let least = budget::least(floor, deadline, |budget| {
        ExplicitDeadlinePeriodic::new(period, budget, deadline)
            .map_or(Verdict::Undecided(Stop::precision()), |resource| {
                scheduler.test(tasks, &resource, work)
            })
    });
    Ok(least.map_err(|verdict| reason(&verdict)))
}
