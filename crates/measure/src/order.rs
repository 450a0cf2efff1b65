//! What is measured when. Pure.

use std::time::Duration;

use steadyvm_load::netrt::Intervals;

/// The rows of a round in the order of measuring, by their places. Every second round is the one before turned round, so that
/// what drifts in one direction falls on all alike, and a row that ends one round begins the next: that saves a change
/// of the host. Each two rounds begin with another row.
pub fn of_round(round: u64, rows: usize) -> Vec<usize> {
    let mut order: Vec<usize> = (0..rows).collect();
    if rows > 0 {
        order.rotate_left((round / 2) as usize % rows);
    }
    if !round.is_multiple_of(2) {
        order.reverse();
    }
    order
}

/// The counted requests of a row in one of `rounds` rounds, `samples` in all.
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
    fn every_second_round_is_turned_round_and_each_two_begin_with_another_row() {
        let orders = |rows| (0..4).map(move |round| of_round(round, rows));
        assert!(orders(2).eq([[0, 1], [1, 0], [1, 0], [0, 1]]));
        assert!(orders(3).eq([[0, 1, 2], [2, 1, 0], [1, 2, 0], [0, 2, 1]]));
        assert!(of_round(7, 0).is_empty());
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
        fn each_row_is_first_as_often_as_every_other(rows in 1_usize..8, times in 1_u64..5) {
            let rounds = 2 * rows as u64 * times;
            for row in 0..rows {
                let first = (0..rounds).filter(|round| of_round(*round, rows)[0] == row).count();
                prop_assert_eq!(first as u64, 2 * times);
            }
        }
    }
}
