//! The cost of a switch: two processes on one CPU that wake each other in turn, so that each step is one.
//!
//! A sample is half of a round trip: a write, the wake-up of the other, the decision, the switch of address spaces, and the
//! end of its read. It is above the switch alone by the system calls, and below that of VCPUs by what KVM saves and loads.

use std::io::{Read, Write};
use std::process::{ChildStdin, ChildStdout};
use std::time::Instant;

use steadyvm_fault::{Fault, Result};

use super::pace::Pace;
use super::partner::Partner;
use super::{LOWEST, thread};

/// The partner starts, and both touch their memory.
const FIRST: usize = 100;
const LEAST: usize = 200;
/// More say nothing new.
const MOST: usize = 200_000;

pub(super) fn samples(partner: &Partner, cpu: usize, until: Instant) -> Result<Vec<u64>> {
    let (running, to, from) = partner.start()?;
    thread::set(running.pid(), LOWEST, cpu)?;
    // The partner ends afterwards, and so does a thread that still waits for its answer.
    thread::at(LOWEST, cpu, until, move || round_trips(to, from, until))
}

fn round_trips(mut to: ChildStdin, mut from: ChildStdout, until: Instant) -> Result<Vec<u64>> {
    let mut samples = Vec::new();
    let mut pace = Pace::new();
    let ended = |error| Fault::cannot("exchange a byte with the partner", error);
    for round in 0.. {
        let begun = Instant::now();
        to.write_all(&[0]).map_err(ended)?;
        from.read_exact(&mut [0]).map_err(ended)?;
        let nanoseconds = begun.elapsed().as_nanos() / 2;
        if round >= FIRST {
            samples.push(nanoseconds as u64);
        }
        let is_over = Instant::now() >= until && samples.len() >= LEAST;
        if is_over || samples.len() >= MOST {
            break;
        }
        pace.rest();
    }
    Ok(samples)
}
