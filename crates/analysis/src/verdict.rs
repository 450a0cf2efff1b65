//! What a schedulability test answers.

use crate::{
    time::{Amount, MAX_INSTANT, Time},
    work::Exhausted,
};

/// The answer of a schedulability test.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// Every deadline is met in every legal schedule.
    Schedulable,
    /// The test's condition fails, and where.
    Unschedulable(Violation),
    /// A bound was reached before the test could decide. Never a yes.
    Undecided(Stop),
}

impl Verdict {
    /// True only for [`Verdict::Schedulable`].
    pub fn is_schedulable(&self) -> bool {
        matches!(self, Self::Schedulable)
    }
}

impl From<Exhausted> for Verdict {
    fn from(Exhausted { at }: Exhausted) -> Self {
        Self::Undecided(Stop {
            bound: Bound::Work,
            at,
        })
    }
}

impl From<Result<(), Verdict>> for Verdict {
    fn from(result: Result<(), Verdict>) -> Self {
        result.err().unwrap_or(Self::Schedulable)
    }
}

/// Why and where a test ended undecided.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stop {
    /// The bound it reached.
    pub bound: Bound,
    /// The window it looked at last, or would have looked at next; 0 if it looked at none.
    pub at: Time,
}

impl Stop {
    /// A test that would look beyond [`MAX_INSTANT`].
    pub(crate) const fn horizon() -> Self {
        Self {
            bound: Bound::Horizon,
            at: MAX_INSTANT,
        }
    }

    /// A sum of utilisations that 128 bits cannot compare.
    pub(crate) const fn precision() -> Self {
        Self {
            bound: Bound::Precision,
            at: 0,
        }
    }
}

/// What ends a test before it can decide.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bound {
    /// The allowed work ([`crate::work`]).
    Work,
    /// The last instant that is looked at, [`MAX_INSTANT`].
    Horizon,
    /// 128-bit fractions.
    Precision,
}

/// Where a condition fails: in a window of length `at`, `demand` exceeds `supply`, strictly.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Violation {
    /// Index of the task or VCPU in the slice that was tested.
    pub index: usize,
    /// Length of the window, from the release or the start of the busy interval.
    pub at: Time,
    /// Execution that has to be done in the window.
    pub demand: Amount,
    /// Execution that is certain to be supplied in it.
    pub supply: Amount,
}
