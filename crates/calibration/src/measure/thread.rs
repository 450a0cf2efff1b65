//! A thread of our own on one CPU at a rank. What is set goes with the thread.

use std::thread;

use nix::unistd::gettid;
use steadyvm_fault::{Fault, Result};
use steadyvm_host::{CpuSet, KernelThreads, RESET_ON_FORK, Scheduling, Threads};

/// The number of the calling thread.
pub(super) fn own() -> u32 {
    gettid().as_raw().unsigned_abs()
}

/// Puts the calling thread on a CPU.
pub(super) fn on(cpu: usize) -> Result<()> {
    put(own(), cpu)
}

fn put(tid: u32, cpu: usize) -> Result<()> {
    let put = KernelThreads.set_affinity(tid, &CpuSet::single(cpu));
    put.map_err(|error| Fault::cannot(format!("put a thread on CPU {cpu}"), error))
}

/// Gives a thread a CPU and a rank.
pub(super) fn set(tid: u32, priority: u32, cpu: usize) -> Result<()> {
    put(tid, cpu)?;
    KernelThreads
        .set_scheduling(tid, &Scheduling::fifo(priority, RESET_ON_FORK))
        .map_err(|error| {
            Fault::lack(
                format!("cannot give a thread of this process FIFO {priority}"),
                error,
            )
            .what_to_do("run it as root; `steadyvm doctor` tells what else keeps it off")
        })
}

/// What a function comes to on that CPU at that rank.
pub(super) fn at<T: Send + 'static>(
    priority: u32,
    cpu: usize,
    measure: impl FnOnce() -> T + Send + 'static,
) -> Result<T> {
    let thread = thread::Builder::new()
        .spawn(move || {
            set(own(), priority, cpu)?;
            Ok(measure())
        })
        .map_err(|error| Fault::cannot("start a thread", error))?;
    thread
        .join()
        .map_err(|_| Fault::machine("a thread that measured ended early", "it panicked"))?
}
