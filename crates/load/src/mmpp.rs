//! Bursts: a two-state Markov-modulated Poisson process (MMPP-2).
//!
//! A source is quiet or busy; the time it stays so is exponential, and while it does, packets
//! leave at that state's Poisson rate. Both are memoryless, so after each event the next one is the
//! earlier of two exponential times (W. Fischer, K. Meier-Hellstern, "The Markov-modulated Poisson
//! process (MMPP) cookbook", Performance Evaluation 18, 1993, section 1).

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{RngCore, SeedableRng};
use serde::{Deserialize, Serialize};

/// One state of the source.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct State {
    /// Packets a second while it lasts.
    pub packets_per_s: f64,
    /// How long it lasts on average, in seconds; above 0.
    pub mean_s: f64,
}

/// The parameters of a source.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Mmpp2 {
    /// The state it begins in.
    pub quiet: State,
    /// The other one.
    pub busy: State,
}

impl Mmpp2 {
    /// A source with this mean rate: half of it for 100 ms on average, then twice of it for 50 ms.
    pub fn with_mean(packets_per_s: f64) -> Self {
        Self {
            quiet: State {
                packets_per_s: packets_per_s / 2.0,
                mean_s: 0.1,
            },
            busy: State {
                packets_per_s: packets_per_s * 2.0,
                mean_s: 0.05,
            },
        }
    }

    /// Packets a second in the long run.
    pub fn mean_packets_per_s(&self) -> f64 {
        let of = |state: &State| state.packets_per_s * state.mean_s;
        (of(&self.quiet) + of(&self.busy)) / (self.quiet.mean_s + self.busy.mean_s)
    }

    /// When packets are due, in nanoseconds after the start: an endless iterator, the same for the
    /// same seed. One of the rates must be above 0, or the first packet never comes.
    pub fn schedule(self, seed: u64) -> impl Iterator<Item = u64> {
        let mut source = Source {
            generator: ChaCha8Rng::seed_from_u64(seed),
            states: [self.quiet, self.busy],
            now_s: 0.0,
        };
        std::iter::repeat_with(move || source.next_packet_ns())
    }
}

struct Source {
    generator: ChaCha8Rng,
    /// The current state first.
    states: [State; 2],
    now_s: f64,
}

impl Source {
    fn next_packet_ns(&mut self) -> u64 {
        loop {
            let [state, _] = self.states;
            let packet_s = self.exponential(1.0 / state.packets_per_s);
            let change_s = self.exponential(state.mean_s);
            self.now_s += packet_s.min(change_s);
            if packet_s <= change_s {
                return (self.now_s * 1e9) as u64;
            }
            self.states.swap(0, 1);
        }
    }

    /// An exponential time of this mean; endless for an endless mean (a rate of 0).
    fn exponential(&mut self, mean_s: f64) -> f64 {
        // In (0, 1]: its logarithm is finite.
        let uniform = ((self.generator.next_u64() >> 11) + 1) as f64 / (1_u64 << 53) as f64;
        -uniform.ln() * mean_s
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECONDS: usize = 4000;

    /// Packets in each of many seconds.
    fn counts(source: Mmpp2) -> Vec<f64> {
        let mut counts = vec![0.0; SECONDS];
        let end_ns = SECONDS as u64 * 1_000_000_000;
        for due_ns in source.schedule(1).take_while(|due_ns| *due_ns < end_ns) {
            counts[(due_ns / 1_000_000_000) as usize] += 1.0;
        }
        counts
    }

    fn mean_and_dispersion(source: Mmpp2) -> (f64, f64) {
        let counts = counts(source);
        let mean = counts.iter().sum::<f64>() / SECONDS as f64;
        let squares: f64 = counts.iter().map(|count| (count - mean).powi(2)).sum();
        (mean, squares / (SECONDS - 1) as f64 / mean)
    }

    #[test]
    fn the_mean_rate_is_as_asked_and_the_traffic_comes_in_bursts() {
        let source = Mmpp2::with_mean(200.0);
        assert!((source.mean_packets_per_s() - 200.0).abs() < 1e-9);
        let (mean, dispersion) = mean_and_dispersion(source);
        let expected = expected_dispersion(&source);
        // Four standard errors of each.
        let error = (expected * 200.0 / SECONDS as f64).sqrt();
        assert!((mean - 200.0).abs() < 4.0 * error, "{mean}");
        let relative = (2.0 / SECONDS as f64).sqrt();
        assert!(
            (dispersion / expected - 1.0).abs() < 4.0 * relative,
            "{dispersion}, not {expected}"
        );
    }

    /// Variance over mean of the packets in a second: the index of dispersion for counts of an
    /// MMPP-2 that has run for long (the cookbook, section 2).
    fn expected_dispersion(source: &Mmpp2) -> f64 {
        let (r1, r2) = (source.quiet.packets_per_s, source.busy.packets_per_s);
        let (a, b) = (1.0 / source.quiet.mean_s, 1.0 / source.busy.mean_s);
        let sum = a + b;
        let limit = 2.0 * (r1 - r2).powi(2) * a * b / (sum.powi(2) * (r1 * b + r2 * a));
        1.0 + limit * (1.0 - (1.0 - (-sum).exp()) / sum)
    }

    #[test]
    fn equal_states_are_poisson_traffic() {
        let state = State {
            packets_per_s: 100.0,
            mean_s: 0.1,
        };
        let source = Mmpp2 {
            quiet: state,
            busy: state,
        };
        let (mean, dispersion) = mean_and_dispersion(source);
        assert!(
            (mean - 100.0).abs() < 4.0 * (100.0_f64 / SECONDS as f64).sqrt(),
            "{mean}"
        );
        assert!((dispersion - 1.0).abs() < 4.0 * 0.0224, "{dispersion}");
    }

    #[test]
    fn the_same_seed_gives_the_same_schedule_in_order() {
        let take = |seed| {
            let schedule = Mmpp2::with_mean(1000.0).schedule(seed);
            schedule.take(1000).collect::<Vec<u64>>()
        };
        assert_eq!(take(3), take(3));
        assert_ne!(take(3), take(4));
        assert!(take(3).is_sorted());
    }
}
