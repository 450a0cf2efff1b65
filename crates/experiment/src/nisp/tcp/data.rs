//! What was measured, before any figure is computed.

use super::segments::Segments;
use serde::{Deserialize, Serialize};
use steadyvm_load::job::Ran;

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
    pub unloaded: Ran,
    /// The stream without jobs.
    pub before: StreamData,
    /// Jobs next to the stream.
    pub loaded: Ran,
    /// The stream next to them.
    pub during: StreamData,
    /// The stream, the same connection, when the jobs are done.
    pub after: StreamData,
}

/// The stream in one phase.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StreamData {
    /// Payload that the low-priority process received, in Mbit/s (10^6 bit/s): of each second where
    /// there are no jobs, of all the jobs' time where there are.
    pub mbit_per_s: Vec<f64>,
    /// How long each of these was, in seconds: a receiver that answers late makes them longer.
    pub durations_s: Vec<f64>,
    /// What the sender's TCP did.
    pub segments: Segments,
}
