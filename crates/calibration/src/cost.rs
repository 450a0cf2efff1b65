//! The figures of one cost.

use serde::Serialize;
use steadyvm_stats::Summary;

/// No cost is longer, ns: what took longer was no cost of the host.
pub(crate) const LONGEST_NS: u64 = 10_000_000_000;

/// A cost by its samples.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Cost {
    /// How many samples.
    pub samples: u64,
    /// The median.
    pub median_ns: u64,
    /// The 99th percentile.
    pub p99_ns: u64,
    /// The longest.
    pub max_ns: u64,
}

impl Cost {
    /// Of samples in any order; none if there are none.
    pub fn of(samples_ns: &[u64]) -> Option<Self> {
        let summary = Summary::of(samples_ns)?;
        Some(Self {
            samples: summary.n,
            median_ns: summary.p50_ns,
            p99_ns: summary.p99_ns,
            max_ns: summary.max_ns,
        })
    }

    /// What is wrong with it, if anything is.
    pub(crate) fn fault(&self) -> Option<&'static str> {
        let figures = [self.median_ns, self.p99_ns, self.max_ns];
        if self.samples == 0 {
            Some("it has no samples")
        } else if !figures.is_sorted() {
            Some("its median, p99 and max do not rise")
        } else if self.max_ns > LONGEST_NS {
            Some("its max is above 10 s")
        } else {
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_of_all_samples() {
        let samples: Vec<u64> = (1..=1000).rev().collect();
        let cost = Cost::of(&samples).unwrap();
        assert_eq!(
            (cost.samples, cost.median_ns, cost.p99_ns, cost.max_ns),
            (1000, 500, 990, 1000)
        );
        assert_eq!(cost.fault(), None);
        assert_eq!(Cost::of(&[]), None);
        for wrong in [
            Cost { samples: 0, ..cost },
            Cost { p99_ns: 1, ..cost },
            Cost {
                max_ns: LONGEST_NS + 1,
                ..cost
            },
        ] {
            assert!(wrong.fault().is_some(), "{wrong:?}");
        }
    }
}
