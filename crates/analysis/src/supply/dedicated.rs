//! Processors without a hypervisor in between.
//!
//! Model: m processors, always available. Formula: sbf(t) = m t. Complexity: O(1).

use super::{Line, Repeats, Supply};
use crate::{
    ratio::Fraction,
    time::{Amount, MAX_INSTANT, Time, div_ceil_wide},
};

/// `processors` that are always available.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Dedicated {
    processors: u32,
}

impl Dedicated {
    /// `processors` dedicated processors.
    pub const fn new(processors: u32) -> Self {
        Self { processors }
    }
}

impl Supply for Dedicated {
    fn supply(&self, window: Time) -> Amount {
        Amount::from(self.processors) * Amount::from(window)
    }

    fn window_for(&self, amount: Amount) -> Option<Time> {
        if self.processors == 0 && amount > 0 {
            return None;
        }
        let window = div_ceil_wide(amount.max(0), Amount::from(self.processors).max(1));
        Time::try_from(window).ok().filter(|&t| t <= MAX_INSTANT)
    }

    fn previous_corner(&self, _window: Time) -> Time {
        0
    }

    fn lower_line(&self) -> Line {
        Line {
            rate: Fraction::new(self.processors.into(), 1),
            offset: 0,
        }
    }

    fn repeats(&self) -> Repeats {
        Repeats { from: 0, period: 1 }
    }

    fn parallelism(&self) -> usize {
        self.processors as usize
    }
}
