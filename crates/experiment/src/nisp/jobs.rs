//! The jobs of the high-priority process, whatever comes for the other one.

use super::milliseconds;
use crate::engine::Form;
use std::time::Duration;
use steadyvm_load::job::{Done, Punctuality, Ran};

/// Jobs of all rounds under one load.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct JobsResult {
    /// How punctual they were.
    pub punctuality: Punctuality,
    /// How long a job waited for the CPU while it could have run, in the mean, in microseconds: what
    /// the scheduler did. What interrupts took is not in it.
    pub waited_mean_us: f64,
}

impl JobsResult {
    /// The rounds' jobs together; `None` if no round has enough of them.
    pub(super) fn of<'a>(
        rounds: impl IntoIterator<Item = &'a Ran>,
        deadlines: &[Duration],
    ) -> Option<Self> {
        let (runs, waited_ns): (Vec<&[Done]>, Vec<f64>) = rounds
            .into_iter()
            .map(|ran| (&*ran.done, ran.waited_ns as f64))
            .unzip();
        let punctuality = Punctuality::of_runs(&runs, deadlines)?;
        Some(Self {
            waited_mean_us: waited_ns.iter().sum::<f64>() / 1e3 / punctuality.jobs as f64,
            punctuality,
        })
    }

    /// Its figures in results.json.
    pub(super) fn describe(&mut self, form: &mut Form, deadlines_us: &[u64]) {
        let it = &mut self.punctuality;
        form.count("n", "jobs", &mut it.jobs);
        let n = it.jobs;
        form.number("response_mean", "us", n, &mut it.response_mean_us);
        form.number("response_sd", "us", n, &mut it.response_sd_us);
        form.number("response_p99", "us", n, &mut it.response_p99_us);
        form.number("response_max", "us", n, &mut it.response_max_us);
        form.number("jitter_mean", "us", n, &mut it.jitter_mean_us);
        form.number("jitter_sd", "us", n, &mut it.jitter_sd_us);
        form.number("waited_mean", "us", n, &mut self.waited_mean_us);
        it.misses.resize(deadlines_us.len(), 0);
        it.miss_ratios.resize(deadlines_us.len(), 0.0);
        let missed = it.misses.iter_mut().zip(&mut it.miss_ratios);
        for (&deadline_us, (misses, ratio)) in deadlines_us.iter().zip(missed) {
            let deadline = milliseconds(deadline_us);
            form.count(&format!("missed_{deadline}_ms"), "jobs", misses);
            let share = format!("missed_share_{deadline}_ms");
            form.number(&share, "fraction", n, ratio);
        }
    }
}

/// Deadlines as [`Punctuality`] takes them.
pub(super) fn durations(deadlines_us: &[u64]) -> Vec<Duration> {
    let deadlines = deadlines_us.iter().copied();
    deadlines.map(Duration::from_micros).collect()
}
