//! How long some threads wait for a CPU after they were woken, while it goes on.
//!
//! A wake-up is from the last `sched_waking` of a thread to the next `sched_switch` to it, by `CLOCK_MONOTONIC`. What it costs is
//! in proportion to what these threads do and not to what the host does. Two ways have the same meaning:
//!
//! - `programs`: BPF programs count in the kernel; a histogram
//! - `events`: the kernel writes each event to a buffer; exact, and about 1 us per event
//! - `waits`: the figures of both; pure

mod events;
mod programs;
mod waits;

use std::collections::{BTreeMap, BTreeSet};

use steadyvm_fault::{Fault, Result};

use self::events::Events;
use self::programs::Programs;
pub use self::waits::Waits;

/// A way to trace wake-ups.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    /// BPF programs, on a kernel with BTF. 1 to 1024 threads.
    Bpf,
    /// Tracepoints through `perf_event_open`. 1 to 200 threads.
    Tracepoints,
}

/// Traces the wake-ups of some threads while it lives. Nothing is left on the host however this process ends.
pub struct WakeUps(Way);

enum Way {
    Bpf(Programs),
    Tracepoints { events: Events, why: Option<Fault> },
}

impl WakeUps {
    /// Begins to trace these threads: by BPF, or on these CPUs by tracepoints if the kernel refuses BPF.
    ///
    /// # Errors
    /// Without the right to trace, for no threads, and for more than the way that is left takes.
    pub fn open(cpus: &[usize], threads: &BTreeSet<u32>) -> Result<Self> {
        match Self::by(Source::Bpf, cpus, threads) {
            Ok(wake_ups) => Ok(wake_ups),
            Err(why) => {
                let events = Events::open(cpus, threads)?;
                let why = Some(why);
                Ok(Self(Way::Tracepoints { events, why }))
            }
        }
    }

    /// The same by one way only. BPF is of all CPUs.
    ///
    /// # Errors
    /// As of [`WakeUps::open`].
    pub fn by(source: Source, cpus: &[usize], threads: &BTreeSet<u32>) -> Result<Self> {
        Ok(Self(match source {
            Source::Bpf => Way::Bpf(Programs::open(threads)?),
            Source::Tracepoints => Way::Tracepoints {
                events: Events::open(cpus, threads)?,
                why: None,
            },
        }))
    }

    /// Goes on with these threads. What others had since the last [`WakeUps::take`] is dropped.
    ///
    /// # Errors
    /// If this takes another [`WakeUps::open`]: by tracepoints always, by BPF if its maps are full.
    pub fn retrace(&mut self, threads: &BTreeSet<u32>) -> Result<()> {
        match &mut self.0 {
            Way::Bpf(programs) => programs.retrace(threads),
            Way::Tracepoints { .. } => Err(Fault::cannot("change the threads", "events are open")),
        }
    }

    /// What was seen since the last call: for each thread with wake-ups, and with BPF for each other one too, its waits.
    ///
    /// # Errors
    /// Of BPF, a map that the kernel does not let this process use any more.
    pub fn take(&mut self) -> Result<BTreeMap<u32, Waits>> {
        match &mut self.0 {
            Way::Bpf(programs) => programs.take(),
            Way::Tracepoints { events, .. } => {
                let waits = events.take().into_iter();
                Ok(waits
                    .map(|(tid, waits_ns)| (tid, Waits::of_samples(waits_ns)))
                    .collect())
            }
        }
    }

    /// Events that found their buffer full, since the beginning. BPF has no buffer: 0.
    pub fn lost(&self) -> u64 {
        match &self.0 {
            Way::Bpf(_) => 0,
            Way::Tracepoints { events, .. } => events.lost(),
        }
    }

    /// Which way it is.
    pub fn source(&self) -> Source {
        match &self.0 {
            Way::Bpf(_) => Source::Bpf,
            Way::Tracepoints { .. } => Source::Tracepoints,
        }
    }

    /// Why it is not BPF, where that was tried first.
    pub fn why_not_bpf(&self) -> Option<&Fault> {
        match &self.0 {
            Way::Bpf(_) => None,
            Way::Tracepoints { why, .. } => why.as_ref(),
        }
    }
}

/// A way takes 1 to `most` threads.
fn check(threads: &BTreeSet<u32>, most: usize) -> Result<()> {
    if threads.is_empty() || threads.len() > most {
        let what = format!("the wake-ups of {} threads cannot be traced", threads.len());
        return Err(Fault::input(what, "").what_to_do(format!("name 1 to {most}")));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_threads_and_too_many_are_refused() {
        for (source, most) in [
            (Source::Bpf, programs::MOST_THREADS as u32),
            (Source::Tracepoints, events::MOST_THREADS as u32),
        ] {
            for threads in [BTreeSet::new(), (0..=most).collect()] {
                assert!(WakeUps::by(source, &[0], &threads).is_err());
            }
        }
    }
}
