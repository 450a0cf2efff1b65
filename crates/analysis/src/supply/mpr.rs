//! The multiprocessor periodic resource model (MPR), exact supply.
//!
//! Model: a total of `budget` (Theta) in every `period` (Pi) on at most m' processors at once.
//! Preconditions: 0 <= Theta <= m' Pi, whole times.
//!
//! Formula (definition): sbf(t) = min over whole a + b + k Pi = t, 0 <= a, b <= Pi, of
//! f(a) + k Theta + f(b), with f(a) = max(0, Theta - m' (Pi - a)) the least supply in the last a of a
//! period that is still to get everything it can. Units: the budget moves between processors in whole
//! units of [`Time`].
//!
//! Computed as: Theta spread as evenly as whole numbers allow, r = Theta mod m' VCPUs with
//! q + 1 = floor(Theta / m') + 1 and m' - r with q; sbf(t) = r sbf_PRM(Pi, q + 1)(t) +
//! (m' - r) sbf_PRM(Pi, q)(t). Why equal: f is the sum of the VCPUs' own f; it is convex, so the
//! minimum lies at a and b as equal as possible; and all the VCPUs of budgets q and q + 1 take their
//! minimum at the same k. So the spread VCPUs need no common phase to give the MPR's supply, and as each
//! VCPU's sbf_PRM holds for starts at any real instant, so does their sum: the whole-unit supply is sound
//! for these VCPUs however fine the host's clock is.
//!
//! With real a and b (Theta shared out in any fractions) the minimum is lower, m' sbf_PRM(Pi, Theta / m'):
//! [`MultiprocessorPeriodic::divisible_supply`], for hosts that do not keep the VCPUs' whole budgets. The
//! published closed form is safe but lower than both at some points.
//!
//! Complexity: O(1); O(log MAX_INSTANT) for the inverse.
//! Source: Shin, Easwaran and Lee, ECRTS 2008; the exact forms: tests/supply.rs.

use super::{Line, PeriodicResource, Repeats, Replenishment, Supply, multi::window_by_bisection};
use crate::{
    error::{Error, not_negative},
    ratio::Fraction,
    time::{Amount, Time},
};

/// The most processors a model may have.
pub const MAX_PROCESSORS: u32 = 65_536;

/// A multiprocessor periodic resource.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MultiprocessorPeriodic {
    period: Time,
    budget: Time,
    processors: u32,
    larger: PeriodicResource,
    larger_count: Time,
    smaller: PeriodicResource,
    replenishment: Replenishment,
}

impl MultiprocessorPeriodic {
    /// `budget` in every `period` on at most `processors` at once.
    ///
    /// # Errors
    /// Times or counts out of range, or a budget above `processors * period`.
    pub fn new(period: Time, budget: Time, processors: u32) -> Result<Self, Error> {
        let budget = not_negative("the MPR budget", budget)?;
        if processors == 0 || processors > MAX_PROCESSORS {
            return Err(Error::OutOfRange {
                what: "the number of VCPUs",
                value: processors.into(),
                low: 1,
                high: MAX_PROCESSORS.into(),
            });
        }
        let (quotient, larger_count) = (
            budget / Time::from(processors),
            budget % Time::from(processors),
        );
        let smaller = PeriodicResource::new(period, quotient)?;
        let larger = PeriodicResource::new(period, quotient + Time::from(larger_count > 0))?;
        Ok(Self {
            period,
            budget,
            processors,
            larger,
            larger_count,
            smaller,
            replenishment: Replenishment::AtOnce,
        })
    }

    /// The same budget and period of servers that replenish so.
    #[must_use]
    pub const fn replenished(self, replenishment: Replenishment) -> Self {
        Self {
            larger: self.larger.replenished(replenishment),
            smaller: self.smaller.replenished(replenishment),
            replenishment,
            ..self
        }
    }

    /// The total budget, Theta.
    pub const fn budget(&self) -> Time {
        self.budget
    }

    /// The period, Pi.
    pub const fn period(&self) -> Time {
        self.period
    }

    /// The VCPU budgets that realise the model: as even as whole numbers allow, larger ones first.
    pub fn vcpu_budgets(&self) -> Vec<Time> {
        (0..Time::from(self.processors))
            .map(|vcpu| {
                if vcpu < self.larger_count {
                    self.larger.budget()
                } else {
                    self.smaller.budget()
                }
            })
            .collect()
    }

    /// The least supply in any window where Theta may be shared out in any fractions of a unit:
    /// min over real a + b + k Pi = t of f(a) + k Theta + f(b) = m' sbf_PRM(Pi, Theta / m')(t), a whole
    /// number at whole t >= 0 (f is convex, so a = b, and 2 f(a) is whole). Never above
    /// [`Supply::supply`], the supply of [`Self::vcpu_budgets`]. Sporadic servers: the same, Theta / m' later.
    pub fn divisible_supply(&self, window: Time) -> Amount {
        let processors = Amount::from(self.processors);
        let (whole, budget) = (
            processors * Amount::from(self.period),
            Amount::from(self.budget),
        );
        let late = match self.replenishment {
            Replenishment::InPieces if budget < whole => budget,
            _ => 0,
        };
        // Everything times m': the processors' time in the window, and the time without supply.
        let (time, gap) = (processors * Amount::from(window) - late, whole - budget);
        if time <= gap {
            return 0;
        }
        let periods = (time - gap) / whole;
        periods * budget + (time - 2 * gap - periods * whole).max(0)
    }

    fn smaller_count(&self) -> Amount {
        Amount::from(self.processors) - Amount::from(self.larger_count)
    }
}

impl Supply for MultiprocessorPeriodic {
    fn supply(&self, window: Time) -> Amount {
        Amount::from(self.larger_count) * self.larger.supply(window)
            + self.smaller_count() * self.smaller.supply(window)
    }

    fn window_for(&self, amount: Amount) -> Option<Time> {
        window_by_bisection(self, amount)
    }

    fn previous_corner(&self, window: Time) -> Time {
        self.larger
            .previous_corner(window)
            .max(self.smaller.previous_corner(window))
    }

    fn lower_line(&self) -> Line {
        Line {
            rate: Fraction::new(self.budget.into(), self.period.into()),
            offset: Amount::from(self.larger_count) * self.larger.lower_line().offset
                + self.smaller_count() * self.smaller.lower_line().offset,
        }
    }

    fn repeats(&self) -> Repeats {
        // The VCPUs with the smaller budgets are away longer.
        self.smaller.repeats()
    }

    fn parallelism(&self) -> usize {
        self.processors as usize
    }
}
