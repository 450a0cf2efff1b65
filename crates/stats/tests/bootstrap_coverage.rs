//! How often the intervals of `bootstrap` contain the truth, on data whose truth is known.
//!
//! The data are what makes such intervals fail: consecutive samples correlated (an AR(1) process on
//! the logarithmic scale), bursts that add a heavy (Pareto) tail, a drift that both methods of a
//! round share, and one that they do not. Both methods follow the same law but for a factor, so the
//! true ratio of every figure is that factor exactly, whatever the sampling error of each.
//!
//! The table of docs/design/statistics.md:
//! `cargo test --release -p steadyvm-stats --test bootstrap_coverage -- --ignored --nocapture`

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{RngCore, SeedableRng};
use std::time::Instant;
use steadyvm_stats::bootstrap::{BootstrapOptions, draw_latency, draw_rates, ratio};

const TRUE_RATIO: f64 = 0.5;
const FIGURES: [&str; 4] = ["mean", "SD", "p50", "p99"];

#[derive(Clone, Copy)]
struct Scenario {
    rounds: usize,
    samples_per_round: usize,
    /// SD of the log drift of a round that both methods share.
    shared_drift: f64,
    /// SD of the log drift that each method has of its own.
    own_drift: f64,
    data_sets: u64,
    replicates: usize,
}

struct Coverage {
    /// Share of the intervals that contain the truth.
    covered: f64,
    /// Median of high / low.
    width: f64,
}

#[test]
fn three_rounds_cover_without_drift_of_their_own() {
    assert_covers(quick(3, 0.0));
}

#[test]
fn three_rounds_cover_with_drift_of_their_own() {
    assert_covers(quick(3, 0.1));
}

#[test]
fn five_rounds_cover_without_drift_of_their_own() {
    assert_covers(quick(5, 0.0));
}

#[test]
fn five_rounds_cover_with_drift_of_their_own() {
    assert_covers(quick(5, 0.1));
}

#[test]
fn one_round_covers_less_even_where_rounds_do_not_differ() {
    // Nothing but blocks of one round to tell how heavy the tail is: documented as such.
    assert_covers_at_least(
        0.80,
        Scenario {
            samples_per_round: 1000,
            ..quick(1, 0.0)
        },
    );
}

#[test]
fn rates_of_three_and_five_rounds_cover() {
    for rounds in [3, 5] {
        let covered = rates_coverage(rounds, 400);
        assert!(covered >= 0.90, "{rounds} rounds: {covered}");
    }
}

#[test]
#[ignore = "minutes; makes the table of docs/design/statistics.md"]
fn table() {
    println!(
        "rounds  n/round  own drift   {}",
        FIGURES.map(|it| format!("{it:>16}")).concat()
    );
    for (rounds, samples_per_round) in [(1, 2000), (3, 700), (5, 400), (10, 200)] {
        for own_drift in [0.0, 0.05, 0.1, 0.3] {
            let scenario = Scenario {
                samples_per_round,
                data_sets: 500,
                replicates: 500,
                ..quick(rounds, own_drift)
            };
            let coverage = coverage(scenario);
            let cells = coverage.map(|it| format!("{:8.1} % {:6.2}", it.covered * 100.0, it.width));
            println!(
                "{rounds:6}  {samples_per_round:7}  {own_drift:9.2}   {}",
                cells.concat()
            );
        }
    }
    for rounds in [3, 5, 10] {
        println!(
            "rates, {rounds} rounds: {:.1} %",
            rates_coverage(rounds, 2000) * 100.0
        );
    }
}

#[test]
#[ignore = "timing; for docs/design/statistics.md"]
fn time_of_a_comparison() {
    let start = Instant::now();
    let scenario = quick(3, 0.1);
    let data = data_set(
        Scenario {
            samples_per_round: 667,
            ..scenario
        },
        1,
    );
    for stream in 1..=9 {
        draw_latency(&slices(&data.0), BootstrapOptions::default(), stream);
    }
    println!(
        "3 methods, 3 phases, n = 2001, 5 figures, 2000 replicates: {:?}",
        start.elapsed()
    );
}

fn quick(rounds: usize, own_drift: f64) -> Scenario {
    Scenario {
        rounds,
        samples_per_round: 400,
        shared_drift: 0.2,
        own_drift,
        data_sets: 200,
        replicates: 300,
    }
}

fn assert_covers(scenario: Scenario) {
    assert_covers_at_least(0.90, scenario);
}

fn assert_covers_at_least(least: f64, scenario: Scenario) {
    let coverage = coverage(scenario);
    for (figure, Coverage { covered, width }) in FIGURES.iter().zip(coverage) {
        println!(
            "{figure}: {:.1} %, median high / low {width:.2}",
            covered * 100.0
        );
        assert!(
            covered >= least,
            "{figure}: {:.1} % of nominal 95 %",
            covered * 100.0
        );
        // An interval that always covers because it is endless would be no use.
        assert!(width < 8.0, "{figure}: high / low = {width}");
    }
}

