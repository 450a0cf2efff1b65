//! The exact figures of a set of samples.

/// A percentile in thousandths: 990 is the 99th. An integer, so that ranks are exact.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct PerMille(u16);

impl PerMille {
    /// The median.
    pub const P50: Self = Self(500);
    /// The 75th percentile.
    pub const P75: Self = Self(750);
    /// The 90th percentile.
    pub const P90: Self = Self(900);
    /// The 95th percentile.
    pub const P95: Self = Self(950);
    /// The 99th percentile.
    pub const P99: Self = Self(990);
    /// The 99.9th percentile.
    pub const P999: Self = Self(999);

    /// `thousandths` of all samples; more than 1000 is taken as 1000.
    pub fn new(thousandths: u16) -> Self {
        Self(thousandths.min(1000))
    }
}

/// The nearest rank, counted from 1: ⌈p·n⌉, at least 1. Zero only for no samples at all.
pub fn rank(n: usize, percentile: PerMille) -> usize {
    let product = n as u128 * u128::from(percentile.0);
    (product.div_ceil(1000) as usize).max(1).min(n)
}

/// The nearest-rank percentile of sorted samples; `None` if there are none.
pub fn nearest_rank(sorted: &[u64], percentile: PerMille) -> Option<u64> {
    sorted
        .get(rank(sorted.len(), percentile).checked_sub(1)?)
        .copied()
}

/// Figures of at least one sample, in nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Summary {
    /// Number of samples; at least 1.
    pub n: u64,
    /// Arithmetic mean.
    pub mean_ns: f64,
    /// Sample standard deviation (divisor n - 1); `None` for a single sample.
    pub sd_ns: Option<f64>,
    /// Smallest sample.
    pub min_ns: u64,
    /// Median.
    pub p50_ns: u64,
    /// 90th percentile.
    pub p90_ns: u64,
    /// 99th percentile.
    pub p99_ns: u64,
    /// 99.9th percentile.
    pub p999_ns: u64,
    /// Largest sample.
    pub max_ns: u64,
}

impl Summary {
    /// The figures of `samples_ns`, in any order; `None` if there are none. O(n log n).
    pub fn of(samples_ns: &[u64]) -> Option<Self> {
        let mut sorted = samples_ns.to_vec();
        sorted.sort_unstable();
        Self::of_sorted(&sorted)
    }

    /// The figures of samples in ascending order; `None` if there are none.
    pub fn of_sorted(sorted: &[u64]) -> Option<Self> {
        let (&min_ns, &max_ns) = (sorted.first()?, sorted.last()?);
        let (mean_ns, sd_ns) = mean_and_sd(sorted);
        Some(Self {
            n: sorted.len() as u64,
            mean_ns,
            sd_ns,
            min_ns,
            p50_ns: nearest_rank(sorted, PerMille::P50)?,
            p90_ns: nearest_rank(sorted, PerMille::P90)?,
            p99_ns: nearest_rank(sorted, PerMille::P99)?,
            p999_ns: nearest_rank(sorted, PerMille::P999)?,
            max_ns,
        })
    }
}

/// The mean of some values; `None` if there are none.
pub fn mean(values: impl Iterator<Item = f64>) -> Option<f64> {
    let (sum, count) = values.fold((0.0, 0_u64), |(sum, count), value| (sum + value, count + 1));
    (count > 0).then(|| sum / count as f64)
}

