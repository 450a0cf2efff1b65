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

/// `ceil(U length)` for the task's utilisation U and `length` of at most twice its period.
pub(crate) fn share(task: &crate::task::Task, length: Time) -> Time {
    let scaled = Amount::from(task.demand()) * Amount::from(length);
    let share = div_ceil_wide(scaled, task.period().into());
    // At most 2 C.
    Time::try_from(share).unwrap_or(Time::MAX / 4)
}

/// The largest `offset + k * step <= below` with integer `k >= 0`, if there is one.
pub(crate) const fn last_in_sequence(offset: Time, step: Time, below: Time) -> Option<Time> {
    if below < offset {
        None
    } else {
        Some(offset + (below - offset) / step * step)
    }
}
