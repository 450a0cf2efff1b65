//! Each request of some VMs, from the card's interrupt to the card's driver, counted against what each stage may take.
//!
//! By BPF programs, `bpf/requests.bpf.c`, which end with this process. They look at each request, so that the longest is the longest
//! of all, as long as they run. They cost some wake-ups of the VM's own threads, and a bit's test for each other.

use std::collections::{BTreeMap, BTreeSet};

use libbpf_rs::{Link, MapCore, MapFlags, MapHandle, Object, ObjectBuilder};
use steadyvm_fault::{At, Fault, Result};

use crate::bpf::{quietly, require_btf, thread_filter};

/// The most VMs.
pub const MOST_VMS: usize = 256;
/// The most threads of them.
pub const MOST_THREADS: usize = 4096;

/// `STAGES`.
pub const STAGES: usize = 5;

/// `struct counted`.
const COUNTED_BYTES: usize = 24 * STAGES;

static OBJECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/requests.bpf.o"));

/// A part of a request's way, in order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stage {
    /// From the card's interrupt to the VCPU's wake-up. Where the interrupt is not known, from the worker's wake-up.
    Receive,
    /// The woken VCPU waits for a CPU.
    VcpuWait,
    /// From the VCPU's first instruction to the guest's kick of its card.
    Guest,
    /// From the kick until the card's driver has the answer.
    Back,
    /// All of them.
    Whole,
}

impl Stage {
    /// All, in the order of the counts.
    pub const ALL: [Self; STAGES] = [
        Self::Receive,
        Self::VcpuWait,
        Self::Guest,
        Self::Back,
        Self::Whole,
    ];
}

/// A VM whose requests are followed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Followed {
    /// Its name.
    pub name: String,
    /// The threads that carry packets between its cards and the host.
    pub workers: BTreeSet<u32>,
    /// Its VCPUs.
    pub vcpus: BTreeSet<u32>,
    /// The longest that each stage may take, nanoseconds; `u64::MAX`: any time.
    pub most_ns: [u64; STAGES],
}

/// The cards that requests come by and answers leave by.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Cards {
    /// Their interfaces' numbers.
    pub interfaces: BTreeSet<u32>,
    /// Their interrupts, where the interrupt's CPU polls.
    pub interrupts: BTreeSet<u32>,
}

/// What was counted of a stage since its VM is followed with these limits.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Seen {
    /// Requests.
    pub n: u64,
    /// Those that took longer than they may.
    pub over: u64,
    /// The longest.
    pub longest_ns: u64,
}

/// Follows requests while it lives. Nothing is left on the host however this process ends.
pub struct Requests {
    threads: MapHandle,
    counts: MapHandle,
    limits: MapHandle,
    filter: MapHandle,
    cards: MapHandle,
    interrupts: MapHandle,
    /// By VM: its place and its limits.
    slots: BTreeMap<String, (u32, [u64; STAGES])>,
    /// Places without a VM.
    free: Vec<u32>,
    /// By thread: its VM's place, and whether it is a VCPU.
    known: BTreeMap<u32, (u32, bool)>,
    known_cards: Cards,
    _links: Vec<Link>,
    _object: Object,
}

impl Requests {
    /// Loads the programs, which follow nothing yet.
    ///
    /// # Errors
    /// Without the right to trace, and on a kernel without BTF.
    pub fn open() -> Result<Self> {
        require_btf()?;
        let object = quietly(load).cannot("load the BPF programs that follow requests")?;
        let map = |name: &str| {
            let map = object.maps().find(|map| map.name() == name);
            let map = map.ok_or_else(|| Fault::cannot(format!("find the map {name}"), ""))?;
            MapHandle::try_from(&map).cannot(format!("open the map {name}"))
        };
        let links: libbpf_rs::Result<Vec<Link>> =
            object.progs_mut().map(|program| program.attach()).collect();
        Ok(Self {
            threads: map("threads")?,
            counts: map("counts")?,
            limits: map("limits")?,
            filter: map("filter")?,
            cards: map("cards")?,
            interrupts: map("interrupts")?,
            slots: BTreeMap::new(),
            free: (0..MOST_VMS as u32).rev().collect(),
            known: BTreeMap::new(),
            known_cards: Cards::default(),
            _links: links.cannot("attach the BPF programs that follow requests")?,
            _object: object,
        })
    }

    /// Goes on with these VMs and cards. Counts of a VM go on as long as it has the same limits, with whatever threads.
    ///
    /// # Errors
    /// More than [`MOST_VMS`] or [`MOST_THREADS`], and what the kernel refuses.
    pub fn follow(&mut self, vms: &[Followed], cards: &Cards) -> Result<()> {
        let threads: usize = vms.iter().map(|vm| vm.workers.len() + vm.vcpus.len()).sum();
        if vms.len() > MOST_VMS || threads > MOST_THREADS {
            let what = format!(
                "{} VMs with {threads} threads are too many to follow",
                vms.len()
            );
            return Err(Fault::input(what, "").what_to_do(format!(
                "name {MOST_VMS} VMs with {MOST_THREADS} threads at most"
            )));
        }
        self.slots.retain(|name, (slot, most_ns)| {
            let goes_on = |vm: &Followed| vm.name == *name && vm.most_ns == *most_ns;
            let keeps = vms.iter().any(goes_on);
            if !keeps {
                self.free.push(*slot);
            }
            keeps
        });
        let mut wanted = BTreeMap::new();
        for vm in vms {
            let slot = self.slot(vm)?;
            wanted.extend(vm.workers.iter().map(|&tid| (tid, (slot, false))));
            wanted.extend(vm.vcpus.iter().map(|&tid| (tid, (slot, true))));
        }
        self.set_threads(&wanted)?;
        if self.known_cards != *cards {
            let before = std::mem::replace(&mut self.known_cards, cards.clone());
            set_keys(&self.cards, &before.interfaces, &cards.interfaces)?;
            set_keys(&self.interrupts, &before.interrupts, &cards.interrupts)?;
        }
        Ok(())
    }