/// Mean and sample standard deviation, in two passes: the sum is exact (128-bit integers), and
/// deviations from the mean do not cancel as sums of squares would.
fn mean_and_sd(samples: &[u64]) -> (f64, Option<f64>) {
    let n = samples.len() as u128;
    let sum: u128 = samples.iter().map(|&sample| u128::from(sample)).sum();
    // Whole and fractional part apart: the fraction keeps its precision beside a large mean.
    let (whole, fraction) = ((sum / n) as u64, (sum % n) as f64 / n as f64);
    let squares: f64 = samples
        .iter()
        .map(|&sample| {
            let deviation = (i128::from(sample) - i128::from(whole)) as f64 - fraction;
            deviation * deviation
        })
        .sum();
    let sd = (n > 1).then(|| (squares / (n - 1) as f64).sqrt());
    (whole as f64 + fraction, sd)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Whether `value` is within a relative 1e-9 of the rational `numerator / denominator`.
    fn near(value: f64, numerator: u128, denominator: u128) -> bool {
        let exact = (numerator / denominator) as f64
            + (numerator % denominator) as f64 / denominator as f64;
        (value - exact).abs() <= 1e-9 * exact.max(1e-9)
    }

    proptest! {
        /// Against rational arithmetic: mean = Σx / n, variance = (nΣx² - (Σx)²) / (n(n-1)).
        #[test]
        fn mean_and_sd_equal_exact_rationals(samples in proptest::collection::vec(0_u64..1 << 40, 1..300)) {
            let summary = Summary::of(&samples).unwrap();
            let n = samples.len() as u128;
            let sum: u128 = samples.iter().map(|&x| u128::from(x)).sum();
            let squares: u128 = samples.iter().map(|&x| u128::from(x) * u128::from(x)).sum();
            prop_assert_eq!(u128::from(summary.n), n);
            prop_assert!(near(summary.mean_ns, sum, n));
            match summary.sd_ns {
                None => prop_assert_eq!(n, 1),
                Some(sd) => {
                    prop_assert!(near(sd * sd, n * squares - sum * sum, n * (n - 1)), "{sd}");
                }
            }
        }

        /// A small spread on a large mean, where Σx² - n·mean² would lose every digit.
        #[test]
        fn sd_survives_a_large_mean(base in 1_u64 << 50..1 << 62, offsets in proptest::collection::vec(0_u64..1000, 2..100)) {
            let shifted: Vec<u64> = offsets.iter().map(|offset| base + offset).collect();
            let (sd, shifted_sd) =
                (Summary::of(&offsets).unwrap().sd_ns.unwrap(), Summary::of(&shifted).unwrap().sd_ns.unwrap());
            prop_assert!((sd - shifted_sd).abs() <= 1e-6 * sd.max(1.0), "{sd} {shifted_sd}");
        }

        /// The definition, by counting: the smallest sample with at least p·n samples not above it.
        #[test]
        fn percentiles_equal_their_definition(samples in proptest::collection::vec(0_u64..50, 1..200), thousandths in 0_u16..=1000) {
            let mut sorted = samples.clone();
            sorted.sort_unstable();
            let by_counting = sorted.iter().copied().find(|&candidate| {
                let not_above = samples.iter().filter(|&&sample| sample <= candidate).count();
                not_above as u128 * 1000 >= u128::from(thousandths) * samples.len() as u128
            });
            prop_assert_eq!(nearest_rank(&sorted, PerMille::new(thousandths)), by_counting);
        }

        #[test]
        fn figures_are_ordered_and_samples(samples in proptest::collection::vec(any::<u64>(), 1..300)) {
            let summary = Summary::of(&samples).unwrap();
            let figures = [summary.min_ns, summary.p50_ns, summary.p90_ns, summary.p99_ns, summary.p999_ns, summary.max_ns];
            prop_assert!(figures.is_sorted());
            prop_assert!(figures.iter().all(|figure| samples.contains(figure)));
            prop_assert_eq!(summary.max_ns, samples.iter().copied().max().unwrap());
            prop_assert!(summary.mean_ns >= summary.min_ns as f64 && summary.mean_ns <= summary.max_ns as f64);
        }
    }

    #[test]
    fn ranks_at_the_edges() {
        assert_eq!(rank(0, PerMille::P50), 0);
        assert_eq!(rank(1, PerMille::new(0)), 1);
        assert_eq!(rank(2, PerMille::P50), 1);
        assert_eq!(rank(1000, PerMille::P999), 999);
        assert_eq!(rank(999, PerMille::P999), 999);
        assert_eq!(rank(2000, PerMille::P999), 1998);
        assert_eq!(rank(usize::MAX, PerMille::new(u16::MAX)), usize::MAX);
        assert_eq!(Summary::of(&[]), None);
        assert_eq!(Summary::of(&[u64::MAX; 2]).unwrap().sd_ns, Some(0.0));
    }
}
