//! The words of the input.

use serde::{Deserialize, Serialize};

use crate::{
    host::{HostScheduler, VcpuServer},
    interface::{GuestScheduler, InterfaceKind},
};

/// A guest's scheduler.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SchedulerName {
    /// Deadline-monotonic fixed priorities.
    Dm,
    /// EDF.
    Edf,
    /// Global EDF.
    Gedf,
    /// Partitioned EDF.
    Pedf,
}

impl SchedulerName {
    /// The word itself.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Dm => "dm",
            Self::Edf => "edf",
            Self::Gedf => "gedf",
            Self::Pedf => "pedf",
        }
    }
}

impl From<SchedulerName> for GuestScheduler {
    fn from(name: SchedulerName) -> Self {
        match name {
            SchedulerName::Dm => Self::DeadlineMonotonic,
            SchedulerName::Edf => Self::EarliestDeadline,
            SchedulerName::Gedf => Self::GlobalEarliestDeadline,
            SchedulerName::Pedf => Self::PartitionedEarliestDeadline,
        }
    }
}

/// A VM's interface.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum InterfaceName {
    /// Periodic resource model.
    Prm,
    /// Multiprocessor periodic resource model.
    Mpr,
    /// Deterministic multiprocessor periodic resource model.
    Dmpr,
    /// A reservation that begins when the VCPU wakes, for a VM with one task.
    Reservation,
    /// The cheaper of `reservation` (where there is one task) and `prm`.
    Best,
}

impl InterfaceName {
    /// The word itself.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Prm => "prm",
            Self::Mpr => "mpr",
            Self::Dmpr => "dmpr",
            Self::Reservation => "reservation",
            Self::Best => "best",
        }
    }
}

impl From<InterfaceName> for InterfaceKind {
    fn from(name: InterfaceName) -> Self {
        match name {
            InterfaceName::Prm | InterfaceName::Reservation | InterfaceName::Best => {
                Self::PeriodicResource
            }
            InterfaceName::Mpr => Self::Multiprocessor,
            InterfaceName::Dmpr => Self::DeterministicMultiprocessor,
        }
    }
}

/// A host's scheduler.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum HostName {
    /// Partitioned EDF.
    Pedf,
    /// Global EDF.
    Gedf,
    /// Partitioned deadline-monotonic.
    Pdm,
    /// Global deadline-monotonic.
    Gdm,
}

impl From<HostName> for HostScheduler {
    fn from(name: HostName) -> Self {
        match name {
            HostName::Pedf => Self::PartitionedEarliestDeadline,
            HostName::Gedf => Self::GlobalEarliestDeadline,
            HostName::Pdm => Self::PartitionedDeadlineMonotonic,
            HostName::Gdm => Self::GlobalDeadlineMonotonic,
        }
    }
}

impl HostName {
    /// The word itself.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Pedf => "pedf",
            Self::Gedf => "gedf",
            Self::Pdm => "pdm",
            Self::Gdm => "gdm",
        }
    }
}

/// A VCPU's server on the host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ServerName {
    /// Constant-bandwidth server with the wake-up rule of `SCHED_DEADLINE`; under a fixed-priority host
    /// the sporadic server, its counterpart.
    #[default]
    Cbs,
    /// Periodic server.
    Periodic,
    /// Sporadic server.
    Sporadic,
    /// Deferrable server.
    Deferrable,
}

impl ServerName {
    /// Whether it uses its budget while the guest sleeps, so that a wake-up is no switch.
    pub const fn is_idling(self) -> bool {
        matches!(self, Self::Periodic)
    }
}

impl From<ServerName> for VcpuServer {
    fn from(name: ServerName) -> Self {
        match name {
            ServerName::Cbs => Self::ConstantBandwidth,
            ServerName::Periodic => Self::Periodic,
            ServerName::Sporadic => Self::Sporadic,
            ServerName::Deferrable => Self::Deferrable,
        }
    }
}

/// What enforces a plan on the host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Enforcement {
    /// The kernel's `SCHED_DEADLINE`.
    Deadline,
    /// A `sched_ext` scheduler.
    Ext,
    /// Nothing: the plan is arithmetic.
    None,
}

/// How the host is set up (the words of `steadyvm compare`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Method {
    /// The distribution's kernel: nothing bounds its receive path, so no service has a bound.
    Vanilla,
    /// `PREEMPT_RT` with priorities.
    PreemptRt,
    /// A CPU for the real-time VM.
    Dedicated,
    /// The no-patch profile of the receive path.
    RtProfile,
    /// Levels on the receive path.
    RtPollList,
    /// The profile with levels.
    RtLevels,
    /// Outsourced sockets.
    RtSockets,
    /// Outsourced sockets and the profile.
    NoPatch,
    /// Outsourced sockets and levels.
    #[default]
    Outsourcing,
    /// Outsourced sockets, the profile and levels.
    Steadyvm,
}
