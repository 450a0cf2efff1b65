//! What the tables and plots are made of: a view of results.json (`record.rs`). A figure that does not
//! exist is `None`.

use super::data::{Phase, Service};
use super::guest::GuestResult;
use super::record::Settings;
use crate::engine::results::{Record, ResultsError, from_json, to_json};
use serde::{Deserialize, Serialize};

/// The figures of a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(into = "Record<Settings>", try_from = "Record<Settings>")]
pub struct Results {
    /// Where the loads were received.
    pub service: Service,
    /// One entry a method, in the order asked for.
    pub methods: Vec<MethodResult>,
    /// Figures of each method over the same figure of every method before it.
    pub ratios: Vec<RatioResult>,
    /// How the intervals were made.
    pub bootstrap: BootstrapResult,
    /// What a reader must know to read the figures right: missing rounds, left-out ratios.
    pub notes: Vec<String>,
}

/// Everything about one method.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct MethodResult {
    /// The method's name.
    pub name: String,
    /// NetRT while NetStream runs at full speed.
    pub netrt: LatencyResult,
    /// NetRT while NetStream runs at the equal rate.
    pub netrt_equal: LatencyResult,
    /// NetRT alone.
    pub netrt_idle: LatencyResult,
    /// From the hard interrupt of a packet to the wake-up of its reader, while NetStream runs at
    /// full speed; `None` if the host's receive path was not traced.
    pub wake_up: Option<WakeUpResult>,
    /// The same at the equal rate.
    pub wake_up_equal: Option<WakeUpResult>,
    /// The same without NetStream.
    pub wake_up_idle: Option<WakeUpResult>,
    /// What NetStream carried.
    pub netstream: NetStreamResult,
    /// The host.
    pub host: HostResult,
    /// The RT guest's interrupts and exits while NetStream ran at full speed; `None` without a guest.
    pub guest: Option<GuestResult>,
    /// The same at the equal rate.
    pub guest_equal: Option<GuestResult>,
    /// The same without NetStream.
    pub guest_idle: Option<GuestResult>,
}

impl MethodResult {
    /// The round trips of one phase.
    pub fn latency(&self, phase: Phase) -> &LatencyResult {
        match phase {
            Phase::Full => &self.netrt,
            Phase::Equal => &self.netrt_equal,
            Phase::Idle => &self.netrt_idle,
        }
    }

    /// The same, to be filled in.
    pub(super) fn latency_mut(&mut self, phase: Phase) -> &mut LatencyResult {
        match phase {
            Phase::Full => &mut self.netrt,
            Phase::Equal => &mut self.netrt_equal,
            Phase::Idle => &mut self.netrt_idle,
        }
    }

    /// The times from hard interrupt to wake-up of one phase, if they were traced.
    pub fn wake_up(&self, phase: Phase) -> Option<&WakeUpResult> {
        match phase {
            Phase::Full => self.wake_up.as_ref(),
            Phase::Equal => self.wake_up_equal.as_ref(),
            Phase::Idle => self.wake_up_idle.as_ref(),
        }
    }
}

/// Times from hard interrupt to wake-up of one phase, all rounds pooled, in microseconds; `None`
/// without packets. Traced in a repetition of the phase, so they hold the cost of tracing.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct WakeUpResult {
    /// Packets, warm-up included.
    pub n: u64,
    /// Mean.
    pub mean_us: Option<f64>,
    /// Sample standard deviation.
    pub sd_us: Option<f64>,
    /// Median.
    pub p50_us: Option<f64>,
    /// 90th percentile.
    pub p90_us: Option<f64>,
    /// 99th percentile.
    pub p99_us: Option<f64>,
    /// 99.9th percentile.
    pub p999_us: Option<f64>,
    /// Largest.
    pub max_us: Option<f64>,
}

