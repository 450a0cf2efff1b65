//! What a move to another CPU costs: a thread that gives itself the one, then the other.
//!
//! The kernel's stopper thread of the old CPU hands it over (`migration_cpu_stop()`), which costs more than what
//! the scheduler does when it pulls a thread; cold caches are counted apart.

use std::time::Instant;

use nix::sched::{CpuSet, sched_setaffinity};
use nix::unistd::Pid;
use steadyvm_fault::{Fault, Result};

use super::pace::Pace;

const LEAST: usize = 100;
const MOST: usize = 100_000;

pub(super) fn samples(cpus: [usize; 2], until: Instant) -> Result<Vec<u64>> {
    let cannot = |error| Fault::cannot("move a thread of this process between CPUs", error);
    let mut masks = [CpuSet::new(), CpuSet::new()];
    for (mask, cpu) in masks.iter_mut().zip(cpus) {
        mask.set(cpu).map_err(cannot)?;
    }
    let own = Pid::from_raw(0);
    let (mut samples, mut pace) = (Vec::new(), Pace::new());
    sched_setaffinity(own, &masks[1]).map_err(cannot)?;
    while samples.len() < LEAST || (Instant::now() < until && samples.len() < MOST) {
        for mask in &masks {
            let begun = Instant::now();
            sched_setaffinity(own, mask).map_err(cannot)?;
            samples.push(begun.elapsed().as_nanos() as u64);
        }
        pace.rest();
    }
    Ok(samples)
}