    /// The place of a VM; a new one has no counts.
    fn slot(&mut self, vm: &Followed) -> Result<u32> {
        if let Some((slot, _)) = self.slots.get(&vm.name) {
            return Ok(*slot);
        }
        let slot = self.free.pop();
        let slot = slot.ok_or_else(|| Fault::cannot("follow another VM", "the maps are full"))?;
        let cpus = libbpf_rs::num_possible_cpus().cannot("count the CPUs")?;
        let cleared = vec![vec![0; COUNTED_BYTES]; cpus];
        (self
            .counts
            .update_percpu(&slot.to_ne_bytes(), &cleared, MapFlags::ANY))
        .cannot("clear the counts of a VM")?;
        let limits: Vec<u8> = vm.most_ns.iter().flat_map(|ns| ns.to_ne_bytes()).collect();
        (self
            .limits
            .update(&slot.to_ne_bytes(), &limits, MapFlags::ANY))
        .cannot("set the limits of a VM")?;
        self.slots.insert(vm.name.clone(), (slot, vm.most_ns));
        Ok(slot)
    }

    fn set_threads(&mut self, wanted: &BTreeMap<u32, (u32, bool)>) -> Result<()> {
        let gone: Vec<u32> = (self.known.iter())
            .filter(|(tid, of)| wanted.get(tid) != Some(of))
            .map(|(tid, _)| *tid)
            .collect();
        for tid in gone {
            (self.threads.delete(&tid.to_ne_bytes())).cannot(format!("forget thread {tid}"))?;
            self.known.remove(&tid);
        }
        for (&tid, &(slot, is_vcpu)) in wanted {
            if self.known.contains_key(&tid) {
                continue;
            }
            (self
                .threads
                .update(&tid.to_ne_bytes(), &thread(slot, is_vcpu), MapFlags::ANY))
            .cannot(format!("follow thread {tid}"))?;
            self.known.insert(tid, (slot, is_vcpu));
        }
        let tids: BTreeSet<u32> = self.known.keys().copied().collect();
        (self
            .filter
            .update(&0_u32.to_ne_bytes(), &thread_filter(&tids), MapFlags::ANY))
        .cannot("set the filter of threads")
    }

    /// What was counted so far, by VM.
    ///
    /// # Errors
    /// A map that the kernel does not let this process use any more.
    pub fn look(&self) -> Result<BTreeMap<String, [Seen; STAGES]>> {
        let of = |(name, (slot, _)): (&String, &(u32, [u64; STAGES]))| {
            let found = self
                .counts
                .lookup_percpu(&slot.to_ne_bytes(), MapFlags::ANY);
            let found = found.cannot(format!("read what was counted of VM {name}"))?;
            Ok((name.clone(), sum(&found.unwrap_or_default())))
        };
        self.slots.iter().map(of).collect()
    }
}

/// `struct thread`, with nothing followed.
fn thread(slot: u32, is_vcpu: bool) -> [u8; 32] {
    let mut bytes = [0; 32];
    bytes[16..20].copy_from_slice(&slot.to_ne_bytes());
    bytes[20..24].copy_from_slice(&u32::from(is_vcpu).to_ne_bytes());
    bytes
}

/// `struct counted` of all CPUs.
fn sum(cpus: &[Vec<u8>]) -> [Seen; STAGES] {
    let mut all = [Seen::default(); STAGES];
    for bytes in cpus {
        let word = |number: usize| {
            let bytes = bytes.get(8 * number..).and_then(|rest| rest.first_chunk());
            bytes.map_or(0, |bytes| u64::from_ne_bytes(*bytes))
        };
        for (number, seen) in all.iter_mut().enumerate() {
            seen.n += word(number);
            seen.over += word(STAGES + number);
            seen.longest_ns = seen.longest_ns.max(word(2 * STAGES + number));
        }
    }
    all
}

/// Has a map contain these keys and no others.
fn set_keys(map: &MapHandle, before: &BTreeSet<u32>, after: &BTreeSet<u32>) -> Result<()> {
    for key in before.difference(after) {
        (map.delete(&key.to_ne_bytes())).cannot("forget a card")?;
    }
    for key in after.difference(before) {
        (map.update(&key.to_ne_bytes(), &1_u32.to_ne_bytes(), MapFlags::ANY))
            .cannot("follow a card")?;
    }
    Ok(())
}

fn load() -> libbpf_rs::Result<Object> {
    let mut object = ObjectBuilder::default().open_memory(OBJECT)?;
    for mut map in object.maps_mut() {
        match map.name().to_str() {
            Some("threads") => map.set_max_entries(MOST_THREADS as u32)?,
            Some("counts" | "limits") => map.set_max_entries(MOST_VMS as u32)?,
            _ => {}
        }
    }
    object.load()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_of_all_cpus_add_up_and_the_longest_is_that_of_all() {
        let words = |from: u64| -> Vec<u8> {
            (from..from + 3 * STAGES as u64)
                .flat_map(u64::to_ne_bytes)
                .collect()
        };
        let all = sum(&[words(0), words(100), Vec::new()]);
        let seen = |n, over, longest_ns| Seen {
            n,
            over,
            longest_ns,
        };
        assert_eq!((all[0], all[4]), (seen(100, 110, 110), seen(108, 118, 114)));
    }

    #[test]
    fn a_thread_is_laid_out_as_the_program_has_it() {
        let bytes = thread(7, true);
        assert_eq!((bytes[16], bytes[20], bytes[24]), (7, 1, 0));
    }
}
