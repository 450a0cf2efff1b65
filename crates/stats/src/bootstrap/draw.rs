//! Drawing: figures of the data, of the data without each round, and of replicates.

use super::BootstrapOptions;
use crate::{PerMille, rank};
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{RngCore, SeedableRng};

/// A percentile gets an interval only if this many samples are expected beyond it: below that it
/// is one of the largest few samples, whose distribution no resampling knows.
pub const FEWEST_BEYOND: usize = 5;

/// The generator's stream for drawing rounds; one for all methods, which pairs them.
const ROUNDS_STREAM: u64 = 0;
/// Replicates for the variance within rounds: a standard deviation known to 3 %.
const WITHIN_REPLICATES: usize = 500;

/// Figures that get ratios, all computed from one draw.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Figures<const K: usize>(pub [f64; K]);

/// Everything an interval needs to know of one method's samples.
#[derive(Debug, Clone)]
pub struct Draws<const K: usize> {
    /// Rounds drawn from.
    pub(super) rounds: usize,
    /// Blocks of all rounds together.
    pub(super) blocks: usize,
    /// Of all samples.
    pub(super) pooled: Figures<K>,
    /// Of all samples but one round's, round by round.
    pub(super) without_round: Vec<Figures<K>>,
    /// Of replicates that draw rounds, then blocks.
    pub(super) replicates: Vec<Figures<K>>,
    /// Of replicates that draw blocks only.
    pub(super) within: Vec<Figures<K>>,
}

/// Draws from the round trips of one method in one phase, `rounds` in the order of measuring and
/// each in the order of sending. The figures are mean, SD, p50, p99, p99.9 in nanoseconds; NaN
/// where the samples do not support one. `stream` tells methods and phases apart, so that their
/// blocks are independent; it must not be 0.
///
/// O(replicates · samples).
pub fn draw_latency(rounds: &[&[u64]], options: BootstrapOptions, stream: u64) -> Draws<5> {
    let total: usize = rounds.iter().map(|round| round.len()).sum();
    draw(rounds, options, stream, |samples| {
        latency_figures(samples, total)
    })
}

/// Draws from the round trips of one method as [`draw_latency`] does; the figures are these
/// percentiles, ascending, in nanoseconds.
pub fn draw_percentiles<const K: usize>(
    rounds: &[&[u64]],
    percentiles: [PerMille; K],
    options: BootstrapOptions,
    stream: u64,
) -> Draws<K> {
    let total: usize = rounds.iter().map(|round| round.len()).sum();
    draw(rounds, options, stream, |samples| {
        if samples.is_empty() {
            return Figures([f64::NAN; K]);
        }
        Figures(percentile_figures(samples, percentiles, total))
    })
}

/// Draws from values that are averaged: throughput (each round the rates of its seconds) or
/// shares of CPU time (each round one value). The only figure is the mean.
pub fn draw_rates(rounds: &[&[f64]], options: BootstrapOptions, stream: u64) -> Draws<1> {
    draw(rounds, options, stream, |rates| Figures([mean(rates)]))
}

fn draw<T: Copy, const K: usize>(
    rounds: &[&[T]],
    options: BootstrapOptions,
    stream: u64,
    figures: impl Fn(&mut [T]) -> Figures<K>,
) -> Draws<K> {
    let mut round_draws = generator(options.seed, ROUNDS_STREAM);
    let mut block_draws = generator(options.seed, stream.max(1));
    let mut drawn = Vec::with_capacity(rounds.iter().map(|round| round.len()).sum());
    let mut pool = |chosen: &mut dyn Iterator<Item = &[T]>| {
        drawn.clear();
        chosen.for_each(|round| drawn.extend_from_slice(round));
        figures(&mut drawn)
    };
    let pooled = pool(&mut rounds.iter().copied());
    let without_round = (0..rounds.len())
        .map(|left_out| {
            let others = rounds
                .iter()
                .enumerate()
                .filter(|&(index, _)| index != left_out);
            pool(&mut others.map(|(_, &round)| round))
        })
        .collect();

    let mut replicate = |chosen: &mut dyn Iterator<Item = usize>| {
        drawn.clear();
        chosen.for_each(|index| draw_blocks(rounds[index], &mut block_draws, &mut drawn));
        figures(&mut drawn)
    };
    let count = rounds.len();
    let replicates = (0..options.effective_replicates())
        .map(|_| replicate(&mut (0..count).map(|_| below(&mut round_draws, count))))
        .collect();
    let within = (0..WITHIN_REPLICATES.min(options.effective_replicates()))
        .map(|_| replicate(&mut (0..count)))
        .collect();
    Draws {
        rounds: count,
        blocks: rounds
            .iter()
            .map(|round| round.len().div_ceil(block_length(round.len())))
            .sum(),
        pooled,
        without_round,
        replicates,
        within,
    }
}

