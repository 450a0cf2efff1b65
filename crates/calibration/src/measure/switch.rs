//! The cost of a switch: two processes on one CPU that wake each other in turn, so that each step is one.
//!
//! A sample is half of a round trip: a write, the wake-up of the other, the decision, the switch of address spaces, and the
//! end of its read. It is above the switch alone by the system calls, and below that of VCPUs by what KVM saves and loads.

use std::io::{Read, Write};
use std::process::{ChildStdin, ChildStdout};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use steadyvm_fault::{Fault, Result};

use super::pace::Pace;
use super::partner::Partner;
use super::{LOWEST, thread};

/// The partner starts, and both touch their memory.
const FIRST: usize = 100;
const LEAST: usize = 200;
/// More say nothing new.
const MOST: usize = 200_000;
/// How long beyond its time it may take.
const PATIENCE: Duration = Duration::from_secs(20);

pub(super) fn samples(partner: &Partner, cpu: usize, until: Instant) -> Result<Vec<u64>> {
    let (running, to, from) = partner.start()?;
    thread::set(running.pid(), LOWEST, cpu)?;
    let (tell, told) = channel();
    let measuring = std::thread::Builder::new()
        .spawn(move || {
            let samples =
                thread::set(thread::own(), LOWEST, cpu).and_then(|()| round_trips(to, from, until));
            // Nobody waits if it took too long.
            let _ = tell.send(samples);
        })
        .map_err(|error| Fault::cannot("start a thread", error))?;
    let left = until.saturating_duration_since(Instant::now());
    let samples = match told.recv_timeout(left + PATIENCE) {
        Ok(samples) => samples,
        Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => Err(Fault::machine(
            "switches were not measured",
            "the partner did not answer in time",
        )),
    };
    // Its pipe ends, and so does a thread that still waits.
    drop(running);
    let _ = measuring.join();
    samples
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
