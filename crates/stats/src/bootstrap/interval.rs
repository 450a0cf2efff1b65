//! From draws to an interval.

use super::draw::{Draws, Figures};
use serde::{Deserialize, Serialize};

/// A ratio between two methods' figures and its 95 % confidence interval.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Ratio {
    /// The ratio of the two figures as measured.
    pub estimate: f64,
    /// Median of the bootstrap distribution.
    pub median: f64,
    /// Low end of the interval; `None` where nothing shows how much the ratio varies (a figure with
    /// one value, from a single round).
    pub low: Option<f64>,
    /// High end of the interval.
    pub high: Option<f64>,
    /// Rounds it rests on. With one, the interval covers variation within that round only.
    pub rounds: usize,
}

impl Ratio {
    /// The ends of the interval, if there is one.
    pub fn interval(&self) -> Option<(f64, f64)> {
        self.low.zip(self.high)
    }
}

/// The normal distribution's 97.5 % quantile.
const NORMAL_QUANTILE: f64 = 1.959_964;
/// Of the replicates, at most this share may lack the figure (no sample drawn, a zero).
const MOST_UNUSABLE: f64 = 0.02;

/// The ratio of figure number `figure` of `of` to that of `to`; both must have been drawn with the
/// same options from rounds measured together. `None` if it cannot be computed: different numbers
/// of rounds, a figure that is zero, or too few samples for it.
pub fn ratio<const K: usize>(of: &Draws<K>, to: &Draws<K>, figure: usize) -> Option<Ratio> {
    if of.rounds != to.rounds || of.replicates.len() != to.replicates.len() || figure >= K {
        return None;
    }
    let log_ratio = |of: &Figures<K>, to: &Figures<K>| (of.0[figure] / to.0[figure]).ln();
    let log_ratios = |of: &[Figures<K>], to: &[Figures<K>]| -> Option<Vec<f64>> {
        let pairs = of.iter().zip(to);
        let usable: Vec<f64> = pairs
            .map(|(of, to)| log_ratio(of, to))
            .filter(|ratio| ratio.is_finite())
            .collect();
        let unusable = of.len() - usable.len();
        (unusable as f64 <= MOST_UNUSABLE * of.len() as f64).then_some(usable)
    };
    let estimate = log_ratio(&of.pooled, &to.pooled);
    if !estimate.is_finite() {
        return None;
    }
    let mut replicates = log_ratios(&of.replicates, &to.replicates)?;
    replicates.sort_unstable_by(f64::total_cmp);
    let median = quantile(&replicates, 0.5)?;

    let within = variance(&log_ratios(&of.within, &to.within)?);
    let between = if of.rounds > 1 {
        jackknife_variance(&log_ratios(&of.without_round, &to.without_round)?)
    } else {
        0.0
    };
    // With one block in the only round, every replicate is the same: no variation is known.
    let blocks = of.blocks.min(to.blocks);
    let interval = if of.rounds == 1 && blocks <= 1 {
        None
    } else {
        let half_width = half_width(between, within, of.rounds, blocks);
        Some(stretched(&replicates, median, half_width)?)
    };
    Some(Ratio {
        estimate: estimate.exp(),
        median: median.exp(),
        low: interval.map(|(low, _)| low),
        high: interval.map(|(_, high)| high),
        rounds: of.rounds,
    })
}

/// The ends of the replicates' 95 % interval, moved away from or towards their median until they
/// are twice `half_width` apart: its skew is kept, its width is not. Replicates are logarithms, the
/// ends are not.
fn stretched(replicates: &[f64], median: f64, half_width: f64) -> Option<(f64, f64)> {
    let (low, high) = (quantile(replicates, 0.025)?, quantile(replicates, 0.975)?);
    // Constant data draw no spread to stretch: their interval is a point, if they are right.
    let stretch = if high > low {
        2.0 * half_width / (high - low)
    } else {
        0.0
    };
    let end = |drawn: f64| (median + stretch * (drawn - median)).exp();
    Some((end(low), end(high)))
}

