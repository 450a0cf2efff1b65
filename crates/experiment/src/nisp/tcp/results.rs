//! What the tables and plots are made of: a view of results.json (`record.rs`).

use super::record::Settings;
use super::segments::Segments;
use crate::engine::results::Record;
use crate::nisp::JobsResult;
use serde::{Deserialize, Serialize};
use steadyvm_stats::bootstrap::Ratio;

/// The figures of a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(into = "Record<Settings>", try_from = "Record<Settings>")]
pub struct Results {
    /// From one job's release to the next, in microseconds.
    pub period_us: u64,
    /// What a job takes on the idle host, in microseconds.
    pub execution_us: u64,
    /// The deadlines, in microseconds after the release.
    pub deadlines_us: Vec<u64>,
    /// Rounds; with one, intervals cover variation within it only.
    pub rounds: u64,
    /// One entry a method, in the order asked for.
    pub methods: Vec<MethodResult>,
    /// What a reader must know.
    pub notes: Vec<String>,
}

/// One method, all rounds together.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct MethodResult {
    /// Its name.
    pub name: String,
    /// Jobs without a stream.
    pub unloaded: JobsResult,
    /// Jobs next to the stream.
    pub loaded: JobsResult,
    /// The jitter's standard deviation next to the stream over that without.
    pub jitter_sd_to_unloaded: Option<f64>,
    /// The stream without jobs: what the others are compared with.
    pub before: StreamResult,
    /// The stream next to the jobs.
    pub during: StreamResult,
    /// The stream when the jobs are done.
    pub after: StreamResult,
    /// Throughput next to the jobs over that before them.
    pub during_to_before: Option<Ratio>,
    /// Throughput after the jobs over that before them.
    pub after_to_before: Option<Ratio>,
    /// What the first second after the jobs carried, in Mbit/s.
    pub first_second_mbit_per_s: Option<f64>,
    /// That over the throughput before the jobs.
    pub first_second_to_before: Option<Ratio>,
}

/// The stream in one phase of all rounds.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct StreamResult {
    /// Payload that was received, in Mbit/s: mean over rounds and their parts.
    pub mbit_per_s: Option<f64>,
    /// The mean of each round.
    pub rounds_mbit_per_s: Vec<f64>,
    /// What the sender's TCP did, over all rounds.
    pub segments: Segments,
    /// Segments sent again over all segments: 0 to 1.
    pub retransmitted_fraction: Option<f64>,
}
