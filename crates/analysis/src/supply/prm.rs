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
//!
//! A sporadic server ([`Replenishment::InPieces`]) supplies the same Theta later, unless Theta = Pi: nothing for
//! 2 Pi - Theta, all of Theta in 2 Pi. Why: let a window begin at s. Every unit of the budget was used at s or before,
//! so it comes back by s + Pi; and what comes back at r is used by r + Pi while there is work. So all of Theta is used
//! by s + 2 Pi, and again in each period after it; one CPU gives one unit at a time, so u units by s + 2 Pi - Theta + u.
//! Pieces are joined as the VCPU wakes, at most a period before the latest of them (crates/sched-policy/policy/sporadic.h),
//! so it holds for those, too. Precondition: the VCPU has work in all of the window; one that sleeps in it begins anew.
//!
//! Complexity: O(1). Source: Shin and Lee, RTSS 2003; sporadic servers as Stanovich et al., RTAS 2010, correct them.

use super::{ExplicitDeadlinePeriodic, Line, Repeats, Supply};
use crate::{
    error::Error,
    time::{Amount, Time},
};

/// When a VCPU gets back the budget that it has used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Replenishment {
    /// All of it at once: periodic and deferrable servers as a period begins, constant-bandwidth servers at their
    /// deadline.
    #[default]
    AtOnce,
    /// Each piece one period after the instant from which it could be used: sporadic servers.
    InPieces,
}

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

    /// The same budget and period of a server that replenishes so.
    #[must_use]
    pub const fn replenished(self, replenishment: Replenishment) -> Self {
        let Self(resource) = self;
        let always_runs = resource.budget() == resource.period();
        Self(match replenishment {
            Replenishment::InPieces if !always_runs => resource.later(resource.budget()),
            _ => resource.later(0),
        })
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
