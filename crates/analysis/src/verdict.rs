//! What a schedulability test answers.

use crate::{
    time::{Amount, Time},
    work::Exhausted,
};

/// The answer of a schedulability test.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// Every deadline is met in every legal schedule.
    Schedulable,
    /// The test's condition fails, and where.
    Unschedulable(Violation),
    /// The allowed work was spent before the test could decide.
    Undecided,
}

impl Verdict {
    /// True only for [`Verdict::Schedulable`].
    pub fn is_schedulable(&self) -> bool {
        matches!(self, Self::Schedulable)
    }
}

impl From<Exhausted> for Verdict {
    fn from(Exhausted: Exhausted) -> Self {
        Self::Undecided
    }
}

impl From<Result<(), Verdict>> for Verdict {
    fn from(result: Result<(), Verdict>) -> Self {
        result.err().unwrap_or(Self::Schedulable)
    }
}

/// Where a condition fails: in a window of length `at`, `demand` exceeds `supply` (or, for a tie the
/// theorem does not admit, equals it).
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
