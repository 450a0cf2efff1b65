//! A periodic job that needs the CPU, and how punctually it is done.
//!
//! As in section V of NISP (Lee, Kim, Shin 2015): jobs are released a period apart; a job that is
//! not done by then delays the next one's release to its own end. With a backlog it delays none.
//! [`workload`](crate::workload) runs it.

use serde::{Deserialize, Serialize};
use std::time::Duration;
use steadyvm_stats::Summary;

/// A job that was done; times in nanoseconds after the start of the run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Done {
    /// When it was released.
    pub released_ns: u64,
    /// When it was finished.
    pub finished_ns: u64,
}

impl Done {
    /// From its release to its finish.
    pub fn response_ns(&self) -> u64 {
        self.finished_ns.saturating_sub(self.released_ns)
    }
}

/// A run of fewer jobs is not judged: jitter is of two times between finishes at least.
pub const FEWEST_JOBS: usize = 3;

/// What of a run is judged: its jobs, or none if they are too few.
pub fn counted(done: &[Done]) -> &[Done] {
    if done.len() < FEWEST_JOBS { &[] } else { done }
}

/// The times between the finishes of each job and the next one of a run, in nanoseconds: what jitter
/// is of.
pub fn between_finishes_ns(done: &[Done]) -> Vec<u64> {
    let pairs = done.windows(2);
    pairs
        .map(|pair| pair[1].finished_ns.saturating_sub(pair[0].finished_ns))
        .collect()
}

/// What the process that runs the jobs answers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ran {
    /// The jobs.
    pub done: Vec<Done>,
    /// How long it waited for a CPU while it could have run, in nanoseconds.
    pub waited_ns: u64,
}

impl Ran {
    /// The median of the jobs' response times (of an even number, the upper one); `None` without jobs.
    pub fn median_response_ns(&self) -> Option<u64> {
        let mut responses: Vec<u64> = self.done.iter().map(Done::response_ns).collect();
        responses.sort_unstable();
        responses.get(responses.len() / 2).copied()
    }
}

/// What the process that runs the jobs is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Task {
    /// From one release to the next.
    pub period_us: u64,
    /// Its length, in units of [`work`](crate::computation::work).
    pub work: u64,
    /// How many jobs.
    pub jobs: u64,
    /// Whether releases stay a period apart whatever is late, as in RT-Xen's experiments: jobs queue up.
    #[serde(default)]
    pub backlog: bool,
}

/// How punctually jobs were done; times in microseconds.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Punctuality {
    /// Jobs.
    pub jobs: u64,
    /// Mean of the response times, from release to finish.
    pub response_mean_us: f64,
    /// Their sample standard deviation.
    pub response_sd_us: f64,
    /// Their 99th percentile.
    pub response_p99_us: f64,
    /// Their largest.
    pub response_max_us: f64,
    /// For each deadline, the jobs whose response took longer.
    #[serde(default)]
    pub misses: Vec<u64>,
    /// For each deadline, their share of all jobs: 0 to 1.
    pub miss_ratios: Vec<f64>,
    /// Mean of the time between two consecutive finishes.
    pub jitter_mean_us: f64,
    /// Its sample standard deviation.
    pub jitter_sd_us: f64,
}

impl Punctuality {
    /// Judges the jobs of one run against deadlines; `None` for fewer than [`FEWEST_JOBS`].
    pub fn of(done: &[Done], deadlines: &[Duration]) -> Option<Self> {
        Self::of_runs(&[done], deadlines)
    }

