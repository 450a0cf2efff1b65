//! Integer time.
//!
//! Rule: every instant and length is a whole number of one unit. The unit is the nanosecond in
//! `steadyvm.toml`; the JSON interface leaves it to the caller and only asks that all times use the
//! same one. No decision in this crate uses a floating-point number.
//!
//! Inputs are at most [`MAX_TIME`] and analysed instants at most [`MAX_INSTANT`], so that an amount of
//! one task or one VCPU fits 64 bits and sums over tasks fit 128 bits: no operation can overflow.

/// An instant or a length of time, in whole units (nanoseconds unless the caller chose another unit).
pub type Time = i64;

/// An amount of execution summed over tasks or processors, in the same unit as [`Time`].
pub type Amount = i128;

/// The longest time accepted as input: 2^53 units (104 days in nanoseconds), the largest range in which
/// every JSON reader keeps integers exact.
pub const MAX_TIME: Time = 1 << 53;

/// The latest instant an analysis looks at. A test that would have to look further is undecided.
pub const MAX_INSTANT: Time = 1 << 61;

/// A number that divides others many times: by a multiplication, which takes a fifth of the time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Divisor {
    value: Time,
    /// floor((2^64 - 1) / value)
    reciprocal: u64,
}

impl Divisor {
    /// `value` must be greater than zero.
    pub const fn new(value: Time) -> Self {
        Self {
            value,
            reciprocal: u64::MAX / value.cast_unsigned(),
        }
    }

    pub const fn value(self) -> Time {
        self.value
    }

    /// `floor(numerator / value)` for `numerator >= 0`. The reciprocal r is in (2^64 / value - 1,
    /// 2^64 / value], so for n < 2^63 the product n r / 2^64 is at most n / value and above
    /// n / value - 1/2: its whole part is the quotient or one less.
    pub const fn quotient(self, numerator: Time) -> Time {
        let product = numerator.cast_unsigned() as u128 * self.reciprocal as u128;
        let quotient = (product >> 64) as Time;
        if numerator - quotient * self.value >= self.value {
            quotient + 1
        } else {
            quotient
        }
    }
}

/// `ceil(numerator / denominator)` for `numerator >= 0`, `denominator > 0`.
pub(crate) const fn div_ceil(numerator: Time, denominator: Time) -> Time {
    let quotient = numerator / denominator;
    if numerator % denominator == 0 {
        quotient
    } else {
        quotient + 1
    }
}

/// `ceil(numerator / denominator)` for `numerator >= 0`, `denominator > 0`.
pub(crate) const fn div_ceil_wide(numerator: Amount, denominator: Amount) -> Amount {
    let quotient = numerator / denominator;
    if numerator % denominator == 0 {
        quotient
    } else {
        quotient + 1
    }
}

/// The largest `offset + k * step <= below` with integer `k >= 0`, if there is one.
pub(crate) const fn last_in_sequence(offset: Time, step: Time, below: Time) -> Option<Time> {
    if below < offset {
        None
    } else {
        Some(offset + (below - offset) / step * step)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::Divisor;

    proptest! {
        #[test]
        fn a_divisor_divides(value in 1..=i64::MAX, shift in 0..63_u32, numerator in 0..=i64::MAX) {
            for value in [value, value >> shift].into_iter().filter(|&value| value > 0) {
                for numerator in [numerator, numerator >> shift, numerator / value * value, i64::MAX] {
                    let expected = numerator / value;
                    prop_assert_eq!(Divisor::new(value).quotient(numerator), expected);
                    let before = (numerator / value * value).saturating_sub(1).max(0);
                    prop_assert_eq!(Divisor::new(value).quotient(before), before / value);
                }
            }
        }
    }
}