/// t(df) standard errors, for variances of a log ratio between and within rounds.
fn half_width(between: f64, within: f64, rounds: usize, blocks: usize) -> f64 {
    let total = between + within;
    if total <= 0.0 {
        return 0.0;
    }
    let between_freedom = rounds.saturating_sub(1).max(1) as f64;
    let within_freedom = blocks.saturating_sub(rounds).max(1) as f64;
    let freedom =
        total.powi(2) / (between.powi(2) / between_freedom + within.powi(2) / within_freedom);
    student_quantile(freedom) * total.sqrt()
}

/// Student's t, 97.5 % quantile, for degrees of freedom from 1 up: linear in 1/df between tabulated
/// values. From 2 up it is at most 2 % too wide, below (two rounds) more, and never too narrow.
pub(crate) fn student_quantile(freedom: f64) -> f64 {
    const TABLE: [(f64, f64); 17] = [
        (1.0, 12.706_205),
        (2.0, 4.302_653),
        (3.0, 3.182_446),
        (4.0, 2.776_445),
        (5.0, 2.570_582),
        (6.0, 2.446_912),
        (7.0, 2.364_624),
        (8.0, 2.306_004),
        (9.0, 2.262_157),
        (10.0, 2.228_139),
        (12.0, 2.178_813),
        (15.0, 2.131_450),
        (20.0, 2.085_963),
        (30.0, 2.042_272),
        (60.0, 2.000_298),
        (120.0, 1.979_930),
        (f64::INFINITY, NORMAL_QUANTILE),
    ];
    let inverse = 1.0 / freedom.max(1.0);
    for pair in TABLE.windows(2) {
        let ((low, at_low), (high, at_high)) = (pair[0], pair[1]);
        let (from, to) = (1.0 / low, 1.0 / high);
        if inverse >= to {
            return at_high + (at_low - at_high) * (inverse - to) / (from - to);
        }
    }
    NORMAL_QUANTILE
}

/// (R-1)/R · Σ(x - mean)² over the values with one round left out each.
fn jackknife_variance(values: &[f64]) -> f64 {
    let rounds = values.len() as f64;
    variance(values) * (rounds - 1.0).powi(2) / rounds
}

/// Sample variance; 0 for fewer than two values.
fn variance(values: &[f64]) -> f64 {
    if values.len() < 2 {
        return 0.0;
    }
    let mean = values.iter().sum::<f64>() / values.len() as f64;
    values
        .iter()
        .map(|value| (value - mean).powi(2))
        .sum::<f64>()
        / (values.len() - 1) as f64
}

/// Linear between order statistics of sorted values.
fn quantile(sorted: &[f64], probability: f64) -> Option<f64> {
    let position = probability * sorted.len().checked_sub(1)? as f64;
    let (below, share) = (position.floor(), position.fract());
    let low = *sorted.get(below as usize)?;
    let high = sorted.get(below as usize + 1).copied().unwrap_or(low);
    Some(low + share * (high - low))
}

#[cfg(test)]
mod tests {
    use super::super::{BootstrapOptions, draw_latency, draw_rates};
    use super::*;
    use proptest::prelude::*;

    const FEW: BootstrapOptions = BootstrapOptions {
        replicates: 200,
        seed: 5,
    };

