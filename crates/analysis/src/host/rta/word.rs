//! Whole numbers of 32 and of 64 bits, for what is computed of one VCPU.

#![allow(clippy::inline_always, reason = "see super::loops")]

use std::{
    hint::select_unpredictable,
    ops::{Add, Mul, Sub},
};

use crate::time::{Amount, MAX_TIME, Time};

/// A time or an amount of one VCPU's execution.
pub(super) trait Word:
    Copy + Default + Ord + Into<i64> + Add<Output = Self> + Sub<Output = Self> + Mul<Output = Self>
{
    const ZERO: Self;
    const ONE: Self;
    /// The longest period: sums of four fit.
    const LONGEST: Time;

    /// Bits of the lower half in sums; none where whole words can be summed.
    const HALF: u32;

    /// (self mod 2^HALF, floor(self / 2^HALF)), for `self >= 0`.
    fn halves(self) -> (Self, Self);

    /// The same number in 128 bits.
    #[inline(always)]
    fn wide(self) -> Amount {
        Amount::from(self.into())
    }

    /// `time`, which fits.
    fn of(time: Time) -> Self;

    /// floor((2^bits - 1) / self), for `self > 0`, as a pattern of bits without a sign.
    fn reciprocal(self) -> Self;

    /// (floor(self / value), self mod value) for `self >= 0`; why it is right:
    /// [`crate::time::Divisor::quotient`].
    #[inline(always)]
    fn divided(self, value: Self, reciprocal: Self) -> (Self, Self) {
        let quotient = self.high_product(reciprocal);
        let rest = self - quotient * value;
        // One more, without a branch, which would be a coin toss.
        let short = rest >= value;
        (
            quotient + select_unpredictable(short, Self::ONE, Self::ZERO),
            rest - select_unpredictable(short, value, Self::ZERO),
        )
    }

    /// The upper half of the product of two words without signs.
    fn high_product(self, other: Self) -> Self;
}

impl Word for i32 {
    const ZERO: Self = 0;
    const ONE: Self = 1;
    const LONGEST: Time = 1 << 29;
    const HALF: u32 = 16;

    #[inline(always)]
    fn halves(self) -> (Self, Self) {
        (self & 0xffff, self >> 16)
    }

    fn of(time: Time) -> Self {
        debug_assert!(Self::try_from(time).is_ok());
        time as Self
    }

    fn reciprocal(self) -> Self {
        (u32::MAX / self.cast_unsigned()).cast_signed()
    }

    #[inline(always)]
    fn high_product(self, other: Self) -> Self {
        let product = u64::from(self.cast_unsigned()) * u64::from(other.cast_unsigned());
        (product >> 32) as Self
    }
}

impl Word for i64 {
    const ZERO: Self = 0;
    const ONE: Self = 1;
    const LONGEST: Time = MAX_TIME;
    const HALF: u32 = 0;

    #[inline(always)]
    fn halves(self) -> (Self, Self) {
        (0, self)
    }

    fn of(time: Time) -> Self {
        time
    }

    fn reciprocal(self) -> Self {
        (u64::MAX / self.cast_unsigned()).cast_signed()
    }

    #[inline(always)]
    fn high_product(self, other: Self) -> Self {
        let product = u128::from(self.cast_unsigned()) * u128::from(other.cast_unsigned());
        (product >> 64) as Self
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::Word;

    fn divides<W: Word + std::fmt::Debug>(numerator: i64, value: i64) {
        let (numerator_word, value_word) = (W::of(numerator), W::of(value));
        let expected = (W::of(numerator / value), W::of(numerator % value));
        let divided = numerator_word.divided(value_word, value_word.reciprocal());
        assert_eq!(divided, expected, "{numerator} / {value}");
        let (lower, upper) = numerator_word.halves();
        assert_eq!(lower.wide() + (upper.wide() << W::HALF), numerator.into());
    }

    proptest! {
        #[test]
        fn words_divide_and_halve(value in 1..=i64::MAX, shift in 0..63_u32, numerator in 0..=i64::MAX) {
            for value in [value >> shift, 1].into_iter().filter(|&value| value > 0) {
                let multiple = numerator / value * value;
                for numerator in [numerator, numerator >> shift, multiple, (multiple - 1).max(0), i64::MAX] {
                    divides::<i64>(numerator, value);
                    let (numerator, value) = (numerator >> 32, (value >> 32).max(1));
                    divides::<i32>(numerator, value);
                    divides::<i32>(numerator / value * value, value);
                }
            }
        }
    }
}
