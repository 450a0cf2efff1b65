//! What a job computes: in registers alone, or through a buffer that the caches have to hold.

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{RngCore, SeedableRng};
use std::collections::TryReserveError;
use std::hint::black_box;
use std::time::{Duration, Instant};

/// Computes for a time that is proportional to `units`: registers only, no memory, and each step waits for the one
/// before it. Where the machine shares a core with another one that leaves the other room, so that its
/// load tells less on ours.
pub fn work(units: u64) {
    let mut state = units | 1;
    for _ in 0..units {
        for _ in 0..64 {
            // A step of SplitMix64: it takes a multiplier's latency, and no compiler folds two into one.
            state = (state ^ (state >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        }
        black_box(state);
    }
}

/// How many units of [`work`] take this long here and now.
pub fn units_for(duration: Duration) -> u64 {
    Computation::Registers.units_for(duration)
}

/// What jobs compute.
#[derive(Debug)]
pub enum Computation {
    /// [`work`].
    Registers,
    /// A [`Walk`].
    Memory(Walk),
}

impl Computation {
    /// Does it.
    pub fn work(&mut self, units: u64) {
        match self {
            Self::Registers => work(units),
            Self::Memory(walk) => walk.work(units),
        }
    }

    /// How many units take this long here and now: the fastest of some trials counts, for
    /// everything else that runs makes them longer.
    pub fn units_for(&mut self, duration: Duration) -> u64 {
        const TRIALS: u32 = 12;
        // About 0.1 ms: a unit of a walk takes as much longer as memory is slower than a multiplier.
        let mut units = match self {
            Self::Registers => 1000,
            Self::Memory(_) => 16,
        };
        loop {
            let trial = |_| {
                let begun = Instant::now();
                self.work(units);
                begun.elapsed()
            };
            let fastest = (0..TRIALS).map(trial).min().unwrap_or_default();
            // Long enough to be measured, and shorter than what can be interrupted often.
            if fastest >= duration / 8 {
                let ratio = duration.as_secs_f64() / fastest.as_secs_f64();
                return (units as f64 * ratio).round().max(1.0) as u64;
            }
            units *= 2;
        }
    }
}

/// A cache's line.
#[derive(Debug, Clone, Copy, Default)]
#[repr(align(64))]
struct Line {
    next: u32,
    visits: u32,
}

/// A walk through a buffer that reads and writes one line after another, in an order that no prefetcher foresees.
///
/// The order is one circle through all lines (Sattolo's shuffle), and each line says which is next: a step waits for
/// the one before it. A job goes on where the last one stopped.
#[derive(Debug)]
pub struct Walk {
    lines: Vec<Line>,
    at: u32,
}

impl Walk {
    const LINE_BYTES: usize = size_of::<Line>();
    /// Of each unit.
    const STEPS: u64 = 64;
    /// The largest buffer.
    pub const MOST_KIB: u32 = 1 << 20;

    /// A buffer of so many KiB, all of it in memory.
    ///
    /// # Errors
    /// No memory for it.
    pub fn through(kib: u32) -> Result<Self, TryReserveError> {
        let count = (kib.min(Self::MOST_KIB) as usize * 1024 / Self::LINE_BYTES).max(1);
        let mut lines = Vec::new();
        lines.try_reserve_exact(count)?;
        lines.extend((0..count as u32).map(|next| Line { next, visits: 0 }));
        // The order is the buffer's own, so that two runs walk alike.
        let mut random = ChaCha8Rng::seed_from_u64(u64::from(kib));
        for last in (1..count).rev() {
            let other = (u128::from(random.next_u64()) * last as u128) >> 64;
            lines.swap(last, other as usize);
        }
        Ok(Self { lines, at: 0 })
    }

    fn work(&mut self, units: u64) {
        for _ in 0..units.saturating_mul(Self::STEPS) {
            let line = &mut self.lines[self.at as usize];
            line.visits = line.visits.wrapping_add(1);
            self.at = line.next;
        }
        black_box(self.at);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// A smaller circle would fit into a cache that the buffer does not fit into.
        #[test]
        fn a_walk_comes_by_every_line_of_its_buffer_before_it_comes_back(kib in 1_u32..40) {
            let mut walk = Walk::through(kib).unwrap();
            let count = walk.lines.len();
            prop_assert_eq!(count, kib as usize * 1024 / 64);
            walk.work((count as u64).div_ceil(64));
            let visits: Vec<u32> = walk.lines.iter().map(|line| line.visits).collect();
            let steps = (count as u32).div_ceil(64) * 64;
            prop_assert_eq!(visits.iter().sum::<u32>(), steps);
            let (least, most) = (steps / count as u32, steps.div_ceil(count as u32));
            prop_assert!(visits.iter().all(|own| (least..=most).contains(own)), "{:?}", visits);
        }
    }

    #[test]
    fn a_buffer_is_of_whole_lines_and_never_larger_than_the_largest() {
        assert_eq!(Walk::LINE_BYTES, 64);
        assert_eq!(Walk::through(0).unwrap().lines.len(), 1);
    }

    #[test]
    fn work_is_calibrated_in_registers_and_in_memory() {
        let memory = Computation::Memory(Walk::through(256).unwrap());
        for mut computation in [Computation::Registers, memory] {
            let units = computation.units_for(Duration::from_millis(2));
            let begun = Instant::now();
            computation.work(units);
            // Another program may take the CPU meanwhile, so that it took longer; shorter it cannot be by much.
            assert!(begun.elapsed() > Duration::from_millis(1), "{units}");
        }
        assert_eq!(Computation::Registers.units_for(Duration::ZERO), 1);
    }
}
