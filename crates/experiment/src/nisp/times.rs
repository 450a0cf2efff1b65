//! When jobs are released, how long they take, and when they must be done.

use crate::engine::results::Settings;
use std::ops::RangeInclusive;

/// The paper's times over this, if nothing else is asked for: jobs of 48 ms, with 16 ms left until the first
/// deadline. The lab's machine takes up to some milliseconds of a job, which is most of what one of 12 ms has left
/// (docs/design/nisp.md).
pub const SCALE: u32 = 25;
/// Jobs of 120 ms to 6 ms. A shorter one is as long as a tick and what the machine takes at times; with longer ones
/// a run of some hundred jobs at each of some rates takes hours.
pub const SCALES: RangeInclusive<u32> = 10..=200;

/// The paper's, section V: a process that computes for 1.2 s every 3 s, with deadlines of 1.6 and 3 s after the
/// release.
const PAPER: Times = Times {
    period_us: 3_000_000,
    execution_us: 1_200_000,
    deadlines_us: [1_600_000, 3_000_000],
};

/// The times of a process with periodic jobs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Times {
    /// From one job's release to the next, in microseconds.
    pub period_us: u64,
    /// What a job takes where nothing else comes, in microseconds.
    pub execution_us: u64,
    /// In microseconds after the release, in ascending order.
    pub deadlines_us: [u64; 2],
}

impl Times {
    /// The paper's over `scale`. What the lab's machine takes from a job, some milliseconds at worst, does not get
    /// shorter with it, so that it weighs the less the smaller the scale is.
    pub fn scaled(scale: u32) -> Self {
        let scale = u64::from(scale);
        Self {
            period_us: PAPER.period_us / scale,
            execution_us: PAPER.execution_us / scale,
            deadlines_us: PAPER.deadlines_us.map(|deadline_us| deadline_us / scale),
        }
    }

    /// As settings of results.json.
    pub(super) fn settings(&self) -> Settings {
        [
            ("period_us", self.period_us.into()),
            ("execution_us", self.execution_us.into()),
            ("deadlines_us", self.deadlines_us.to_vec().into()),
        ]
        .map(|(key, value)| (key.to_owned(), value))
        .into()
    }

    /// What a job has left until its first deadline, in microseconds.
    pub fn slack_us(&self) -> u64 {
        self.deadlines_us[0] - self.execution_us
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_of_each_scale_has_the_papers_proportions() {
        let times = Times::scaled(SCALE);
        let expected = Times {
            period_us: 120_000,
            execution_us: 48_000,
            deadlines_us: [64_000, 120_000],
        };
        assert_eq!(times, expected);
        for scale in SCALES {
            let times = Times::scaled(scale);
            // To the microsecond that a division leaves.
            let near =
                |us: u64, share: f64| (us as f64 - share * times.period_us as f64).abs() <= 1.0;
            assert!(near(times.execution_us, 0.4), "{scale}: {times:?}");
            assert!(near(times.deadlines_us[0], 1.6 / 3.0), "{scale}: {times:?}");
            assert_eq!(times.deadlines_us[1], times.period_us);
            assert!(near(times.slack_us(), 0.4 / 3.0), "{scale}: {times:?}");
        }
    }
}
