//! The density test of global EDF (Goossens, Funk and Baruah).
//!
//! Model: sporadic tasks under global EDF on m processors. Formula: schedulable if
//! sum delta_i <= m - (m - 1) max delta_i, delta = C / (D - J). Complexity: O(n). Sufficient.
//! Sources: Goossens, Funk and Baruah, RTS 25 (2003); Bertogna et al. 2005 (densities).

use std::cmp::Ordering;

use crate::{
    ratio::{Fraction, compare_sum},
    task::Task,
    time::Amount,
};

/// True if the test shows `tasks` schedulable on `processors`.
pub fn test(tasks: &[Task], processors: u32) -> bool {
    beside(tasks, processors, Fraction::new(0, 1))
}

/// The same where `lost` of the processors, in processors, are gone from every window that counts (see `heavy`).
pub(super) fn beside(tasks: &[Task], processors: u32, lost: Fraction) -> bool {
    let densities = || tasks.iter().map(Task::density);
    let Some(largest) = densities().max_by(|a, b| compare(*a, *b)) else {
        return true;
    };
    let processors = Amount::from(processors);
    if processors == 0 {
        return false;
    }
    // sum delta + (m - 1) max delta + lost <= m
    let weighted = Fraction::new(largest.numerator * (processors - 1), largest.denominator);
    let left = densities().chain([weighted, lost]);
    let sum = compare_sum(left, Fraction::new(processors, 1));
    sum.is_some_and(Ordering::is_le)
}

pub(super) fn compare(a: Fraction, b: Fraction) -> Ordering {
    (a.numerator * b.denominator).cmp(&(b.numerator * a.denominator))
}
