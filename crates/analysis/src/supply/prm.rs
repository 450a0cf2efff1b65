//! The periodic resource model (PRM).
//!
//! Model: one processor gives `budget` (Theta) in every `period` (Pi), at unknown times within it.
//! Preconditions: 0 <= Theta <= Pi.
//!
//! Formula: with k = floor((t - (Pi - Theta)) / Pi),
//! sbf(t) = k Theta + max(0, t - 2 (Pi - Theta) - k Pi) for t > Pi - Theta, else 0;
//! line: (Theta / Pi) (t - 2 (Pi - Theta)).
//!
//! It is the explicit deadline periodic model with Delta = Pi, and is computed as such.
//! Complexity: O(1). Source: Shin and Lee, RTSS 2003.

use super::{ExplicitDeadlinePeriodic, Line, Repeats, Supply};
use crate::{
    error::Error,
    time::{Amount, Time},
};

/// A periodic resource.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PeriodicResource(ExplicitDeadlinePeriodic);

impl PeriodicResource {
    /// `budget` in every `period`.
    ///
    /// # Errors
    /// A period that is not a positive time, a negative budget, a budget above the period.
    pub fn new(period: Time, budget: Time) -> Result<Self, Error> {
        ExplicitDeadlinePeriodic::new(period, budget, period).map(Self)
    }

    /// The budget, Theta.
    pub const fn budget(&self) -> Time {
        self.0.budget()
    }

    /// The period, Pi.
    pub const fn period(&self) -> Time {
        self.0.period()
    }
}

impl Supply for PeriodicResource {
    fn supply(&self, window: Time) -> Amount {
        self.0.supply(window)
    }

    fn window_for(&self, amount: Amount) -> Option<Time> {
        self.0.window_for(amount)
    }

    fn previous_corner(&self, window: Time) -> Time {
        self.0.previous_corner(window)
    }

    fn lower_line(&self) -> Line {
        self.0.lower_line()
    }

    fn repeats(&self) -> Repeats {
        self.0.repeats()
    }

    fn parallelism(&self) -> usize {
        1
    }
}
