//! A bound on the work of one analysis.
//!
//! Rule: schedulability tests are pseudo-polynomial, so an input can ask for years of computing. Every
//! test spends from a [`Work`] allowance, one step per task looked at. When it is spent, the test's
//! verdict is `Undecided`; a caller never turns that into a yes.

use crate::time::Time;

/// Tasks that one step pays for where looking at one takes no division.
pub(crate) const STEPS_SHARE: usize = 16;

/// Steps left.
#[derive(Debug, Clone)]
pub struct Work {
    left: u64,
}

/// The allowance is spent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Exhausted {
    /// The window that was to be looked at next.
    pub at: Time,
}

impl Work {
    /// The usual allowance of one VM or one host: a fifth of a second to a second of one core.
    pub const DEFAULT_STEPS: u64 = 40_000_000;

    /// An allowance of `steps`.
    pub const fn new(steps: u64) -> Self {
        Self { left: steps }
    }

    /// Steps left.
    pub const fn left(&self) -> u64 {
        self.left
    }

    /// An allowance of at most `steps` out of this one; what is left of it can be given back.
    pub(crate) fn take(&mut self, steps: u64) -> Self {
        let taken = steps.min(self.left);
        self.left -= taken;
        Self { left: taken }
    }

    /// Returns what is left of a taken allowance.
    pub(crate) const fn give_back(&mut self, rest: &Self) {
        self.left += rest.left;
    }

    /// Pays for looking at the window `at`.
    pub(crate) const fn spend(&mut self, steps: usize, at: Time) -> Result<(), Exhausted> {
        if let Some(left) = self.left.checked_sub(steps as u64) {
            self.left = left;
            Ok(())
        } else {
            self.left = 0;
            Err(Exhausted { at })
        }
    }
}

impl Default for Work {
    fn default() -> Self {
        Self::new(Self::DEFAULT_STEPS)
    }
}
