//! What cold caches cost: a working set is read again after other data has gone through all caches.
//!
//! The set is as large as a CPU's own second-level cache, and is read in an order that no prefetcher foresees, each line for
//! itself, so that several may be on their way. A sample is the time of a cold read less the median of warm ones. The other
//! data is twice the largest cache, up to 64 MiB: what of a larger one stays is not counted.

use std::collections::TryReserveError;
use std::hint::black_box;
use std::time::Instant;

use steadyvm_fault::{Fault, Result};
use steadyvm_host::Machine;
use steadyvm_stats::{PerMille, nearest_rank};

use super::pace::Pace;

const LEAST: usize = 20;
const MOST: usize = 20_000;
const LARGEST_SET: usize = 16 << 20;
const LARGEST_OTHER: usize = 64 << 20;
/// So many lines are read between two looks at the clock.
const STRETCH: usize = 4096;

/// A cache's line.
#[derive(Debug, Clone, Copy)]
#[repr(align(64))]
struct Line([u64; 8]);

/// How much is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct WorkingSet {
    bytes: usize,
    /// What drives it out of the caches.
    other_bytes: usize,
}

impl WorkingSet {
    /// That of a CPU by sysfs.
    pub(super) fn of(machine: &Machine, cpu: usize) -> Option<Self> {
        let caches = format!("/sys/devices/system/cpu/cpu{cpu}/cache");
        let indices = machine.tree.list(&caches).ok()?;
        let found = indices
            .iter()
            .filter(|name| name.starts_with("index"))
            .filter_map(|name| {
                let read = |what| machine.tree.read(&format!("{caches}/{name}/{what}")).ok();
                let kind = read("type")?;
                let level: u32 = read("level")?.trim().parse().ok()?;
                (kind.trim() != "Instruction").then_some((level, size(read("size")?.trim())?))
            });
        Self::among(&found.collect::<Vec<_>>())
    }

    /// Of caches by level and size.
    fn among(caches: &[(u32, usize)]) -> Option<Self> {
        let second = caches.iter().find(|(level, _)| *level == 2)?.1;
        let largest = caches.iter().map(|(_, bytes)| *bytes).max()?;
        let bytes = second.clamp(size_of::<Line>(), LARGEST_SET);
        let other_bytes = largest.saturating_mul(2).clamp(2 * bytes, LARGEST_OTHER);
        Some(Self { bytes, other_bytes })
    }

    pub(super) const fn kib(self) -> u64 {
        self.bytes as u64 >> 10
    }
}

/// Such as "1024K".
fn size(text: &str) -> Option<usize> {
    let (digits, scale) = match text.as_bytes().last()? {
        b'K' => (&text[..text.len() - 1], 1 << 10),
        b'M' => (&text[..text.len() - 1], 1 << 20),
        _ => (text, 1),
    };
    digits.parse::<usize>().ok()?.checked_mul(scale)
}

pub(super) fn samples(set: WorkingSet, until: Instant) -> Result<Vec<u64>> {
    let no_memory = |error| Fault::cannot("take memory for what fills the caches", error);
    let lines = memory(set.bytes).map_err(no_memory)?;
    let other = memory(set.other_bytes).map_err(no_memory)?;
    let order = order(lines.len());
    let (mut warm, mut cold) = (Vec::new(), Vec::new());
    let mut pace = Pace::new();
    // The first reads find their pages and the order cold, too.
    read(&lines, &order);
    while cold.len() < LEAST || (Instant::now() < until && cold.len() < MOST) {
        read(&lines, &order);
        warm.push(read(&lines, &order));
        for stretch in other.chunks(STRETCH) {
            black_box(stretch.iter().fold(0, |sum, line| sum ^ line.0[0]));
            pace.rest();
        }
        cold.push(read(&lines, &order));
        pace.rest();
    }
    warm.sort_unstable();
    let usual = nearest_rank(&warm, PerMille::P50).unwrap_or_default();
    Ok(cold.iter().map(|time| time.saturating_sub(usual)).collect())
}

/// Lines that differ, so that each is memory of its own.
fn memory(bytes: usize) -> std::result::Result<Vec<Line>, TryReserveError> {
    let count = bytes / size_of::<Line>();
    let mut lines = Vec::new();
    lines.try_reserve_exact(count)?;
    lines.extend((0..count as u64).map(|number| Line([number; 8])));
    Ok(lines)
}

/// All places in an order that nobody foresees: Fisher and Yates's shuffle on a xorshift generator (Marsaglia, 2003).
fn order(count: usize) -> Vec<u32> {
    let mut order: Vec<u32> = (0..count as u32).collect();
    let mut random = 0x9e37_79b9_7f4a_7c15_u64;
    for last in (1..count).rev() {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        order.swap(last, (random % (last as u64 + 1)) as usize);
    }
    order
}

/// How long it takes to read all lines, ns.
fn read(lines: &[Line], order: &[u32]) -> u64 {
    let begun = Instant::now();
    let read = |sum: u64, &place: &u32| sum.wrapping_add(lines[place as usize].0[0]);
    black_box(order.iter().fold(0, read));
    begun.elapsed().as_nanos() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_set_is_the_second_level_and_the_rest_drives_it_out() {
        let caches = [(1, 32 << 10), (2, 1 << 20), (3, 8 << 20)];
        let set = WorkingSet::among(&caches).unwrap();
        assert_eq!((set.kib(), set.other_bytes), (1024, 16 << 20));
        // A third level of a whole socket.
        let set = WorkingSet::among(&[(2, 2 << 20), (3, 260 << 20)]).unwrap();
        assert_eq!(set.other_bytes, LARGEST_OTHER);
        let set = WorkingSet::among(&[(2, 1 << 30)]).unwrap();
        assert_eq!((set.bytes, set.other_bytes), (LARGEST_SET, LARGEST_OTHER));
        assert_eq!(WorkingSet::among(&[(1, 32 << 10)]), None);
        for (text, bytes) in [
            ("512K", Some(512 << 10)),
            ("3M", Some(3 << 20)),
            ("64", Some(64)),
            ("", None),
            ("K", None),
            ("99999999999999999999M", None),
        ] {
            assert_eq!(size(text), bytes, "{text}");
        }
    }

    #[test]
    fn every_line_is_read_once() {
        let mut seen = order(1000);
        assert!(!seen.is_sorted());
        seen.sort_unstable();
        assert_eq!(seen, (0..1000).collect::<Vec<u32>>());
        assert!(order(0).is_empty());
    }
}
