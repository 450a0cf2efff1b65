//! What a comparison measured, before any figure is computed.

use crate::{ExitCosts, GuestCounts, Service};
use serde::{Deserialize, Serialize};
use std::fmt;
use steadyvm_load::netrt::{ClientRun, Counters, EndedBy};
use steadyvm_load::netstream::NetStreamRun;

/// One comparison: every method, every round.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct RunData {
    /// Where the loads are received.
    pub service: Service,
    /// Methods in the order they are shown; each is compared with those before it.
    pub methods: Vec<MethodData>,
}

/// One method's rounds.
#[derive(Debug, Clone, PartialEq)]
pub struct MethodData {
    /// The method's name, as the user wrote it.
    pub name: String,
    /// Its rounds in the order of measuring. Rounds of different methods with the same index were
    /// measured next to each other.
    pub rounds: Vec<RoundData>,
}

/// One round of one method.
#[derive(Debug, Clone, PartialEq)]
pub struct RoundData {
    /// NetRT alone.
    pub idle: PhaseData,
    /// NetRT while NetStream runs at full speed.
    pub full: PhaseData,
    /// NetRT while NetStream runs at the rate that is equal for all methods.
    pub equal: PhaseData,
}

/// One phase of one round.
#[derive(Debug, Clone, PartialEq)]
pub struct PhaseData {
    /// What the NetRT client measured.
    pub netrt: ClientRun,
    /// What NetStream carried; `None` in the idle phase.
    pub netstream: Option<NetStreamRun>,
    /// Share of the host's CPU time that was not idle during the phase: 0 to 1, of all CPUs.
    pub host_cpu_busy_fraction: f64,
    /// What the RT guest and its KVM counted; `None` without one.
    pub guest: Option<GuestCounts>,
    /// What a repetition of the phase showed in which the host traced its receive path; `None` if
    /// there was none. Nothing else of the phase is of that repetition.
    pub receive_path: Option<ReceivePathData>,
    /// What the RT guest's exits cost in that repetition; `None` without one, and without a guest.
    pub exit_costs: Option<ExitCosts>,
}

/// The receive path of the host as it traced it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReceivePathData {
    /// From each packet's hard interrupt to the wake-up of its reader, in order of time.
    pub wake_ups_ns: Vec<u64>,
    /// What `steadyvm explain --receive-path --json` printed.
    pub report: String,
}

impl PhaseData {
    /// A phase that is not measured: no samples, and no figure.
    pub fn not_measured() -> Self {
        Self {
            netrt: ClientRun {
                samples: Vec::new(),
                counters: Counters::default(),
                ended_by: EndedBy::Done,
                duration_ns: 0,
            },
            netstream: None,
            host_cpu_busy_fraction: f64::NAN,
            guest: None,
            receive_path: None,
            exit_costs: None,
        }
    }
}

/// The three phases of a round.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Phase {
    /// NetRT alone.
    Idle,
    /// NetStream at full speed.
    Full,
    /// NetStream at one rate for all methods.
    Equal,
}

impl Phase {
    /// All phases in the order they are shown: what the comparison is about first.
    pub const ALL: [Self; 3] = [Self::Full, Self::Equal, Self::Idle];

    /// The phase's key in results.json.
    pub fn key(self) -> &'static str {
        match self {
            Self::Full => "netrt",
            Self::Equal => "netrt_equal",
            Self::Idle => "netrt_idle",
        }
    }

    /// The key of the phase's hard-interrupt-to-wake-up times in results.json.
    pub fn wake_up_key(self) -> &'static str {
        match self {
            Self::Full => "wake_up",
            Self::Equal => "wake_up_equal",
            Self::Idle => "wake_up_idle",
        }
    }

    /// The phase's condition in results.json.
    pub fn cell(self) -> &'static str {
        match self {
            Self::Full => "full",
            Self::Equal => "equal",
            Self::Idle => "idle",
        }
    }

    /// The phase of a condition.
    pub(super) fn of_cell(cell: &str) -> Self {
        let mut phases = Self::ALL.into_iter();
        phases.find(|it| it.cell() == cell).unwrap_or(Self::Full)
    }

    /// The phase in words.
    pub fn title(self) -> &'static str {
        match self {
            Self::Full => "NetStream at full speed",
            Self::Equal => "NetStream at one equal rate",
            Self::Idle => "no NetStream",
        }
    }
}

impl fmt::Display for Phase {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(self.title())
    }
}

impl RoundData {
    /// The data of one phase.
    pub fn phase(&self, phase: Phase) -> &PhaseData {
        match phase {
            Phase::Idle => &self.idle,
            Phase::Full => &self.full,
            Phase::Equal => &self.equal,
        }
    }
}

impl MethodData {
    /// Times from hard interrupt to wake-up of one phase in nanoseconds, round by round; empty
    /// where they were not traced.
    pub fn wake_ups_ns(&self, phase: Phase) -> Vec<&[u64]> {
        let no_times: &[u64] = &[];
        self.rounds
            .iter()
            .map(|round| match &round.phase(phase).receive_path {
                Some(traced) => &traced.wake_ups_ns[..],
                None => no_times,
            })
            .collect()
    }

    /// What NetStream carried in one phase, round by round; `None` where it did not flow.
    pub fn streams(&self, phase: Phase) -> Vec<Option<&NetStreamRun>> {
        let rounds = self.rounds.iter();
        let streams = rounds.map(|round| round.phase(phase).netstream.as_ref());
        streams.collect()
    }

    /// Round trips of one phase in nanoseconds, round by round, in the order of sending.
    pub fn round_trips_ns(&self, phase: Phase) -> Vec<Vec<u64>> {
        self.rounds
            .iter()
            .map(|round| {
                round
                    .phase(phase)
                    .netrt
                    .samples
                    .iter()
                    .map(|it| it.rtt_ns)
                    .collect()
            })
            .collect()
    }
}

impl Service {
    /// The phases that are measured, in the order they are shown.
    pub fn phases(self) -> &'static [Phase] {
        match self {
            Self::Vm | Self::Host | Self::Container => &Phase::ALL,
            Self::Own => &[Phase::Idle],
        }
    }

    /// A phase in words.
    pub fn phase_title(self, phase: Phase) -> &'static str {
        match self {
            Self::Vm | Self::Host | Self::Container => phase.title(),
            Self::Own => "beside the host's own load",
        }
    }
}
