//! Figures of a thread's waits. Pure.

use steadyvm_stats::steps::{STEPS, percentile_ns, step_of};
use steadyvm_stats::{PerMille, nearest_rank};

/// How long a thread waited for a CPU after each wake-up of an interval, in ns; all 0 without wake-ups.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Waits {
    /// Wake-ups.
    pub n: u64,
    /// All waits together, exact.
    pub total_ns: u64,
    /// Median, nearest rank. Of BPF, the upper end of its step: above it by less than an eighth of it.
    pub p50_ns: u64,
    /// 99th percentile, as the median.
    pub p99_ns: u64,
    /// Longest, exact.
    pub max_ns: u64,
}

impl Waits {
    /// The mean in ns; `None` without wake-ups.
    pub fn mean_ns(&self) -> Option<f64> {
        (self.n > 0).then(|| self.total_ns as f64 / self.n as f64)
    }

    /// Of each wait.
    pub(super) fn of_samples(mut waits_ns: Vec<u64>) -> Self {
        waits_ns.sort_unstable();
        let percentile = |percentile| nearest_rank(&waits_ns, percentile).unwrap_or(0);
        Self {
            n: waits_ns.len() as u64,
            total_ns: waits_ns.iter().fold(0, |sum, ns| sum.saturating_add(*ns)),
            p50_ns: percentile(PerMille::P50),
            p99_ns: percentile(PerMille::P99),
            max_ns: waits_ns.last().copied().unwrap_or(0),
        }
    }

    /// Of a `struct cell` of `bpf/wake_ups.bpf.c`; `None` if the bytes are none.
    pub(super) fn of_cell(bytes: &[u8]) -> Option<Self> {
        let (head, counts) = bytes.split_at_checked(3 * size_of::<u64>())?;
        let mut numbers = head.chunks_exact(size_of::<u64>());
        let mut number = || numbers.next()?.try_into().map(u64::from_ne_bytes).ok();
        let (n, total_ns, max_ns) = (number()?, number()?, number()?);
        if counts.len() != STEPS * size_of::<u32>() {
            return None;
        }
        if n == 0 {
            return Some(Self::default());
        }
        let counts: Vec<u64> = counts
            .chunks_exact(size_of::<u32>())
            .map(|word| word.try_into().map_or(0, u32::from_ne_bytes).into())
            .take(step_of(max_ns) + 1)
            .collect();
        let percentile = |percentile| percentile_ns(&counts, max_ns, percentile).unwrap_or(0);
        Some(Self {
            n,
            total_ns,
            p50_ns: percentile(PerMille::P50),
            p99_ns: percentile(PerMille::P99),
            max_ns,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// As `switched` of `bpf/wake_ups.bpf.c` counts.
    fn cell(waits_ns: &[u64]) -> Vec<u8> {
        let mut counts = [0_u32; STEPS];
        for ns in waits_ns {
            counts[step_of(*ns)] += 1;
        }
        let longest = waits_ns.iter().max().copied().unwrap_or(0);
        let head = [waits_ns.len() as u64, waits_ns.iter().sum(), longest];
        let head = head.iter().flat_map(|it| it.to_ne_bytes());
        head.chain(counts.iter().flat_map(|it| it.to_ne_bytes()))
            .collect()
    }

    #[test]
    fn without_wake_ups_all_is_0_and_there_is_no_mean() {
        assert_eq!(Waits::of_cell(&cell(&[])), Some(Waits::default()));
        assert_eq!(Waits::of_samples(Vec::new()), Waits::default());
        assert_eq!(Waits::default().mean_ns(), None);
    }

    proptest! {
        #[test]
        fn a_cell_has_the_exact_figures_and_percentiles_within_a_step(
            waits_ns in prop::collection::vec((any::<u64>(), 10_u32..64), 1..300)
        ) {
            let waits_ns: Vec<u64> = waits_ns.iter().map(|(bits, shift)| bits >> shift).collect();
            let counted = Waits::of_cell(&cell(&waits_ns)).unwrap();
            let exact = Waits::of_samples(waits_ns);
            prop_assert_eq!((counted.n, counted.total_ns, counted.max_ns), (exact.n, exact.total_ns, exact.max_ns));
            prop_assert_eq!(counted.mean_ns(), exact.mean_ns());
            for (counted, exact) in [(counted.p50_ns, exact.p50_ns), (counted.p99_ns, exact.p99_ns)] {
                prop_assert!(exact <= counted && counted - exact <= exact / 8, "{} of {}", counted, exact);
            }
        }

        #[test]
        fn no_bytes_panic(bytes in prop::collection::vec(any::<u8>(), 2060..2090)) {
            let is_cell = bytes.len() == 24 + 4 * STEPS;
            prop_assert_eq!(Waits::of_cell(&bytes).is_some(), is_cell);
        }
    }
}