fn coverage(scenario: Scenario) -> [Coverage; 4] {
    let mut covered = [0_u64; 4];
    let mut widths = [const { Vec::new() }; 4];
    for data_set_number in 0..scenario.data_sets {
        let (of, to) = data_set(scenario, data_set_number);
        let options = BootstrapOptions {
            replicates: scenario.replicates,
            seed: data_set_number,
        };
        let of = draw_latency(&slices(&of), options, 1);
        let to = draw_latency(&slices(&to), options, 2);
        for figure in 0..4 {
            let found = ratio(&of, &to, figure).expect("every figure is supported");
            let (low, high) = found.interval().expect("samples vary");
            covered[figure] += u64::from((low..=high).contains(&TRUE_RATIO));
            widths[figure].push(high / low);
        }
    }
    let mut widths = widths.into_iter();
    covered.map(|covered| {
        let mut widths = widths.next().expect("one list a figure");
        widths.sort_unstable_by(f64::total_cmp);
        Coverage {
            covered: covered as f64 / scenario.data_sets as f64,
            width: widths[widths.len() / 2],
        }
    })
}

/// Coverage for figures with a few values a round, such as throughput by the second.
fn rates_coverage(rounds: usize, data_sets: u64) -> f64 {
    let mut covered = 0_u64;
    for data_set_number in 0..data_sets {
        let mut noise = Noise::new(data_set_number);
        let (mut of, mut to) = (Vec::new(), Vec::new());
        for _ in 0..rounds {
            let shared = 0.3 * noise.normal();
            let mut round = |factor: f64| -> Vec<f64> {
                let own = 0.05 * noise.normal();
                (0..4)
                    .map(|_| factor * (shared + own + 0.1 * noise.normal()).exp())
                    .collect()
            };
            of.push(round(TRUE_RATIO));
            to.push(round(1.0));
        }
        let options = BootstrapOptions {
            replicates: 400,
            seed: data_set_number,
        };
        let (of, to) = (
            draw_rates(&slices(&of), options, 1),
            draw_rates(&slices(&to), options, 2),
        );
        let (low, high) = ratio(&of, &to, 0)
            .and_then(|it| it.interval())
            .expect("rates vary");
        covered += u64::from((low..=high).contains(&TRUE_RATIO));
    }
    covered as f64 / data_sets as f64
}

type Rounds = Vec<Vec<u64>>;

fn data_set(scenario: Scenario, seed: u64) -> (Rounds, Rounds) {
    let mut noise = Noise::new(seed);
    let (mut of, mut to) = (Vec::new(), Vec::new());
    for _ in 0..scenario.rounds {
        let shared = scenario.shared_drift * noise.normal();
        for (rounds, factor) in [(&mut of, TRUE_RATIO), (&mut to, 1.0)] {
            let level = factor * (shared + scenario.own_drift * noise.normal()).exp();
            rounds.push(round(&mut noise, level, scenario.samples_per_round));
        }
    }
    (of, to)
}

/// One round of round trips in nanoseconds, around `level` milliseconds.
fn round(noise: &mut Noise, level: f64, n: usize) -> Vec<u64> {
    const CORRELATION: f64 = 0.8;
    let mut state = noise.normal();
    let mut burst = 0.0;
    (0..n)
        .map(|_| {
            state = CORRELATION * state + (1.0 - CORRELATION * CORRELATION).sqrt() * noise.normal();
            // Bursts of five samples on average, one in a hundred samples, Pareto with index 2.5:
            // a finite variance, but no finite variance of the variance.
            if noise.uniform() < 0.01 {
                burst = noise.uniform().powf(-1.0 / 2.5) * 2.0;
            } else if noise.uniform() < 0.2 {
                burst = 0.0;
            }
            ((level * ((0.35 * state).exp() + burst)) * 1e6) as u64
        })
        .collect()
}

fn slices<T>(rounds: &[Vec<T>]) -> Vec<&[T]> {
    rounds.iter().map(Vec::as_slice).collect()
}

struct Noise(ChaCha8Rng);

impl Noise {
    fn new(seed: u64) -> Self {
        Self(ChaCha8Rng::seed_from_u64(seed))
    }

    /// Above 0, at most 1.
    fn uniform(&mut self) -> f64 {
        ((self.0.next_u64() >> 11) + 1) as f64 / (1_u64 << 53) as f64
    }

    /// Box and Muller.
    fn normal(&mut self) -> f64 {
        (-2.0 * self.uniform().ln()).sqrt() * (std::f64::consts::TAU * self.uniform()).cos()
    }
}
