//! Wake-ups by two BPF programs that count in the kernel: `bpf/wake_ups.bpf.c`.
//!
//! Programs and maps end with their descriptors, which nothing pins. The kernel needs BTF (`CONFIG_DEBUG_INFO_BTF`), as
//! Debian's from 6.1 on have, also with `PREEMPT_RT`. Programs without BTF would be of plain tracepoints. The kernel skips those
//! on a CPU while any process there uses a map, so they could lose events.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{Ordering, fence};
use std::thread;

use libbpf_rs::{Link, MapCore, MapFlags, MapHandle, Object, ObjectBuilder};
use steadyvm_fault::{At, Fault, Result};
use steadyvm_stats::steps::STEPS;

use super::Waits;
use crate::bpf::{quietly, require_btf, thread_filter};

/// A look at each thread takes three system calls.
pub(super) const MOST_THREADS: usize = 1024;

/// Room for this many at least, so that threads come and go without another load.
const LEAST_SLOTS: usize = 128;

/// `struct cell`.
const CELL_BYTES: usize = 24 + 4 * STEPS;

/// `struct thread`.
const THREAD_BYTES: usize = 16;

static OBJECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/wake_ups.bpf.o"));

/// The programs at work, and their maps.
pub(super) struct Programs {
    threads: MapHandle,
    cells: MapHandle,
    filter: MapHandle,
    epoch_map: MapHandle,
    epoch: u64,
    slots: BTreeMap<u32, u32>,
    /// Slots without a thread.
    free: Vec<u32>,
    _links: Vec<Link>,
    _object: Object,
}

impl Programs {
    /// Loads the programs and begins to count these threads.
    pub(super) fn open(tids: &BTreeSet<u32>) -> Result<Self> {
        super::check(tids, MOST_THREADS)?;
        require_btf()?;
        let slots = (2 * tids.len()).next_power_of_two().max(LEAST_SLOTS) as u32;
        let object = quietly(|| load(slots)).cannot("load the BPF programs")?;
        let map = |name: &str| {
            let map = object.maps().find(|map| map.name() == name);
            let map = map.ok_or_else(|| Fault::cannot(format!("find the map {name}"), ""))?;
            MapHandle::try_from(&map).cannot(format!("open the map {name}"))
        };
        let links: libbpf_rs::Result<Vec<Link>> =
            object.progs_mut().map(|program| program.attach()).collect();
        let mut programs = Self {
            threads: map("threads")?,
            cells: map("cells")?,
            filter: map("filter")?,
            epoch_map: map("epoch")?,
            epoch: 0,
            slots: BTreeMap::new(),
            free: (0..slots).collect(),
            _links: links.cannot("attach the BPF programs")?,
            _object: object,
        };
        programs.retrace(tids)?;
        Ok(programs)
    }

    /// Counts these threads from now on. What others had since the last [`Programs::take`] is dropped.
    ///
    /// # Errors
    /// More new threads than there is room for. The threads before are counted on, as after any other error.
    pub(super) fn retrace(&mut self, tids: &BTreeSet<u32>) -> Result<()> {
        super::check(tids, MOST_THREADS)?;
        let new: Vec<u32> = tids
            .iter()
            .filter(|tid| !self.slots.contains_key(tid))
            .copied()
            .collect();
        if new.len() > self.free.len() {
            return Err(Fault::cannot("trace more threads", "the maps are full"));
        }
        // New ones first. So what a dropped thread frees, which a program may use for some ns yet, is used again at the
        // next change only, a look later.
        for tid in new {
            let Some(slot) = self.free.pop() else { break };
            for parity in 0..2 {
                self.clear(slot, parity)?;
            }
            let mut thread = [0_u8; THREAD_BYTES];
            thread[12..].copy_from_slice(&slot.to_ne_bytes());
            self.threads
                .update(&tid.to_ne_bytes(), &thread, MapFlags::ANY)
                .cannot(format!("trace thread {tid}"))?;
            self.slots.insert(tid, slot);
        }
        self.filter
            .update(&0_u32.to_ne_bytes(), &thread_filter(tids), MapFlags::ANY)
            .cannot("set the filter of threads")?;
        let gone: Vec<u32> = self.slots.keys().copied().collect();
        for tid in gone.into_iter().filter(|tid| !tids.contains(tid)) {
            self.threads
                .delete(&tid.to_ne_bytes())
                .cannot(format!("forget thread {tid}"))?;
            self.free.extend(self.slots.remove(&tid));
        }
        Ok(())
    }

    /// What was counted since the last call, by thread.
    pub(super) fn take(&mut self) -> Result<BTreeMap<u32, Waits>> {
        let ended = self.epoch & 1;
        self.epoch += 1;
        self.epoch_map
            .update(
                &0_u32.to_ne_bytes(),
                &self.epoch.to_ne_bytes(),
                MapFlags::ANY,
            )
            .cannot("begin another interval")?;
        // With the barrier of `switched`: a program that is not busy from here on has the new epoch.
        fence(Ordering::SeqCst);
        let mut all = BTreeMap::new();
        let mut cell = vec![0_u8; CELL_BYTES];
        for (&tid, &slot) in &self.slots {
            // It is busy for less than a microsecond, with interrupts off.
            while self.is_busy(tid)? {
                thread::yield_now();
            }
            let key = (2 * slot + ended as u32).to_ne_bytes();
            let found = self.cells.lookup_into(&key, &mut cell, MapFlags::ANY);
            found.cannot(format!("read the waits of thread {tid}"))?;
            let waits = Waits::of_cell(&cell).unwrap_or_default();
            if waits.n > 0 {
                self.clear(slot, ended as u32)?;
            }
            all.insert(tid, waits);
        }
        Ok(all)
    }

    fn is_busy(&self, tid: u32) -> Result<bool> {
        let mut thread = [0_u8; THREAD_BYTES];
        self.threads
            .lookup_into(&tid.to_ne_bytes(), &mut thread, MapFlags::ANY)
            .cannot(format!("look at thread {tid}"))?;
        Ok(thread[8..12] != [0; 4])
    }

    fn clear(&self, slot: u32, parity: u32) -> Result<()> {
        let key = (2 * slot + parity).to_ne_bytes();
        let cleared = self.cells.update(&key, &[0; CELL_BYTES], MapFlags::ANY);
        cleared.cannot("clear the waits of a thread")
    }
}

fn load(slots: u32) -> libbpf_rs::Result<Object> {
    let mut object = ObjectBuilder::default().open_memory(OBJECT)?;
    for mut map in object.maps_mut() {
        match map.name().to_str() {
            Some("threads") => map.set_max_entries(slots)?,
            Some("cells") => map.set_max_entries(2 * slots)?,
            _ => {}
        }
    }
    object.load()
}
