//! The jobs of the high-priority process, whatever comes for the other one: their figures, and their cells.

use super::{Times, milliseconds};
use crate::engine::Figures;
use crate::engine::results::At;
use std::time::Duration;
use steadyvm_load::job::{Done, Punctuality, Ran};
use steadyvm_report::text::ms;

/// Jobs of all rounds under one load.
#[derive(Debug)]
pub(super) struct Jobs {
    /// How punctual they were.
    pub punctuality: Punctuality,
    /// How long a job waited for the CPU while it could have run, in the mean, in microseconds: what
    /// the scheduler did. What interrupts took is not in it.
    waited_mean_us: f64,
}

impl Jobs {
    /// The rounds' jobs together; `None` if no round has enough of them.
    pub fn of<'a>(rounds: impl IntoIterator<Item = &'a Ran>, times: &Times) -> Option<Self> {
        let (runs, waited_ns): (Vec<&[Done]>, Vec<f64>) = rounds
            .into_iter()
            .map(|ran| (&*ran.done, ran.waited_ns as f64))
            .unzip();
        let deadlines = times.deadlines_us.map(Duration::from_micros);
        let punctuality = Punctuality::of_runs(&runs, &deadlines)?;
        Some(Self {
            waited_mean_us: waited_ns.iter().sum::<f64>() / 1e3 / punctuality.jobs as f64,
            punctuality,
        })
    }

    /// Adds their figures.
    pub fn add(&self, figures: &mut Figures, times: &Times) {
        let it = &self.punctuality;
        let n = it.jobs;
        figures.count("n", "jobs", n);
        for (name, us) in [
            ("response_mean", it.response_mean_us),
            ("response_sd", it.response_sd_us),
            ("response_p99", it.response_p99_us),
            ("response_max", it.response_max_us),
            ("jitter_mean", it.jitter_mean_us),
            ("jitter_sd", it.jitter_sd_us),
            ("waited_mean", self.waited_mean_us),
        ] {
            figures.value(name, "us", n, us);
        }
        let missed = it.misses.iter().zip(&it.miss_ratios);
        for (&deadline_us, (&misses, &share)) in times.deadlines_us.iter().zip(missed) {
            figures.count(&misses_of(deadline_us), "jobs", misses);
            figures.value(&missed_share_of(deadline_us), "fraction", n, share);
        }
    }
}

/// The name of the number of jobs that missed a deadline.
pub(super) fn misses_of(deadline_us: u64) -> String {
    format!("missed_{}_ms", milliseconds(deadline_us))
}

/// The name of their share of all jobs.
pub(super) fn missed_share_of(deadline_us: u64) -> String {
    format!("missed_share_{}_ms", milliseconds(deadline_us))
}

/// Headers of [`time_cells`].
pub(super) const TIME_HEADERS: [&str; 6] = ["n", "mean", "SD", "p99", "max", "wait"];

/// How many jobs, and their times in milliseconds.
pub(super) fn time_cells(at: At) -> impl Iterator<Item = String> {
    let times = [
        "response_mean",
        "response_sd",
        "response_p99",
        "response_max",
        "waited_mean",
    ];
    let times = times.map(|name| time_cell(at, name));
    std::iter::once(at.count("n").to_string()).chain(times)
}

/// A time in milliseconds.
pub(super) fn time_cell(at: At, name: &str) -> String {
    at.value(name).map_or_else(|| "-".to_owned(), ms)
}
