//! Sums of fractions compared with a fraction, without rounding a decision.
//!
//! Rule: utilisations are first summed as an interval of width `n / 2^48`. When the interval decides the
//! comparison, that is the answer. When it does not, the sum is formed exactly over a common
//! denominator; when that does not fit 128 bits either, the comparison is `None` (undecided) and every
//! caller answers on the safe side.
//!
//! Complexity: O(n); O(n log max T) when the exact sum is needed.

use std::cmp::Ordering;

use crate::time::Amount;

/// Fixed-point one: 2^48.
const ONE: Amount = 1 << 48;

/// A non-negative fraction; `denominator > 0`, `numerator <= 2^78`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fraction {
    /// Above the line.
    pub numerator: Amount,
    /// Below the line; greater than zero.
    pub denominator: Amount,
}

impl Fraction {
    /// `numerator / denominator`; `denominator` must be greater than zero.
    pub const fn new(numerator: Amount, denominator: Amount) -> Self {
        Self {
            numerator,
            denominator,
        }
    }

    /// The value as a float, for display only.
    pub fn display_value(self) -> f64 {
        self.numerator as f64 / self.denominator as f64
    }
}

/// An interval that contains a sum of fractions, in units of 2^-48.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Interval {
    low: Amount,
    high: Amount,
}

impl Interval {
    pub(crate) fn of(terms: impl Iterator<Item = Fraction>) -> Self {
        terms.fold(Self::default(), Self::plus)
    }

    pub(crate) fn plus(self, term: Fraction) -> Self {
        let scaled = term.numerator * ONE;
        let floor = scaled / term.denominator;
        let inexact = Amount::from(floor * term.denominator != scaled);
        Self {
            low: self.low + floor,
            high: self.high + floor + inexact,
        }
    }

    /// The upper end, in units of 2^-48.
    pub(crate) const fn upper(self) -> Amount {
        self.high
    }

    /// The comparison with `other` if the interval decides it.
    pub(crate) fn compare(self, other: Fraction) -> Option<Ordering> {
        let other = Self::default().plus(other);
        if self.high < other.low {
            Some(Ordering::Less)
        } else if self.low > other.high {
            Some(Ordering::Greater)
        } else if self.low == self.high && other.low == other.high {
            Some(self.low.cmp(&other.low))
        } else {
            None
        }
    }

    /// `ceil(amount / (other - self))` with `self`'s upper and `other`'s lower bound: an upper bound of
    /// the instant where a line of slope `other` has made up `amount` on a line of slope `self`.
    /// `None` when the bounds do not separate the slopes or the result does not fit.
    pub(crate) fn catch_up(self, other: Fraction, amount: Amount) -> Option<Amount> {
        let gap = Self::default().plus(other).low - self.high;
        if gap <= 0 {
            return None;
        }
        let scaled = amount.checked_mul(ONE)?;
        Some(crate::time::div_ceil_wide(scaled, gap))
    }

    /// A whole number not below the sum times `factor >= 0`.
    pub(crate) const fn ceil_times(self, factor: Amount) -> Amount {
        crate::time::div_ceil_wide(self.high * factor, ONE)
    }

    /// A whole number not above the sum, times `factor`: `floor(factor * sum)`, possibly lower.
    pub(crate) fn floor_times(self, factor: Amount) -> Amount {
        self.low
            .checked_mul(factor)
            .map_or(0, |scaled| scaled / ONE)
    }
}

/// Compares `sum(terms)` with `other`. `None`: not decided within 128 bits.
pub fn compare_sum<I>(terms: I, other: Fraction) -> Option<Ordering>
where
    I: Iterator<Item = Fraction> + Clone,
{
    Interval::of(terms.clone()).compare(other).or_else(|| {
        let sum = exact_sum(terms)?;
        let left = sum.numerator.checked_mul(other.denominator)?;
        let right = other.numerator.checked_mul(sum.denominator)?;
        Some(left.cmp(&right))
    })
}

/// The sum over a common denominator, or `None` where that exceeds 128 bits.
pub fn exact_sum(terms: impl Iterator<Item = Fraction>) -> Option<Fraction> {
    let mut sum = Fraction::new(0, 1);
    for term in terms {
        let common = gcd(sum.denominator, term.denominator);
        let widen = term.denominator / common;
        let denominator = sum.denominator.checked_mul(widen)?;
        let left = sum.numerator.checked_mul(widen)?;
        let right = term.numerator.checked_mul(sum.denominator / common)?;
        let numerator = left.checked_add(right)?;
        let shrink = gcd(numerator, denominator).max(1);
        sum = Fraction::new(numerator / shrink, denominator / shrink);
    }
    Some(sum)
}

/// The greatest common divisor of two numbers, not both zero.
pub(crate) fn gcd(mut a: Amount, mut b: Amount) -> Amount {
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}
