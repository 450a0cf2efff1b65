//! Threads that compute and never sleep: a VM's VCPUs that take what they get.

use std::io;

use super::AttackError;
use super::pace::{Attacked, Pace, Tried};
use crate::computation::work;

/// A few microseconds, so that the end is noticed at once.
const UNITS: u64 = 100;

/// Computes in so many threads. An attempt is some microseconds of work.
///
/// # Errors
/// A thread cannot be started.
pub fn compute(threads: u32, pace: &Pace) -> Result<Attacked, AttackError> {
    let act = |_: u64| -> io::Result<Tried> {
        work(UNITS);
        Ok(Tried::Sent)
    };
    Ok(pace.run_in(vec![act; threads.max(1) as usize])?)
}
