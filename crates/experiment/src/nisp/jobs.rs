//! The jobs of the high-priority process, whatever comes for the other one.

use serde::{Deserialize, Serialize};
use std::time::Duration;
use steadyvm_load::job::{Done, Punctuality, Ran};

/// Jobs of all rounds under one load.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
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
}

/// Deadlines as [`Punctuality`] takes them.
pub(super) fn durations(deadlines_us: &[u64]) -> Vec<Duration> {
    let deadlines = deadlines_us.iter().copied();
    deadlines.map(Duration::from_micros).collect()
}
