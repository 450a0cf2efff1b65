//! The names of a comparison's record, and how tables and plots ask it: a row per method, a cell per phase.

use super::data::Phase;
use crate::Service;
use serde::{Deserialize, Serialize};
use steadyvm_report::results::{Figure, Record};
use steadyvm_stats::bootstrap::Ratio;

/// The experiment's name.
pub const NAME: &str = "compare";
/// The setting that says where the loads were received.
pub(super) const SERVICE: &str = "service";
/// The setting that says how the intervals were made.
pub(super) const BOOTSTRAP: &str = "bootstrap";

/// Figures beside those of round trips: what `NetStream` carried, and how busy the host was.
pub const THROUGHPUT: &str = "netstream.throughput";
/// CPU time that was not idle, of all CPUs: 0 to 1, the mean of the rounds.
pub const BUSY: &str = "host.cpu_busy";
/// What the distribution is of.
pub(super) const ROUND_TRIP: &str = "round_trip";
/// Packets whose way from the hard interrupt to the reader's wake-up was traced.
pub(super) const TRACED: &str = "wake_up.n";

/// How the intervals were made.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Intervals {
    /// Confidence level.
    pub confidence: f64,
    /// Replicates.
    pub replicates: u64,
    /// Seed of the draws.
    pub seed: u64,
    /// Rounds that every method has, which are compared.
    pub paired_rounds: u64,
}

impl Intervals {
    /// Those of a record.
    pub fn of(record: &Record) -> Self {
        record.setting(BOOTSTRAP).unwrap_or_default()
    }
}

/// What every method has in every phase.
pub fn required(_phase: &str) -> &'static [&'static str] {
    &[
        "n",
        "lost",
        "mean",
        "sd",
        "min",
        "p50",
        "p90",
        "p99",
        "p99.9",
        "max",
        "late",
        "undecided",
        "reordered",
        "duplicates",
        "malformed",
        "timed_by_kernel",
        "timed_by_monotonic",
        "sent_over_1_ms_late",
        "duration",
        BUSY,
    ]
}

/// Where the loads of a record were received; files that do not say it are of VMs.
pub fn service_of(record: &Record) -> Service {
    record.setting(SERVICE).unwrap_or_default()
}

/// The ratios of a record: what is above the line, what below, and the ratio.
pub(super) fn ratios(record: &Record) -> impl Iterator<Item = (&Figure, &str, Ratio)> {
    let figures = record.figures.iter();
    figures.filter_map(|it| Some((it, &*it.over.as_ref()?.row, it.ratio()?)))
}

/// The pairs of methods that have ratios, in the order shown.
pub(super) fn pairs(record: &Record) -> Vec<(&str, &str)> {
    let mut pairs: Vec<(&str, &str)> = Vec::new();
    for (figure, to, _) in ratios(record) {
        if !pairs.contains(&(&figure.row, to)) {
            pairs.push((&figure.row, to));
        }
    }
    pairs
}

/// One figure of one method over another's.
pub fn ratio_of(record: &Record, pair: (&str, &str), phase: Phase, name: &str) -> Option<Ratio> {
    let wanted = (pair.0, pair.1, phase.cell(), name);
    let is_it =
        |(it, to, _): &(&Figure, &str, Ratio)| (&*it.row, *to, &*it.cell, &*it.name) == wanted;
    ratios(record).find(is_it).map(|(_, _, ratio)| ratio)
}

/// Whether the interval lies on one side of 1: the methods differ.
pub fn excludes_one(ratio: &Ratio) -> bool {
    ratio.low.is_some_and(|low| low > 1.0) || ratio.high.is_some_and(|high| high < 1.0)
}
