//! Histograms of times that BPF programs count: eight steps per doubling (`c/steps.h`).

use crate::PerMille;

/// Steps of a histogram; the last 16 are above 64 bits.
pub const STEPS: usize = 512;

/// The step that counts a time. Steps below 8 ns are 1 ns wide.
pub fn step_of(ns: u64) -> usize {
    match ns.checked_ilog2() {
        Some(top) if top >= 3 => (top as usize - 2) * 8 + (ns >> (top - 3) & 7) as usize,
        _ => ns as usize,
    }
}

/// The longest time that a step counts, in ns.
pub fn step_end_ns(step: usize) -> u64 {
    let Some(shift) = (step / 8).checked_sub(1) else {
        return step as u64;
    };
    let end = (9 + (step % 8) as u128) << shift.min(64);
    u64::try_from(end - 1).unwrap_or(u64::MAX)
}

/// The upper end of the step that has the nearest-rank percentile, in ns; `None` without samples.
///
/// It is at least the exact percentile. It is above it by less than an eighth of it, and never above the longest sample.
/// `counts` has the samples per step, in ascending order.
pub fn percentile_ns(counts: &[u64], longest_ns: u64, percentile: PerMille) -> Option<u64> {
    let n = counts
        .iter()
        .fold(0_u64, |sum, count| sum.saturating_add(*count));
    let rank = crate::rank(n as usize, percentile) as u64;
    let mut below = 0_u64;
    let step = counts.iter().position(|count| {
        below = below.saturating_add(*count);
        below >= rank
    });
    step.filter(|_| n > 0)
        .map(|step| step_end_ns(step).min(longest_ns))
}

/// The same of samples that are given by the upper ends of their steps, ascending, and how many each has.
pub fn percentile_of_ends(up_to_ns: &[(u64, u64)], longest_ns: u64, percent: f64) -> Option<u64> {
    let count: u64 = up_to_ns.iter().map(|(_, count)| count).sum();
    let rank = (count as f64 * percent / 100.0).ceil().max(1.0) as u64;
    let mut below = 0;
    let found = up_to_ns.iter().find(|(_, count)| {
        below += count;
        below >= rank
    });
    found.map(|(end, _)| (*end).min(longest_ns))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nearest_rank;
    use proptest::prelude::*;

    #[test]
    fn a_step_ends_where_the_next_begins() {
        for ns in (0..5000).chain([u64::from(u32::MAX), 1 << 40, u64::MAX - 1]) {
            let (of, next) = (step_of(ns), step_of(ns + 1));
            assert!(ns <= step_end_ns(of), "{ns}");
            assert_eq!(ns == step_end_ns(of), of != next, "{ns}");
        }
        assert_eq!(step_end_ns(step_of(u64::MAX)), u64::MAX);
    }

    #[test]
    fn without_samples_there_is_no_percentile() {
        assert_eq!(percentile_ns(&[], 5, PerMille::P50), None);
        assert_eq!(percentile_ns(&[0; STEPS], 5, PerMille::P50), None);
    }

    /// All magnitudes alike.
    fn time() -> impl Strategy<Value = u64> {
        (any::<u64>(), 0_u32..64).prop_map(|(bits, shift)| bits >> shift)
    }

    proptest! {
        #[test]
        fn a_percentile_is_the_exact_one_or_less_than_an_eighth_above(
            mut samples in prop::collection::vec(time(), 1..400),
            thousandths in 0_u16..=1000,
        ) {
            let mut counts = [0_u64; STEPS];
            for ns in &samples {
                counts[step_of(*ns)] += 1;
            }
            samples.sort_unstable();
            let percentile = PerMille::new(thousandths);
            let exact = nearest_rank(&samples, percentile).unwrap();
            let longest = samples[samples.len() - 1];
            let found = percentile_ns(&counts, longest, percentile).unwrap();
            prop_assert!(exact <= found && found <= longest);
            prop_assert!(found - exact <= exact / 8, "{} of {}", found, exact);
            prop_assert_eq!(step_of(found), step_of(exact));
        }

        #[test]
        fn no_counts_panic(
            counts in prop::collection::vec(any::<u64>(), 0..600),
            longest_ns in any::<u64>(),
            thousandths in any::<u16>(),
        ) {
            let found = percentile_ns(&counts, longest_ns, PerMille::new(thousandths));
            prop_assert!(found.is_none_or(|ns| ns <= longest_ns));
        }
    }
}
