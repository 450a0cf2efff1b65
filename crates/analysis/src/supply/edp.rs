//! The explicit deadline periodic resource model (EDP).
//!
//! Model: one processor gives `budget` (Theta) in every `period` (Pi), within the first `deadline`
//! (Delta) of it. Preconditions: 0 <= Theta <= Delta <= Pi.
//!
//! Formula: the longest time without supply is b = Pi + Delta - 2 Theta; after it the supply repeats
//! "Theta at full speed, then Pi - Theta of nothing":
//! sbf(t) = n Theta + min(Theta, t - b - n Pi), n = floor((t - b) / Pi), for t >= b, else 0;
//! line: (Theta / Pi) (t - b). With Delta = Pi this is the periodic resource model.
//!
//! Complexity: O(1). Source: Easwaran, Anand and Lee, RTSS 2007.

use super::{Line, Repeats, Supply};
use crate::{
    error::{Error, not_negative, positive},
    ratio::Fraction,
    time::{Amount, MAX_INSTANT, Time, last_in_sequence},
};

/// An explicit deadline periodic resource.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ExplicitDeadlinePeriodic {
    period: Time,
    budget: Time,
    deadline: Time,
    /// What the supply begins later than the model's.
    late: Time,
}

impl ExplicitDeadlinePeriodic {
    /// `budget` within the first `deadline` of every `period`.
    ///
    /// # Errors
    /// Times out of range, or budget <= deadline <= period broken.
    pub fn new(period: Time, budget: Time, deadline: Time) -> Result<Self, Error> {
        let period = positive("the VCPU period", period)?;
        let deadline = positive("the VCPU deadline", deadline)?;
        let budget = not_negative("the VCPU budget", budget)?;
        let advice = "a VCPU runs on one processor at a time";
        if deadline > period {
            return Err(Error::Exceeds {
                what: "the VCPU deadline",
                value: deadline,
                limit_name: "its period",
                limit: period,
                advice,
            });
        }
        if budget > deadline {
            return Err(Error::Exceeds {
                what: "the VCPU budget",
                value: budget,
                limit_name: if deadline == period {
                    "its period"
                } else {
                    "its deadline"
                },
                limit: deadline,
                advice,
            });
        }
        Ok(Self {
            period,
            budget,
            deadline,
            late: 0,
        })
    }

    /// The budget, Theta.
    pub const fn budget(&self) -> Time {
        self.budget
    }

    /// The period, Pi.
    pub const fn period(&self) -> Time {
        self.period
    }

    /// The deadline, Delta.
    pub const fn deadline(&self) -> Time {
        self.deadline
    }

    /// The same supply, `late` later.
    pub(super) const fn later(self, late: Time) -> Self {
        Self { late, ..self }
    }

    /// The longest window without supply, Pi + Delta - 2 Theta, and what it begins later.
    pub const fn blackout(&self) -> Time {
        self.period + self.deadline - 2 * self.budget + self.late
    }
}

impl Supply for ExplicitDeadlinePeriodic {
    fn supply(&self, window: Time) -> Amount {
        let after = window - self.blackout();
        if after <= 0 {
            return 0;
        }
        let periods = after / self.period;
        let rest = after - periods * self.period;
        (periods * self.budget + rest.min(self.budget)).into()
    }

    fn window_for(&self, amount: Amount) -> Option<Time> {
        if amount <= 0 {
            return Some(0);
        }
        let budget = Amount::from(self.budget);
        if budget == 0 {
            return None;
        }
        let periods = (amount - 1) / budget;
        let rest = amount - periods * budget;
        let window = Amount::from(self.blackout()) + periods * Amount::from(self.period) + rest;
        Time::try_from(window).ok().filter(|&t| t <= MAX_INSTANT)
    }

    fn previous_corner(&self, window: Time) -> Time {
        let start = last_in_sequence(self.blackout(), self.period, window - 1);
        let end = last_in_sequence(self.blackout() + self.budget, self.period, window - 1);
        start.max(end).unwrap_or(0)
    }

    fn lower_line(&self) -> Line {
        Line {
            rate: Fraction::new(self.budget.into(), self.period.into()),
            offset: Amount::from(self.budget) * Amount::from(self.blackout()),
        }
    }

    fn repeats(&self) -> Repeats {
        Repeats {
            from: self.blackout(),
            period: self.period,
        }
    }

    fn parallelism(&self) -> usize {
        1
    }
}
