//! Resource models and their supply bound functions.
//!
//! Rule: `supply(t)` is the least execution the model gives in any window of length `t` in which there
//! is always something to run. It never decreases, `supply(0) = 0`, and it is a sequence of straight
//! lines between whole instants, so whole instants decide every comparison with it.
//!
//! A model also gives a straight line that never lies above its supply (it bounds how far a test must
//! look) and the inverse (it lets a test skip the instants that cannot fail).

mod dedicated;
mod dmpr;
mod edp;
mod mpr;
mod multi;
mod prm;

pub use dedicated::Dedicated;
pub use dmpr::DeterministicMultiprocessor;
pub use edp::ExplicitDeadlinePeriodic;
pub use mpr::MultiprocessorPeriodic;
pub use multi::MultiSupply;
pub use prm::{PeriodicResource, Replenishment};

use crate::{
    ratio::Fraction,
    time::{Amount, Time},
};

/// A resource model.
pub trait Supply {
    /// The supply bound function: the least execution in any busy window of length `window >= 0`.
    fn supply(&self, window: Time) -> Amount;

    /// The shortest window whose supply reaches `amount`; `None` where that lies beyond
    /// [`MAX_INSTANT`](crate::time::MAX_INSTANT) or the model supplies nothing.
    fn window_for(&self, amount: Amount) -> Option<Time>;

    /// The last instant before `window` at which the supply bound function changes its slope, or 0.
    fn previous_corner(&self, window: Time) -> Time;

    /// A line that the supply bound function never falls below.
    fn lower_line(&self) -> Line;

    /// From where on, and how often, the supply bound function repeats itself.
    fn repeats(&self) -> Repeats;

    /// The most processors that ever supply at once.
    fn parallelism(&self) -> usize;
}

/// `supply(t + period) = supply(t) + rate * period` for all `t >= from`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Repeats {
    /// The first such instant.
    pub from: Time,
    /// The period.
    pub period: Time,
}

/// The line `rate * t - offset / rate.denominator`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Line {
    /// Slope: supplied execution per time.
    pub rate: Fraction,
    /// What the line is below `rate * t`, times the rate's denominator.
    pub offset: Amount,
}

impl Line {
    /// The offset in whole units of execution, rounded up.
    pub(crate) fn whole_offset(&self) -> Amount {
        crate::time::div_ceil_wide(self.offset, self.rate.denominator)
    }
}