    /// Judges the jobs of several runs together. From one run's last job to the next one's first
    /// there is no jitter: a run has [`FEWEST_JOBS`] at least, or it counts for nothing.
    pub fn of_runs(runs: &[&[Done]], deadlines: &[Duration]) -> Option<Self> {
        let runs = || runs.iter().map(|run| counted(run));
        let responses: Vec<u64> = runs().flatten().map(Done::response_ns).collect();
        let between: Vec<u64> = runs().flat_map(between_finishes_ns).collect();
        let (response, jitter) = (Summary::of(&responses)?, Summary::of(&between)?);
        let late_for = |deadline: &Duration| {
            let late = |response: &&u64| u128::from(**response) > deadline.as_nanos();
            responses.iter().filter(late).count() as u64
        };
        let misses: Vec<u64> = deadlines.iter().map(late_for).collect();
        let miss_ratio = |&misses: &u64| misses as f64 / response.n as f64;
        Some(Self {
            jobs: response.n,
            response_mean_us: response.mean_ns / 1e3,
            response_sd_us: response.sd_ns? / 1e3,
            response_p99_us: response.p99_ns as f64 / 1e3,
            response_max_us: response.max_ns as f64 / 1e3,
            miss_ratios: misses.iter().map(miss_ratio).collect(),
            misses,
            jitter_mean_us: jitter.mean_ns / 1e3,
            jitter_sd_us: jitter.sd_ns? / 1e3,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn figures_are_those_of_the_paper() {
        let ms = |number: u64| number * 1_000_000;
        // Released at 0, 30, 60; the second takes until 65, so the third is released then.
        let done = [(0, 12), (30, 65), (65, 78)].map(|(released, finished)| Done {
            released_ns: ms(released),
            finished_ns: ms(finished),
        });
        let deadlines = [Duration::from_millis(16), Duration::from_millis(35)];
        let found = Punctuality::of(&done, &deadlines).unwrap();
        assert!((found.response_mean_us - 20_000.0).abs() < 1e-9);
        assert!((found.response_max_us - 35_000.0).abs() < 1e-9);
        // Exactly at its deadline is in time.
        assert_eq!(found.miss_ratios, [1.0 / 3.0, 0.0]);
        assert_eq!(found.misses, [1, 0]);
        assert!((found.jitter_mean_us - 33_000.0).abs() < 1e-9);
        assert!((found.jitter_sd_us - 20_000.0 * 2_f64.sqrt()).abs() < 1e-6);
        assert_eq!(Punctuality::of(&done[..2], &deadlines), None);
    }

    #[test]
    fn runs_are_judged_together_without_the_time_between_them() {
        let run = |begun_ns: u64, jobs: u64| -> Vec<Done> {
            let done = |number| Done {
                released_ns: begun_ns + number * 30_000_000,
                finished_ns: begun_ns + number * 30_000_000 + 12_000_000,
            };
            (0..jobs).map(done).collect()
        };
        let (first, second, short) = (run(0, 4), run(0, 3), run(99, 2));
        let runs = [&first[..], &second, &short];
        let found = Punctuality::of_runs(&runs, &[Duration::from_millis(16)]).unwrap();
        assert_eq!(found.jobs, 7);
        assert!((found.response_mean_us - 12_000.0).abs() < 1e-9);
        assert!((found.jitter_mean_us - 30_000.0).abs() < 1e-9, "{found:?}");
        assert!(found.jitter_sd_us.abs() < 1e-9, "{found:?}");
        assert_eq!(Punctuality::of_runs(&[&short], &[]), None);
    }

    #[test]
    fn the_median_is_of_responses() {
        let ran = |responses: &[u64]| Ran {
            done: responses
                .iter()
                .map(|response| Done {
                    released_ns: 5,
                    finished_ns: 5 + response,
                })
                .collect(),
            waited_ns: 0,
        };
        assert_eq!(ran(&[30, 10, 20]).median_response_ns(), Some(20));
        assert_eq!(ran(&[30, 10]).median_response_ns(), Some(30));
        assert_eq!(ran(&[]).median_response_ns(), None);
    }

    proptest! {
        #[test]
        fn any_jobs_are_judged(
            jobs in prop::collection::vec((any::<u64>(), any::<u64>()), 3..20),
            deadline_ns in any::<u64>(),
        ) {
            let done: Vec<Done> = jobs.into_iter()
                .map(|(released_ns, finished_ns)| Done { released_ns, finished_ns })
                .collect();
            let found = Punctuality::of(&done, &[Duration::from_nanos(deadline_ns)]).unwrap();
            prop_assert!((0.0..=1.0).contains(&found.miss_ratios[0]));
            prop_assert!(found.response_p99_us <= found.response_max_us);
        }
    }
}
