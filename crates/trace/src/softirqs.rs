//! Which softirq handlers run in some threads, and for how long, while it goes on.
//!
//! A thread with a rank runs what others left pending on its CPU, at its own rank: packets to send (`NET_TX`), tasklets, timers.
//! No setting of a host prevents it, so it is counted. By two BPF programs, `bpf/softirqs.bpf.c`, which end with this process.

use std::collections::{BTreeMap, BTreeSet};

use libbpf_rs::{Link, MapCore, MapFlags, MapHandle, Object, ObjectBuilder};
use steadyvm_fault::{At, Fault, Result};

use crate::bpf::{quietly, require_btf};

/// The softirqs by their numbers, `NR_SOFTIRQS` of them (include/linux/interrupt.h).
pub const VECTORS: [&str; 10] = [
    "HI", "TIMER", "NET_TX", "NET_RX", "BLOCK", "IRQ_POLL", "TASKLET", "SCHED", "HRTIMER", "RCU",
];

/// The most threads.
pub const MOST_THREADS: usize = 1024;

/// `struct counted`.
const COUNTED_BYTES: usize = 8 + 16 * VECTORS.len();

static OBJECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/softirqs.bpf.o"));

/// What ran in a thread, by the number of the softirq.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Handlers that ran.
    pub handlers: [u64; VECTORS.len()],
    /// How long they took, in nanoseconds of wall time: with what preempted them.
    pub ns: [u64; VECTORS.len()],
}

impl Counts {
    fn of_bytes(bytes: &[u8]) -> Self {
        let word = |number: usize| {
            let bytes = bytes.get(8 * number..).and_then(|rest| rest.first_chunk());
            bytes.map_or(0, |bytes| u64::from_ne_bytes(*bytes))
        };
        Self {
            handlers: std::array::from_fn(|vector| word(1 + vector)),
            ns: std::array::from_fn(|vector| word(1 + VECTORS.len() + vector)),
        }
    }

    fn since(&self, before: &Self) -> Self {
        let left = |now: &[u64; VECTORS.len()], before: &[u64; VECTORS.len()]| {
            std::array::from_fn(|vector| now[vector].saturating_sub(before[vector]))
        };
        Self {
            handlers: left(&self.handlers, &before.handlers),
            ns: left(&self.ns, &before.ns),
        }
    }
}

/// Counts while it lives.
pub struct Softirqs {
    threads: MapHandle,
    before: BTreeMap<u32, Counts>,
    _links: Vec<Link>,
    _object: Object,
}

impl Softirqs {
    /// Begins to count in these threads.
    ///
    /// # Errors
    /// Without the right to trace, on a kernel without BTF, and for more than [`MOST_THREADS`].
    pub fn open(tids: &BTreeSet<u32>) -> Result<Self> {
        require_btf()?;
        let object = quietly(load).cannot("load the BPF programs of softirqs")?;
        let map = object.maps().find(|map| map.name() == "threads");
        let map = map.ok_or_else(|| Fault::cannot("find the map threads", ""))?;
        let threads = MapHandle::try_from(&map).cannot("open the map threads")?;
        let links: libbpf_rs::Result<Vec<Link>> =
            object.progs_mut().map(|program| program.attach()).collect();
        let mut softirqs = Self {
            threads,
            before: BTreeMap::new(),
            _links: links.cannot("attach the BPF programs of softirqs")?,
            _object: object,
        };
        softirqs.retrace(tids)?;
        Ok(softirqs)
    }

    /// Goes on with these threads. What others had since the last [`Softirqs::take`] is dropped.
    ///
    /// # Errors
    /// More than [`MOST_THREADS`].
    pub fn retrace(&mut self, tids: &BTreeSet<u32>) -> Result<()> {
        if tids.len() > MOST_THREADS {
            let what = format!("the softirqs of {} threads cannot be counted", tids.len());
            return Err(Fault::input(what, "").what_to_do(format!("name {MOST_THREADS} at most")));
        }
        let gone: Vec<u32> = self.before.keys().copied().collect();
        for tid in gone.into_iter().filter(|tid| !tids.contains(tid)) {
            self.threads
                .delete(&tid.to_ne_bytes())
                .cannot(format!("forget thread {tid}"))?;
            self.before.remove(&tid);
        }
        for tid in tids {
            if self.before.contains_key(tid) {
                continue;
            }
            self.threads
                .update(&tid.to_ne_bytes(), &[0; COUNTED_BYTES], MapFlags::ANY)
                .cannot(format!("count in thread {tid}"))?;
            self.before.insert(*tid, Counts::default());
        }
        Ok(())
    }

    /// What ran since the last call, or since the beginning, by thread.
    ///
    /// # Errors
    /// A map that the kernel does not let this process use any more.
    pub fn take(&mut self) -> Result<BTreeMap<u32, Counts>> {
        let mut bytes = [0; COUNTED_BYTES];
        let mut all = BTreeMap::new();
        for (tid, before) in &mut self.before {
            let found = self
                .threads
                .lookup_into(&tid.to_ne_bytes(), &mut bytes, MapFlags::ANY);
            found.cannot(format!("read the softirqs of thread {tid}"))?;
            let now = Counts::of_bytes(&bytes);
            all.insert(*tid, now.since(before));
            *before = now;
        }
        Ok(all)
    }
}

fn load() -> libbpf_rs::Result<Object> {
    let mut object = ObjectBuilder::default().open_memory(OBJECT)?;
    for mut map in object.maps_mut() {
        if map.name() == "threads" {
            map.set_max_entries(MOST_THREADS as u32)?;
        }
    }
    object.load()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_read_as_the_program_lays_them_out() {
        let words: Vec<u64> = (0..=2 * VECTORS.len() as u64).collect();
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
        assert_eq!(bytes.len(), COUNTED_BYTES);
        let counts = Counts::of_bytes(&bytes);
        assert_eq!((counts.handlers[0], counts.handlers[9]), (1, 10));
        assert_eq!((counts.ns[0], counts.ns[9]), (11, 20));
        assert_eq!(Counts::of_bytes(&[]), Counts::default());
        assert_eq!(counts.since(&counts), Counts::default());
    }
}
