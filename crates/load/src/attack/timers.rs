//! Timers that expire at once, one after the other: each is an interrupt, and in a guest an exit or two.

use std::io;
use std::time::Duration;

use nix::sys::time::TimeSpec;
use nix::sys::timerfd::{ClockId, Expiration, TimerFd, TimerFlags, TimerSetTimeFlags};

use super::AttackError;
use super::pace::{Attacked, Pace, Tried};

/// A descriptor's timer has no slack: it expires then, not with others.
const EXPIRES_AFTER: Duration = Duration::from_micros(1);

/// Sets a timer and waits for it, in so many threads, without end.
///
/// # Errors
/// The kernel's, such as no descriptor for a timer.
pub fn timers(threads: u32, pace: &Pace) -> Result<Attacked, AttackError> {
    let timer = |_| -> io::Result<_> {
        let timer = TimerFd::new(ClockId::CLOCK_MONOTONIC, TimerFlags::TFD_CLOEXEC)?;
        Ok(move |_: u64| -> io::Result<Tried> {
            let once = Expiration::OneShot(TimeSpec::from_duration(EXPIRES_AFTER));
            timer.set(once, TimerSetTimeFlags::empty())?;
            timer.wait()?;
            Ok(Tried::Sent)
        })
    };
    let acts = (0..threads.max(1)).map(timer).collect::<io::Result<_>>()?;
    Ok(pace.run_in(acts)?)
}
