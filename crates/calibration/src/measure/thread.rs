//! A thread of our own on one CPU at a rank. What is set goes with the thread.
//!
//! A CPU may have a thread of higher rank that never sleeps, such as a VCPU that computes: ours then gets no time there. So
//! nobody waits for it beyond its time, and it gets the policy and the CPUs of before, with which it ends.

use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use nix::unistd::gettid;
use steadyvm_fault::{Fault, Result};
use steadyvm_host::{CpuSet, KernelThreads, RESET_ON_FORK, Scheduling, Threads};

/// How long beyond its time a measurement may take.
pub(super) const PATIENCE: Duration = Duration::from_secs(20);

/// The number of the calling thread.
pub(super) fn own() -> u32 {
    gettid().as_raw().unsigned_abs()
}

/// The CPUs that the calling thread may use.
pub(super) fn own_cpus() -> Result<CpuSet> {
    KernelThreads
        .affinity(own())
        .map_err(|error| Fault::cannot("read the CPUs of this process", error))
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
    // The rank first: once it is on the CPU it may get no time there.
    KernelThreads
        .set_scheduling(tid, &Scheduling::fifo(priority, RESET_ON_FORK))
        .map_err(|error| {
            Fault::lack(
                format!("cannot give a thread of this process FIFO {priority}"),
                error,
            )
            .what_to_do("run it as root; `steadyvm doctor` tells what else keeps it off")
        })?;
    put(tid, cpu)
}

/// Lets a thread run again, if it still is there.
pub(super) fn release(tid: u32, cpus: &CpuSet) {
    // One that has ended needs nothing.
    let _ = KernelThreads.set_scheduling(tid, &Scheduling::normal());
    let _ = KernelThreads.set_affinity(tid, cpus);
}

/// A thread that measures, and what it will tell.
#[derive(Debug)]
pub(super) struct Measuring<T> {
    tid: u32,
    cpus: CpuSet,
    told: Receiver<Result<T>>,
}

impl<T: Send + 'static> Measuring<T> {
    /// Starts it.
    pub(super) fn start(measure: impl FnOnce() -> Result<T> + Send + 'static) -> Result<Self> {
        let cpus = own_cpus()?;
        let (say, said) = channel();
        let (tell, told): (Sender<Result<T>>, _) = channel();
        thread::Builder::new()
            .spawn(move || {
                // Nobody listens any more if it took too long.
                let _ = say.send(own());
                let _ = tell.send(measure());
            })
            .map_err(|error| Fault::cannot("start a thread", error))?;
        let tid = said.recv().map_err(|_| panicked())?;
        Ok(Self { tid, cpus, told })
    }

    /// What it tells, if it does so within `patience` after its time.
    pub(super) fn end(self, until: Instant, patience: Duration) -> Result<T> {
        let left = until.saturating_duration_since(Instant::now());
        match self.told.recv_timeout(left + patience) {
            Ok(told) => told,
            Err(RecvTimeoutError::Disconnected) => Err(panicked()),
            Err(RecvTimeoutError::Timeout) => {
                release(self.tid, &self.cpus);
                let why = "its threads got no time, or what they waited for did not come: a real-time thread of higher rank \
                           may compute there without a pause";
                Err(Fault::machine("a CPU could not be measured in time", why)
                    .what_to_do("give that thread a budget, or calibrate while it sleeps"))
            }
        }
    }
}

fn panicked() -> Fault {
    Fault::machine("a thread that measures has ended", "it panicked")
}

/// What a function comes to on that CPU at that rank, which ends at `until`.
pub(super) fn at<T: Send + 'static>(
    priority: u32,
    cpu: usize,
    until: Instant,
    measure: impl FnOnce() -> Result<T> + Send + 'static,
) -> Result<T> {
    Measuring::start(move || {
        set(own(), priority, cpu)?;
        measure()
    })?
    .end(until, PATIENCE)
}
