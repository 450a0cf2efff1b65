//! The deterministic multiprocessor periodic resource model (DMPR).
//!
//! Model: `full` VCPUs that always run, and one partial VCPU with `budget` (Theta) in every `period`
//! (Pi). Preconditions: 0 <= Theta <= Pi.
//!
//! Formula: sbf(t) = full t + sbf_PRM(Pi, Theta)(t). Complexity: O(1); O(log MAX_INSTANT) for the
//! inverse. Source: Xu et al., RTSS 2013.

use super::{
    Line, PeriodicResource, Repeats, Replenishment, Supply, mpr::MAX_PROCESSORS,
    multi::window_by_bisection,
};
use crate::{
    error::Error,
    ratio::Fraction,
    time::{Amount, Time},
};

/// A deterministic multiprocessor periodic resource.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DeterministicMultiprocessor {
    full: u32,
    partial: PeriodicResource,
}

impl DeterministicMultiprocessor {
    /// `full` VCPUs that always run and one with `budget` in every `period`.
    ///
    /// # Errors
    /// Times or counts out of range, or a partial budget above the period.
    pub fn new(period: Time, budget: Time, full: u32) -> Result<Self, Error> {
        if full >= MAX_PROCESSORS {
            return Err(Error::OutOfRange {
                what: "the number of full VCPUs",
                value: full.into(),
                low: 0,
                high: MAX_PROCESSORS.into(),
            });
        }
        Ok(Self {
            full,
            partial: PeriodicResource::new(period, budget)?,
        })
    }

    /// The same VCPUs of servers that replenish so.
    #[must_use]
    pub const fn replenished(self, replenishment: Replenishment) -> Self {
        Self {
            partial: self.partial.replenished(replenishment),
            ..self
        }
    }

    /// The VCPU budgets that realise the model: the full ones, then the partial one if it has a budget.
    pub fn vcpu_budgets(&self) -> Vec<Time> {
        let mut budgets = vec![self.partial.period(); self.full as usize];
        budgets.extend(Some(self.partial.budget()).filter(|&budget| budget > 0));
        budgets
    }
}

impl Supply for DeterministicMultiprocessor {
    fn supply(&self, window: Time) -> Amount {
        Amount::from(self.full) * Amount::from(window) + self.partial.supply(window)
    }

    fn window_for(&self, amount: Amount) -> Option<Time> {
        window_by_bisection(self, amount)
    }

    fn previous_corner(&self, window: Time) -> Time {
        self.partial.previous_corner(window)
    }

    fn lower_line(&self) -> Line {
        let Line { rate, offset } = self.partial.lower_line();
        let numerator = Amount::from(self.full) * rate.denominator + rate.numerator;
        Line {
            rate: Fraction::new(numerator, rate.denominator),
            offset,
        }
    }

    fn repeats(&self) -> Repeats {
        self.partial.repeats()
    }

    fn parallelism(&self) -> usize {
        self.full as usize + usize::from(self.partial.budget() > 0)
    }
}
