//! What is measured when. Pure.

use std::time::Duration;

use steadyvm_load::netrt::Intervals;

/// Whether what steadyvm has in force is in force.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Condition {
    /// The host as it is without steadyvm.
    Without,
    /// The host with all of it.
    With,
}

impl Condition {
    /// Both, in the order they are shown: ratios are of the later one to the earlier one.
    pub const ALL: [Self; 2] = [Self::Without, Self::With];

    /// Its name in results.
    pub fn name(self) -> &'static str {
        match self {
            Self::Without => "without",
            Self::With => "with",
        }
    }
}

/// The conditions of a round in the order of measuring. Every second round is turned round, so that what
/// drifts in one direction falls on both alike. Two neighbours are then the same condition, which saves
/// every second change of the host.
pub fn of_round(round: u64) -> [Condition; 2] {
    let [first, second] = Condition::ALL;
    if round.is_multiple_of(2) {
        [first, second]
    } else {
        [second, first]
    }
}

/// The counted requests of a condition in one of `rounds` rounds, `samples` in all.
pub fn samples_of_round(samples: u64, rounds: u64, round: u64) -> u64 {
    samples / rounds + u64::from(round < samples % rounds)
}

/// Random intervals with this mean rate, in the shape of the paper's: uniform from 2/11 to 20/11 of the
/// mean, which is 1 to 10 ms at 181.8 requests per second.
pub fn intervals(requests_per_s: f64) -> Intervals {
    let mean_s = 1.0 / requests_per_s;
    Intervals {
        shortest: Duration::from_secs_f64(mean_s * 2.0 / 11.0),
        longest: Duration::from_secs_f64(mean_s * 20.0 / 11.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn every_second_round_is_turned_round() {
        use Condition::{With, Without};
        assert_eq!(of_round(0), [Without, With]);
        assert_eq!(of_round(1), [With, Without]);
        assert_eq!(of_round(2), [Without, With]);
    }

    #[test]
    fn the_papers_intervals_are_those_of_its_rate() {
        let found = intervals(1000.0 / 5.5);
        let expected = Intervals::default();
        let apart = |one: Duration, other: Duration| one.abs_diff(other);
        assert!(apart(found.shortest, expected.shortest) < Duration::from_nanos(2));
        assert!(apart(found.longest, expected.longest) < Duration::from_nanos(2));
    }

    proptest! {
        #[test]
        fn rounds_share_all_samples_evenly(samples in 1_u64..10_000, rounds in 1_u64..50) {
            let shares: Vec<u64> = (0..rounds).map(|round| samples_of_round(samples, rounds, round)).collect();
            prop_assert_eq!(shares.iter().sum::<u64>(), samples);
            let (least, most) = (shares.iter().min().unwrap(), shares.iter().max().unwrap());
            prop_assert!(most - least <= 1);
        }

        #[test]
        fn each_condition_is_first_as_often_as_the_other(pairs in 1_u64..20) {
            let first = (0..2 * pairs).filter(|round| of_round(*round)[0] == Condition::With).count();
            prop_assert_eq!(first as u64, pairs);
        }
    }
}
