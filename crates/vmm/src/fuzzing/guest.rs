//! Guest memory between guard bytes, and what a device may write of it.

use steadyvm_sockets::Memory;
use vm_memory::{Bytes, GuestAddress, GuestRegionMmap, MmapRegion};

use crate::devices::transport::QueueSetup;

/// Where guest memory is: two regions that touch, a hole, and a small one.
const REGIONS: [(u64, usize); 3] = [(0, 0x1_0000), (0x1_0000, 0x1_0000), (0x3_0000, 0x1000)];
/// Behind the last guest address.
pub const END: usize = 0x3_1000;
/// Bytes before, between and behind the regions in the host's memory.
const GUARD: usize = 0x1000;
const GUARD_BYTE: u8 = 0xa7;

const DESCRIPTOR: usize = 16;
const WRITABLE: u16 = 2;
const INDIRECT: u16 = 4;

/// A guest's memory inside a larger mapping of this process.
pub struct Guarded {
    pub memory: Memory,
    outer: MmapRegion<()>,
}

impl Guarded {
    pub fn new() -> Self {
        let bytes = REGIONS.iter().map(|(_, size)| size + GUARD).sum::<usize>() + GUARD;
        let outer: MmapRegion<()> = MmapRegion::new(bytes).expect("memory of the test");
        let mut at = GUARD;
        let mut regions = Vec::new();
        for (start, size) in REGIONS {
            let (protection, flags) = (outer.prot(), outer.flags());
            let first = outer.as_ptr();
            // SAFETY: the bytes from `at` on belong to `outer`, are of whole pages, and live as long:
            // `Guarded` has both, and its devices are dropped before it.
            let region = unsafe { MmapRegion::build_raw(first.add(at), size, protection, flags) };
            let region = region.expect("a part of a mapping");
            let region = GuestRegionMmap::new(region, GuestAddress(start));
            regions.push(region.expect("an address below 2^64"));
            at += size + GUARD;
        }
        let guarded = Self {
            memory: Memory::from_regions(regions).expect("regions in order"),
            outer,
        };
        for (at, len) in Self::guards() {
            let slice = guarded.host(at, len);
            slice.copy_from(&[GUARD_BYTE; GUARD]);
        }
        guarded
    }

    /// Places and lengths of the guards in the outer mapping.
    fn guards() -> impl Iterator<Item = (usize, usize)> {
        let behind = REGIONS.iter().scan(0, |at, (_, size)| {
            *at += GUARD + size;
            Some((*at, GUARD))
        });
        std::iter::once((0, GUARD)).chain(behind)
    }

    fn host(&self, at: usize, len: usize) -> vm_memory::VolatileSlice<'_> {
        use vm_memory::VolatileMemory;
        self.outer.get_slice(at, len).expect("within the mapping")
    }

    /// All guest memory by address; the hole is zeros.
    pub fn snapshot(&self) -> Vec<u8> {
        let mut bytes = vec![0; END];
        for (start, size) in REGIONS {
            let at = start as usize;
            let place = &mut bytes[at..at + size];
            self.memory
                .read_slice(place, GuestAddress(start))
                .expect("guest memory");
        }
        bytes
    }

    /// Nothing outside of the guest's memory has been written.
    pub fn check_guards(&self) {
        for (at, len) in Self::guards() {
            let mut bytes = [0; GUARD];
            self.host(at, len).copy_to(&mut bytes);
            assert_eq!(bytes, [GUARD_BYTE; GUARD], "written outside of the guest");
        }
    }
}

/// Marks what a device may write: used rings, and what descriptors call writable. `None` where a write
/// may change descriptors, so that the next chain is another.
pub fn writable(memory: &[u8], queues: &[QueueSetup]) -> Option<Vec<bool>> {
    let mut allowed = vec![false; memory.len()];
    let mut fixed = Vec::new();
    for queue in queues.iter().filter(|queue| queue.ready) {
        let entries = usize::from(queue.size);
        mark(&mut allowed, queue.used, 6 + 8 * entries);
        fixed.push((queue.available, 6 + 2 * entries));
        walk(
            memory,
            queue.descriptors,
            entries * DESCRIPTOR,
            &mut |table, len| {
                fixed.push((table, len));
            },
            &mut allowed,
            true,
        );
    }
    let clear = |(at, len): &(u64, usize)| !clip(memory.len(), *at, *len).any(|at| allowed[at]);
    fixed.iter().all(clear).then_some(allowed)
}

fn walk(
    memory: &[u8],
    table: u64,
    len: usize,
    visit: &mut impl FnMut(u64, usize),
    allowed: &mut [bool],
    indirect_too: bool,
) {
    visit(table, len);
    let place = clip(memory.len(), table, len);
    for descriptor in memory[place].chunks_exact(DESCRIPTOR) {
        let word = |at: usize, len: usize| {
            (descriptor[at..at + len].iter().rev())
                .fold(0, |word, byte| word << 8 | u64::from(*byte))
        };
        let (address, bytes, flags) = (word(0, 8), word(8, 4) as usize, word(12, 2) as u16);
        if flags & INDIRECT != 0 && indirect_too {
            walk(memory, address, bytes, visit, allowed, false);
        }
        if flags & WRITABLE != 0 {
            mark(allowed, address, bytes);
        }
    }
}

fn mark(allowed: &mut [bool], address: u64, len: usize) {
    let place = clip(allowed.len(), address, len);
    allowed[place].fill(true);
}

/// The part of `len` bytes at `address` that is below `end`.
fn clip(end: usize, address: u64, len: usize) -> std::ops::Range<usize> {
    let start = usize::try_from(address).unwrap_or(end).min(end);
    start..start.saturating_add(len).min(end)
}
