//! Which clock timed a round trip.
//!
//! The kernel stamps received datagrams with `CLOCK_REALTIME`; that stamp leaves out how long the
//! client itself waited for a CPU. But `CLOCK_REALTIME` can be stepped (by an administrator, by a
//! time daemon) where `CLOCK_MONOTONIC` cannot; both follow the same frequency corrections, so
//! their difference changes by steps only. Each round trip is therefore checked: where the
//! difference between the clocks has changed since sending, the monotonic clock is used, and
//! counted as such.

use nix::time::{ClockId, clock_gettime};

/// Readings this far apart are still the same offset: the clocks' own rounding.
const TOLERANCE_NS: i64 = 1_000;
/// A reading is repeated when it took longer than this (the thread was interrupted), …
const WANTED_WIDTH_NS: i64 = 5_000;
/// … this often at most.
const ATTEMPTS: usize = 3;

/// Both clocks, read together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(clippy::struct_field_names, reason = "names carry their unit")]
pub(crate) struct Reading {
    /// `CLOCK_MONOTONIC` just before `realtime_ns` was read.
    pub monotonic_before_ns: i64,
    /// `CLOCK_REALTIME`.
    pub realtime_ns: i64,
    /// `CLOCK_MONOTONIC` just after `realtime_ns` was read.
    pub monotonic_ns: i64,
}

impl Reading {
    /// Reads both clocks, the monotonic one around the other.
    pub(crate) fn now() -> nix::Result<Self> {
        let mut reading = Self::once()?;
        for _ in 1..ATTEMPTS {
            if reading.monotonic_ns - reading.monotonic_before_ns <= WANTED_WIDTH_NS {
                break;
            }
            reading = Self::once()?;
        }
        Ok(reading)
    }

    fn once() -> nix::Result<Self> {
        Ok(Self {
            monotonic_before_ns: monotonic_ns()?,
            realtime_ns: clock_ns(ClockId::CLOCK_REALTIME)?,
            monotonic_ns: monotonic_ns()?,
        })
    }

    /// Whether `CLOCK_REALTIME` was stepped between the two readings: the possible offsets of one
    /// (its realtime minus anything from monotonic before to after) miss those of the other.
    fn stepped_since(&self, earlier: &Self) -> bool {
        let (low, high) = self.offsets_ns();
        let (earlier_low, earlier_high) = earlier.offsets_ns();
        low > earlier_high + TOLERANCE_NS || earlier_low > high + TOLERANCE_NS
    }

    fn offsets_ns(&self) -> (i64, i64) {
        (
            self.realtime_ns - self.monotonic_ns,
            self.realtime_ns - self.monotonic_before_ns,
        )
    }
}

/// The clock a round trip was timed by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Clock {
    /// The kernel's receive timestamp minus `CLOCK_REALTIME` at sending.
    KernelTimestamp,
    /// `CLOCK_MONOTONIC` after receiving minus `CLOCK_MONOTONIC` at sending.
    Monotonic,
}

/// The round trip between `sent` and a datagram stamped `kernel_ns` and read at `received`.
pub(crate) fn round_trip_ns(
    sent: &Reading,
    kernel_ns: Option<i64>,
    received: &Reading,
) -> (u64, Clock) {
    let monotonic = (received.monotonic_ns - sent.monotonic_ns).max(0) as u64;
    let Some(kernel_ns) = kernel_ns else {
        return (monotonic, Clock::Monotonic);
    };
    let plausible = (sent.realtime_ns..=received.realtime_ns).contains(&kernel_ns);
    if !plausible || received.stepped_since(sent) {
        return (monotonic, Clock::Monotonic);
    }
    (
        (kernel_ns - sent.realtime_ns) as u64,
        Clock::KernelTimestamp,
    )
}

/// `CLOCK_MONOTONIC` in nanoseconds.
pub(crate) fn monotonic_ns() -> nix::Result<i64> {
    clock_ns(ClockId::CLOCK_MONOTONIC)
}

fn clock_ns(clock: ClockId) -> nix::Result<i64> {
    clock_gettime(clock).map(timespec_ns)
}

/// A kernel time in nanoseconds; saturates where 64 bits end, in the year 2262.
pub(crate) fn timespec_ns(time: nix::sys::time::TimeSpec) -> i64 {
    time.tv_sec()
        .saturating_mul(1_000_000_000)
        .saturating_add(time.tv_nsec())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reading(monotonic_ns: i64, realtime_ns: i64) -> Reading {
        Reading {
            monotonic_before_ns: monotonic_ns - 100,
            realtime_ns,
            monotonic_ns,
        }
    }

    #[test]
    fn the_kernel_timestamp_leaves_out_the_clients_own_delay() {
        let (sent, received) = (reading(1_000, 900_000), reading(501_000, 1_400_000));
        let timed = round_trip_ns(&sent, Some(1_100_000), &received);
        assert_eq!(timed, (200_000, Clock::KernelTimestamp));
    }

    #[test]
    fn without_a_timestamp_the_monotonic_clock_is_used() {
        let (sent, received) = (reading(1_000, 900_000), reading(501_000, 1_400_000));
        assert_eq!(
            round_trip_ns(&sent, None, &received),
            (500_000, Clock::Monotonic)
        );
    }

    #[test]
    fn a_stepped_realtime_clock_is_not_used_in_either_direction() {
        let sent = reading(1_000, 900_000);
        for step_ns in [-700_000, -3_000, 3_000, 100_000, i64::from(i32::MAX)] {
            let received = reading(501_000, 1_400_000 + step_ns);
            let stamp = 1_390_000 + step_ns;
            assert_eq!(
                round_trip_ns(&sent, Some(stamp), &received),
                (500_000, Clock::Monotonic),
                "step of {step_ns} ns"
            );
        }
    }

    #[test]
    fn an_impossible_timestamp_is_not_used() {
        let (sent, received) = (reading(1_000, 900_000), reading(501_000, 1_400_000));
        for stamp in [i64::MIN, 0, 899_999, 1_400_001, i64::MAX] {
            assert_eq!(
                round_trip_ns(&sent, Some(stamp), &received).1,
                Clock::Monotonic
            );
        }
    }

    #[test]
    fn an_interrupted_reading_is_not_taken_for_a_step() {
        let sent = reading(1_000, 900_000);
        let received = Reading {
            monotonic_before_ns: 400_000,
            realtime_ns: 1_310_000,
            monotonic_ns: 501_000,
        };
        assert_eq!(
            round_trip_ns(&sent, Some(1_200_000), &received),
            (300_000, Clock::KernelTimestamp)
        );
    }

    #[test]
    fn the_clocks_of_this_machine_can_be_read() {
        let earlier = Reading::now().unwrap();
        let later = Reading::now().unwrap();
        assert!(later.monotonic_before_ns >= earlier.monotonic_ns);
    }
}