/// Adds as many samples of `round` as it has, in blocks from random places, wrapping at its end.
fn draw_blocks<T: Copy>(round: &[T], generator: &mut ChaCha8Rng, drawn: &mut Vec<T>) {
    let block = block_length(round.len());
    let mut left = round.len();
    while left > 0 {
        let length = block.min(left);
        let start = below(generator, round.len());
        let before_end = length.min(round.len() - start);
        drawn.extend_from_slice(&round[start..start + before_end]);
        drawn.extend_from_slice(&round[..length - before_end]);
        left -= length;
    }
}

/// Samples in a block: 2·∛n, at most a quarter of the round.
///
/// ∛n is the growth that minimises the error of a block bootstrap's variance (Hall, Horowitz and
/// Jing 1995); the factor makes a block of a 700-request round 18 requests, about 100 ms, several
/// times the busy spells of one CPU. Correlation over longer times shows as differences between
/// rounds, which the interval includes.
fn block_length(n: usize) -> usize {
    let wanted = (2.0 * (n as f64).cbrt()).ceil() as usize;
    wanted.min(n / 4).max(1)
}

/// Mean, SD, p50, p99, p99.9. Reorders the samples.
fn latency_figures(samples: &mut [u64], total: usize) -> Figures<5> {
    if samples.is_empty() {
        return Figures([f64::NAN; 5]);
    }
    let n = samples.len() as f64;
    let mean = samples.iter().map(|&sample| sample as f64).sum::<f64>() / n;
    let squares: f64 = samples
        .iter()
        .map(|&sample| (sample as f64 - mean).powi(2))
        .sum();
    let sd = (squares / (n - 1.0)).sqrt();
    let [p50, p99, p999] = percentile_figures(
        samples,
        [PerMille::P50, PerMille::P99, PerMille::P999],
        total,
    );
    Figures([mean, sd, p50, p99, p999])
}

/// Percentiles in ascending order of samples, of which there is one at least; NaN where `total` are too
/// few for one. Reorders the samples.
fn percentile_figures<const K: usize>(
    samples: &mut [u64],
    percentiles: [PerMille; K],
    total: usize,
) -> [f64; K] {
    // Each selection leaves everything above it to its right, where the next one looks.
    let mut sorted_up_to = 0;
    percentiles.map(|percentile| {
        let index = rank(samples.len(), percentile) - 1;
        if index >= sorted_up_to {
            samples[sorted_up_to..].select_nth_unstable(index - sorted_up_to);
            sorted_up_to = index;
        }
        if supports(total, percentile) {
            samples[index] as f64
        } else {
            f64::NAN
        }
    })
}

