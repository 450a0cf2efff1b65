//! How the thread of a workload is scheduled. Said here, set by whoever runs it: this crate changes no thread.

use super::WorkloadError;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// A scheduling policy as text: `normal`, `fifo:PRIORITY`, `deadline:RUNTIME/DEADLINE/PERIOD` in microseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub enum Policy {
    /// `SCHED_OTHER`.
    Normal,
    /// `SCHED_FIFO` with a priority of 1 to 99.
    Fifo(u32),
    /// `SCHED_DEADLINE`.
    Deadline {
        /// CPU time in every period.
        runtime_us: u64,
        /// When that time is there at the latest.
        deadline_us: u64,
        /// The period.
        period_us: u64,
    },
}

impl fmt::Display for Policy {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Normal => formatter.write_str("normal"),
            Self::Fifo(priority) => write!(formatter, "fifo:{priority}"),
            Self::Deadline {
                runtime_us,
                deadline_us,
                period_us,
            } => write!(formatter, "deadline:{runtime_us}/{deadline_us}/{period_us}"),
        }
    }
}

impl FromStr for Policy {
    type Err = WorkloadError;

    fn from_str(text: &str) -> Result<Self, WorkloadError> {
        let wrong = || WorkloadError::Policy(text.to_owned());
        if text == "normal" {
            return Ok(Self::Normal);
        }
        let (name, values) = text.split_once(':').ok_or_else(wrong)?;
        let values: Vec<u64> = values
            .split('/')
            .map(|value| value.parse().map_err(|_| wrong()))
            .collect::<Result<_, _>>()?;
        match (name, values.as_slice()) {
            ("fifo", &[priority @ 1..=99]) => Ok(Self::Fifo(priority as u32)),
            ("deadline", &[runtime_us, deadline_us, period_us])
                if 0 < runtime_us && runtime_us <= deadline_us && deadline_us <= period_us =>
            {
                Ok(Self::Deadline {
                    runtime_us,
                    deadline_us,
                    period_us,
                })
            }
            _ => Err(wrong()),
        }
    }
}

impl From<Policy> for String {
    fn from(policy: Policy) -> Self {
        policy.to_string()
    }
}

impl TryFrom<String> for Policy {
    type Error = WorkloadError;

    fn try_from(text: String) -> Result<Self, WorkloadError> {
        text.parse()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn policies_are_read_as_they_are_written_and_others_are_refused_with_what_to_write() {
        let deadline = Policy::Deadline {
            runtime_us: 2000,
            deadline_us: 5000,
            period_us: 10_000,
        };
        for policy in [Policy::Normal, Policy::Fifo(1), Policy::Fifo(99), deadline] {
            assert_eq!(policy.to_string().parse::<Policy>().unwrap(), policy);
        }
        for text in [
            "",
            "fifo",
            "fifo:0",
            "fifo:100",
            "fifo:1/2",
            "FIFO:1",
            "deadline:1/2",
            "deadline:3/2/4",
            "deadline:1/3/2",
            "deadline:0/1/1",
            "deadline:a/b/c",
            "rr:1",
        ] {
            let error = text.parse::<Policy>().unwrap_err().to_string();
            assert!(error.contains("fifo:PRIORITY"), "{text}: {error}");
        }
    }

    proptest! {
        #[test]
        fn no_text_panics(text in "(normal|fifo|deadline)?:?[0-9/]{0,24}") {
            let _ = text.parse::<Policy>();
        }
    }
}
