//! Threads that interrupt each other's CPUs: in a guest each is an exit of the sender, and a kick of the receiver.
//!
//! `membarrier` interrupts every CPU on which a thread of the process runs (`kernel/sched/membarrier.c`,
//! `membarrier_private_expedited`); all threads call it, so all run.

use std::io;

use rustix::thread::{MembarrierCommand, membarrier};

use super::AttackError;
use super::pace::{Attacked, Pace, Tried};

/// Interrupts in so many threads. An attempt is one call.
///
/// # Errors
/// Fewer than two threads; a kernel without the call.
pub fn interrupts(threads: u32, pace: &Pace) -> Result<Attacked, AttackError> {
    if threads < 2 {
        return Err(AttackError::OneThread);
    }
    membarrier(MembarrierCommand::RegisterPrivateExpedited).map_err(io::Error::from)?;
    let act = |_: u64| -> io::Result<Tried> {
        membarrier(MembarrierCommand::PrivateExpedited)?;
        Ok(Tried::Sent)
    };
    Ok(pace.run_in(vec![act; threads as usize])?)
}
