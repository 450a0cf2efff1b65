//! From one thread's write to the other's read, across CPUs: what a worker waits for once it is woken.

use std::io::{Read, Write, pipe};
use std::thread::sleep;
use std::time::{Duration, Instant};

use steadyvm_fault::{Fault, Result};

use super::thread::{self, Measuring, PATIENCE};

const BETWEEN: Duration = Duration::from_micros(500);
const FIRST: usize = 10;
const LEAST: usize = 100;

/// The sleeper has the rank, on `cpu`; who wakes it is an ordinary thread, on `other`.
pub(super) fn samples(other: usize, cpu: usize, rank: u32, until: Instant) -> Result<Vec<u64>> {
    let (mut reader, mut writer) = pipe().map_err(|error| Fault::cannot("make a pipe", error))?;
    let epoch = Instant::now();
    let sleeper = Measuring::start(move || {
        thread::set(thread::own(), rank, cpu)?;
        let mut samples = Vec::new();
        // When it was written.
        let mut then_ns = [0; 8];
        // The other side has no pipe any more: that is the end.
        while reader.read_exact(&mut then_ns).is_ok() {
            let now_ns = epoch.elapsed().as_nanos() as u64;
            samples.push(now_ns.saturating_sub(u64::from_ne_bytes(then_ns)));
        }
        Ok(samples)
    })?;
    let waker = Measuring::start(move || {
        thread::on(other)?;
        let mut count = 0;
        while count < FIRST + LEAST || Instant::now() < until {
            sleep(BETWEEN);
            let now_ns = epoch.elapsed().as_nanos() as u64;
            writer
                .write_all(&now_ns.to_ne_bytes())
                .map_err(|error| Fault::cannot("wake a thread", error))?;
            count += 1;
        }
        Ok(())
    })?;
    let woken = waker.end(until, PATIENCE);
    // An error of the one that is woken says why the other could not wake it.
    let samples = sleeper.end(until, PATIENCE.saturating_sub(until.elapsed()))?;
    woken?;
    Ok(samples.into_iter().skip(FIRST).collect())
}
