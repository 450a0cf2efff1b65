//! Least integer budgets by bisection.
//!
//! Precondition: the test is monotone: it passes for every budget above one it passes for.
//! Complexity: log2(high - low) tests.

use crate::{time::Time, verdict::Verdict};

/// The least budget found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Least {
    /// Passes the test.
    pub budget: Time,
    /// True if every smaller budget fails; false if the allowed work ended first.
    pub exact: bool,
}

/// The least budget in `low..=high` that passes `test`, which `high` is known to pass.
pub fn least_below(low: Time, high: Time, mut test: impl FnMut(Time) -> Verdict) -> Least {
    let mut found = Least {
        budget: high,
        exact: true,
    };
    let mut low = low.min(high);
    while low < found.budget {
        let middle = low + (found.budget - low) / 2;
        match test(middle) {
            Verdict::Schedulable => found.budget = middle,
            Verdict::Unschedulable(_) => low = middle + 1,
            Verdict::Undecided(_) => {
                found.exact = false;
                low = middle + 1;
            }
        }
    }
    found
}

/// A budget below which demand outgrows supply for certain, at least 1.
pub fn floor(utilizations: impl Iterator<Item = crate::ratio::Fraction>, period: Time) -> Time {
    let floor = crate::ratio::Interval::of(utilizations).floor_times(period.into());
    Time::try_from(floor).unwrap_or(1).max(1)
}
