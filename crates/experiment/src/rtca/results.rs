//! What the tables and plots are made of: a view of results.json (`record.rs`).

use super::data::{Endpoints, Interference};
use super::record::Settings;
use crate::engine::results::Record;
use serde::{Deserialize, Serialize};
use steadyvm_stats::bootstrap::Ratio;

/// The figures of a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(into = "Record<Settings>", try_from = "Record<Settings>")]
pub struct Results {
    /// What the packets went between.
    pub endpoints: Endpoints,
    /// Rounds; with one, intervals cover variation within it only.
    pub rounds: u64,
    /// One entry a method and batch, in the order asked for.
    pub configurations: Vec<ConfigurationResult>,
    /// What a reader must know.
    pub notes: Vec<String>,
}

/// One method with one batch.
#[derive(Debug, Clone, PartialEq)]
pub struct ConfigurationResult {
    /// Its name, such as `rt-poll-list:1`.
    pub name: String,
    /// An entry for each level of interference, in ascending order.
    pub levels: Vec<LevelResult>,
}

/// One configuration at one level of interference, all rounds pooled. Percentiles are nearest-rank.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct LevelResult {
    /// The level.
    pub interference: Interference,
    /// Counted round trips.
    pub n: u64,
    /// Requests without a reply in time.
    pub lost: u64,
    /// Median of the round trips, in microseconds.
    pub median_us: Option<f64>,
    /// Their 75th percentile.
    pub p75_us: Option<f64>,
    /// Their 95th percentile.
    pub p95_us: Option<f64>,
    /// The longest.
    pub max_us: Option<f64>,
    /// The median over that at Base.
    pub median_to_base: Option<Ratio>,
    /// The 95th percentile over that at Base.
    pub p95_to_base: Option<Ratio>,
    /// What the stream between the two carried, in Mbit/s: mean over rounds and their seconds.
    pub mbit_per_s: Option<f64>,
    /// That over what it carried at Base.
    pub mbit_per_s_to_base: Option<Ratio>,
    /// While round trips were measured.
    pub round_trips_cost: CostResult,
    /// While the stream flowed.
    pub stream_cost: CostResult,
}

/// What others had: means over rounds.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct CostResult {
    /// The host's CPU time that was not idle, of all CPUs: 0 to 1.
    pub cpu_busy_fraction: Option<f64>,
    /// Packets a second that the low-priority endpoints got from one another.
    pub others_packets_per_s: Option<f64>,
    /// That over the first configuration's at the same level.
    pub others_to_first: Option<Ratio>,
}
