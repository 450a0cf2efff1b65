//! What was measured, before any figure is computed.

use super::segments::Segments;
use crate::job::Done;
use serde::{Deserialize, Serialize};

/// The whole run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RunData {
    /// From one job's release to the next, in microseconds.
    pub period_us: u64,
    /// What a job takes on the idle host, in microseconds.
    pub execution_us: u64,
    /// The deadlines, in microseconds after the release.
    pub deadlines_us: Vec<u64>,
    /// In the order shown.
    pub methods: Vec<MethodData>,
}

/// One method's rounds.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct MethodData {
    /// Its name.
    pub name: String,
    /// In the order of measuring.
    pub rounds: Vec<RoundData>,
}

/// One round of one method, in the order of measuring.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RoundData {
    /// Jobs without a stream.
    pub unloaded: JobsData,
    /// The stream without jobs.
    pub before: StreamData,
    /// Jobs next to the stream.
    pub loaded: JobsData,
    /// The stream next to them.
    pub during: StreamData,
    /// The stream, the same connection, when the jobs are done.
    pub after: StreamData,
}

/// A run of jobs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct JobsData {
    /// When each was released and finished.
    pub done: Vec<Done>,
    /// How long all of them waited for the CPU while they could have run.
    pub waited_ns: u64,
    /// CPU time that was not idle, of all CPUs: 0 to 1.
    pub cpu_busy_fraction: f64,
}

/// The stream in one phase.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StreamData {
    /// Payload that the low-priority process received, in Mbit/s (10^6 bit/s): of each second where
    /// there are no jobs, of all the jobs' time where there are.
    pub mbit_per_s: Vec<f64>,
    /// What the sender's TCP did.
    pub segments: Segments,
}
