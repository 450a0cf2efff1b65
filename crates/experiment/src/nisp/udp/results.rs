//! What the tables and plots are made of: a view of results.json (`record.rs`).

use super::record::Settings;
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
    /// The highest of the methods' peaks, in packets a second: the last rate.
    pub peak_packets_per_s: f64,
    /// The rate of the source at which that was found, in packets a second.
    pub alone_asked_packets_per_s: f64,
    /// Rounds; with one, intervals cover variation within it only.
    pub rounds: u64,
    /// One entry a method, in the order asked for.
    pub methods: Vec<MethodResult>,
    /// What a reader must know.
    pub notes: Vec<String>,
}

/// One method at every rate.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct MethodResult {
    /// The method's name.
    pub name: String,
    /// The most packets a second that it received at any rate, next to jobs of no length: looked for
    /// once.
    pub peak_packets_per_s: f64,
    /// What it received at [`Results::alone_asked_packets_per_s`], next to jobs of no length: the mean of
    /// the rounds.
    pub alone_packets_per_s: f64,
    /// What it so received in each round.
    pub rounds_alone_packets_per_s: Vec<f64>,
    /// That mean over the first method's.
    pub alone_to_first: Option<Ratio>,
    /// The rates in ascending order, the first without any packet.
    pub points: Vec<Point>,
}

/// One method at one rate, all rounds together.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Point {
    /// The mean rate of the source, in packets a second.
    pub asked_packets_per_s: f64,
    /// What it sent: the mean of the rounds.
    pub sent_packets_per_s: f64,
    /// What the low-priority process received: the mean of the rounds.
    pub received_packets_per_s: f64,
    /// What it received in each round.
    pub rounds_received_packets_per_s: Vec<f64>,
    /// That mean over the first method's at the same rate.
    pub received_to_first: Option<Ratio>,
    /// CPU time that was not idle, of all CPUs: 0 to 1, the mean of the rounds.
    pub cpu_busy_fraction: f64,
    /// The high-priority process's jobs.
    pub jobs: JobsResult,
    /// The mean of their responses over that without packets.
    pub response_mean_to_unloaded: Option<Ratio>,
    /// Their jitter's standard deviation over that without packets.
    pub jitter_sd_to_unloaded: Option<Ratio>,
}
