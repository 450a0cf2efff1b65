//! From draws to an interval.

use super::draw::{Draws, Figures};

/// A ratio between two methods' figures and its 95 % confidence interval.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Ratio {
    /// The ratio of the two figures as measured.
    pub estimate: f64,
    /// Median of the bootstrap distribution.
    pub median: f64,
    /// Low and high end of the interval; `None` where nothing shows how much the ratio varies (a
    /// figure with one value, from a single round).
    pub interval: Option<(f64, f64)>,
    /// Rounds it rests on. With one, the interval covers variation within that round only.
    pub rounds: usize,
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
    let drawn_sd = variance(&replicates).sqrt();
    let interval = if of.rounds == 1 && within == 0.0 {
        None
    } else {
        let blocks = of.blocks.min(to.blocks);
        let wanted = half_width(between, within, of.rounds, blocks);
        // Constant data draw no spread to stretch: their interval is a point, if they are right.
        let stretch = if drawn_sd > 0.0 {
            wanted / (NORMAL_QUANTILE * drawn_sd)
        } else {
            0.0
        };
        let stretched = |probability| {
            quantile(&replicates, probability).map(|end| (median + stretch * (end - median)).exp())
        };
        Some((stretched(0.025)?, stretched(0.975)?))
    };
    Some(Ratio {
        estimate: estimate.exp(),
        median: median.exp(),
        interval,
        rounds: of.rounds,
    })
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
/// values, at most 0.3 % off from 2 up and on the wide side.
fn student_quantile(freedom: f64) -> f64 {
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
