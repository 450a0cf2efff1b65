//! The share of jobs that have a property, over independent runs, and how well it is known.
//!
//! Rule: jobs of one run depend on one another, runs do not. The interval is Wilson's (1927), of as many independent jobs as have the
//! variance that the share has between runs (Kish's effective sample size), and with Student's quantile, as that variance is of few
//! runs. Where all jobs of all runs are alike, a run counts as one job.

use serde::Serialize;

use crate::bootstrap::student_quantile;

/// A share with its 95 % interval.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Share {
    /// Jobs with the property.
    pub count: u64,
    /// All jobs.
    pub jobs: u64,
    /// Independent runs that they are of.
    pub runs: usize,
    /// The one over the other.
    pub share: f64,
    /// The interval's ends; none of a single run.
    pub interval: Option<(f64, f64)>,
}

impl Share {
    /// Of the jobs with the property, and all jobs, of each run; none without jobs.
    pub fn of(runs: &[(u64, u64)]) -> Option<Self> {
        let count: u64 = runs.iter().map(|run| run.0).sum();
        let jobs: u64 = runs.iter().map(|run| run.1).sum();
        if jobs == 0 {
            return None;
        }
        let share = count as f64 / jobs as f64;
        Some(Self {
            count,
            jobs,
            runs: runs.len(),
            share,
            interval: (runs.len() > 1).then(|| interval(runs, share, jobs as f64)),
        })
    }
}

fn interval(runs: &[(u64, u64)], share: f64, jobs: f64) -> (f64, f64) {
    let count = runs.len() as f64;
    let squares: f64 = (runs.iter())
        .map(|&(with, all)| (with as f64 - share * all as f64).powi(2))
        .sum();
    let variance = count / (count - 1.0) * squares / jobs.powi(2);
    let effective = if variance > 0.0 {
        (share * (1.0 - share) / variance).clamp(1.0, jobs)
    } else {
        count.min(jobs)
    };
    wilson(share, effective, student_quantile(count - 1.0))
}

/// Wilson's interval of a share of so many independent jobs.
fn wilson(share: f64, jobs: f64, quantile: f64) -> (f64, f64) {
    let square = quantile.powi(2);
    let middle = share + square / (2.0 * jobs);
    let half = quantile * (share * (1.0 - share) / jobs + square / (4.0 * jobs.powi(2))).sqrt();
    let end = |at: f64| (at / (1.0 + square / jobs)).clamp(0.0, 1.0);
    // What was seen is possible, whatever was rounded.
    (end(middle - half).min(share), end(middle + half).max(share))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rand_chacha::ChaCha8Rng;
    use rand_chacha::rand_core::{RngCore, SeedableRng};

    use super::*;

    #[test]
    fn wilsons_interval_is_that_of_the_textbook() {
        // 8 of 10, Agresti and Coull (1998): 0.490 to 0.943.
        let (low, high) = wilson(0.8, 10.0, 1.959_964);
        assert!(
            (low - 0.490).abs() < 1e-3 && (high - 0.943).abs() < 1e-3,
            "{low} {high}"
        );
    }

    #[test]
    fn runs_that_are_all_in_time_count_as_a_job_each() {
        let found = Share::of(&[(1000, 1000); 20]).unwrap();
        let (low, high) = found.interval.unwrap();
        assert_eq!((found.share, high), (1.0, 1.0));
        assert!(
            (low - 20.0 / (20.0 + 2.093_f64.powi(2))).abs() < 1e-3,
            "{low}"
        );
        assert_eq!(Share::of(&[(3, 4)]).unwrap().interval, None);
        assert_eq!(Share::of(&[(0, 0)]), None);
    }

    fn uniform(random: &mut ChaCha8Rng) -> f64 {
        (random.next_u64() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// Jobs of a run that all fall under its own probability: `spread` around the true one.
    fn run(random: &mut ChaCha8Rng, truth: f64, spread: f64, jobs: u64) -> (u64, u64) {
        let own = truth + spread * (2.0 * uniform(random) - 1.0);
        let with = (0..jobs).filter(|_| uniform(random) < own).count();
        (with as u64, jobs)
    }

    #[test]
    fn intervals_contain_the_truth_whether_jobs_of_a_run_depend_on_one_another_or_not() {
        const SETS: u64 = 400;
        for (truth, spread, runs, jobs) in [
            (0.5, 0.0, 20, 50),
            (0.5, 0.3, 20, 50),
            (0.9, 0.1, 10, 200),
            (0.98, 0.02, 20, 500),
            (0.999, 0.001, 20, 500),
            (0.1, 0.1, 5, 100),
        ] {
            let covered = (0..SETS)
                .filter(|&seed| {
                    let mut random = ChaCha8Rng::seed_from_u64(seed);
                    let set: Vec<(u64, u64)> = (0..runs)
                        .map(|_| run(&mut random, truth, spread, jobs))
                        .collect();
                    let (low, high) = Share::of(&set).unwrap().interval.unwrap();
                    low <= truth && truth <= high
                })
                .count();
            // 95 %, less three standard errors of 400 sets, less one per cent.
            assert!(
                covered >= 363,
                "{truth} {spread} {runs}: {covered} of {SETS}"
            );
        }
    }

    proptest! {
        #[test]
        fn an_interval_has_its_share_and_is_of_shares(
            runs in prop::collection::vec((0_u64..100, 0_u64..100), 1..30)
        ) {
            let runs: Vec<(u64, u64)> = runs.iter().map(|&(a, b)| (a, a + b)).collect();
            if let Some(found) = Share::of(&runs)
                && let Some((low, high)) = found.interval
            {
                prop_assert!(0.0 <= low && low <= found.share && found.share <= high && high <= 1.0);
            }
        }
    }
}
