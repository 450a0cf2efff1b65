//! The best period of an interface in a range.
//!
//! Rule: for every period in `from..=to` by `step` the least interface; the best one has the least
//! cost, ties go to the longer period (fewer switches). Cost is the bandwidth of the VCPUs on the host,
//! each budget first inflated by the overheads of its period ([`Overheads::inflate`]): with no overheads
//! that is the plain bandwidth. Compared exactly.
//!
//! Complexity: one interface a period, at most [`MAX_PERIODS`].
//! Source: the dissertation's section 4.3.2 ("iterated all periods").

use std::cmp::Ordering;

use super::{GuestScheduler, Infeasible, Interface, Resource, minimal};
use crate::{
    error::{Error, positive},
    host::overhead::Overheads,
    task::Task,
    time::{Amount, Time},
    verdict::Stop,
    work::Work,
};

/// The most periods one search looks at.
pub const MAX_PERIODS: Time = 100_000;

/// Periods to try.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PeriodRange {
    /// The first period.
    pub from: Time,
    /// The last period (inclusive).
    pub to: Time,
    /// The distance between two periods.
    pub step: Time,
}

impl PeriodRange {
    /// Checks the range.
    ///
    /// # Errors
    /// Times out of range, `from > to`, or more than [`MAX_PERIODS`] periods.
    pub fn new(from: Time, to: Time, step: Time) -> Result<Self, Error> {
        let from = positive("the first period", from)?;
        let to = positive("the last period", to)?;
        let step = positive("the step between periods", step)?;
        if from > to {
            return Err(Error::Exceeds {
                what: "the first period",
                value: from,
                limit_name: "the last period",
                limit: to,
                advice: "exchange them",
            });
        }
        if (to - from) / step >= MAX_PERIODS {
            return Err(Error::Exceeds {
                what: "the number of periods to try",
                value: (to - from) / step + 1,
                limit_name: "the most one search looks at",
                limit: MAX_PERIODS,
                advice: "use a larger step or a narrower range",
            });
        }
        Ok(Self { from, to, step })
    }

    /// The periods, in rising order.
    pub fn periods(self) -> impl Iterator<Item = Time> {
        (0..=(self.to - self.from) / self.step).map(move |i| self.from + i * self.step)
    }
}

/// The interface with the least cost over `range`; the reason at the shortest period if there is none.
///
/// # Errors
/// As [`minimal`].
pub fn best(
    tasks: &[Task],
    scheduler: GuestScheduler,
    resource: impl Into<Resource>,
    range: PeriodRange,
    vcpus: Option<u32>,
    overheads: &Overheads,
    work: &mut Work,
) -> Result<Result<Interface, Infeasible>, Error> {
    let resource = resource.into();
    let mut best: Option<(Amount, Interface)> = None;
    let mut failure = None;
    for period in range.periods() {
        match minimal(tasks, scheduler, resource, period, vcpus, work)? {
            Ok(interface) => {
                let cost = interface.cost(tasks, overheads);
                let better = best.as_ref().is_none_or(|(least, other)| {
                    compare(cost, period, *least, other.period) != Ordering::Greater
                });
                if better {
                    best = Some((cost, interface));
                }
            }
            Err(reason) => failure = failure.or(Some(reason)),
        }
    }
    Ok(match best {
        Some((_, interface)) => Ok(interface),
        None => Err(failure.unwrap_or(Infeasible::Undecided(Stop::precision()))),
    })
}

/// cost_a / period_a against cost_b / period_b.
fn compare(cost_a: Amount, period_a: Time, cost_b: Amount, period_b: Time) -> Ordering {
    (cost_a * Amount::from(period_b)).cmp(&(cost_b * Amount::from(period_a)))
}