/// Round trips of one phase, all rounds pooled; times in microseconds, `None` without samples.
/// Percentiles are nearest-rank; all figures are exact, of every sample.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct LatencyResult {
    /// Counted round trips.
    pub n: u64,
    /// Counted requests without a reply in time.
    pub lost: u64,
    /// Mean.
    pub mean_us: Option<f64>,
    /// Sample standard deviation.
    pub sd_us: Option<f64>,
    /// Smallest.
    pub min_us: Option<f64>,
    /// Median.
    pub p50_us: Option<f64>,
    /// 90th percentile.
    pub p90_us: Option<f64>,
    /// 99th percentile.
    pub p99_us: Option<f64>,
    /// 99.9th percentile.
    pub p999_us: Option<f64>,
    /// Largest.
    pub max_us: Option<f64>,
    /// Of the lost, those whose reply came after the timeout.
    pub late: u64,
    /// Requests whose time was not up when the run was stopped.
    pub undecided: u64,
    /// Replies overtaken by a later request's.
    pub reordered: u64,
    /// Second replies to one request.
    pub duplicates: u64,
    /// Datagrams that were no reply.
    pub malformed: u64,
    /// Round trips timed by the kernel's receive timestamps.
    pub timed_by_kernel: u64,
    /// Round trips timed by the monotonic clock instead.
    pub timed_by_monotonic: u64,
    /// Requests the client sent more than 1 ms after their scheduled time.
    pub sent_over_1_ms_late: u64,
    /// The same, round by round.
    pub rounds: Vec<LatencyRound>,
    /// The distribution, for plots: fractions ascending, the last one 1 (the maximum).
    pub distribution: Vec<DistributionPoint>,
}

/// Round trips of one phase of one round.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct LatencyRound {
    /// Counted round trips.
    pub n: u64,
    /// Counted requests without a reply in time.
    pub lost: u64,
    /// Mean in microseconds.
    pub mean_us: Option<f64>,
    /// Sample standard deviation in microseconds.
    pub sd_us: Option<f64>,
    /// Median in microseconds.
    pub p50_us: Option<f64>,
    /// 99th percentile in microseconds.
    pub p99_us: Option<f64>,
    /// Largest in microseconds.
    pub max_us: Option<f64>,
    /// How long the NetRT client ran, in seconds.
    pub duration_s: f64,
}

/// One point of a distribution: `fraction` of the samples are not above `us`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct DistributionPoint {
    /// Share of the samples, from 0 to 1.
    pub fraction: f64,
    /// The nearest-rank percentile, in microseconds.
    pub us: f64,
}

/// What NetStream carried: means over rounds.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct NetStreamResult {
    /// Received at full speed, in Mbit/s.
    pub mbit_per_s: Option<f64>,
    /// Received at the equal rate, in Mbit/s.
    pub equal_mbit_per_s: Option<f64>,
    /// Retransmitted segments at full speed, all rounds together.
    pub retransmits: Option<u64>,
    /// Received at full speed, round by round, in Mbit/s.
    pub rounds_mbit_per_s: Vec<f64>,
    /// Received at the equal rate, round by round, in Mbit/s.
    pub rounds_equal_mbit_per_s: Vec<f64>,
}

/// The host: means over rounds. Fractions are of all CPUs' time, 0 to 1.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct HostResult {
    /// CPU time not idle while NetStream ran at full speed.
    pub cpu_busy_fraction: Option<f64>,
    /// CPU time not idle while NetStream ran at the equal rate.
    pub equal_cpu_busy_fraction: Option<f64>,
    /// CPU time not idle without NetStream.
    pub idle_cpu_busy_fraction: Option<f64>,
}

/// One figure of one method over the same figure of another.
#[derive(Debug, Clone, PartialEq)]
pub struct RatioResult {
    /// The method above the line.
    pub of: String,
    /// The method below the line.
    pub to: String,
    /// The figure: its path in a method's entry, like `netrt.mean_us`.
    pub figure: String,
    /// Median of the bootstrap distribution of the ratio.
    pub median: f64,
    /// Low end of the 95 % confidence interval; `None` if one value is all there is.
    pub low: Option<f64>,
    /// High end of the 95 % confidence interval.
    pub high: Option<f64>,
    /// The ratio of the two figures as they stand in `methods`, if all rounds are paired.
    pub estimate: Option<f64>,
    /// Rounds it rests on; with 1, the interval covers variation within that round only.
    pub rounds: u64,
}

impl RatioResult {
    /// Whether the interval lies on one side of 1: the methods differ.
    pub fn excludes_one(&self) -> bool {
        self.low.is_some_and(|low| low > 1.0) || self.high.is_some_and(|high| high < 1.0)
    }
}

/// How the intervals were made.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct BootstrapResult {
    /// Confidence level.
    pub confidence: f64,
    /// Replicates.
    pub replicates: u64,
    /// Seed of the draws.
    pub seed: u64,
    /// Rounds that every method has, which are compared.
    pub paired_rounds: u64,
}

impl Results {
    /// Reads results.json.
    ///
    /// # Errors
    /// Text that is not results, of another version, or of another experiment.
    pub fn from_json(text: &str) -> Result<Self, ResultsError> {
        from_json(text)
    }

    /// results.json as text, with a final newline.
    ///
    /// # Errors
    /// None that is known: every field has a JSON form.
    pub fn to_json(&self) -> Result<String, ResultsError> {
        to_json(self)
    }
}