fn supports(n: usize, percentile: PerMille) -> bool {
    n - rank(n, percentile) >= FEWEST_BEYOND
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

fn generator(seed: u64, stream: u64) -> ChaCha8Rng {
    let mut generator = ChaCha8Rng::seed_from_u64(seed);
    generator.set_stream(stream);
    generator
}

/// A number below `bound`, which must not be 0; the bias is bound / 2^64.
fn below(generator: &mut ChaCha8Rng, bound: usize) -> usize {
    ((u128::from(generator.next_u64()) * bound as u128) >> 64) as usize
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Summary;
    use proptest::prelude::*;

    const FEW: BootstrapOptions = BootstrapOptions {
        replicates: 200,
        seed: 3,
    };

    proptest! {
        /// The figures of draws are those of the exact summary.
        #[test]
        fn figures_equal_the_summary(mut samples in proptest::collection::vec(0_u64..1 << 40, 2..700)) {
            let summary = Summary::of(&samples).unwrap();
            // As if of so many samples that every percentile is supported.
            let Figures([mean, sd, p50, p99, p999]) = latency_figures(&mut samples, 1 << 20);
            prop_assert!((mean - summary.mean_ns).abs() <= 1e-9 * summary.mean_ns + 1e-9);
            let exact_sd = summary.sd_ns.unwrap();
            prop_assert!((sd - exact_sd).abs() <= 1e-6 * exact_sd + 1e-3, "{sd} {exact_sd}");
            // Below 2^53 a float holds the integer.
            prop_assert_eq!(
                [p50 as u64, p99 as u64, p999 as u64],
                [summary.p50_ns, summary.p99_ns, summary.p999_ns]
            );
        }

        /// Blocks keep the length, and neighbours in a block are neighbours in the round.
        #[test]
        fn a_draw_is_made_of_blocks_of_the_round(n in 0_usize..500, seed: u64) {
            let round: Vec<usize> = (0..n).collect();
            let mut drawn = Vec::new();
            if n > 0 {
                draw_blocks(&round, &mut generator(seed, 1), &mut drawn);
            }
            prop_assert_eq!(drawn.len(), n);
            for block in drawn.chunks(block_length(n)) {
                prop_assert!(block.windows(2).all(|pair| pair[1] == (pair[0] + 1) % n));
            }
        }
    }

    #[test]
    fn replicates_of_two_methods_draw_the_same_rounds() {
        // Rounds of one repeated value: a replicate's mean tells which rounds it drew.
        let of: Vec<Vec<u64>> = [1, 10, 100].map(|value| vec![value; 30]).into();
        let to: Vec<Vec<u64>> = [2, 20, 200].map(|value| vec![value; 30]).into();
        let slices =
            |rounds: &'static [Vec<u64>]| rounds.iter().map(Vec::as_slice).collect::<Vec<_>>();
        let (of, to) = (slices(of.leak()), slices(to.leak()));
        let (of, to) = (draw_latency(&of, FEW, 1), draw_latency(&to, FEW, 2));
        for (of, to) in of.replicates.iter().zip(&to.replicates) {
            assert!((to.0[0] / of.0[0] - 2.0).abs() < 1e-12);
        }
        assert!(
            of.replicates
                .iter()
                .any(|figures| (figures.0[0] - 37.0).abs() > 1.0)
        );
        assert!(
            of.within
                .iter()
                .all(|figures| (figures.0[0] - 37.0).abs() < 1e-9)
        );
    }

    #[test]
    fn a_percentile_of_too_few_samples_is_no_figure() {
        let samples: Vec<u64> = (0..600).collect();
        let draws = draw_latency(&[&samples], FEW, 1);
        let Figures([mean, sd, p50, p99, p999]) = draws.pooled;
        assert!([mean, sd, p50, p99].iter().all(|figure| figure.is_finite()));
        assert!(p999.is_nan(), "0.6 samples lie beyond");
    }

    #[test]
    fn percentiles_are_nearest_rank() {
        let samples: Vec<u64> = (1..=200).rev().collect();
        let wanted = [PerMille::P50, PerMille::P95];
        let draws = draw_percentiles(&[&samples], wanted, FEW, 1);
        assert_eq!(draws.pooled, Figures([100.0, 190.0]));
        assert!(
            draw_percentiles(&[&[]], wanted, FEW, 1)
                .pooled
                .0
                .iter()
                .all(|it| it.is_nan())
        );
    }

    #[test]
    fn empty_rounds_and_no_rounds_do_no_harm() {
        for rounds in [&[][..], &[&[][..]], &[&[], &[1, 2, 3]]] {
            let draws = draw_latency(rounds, FEW, 1);
            assert_eq!(draws.without_round.len(), rounds.len());
        }
        assert!(draw_rates(&[], FEW, 0).pooled.0[0].is_nan());
    }
}
