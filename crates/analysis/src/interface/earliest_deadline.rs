//! The least budget of one VCPU under EDF.
//!
//! Model: sporadic tasks under EDF on a resource of one processor whose supply rises with its budget Theta (an EDP, a
//! PRM). Formula: the least whole Theta with sum dbf_i(t) <= sbf_Theta(t) for all t.
//!
//! How it is found: in one pass over the windows, without bisection over whole tests. Theta starts as the
//! least budget whose bandwidth exceeds the utilisation. The windows up to the horizon of [`edf`] are
//! walked in ranges that double in length, each from its end down; a window that fails raises Theta to
//! the least budget that holds it. sbf_Theta(t) rises with Theta, so what was walked stays held, and
//! every raise brings the horizon closer. Theta is never above a budget that some window needs.
//!
//! Complexity: that of one test of [`edf`] at the answer, and log2 Pi values of sbf a raise (at most one
//! raise a window). Where the allowed work ends first, bisection over whole tests finds a budget that
//! suffices. Sources: Shin and Lee, RTSS 2003; Zhang and Burns, IEEE TC 2009 (QPA).

use super::budget::{self, Least};
use crate::{
    error::Error,
    guest::edf,
    supply::Supply,
    task::Task,
    time::Time,
    verdict::{Stop, Verdict, Violation},
    work::Work,
};

/// The least budget for `tasks` on the `resource` of each budget, of this period; Theta = `most` is known to suffice.
pub(super) fn least<S: Supply>(
    tasks: &[Task],
    period: Time,
    most: Time,
    resource: impl Fn(Time) -> Result<S, Error>,
    work: &mut Work,
) -> Least {
    let search = Search {
        tasks,
        most,
        resource: |budget| resource(budget).map_err(|_| Verdict::Undecided(Stop::precision())),
    };
    let low = budget::floor(tasks.iter().map(Task::utilization), period).min(most);
    // A quarter is kept to find some budget, should the least one take too long.
    let mut share = work.take(work.left() / 4 * 3);
    let mut found = low;
    let exact = search.raise(&mut found, &mut share).is_ok();
    work.give_back(&share);
    if exact {
        return Least {
            budget: found,
            exact,
        };
    }
    Least {
        exact,
        ..budget::least_below(found, most, |budget| search.test(budget, work))
    }
}

struct Search<'a, F> {
    tasks: &'a [Task],
    most: Time,
    resource: F,
}

impl<S: Supply, F: Fn(Time) -> Result<S, Verdict>> Search<'_, F> {
    /// Raises `budget` to the least one, or as far as the work allows.
    fn raise(&self, budget: &mut Time, work: &mut Work) -> Result<(), Verdict> {
        let longest = self.tasks.iter().map(Task::period).max().unwrap_or(1);
        let (mut walked, mut end) = (0, 2 * longest);
        while *budget < self.most {
            work.spend(self.tasks.len(), end)?;
            let resource = (self.resource)(*budget)?;
            let Some(horizon) = edf::horizon(self.tasks, &resource, work)? else {
                // Demand outgrows this supply.
                *budget += 1;
                continue;
            };
            if walked >= horizon {
                return Ok(());
            }
            let mut from = end.min(horizon);
            while let Err(verdict) = self.walk(*budget, walked, from, work) {
                let Verdict::Unschedulable(violation) = verdict else {
                    return Err(verdict);
                };
                *budget = self.needed(*budget, &violation)?;
                from = violation.at;
            }
            walked = end;
            end = end.saturating_mul(2);
        }
        *budget = self.most;
        Ok(())
    }

    fn walk(&self, budget: Time, after: Time, from: Time, work: &mut Work) -> Result<(), Verdict> {
        edf::walk(
            self.tasks,
            &(self.resource)(budget)?,
            after + 1..=from,
            work,
        )
    }

    /// The least budget above `low` that supplies what a failed window demands.
    fn needed(&self, low: Time, failed: &Violation) -> Result<Time, Verdict> {
        let (mut low, mut high) = (low + 1, self.most);
        while low < high {
            let middle = low + (high - low) / 2;
            if (self.resource)(middle)?.supply(failed.at) >= failed.demand {
                high = middle;
            } else {
                low = middle + 1;
            }
        }
        Ok(high)
    }

    fn test(&self, budget: Time, work: &mut Work) -> Verdict {
        match (self.resource)(budget) {
            Ok(resource) => edf::test(self.tasks, &resource, work),
            Err(verdict) => verdict,
        }
    }
}
