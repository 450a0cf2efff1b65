//! From the instant that a timer is set for to the thread that sleeps until then, as cyclictest does.

use std::time::{Duration, Instant};

use nix::sys::time::TimeSpec;
use nix::time::{ClockId, ClockNanosleepFlags, clock_gettime, clock_nanosleep};
use steadyvm_fault::{Fault, Result};

const INTERVAL: Duration = Duration::from_millis(1);
const FIRST: usize = 5;
const LEAST: usize = 20;

pub(super) fn samples(until: Instant) -> Result<Vec<u64>> {
    let clock = ClockId::CLOCK_MONOTONIC;
    let cannot = |error| Fault::cannot("sleep until an instant", error);
    let now = || clock_gettime(clock).map(Duration::from).map_err(cannot);
    let (mut samples, mut count) = (Vec::new(), 0);
    while count < FIRST + LEAST || Instant::now() < until {
        // A thread that is late by more than an interval does not catch up.
        let target = now()? + INTERVAL;
        let at = TimeSpec::from_duration(target);
        while let Err(error) = clock_nanosleep(clock, ClockNanosleepFlags::TIMER_ABSTIME, &at) {
            if error != nix::errno::Errno::EINTR {
                return Err(cannot(error));
            }
        }
        if count >= FIRST {
            let late = now()?.saturating_sub(target);
            samples.push(late.as_nanos() as u64);
        }
        count += 1;
    }
    Ok(samples)
}