    fn slices<T>(rounds: &[Vec<T>]) -> Vec<&[T]> {
        rounds.iter().map(Vec::as_slice).collect()
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        /// Whatever the samples: the interval is ordered, positive, holds its median, and the
        /// estimate is the ratio of the figures.
        #[test]
        fn an_interval_is_an_interval(
            of in proptest::collection::vec(proptest::collection::vec(1_u64..1 << 40, 1..60), 1..5),
            to in proptest::collection::vec(proptest::collection::vec(1_u64..1 << 40, 1..60), 1..5),
        ) {
            let rounds = of.len().min(to.len());
            let of = draw_latency(&slices(&of[..rounds]), FEW, 1);
            let to = draw_latency(&slices(&to[..rounds]), FEW, 2);
            for figure in 0..5 {
                let Some(found) = ratio(&of, &to, figure) else { continue };
                let exact = of.pooled.0[figure] / to.pooled.0[figure];
                prop_assert!((found.estimate - exact).abs() <= 1e-9 * exact);
                if let Some((low, high)) = found.interval() {
                    prop_assert!(low > 0.0 && low <= found.median && found.median <= high, "{found:?}");
                }
            }
            prop_assert!(ratio(&of, &to, 0).is_some());
            prop_assert!(ratio(&of, &to, 5).is_none());
        }

        /// Swapping the methods inverts the ratio and its interval.
        #[test]
        fn the_inverse_ratio_has_the_inverse_interval(
            of in proptest::collection::vec(proptest::collection::vec(1_u64..1 << 20, 20..40), 3),
            to in proptest::collection::vec(proptest::collection::vec(1_u64..1 << 20, 20..40), 3),
        ) {
            let (of, to) = (draw_latency(&slices(&of), FEW, 1), draw_latency(&slices(&to), FEW, 2));
            let (there, back) = (ratio(&of, &to, 0).unwrap(), ratio(&to, &of, 0).unwrap());
            let ((low, high), (back_low, back_high)) = (there.interval().unwrap(), back.interval().unwrap());
            prop_assert!((low * back_high - 1.0).abs() < 1e-6 && (high * back_low - 1.0).abs() < 1e-6);
        }
    }

    #[test]
    fn without_variation_within_rounds_it_is_the_t_interval_over_rounds() {
        // Log ratios of the rounds: -0.1, 0, 0.1; their mean 0, standard deviation 0.1.
        let of = [(-0.1_f64).exp(), 1.0, 0.1_f64.exp()].map(|rate| vec![rate]);
        let to = [vec![1.0], vec![1.0], vec![1.0]];
        let (of, to) = (
            draw_rates(&slices(&of), FEW, 1),
            draw_rates(&slices(&to), FEW, 2),
        );
        let (low, high) = ratio(&of, &to, 0).unwrap().interval().unwrap();
        let expected = 4.302_653 * 0.1 / 3_f64.sqrt();
        assert!(
            ((high / low).ln() / 2.0 - expected).abs() < 0.01 * expected,
            "{low} {high}"
        );
    }

    #[test]
    fn figures_of_zero_and_different_rounds_have_no_ratio() {
        let zero = draw_rates(&[&[0.0], &[0.0]], FEW, 1);
        let some = draw_rates(&[&[1.0], &[2.0]], FEW, 2);
        let three = draw_rates(&[&[1.0], &[2.0], &[3.0]], FEW, 3);
        assert_eq!(ratio(&zero, &some, 0), None);
        assert_eq!(ratio(&some, &zero, 0), None);
        assert_eq!(ratio(&some, &three, 0), None);
    }

    #[test]
    fn one_value_has_a_ratio_but_no_interval() {
        let (of, to) = (draw_rates(&[&[3.0]], FEW, 1), draw_rates(&[&[4.0]], FEW, 2));
        let found = ratio(&of, &to, 0).unwrap();
        assert!((found.estimate - 0.75).abs() < 1e-12);
        assert_eq!((found.interval(), found.rounds), (None, 1));
    }

    /// Against quantiles from numerical integration of the density, between tabulated values too.
    #[test]
    fn students_quantile_is_close_and_never_too_small() {
        for (freedom, exact) in [
            (2.0, 4.302_653),
            (2.5, 3.574_655),
            (4.5, 2.658_912),
            (11.0, 2.200_985),
            (40.0, 2.021_075),
            (1e9, 1.959_964),
        ] {
            let found = student_quantile(freedom);
            assert!(
                found >= exact - 1e-4 && found <= exact * 1.02,
                "{freedom}: {found} {exact}"
            );
        }
        assert!(student_quantile(0.0) >= 12.7 && student_quantile(f64::NAN) >= 1.95);
    }
}
