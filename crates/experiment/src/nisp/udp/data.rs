//! What was measured, before any figure is computed.

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
    /// The mean rates of the source, in packets a second, in ascending order; the first is 0.
    pub asked_packets_per_s: Vec<f64>,
    /// The rate of the source at which the best method's peak was found, in packets a second: that of
    /// [`RoundData::alone_packets_per_s`].
    pub alone_asked_packets_per_s: f64,
    /// In the order shown.
    pub methods: Vec<MethodData>,
}

/// One method's rounds.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct MethodData {
    /// Its name.
    pub name: String,
    /// The most packets a second that it received at any rate, next to jobs of no length: looked for
    /// once, before the rounds.
    pub peak_packets_per_s: f64,
    /// In the order of measuring. Rounds of different methods with the same index were measured next to
    /// each other.
    pub rounds: Vec<RoundData>,
}

/// One round of one method.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct RoundData {
    /// An entry for each of [`RunData::asked_packets_per_s`].
    pub rates: Vec<RateData>,
    /// What the low-priority process received, in packets a second, next to jobs of no length.
    pub alone_packets_per_s: f64,
}

/// One rate in one round.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RateData {
    /// The jobs.
    pub ran: Ran,
    /// What the source sent, in packets a second.
    pub sent_packets_per_s: f64,
    /// What the low-priority process received, in packets a second.
    pub received_packets_per_s: f64,
    /// CPU time that was not idle, of all CPUs: 0 to 1.
    pub cpu_busy_fraction: f64,
}
