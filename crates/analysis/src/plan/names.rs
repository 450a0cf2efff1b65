//! The words of the input, as the analysis' own.

use serde::Serialize;
use steadyvm_config::Mechanism;
pub use steadyvm_config::{HostName, InterfaceName, SchedulerName, ServerName};

use crate::{
    host::{HostScheduler, VcpuServer},
    interface::{GuestScheduler, InterfaceKind},
};

/// What enforces a plan on the host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Enforcement {
    /// The kernel's `SCHED_DEADLINE`.
    Deadline,
    /// A `sched_ext` scheduler.
    Ext,
    /// Nothing: the plan is arithmetic.
    None,
}

impl Enforcement {
    /// What `[host] enforce` comes to, on a kernel that has `sched_ext`.
    pub(super) fn of(host: &steadyvm_config::Host) -> Option<Self> {
        let is_deadlines = host.scheduler.is_edf() && host.server == ServerName::Cbs;
        Some(match host.enforce? {
            Mechanism::Deadline => Self::Deadline,
            Mechanism::Auto if is_deadlines => Self::Deadline,
            Mechanism::Auto | Mechanism::Ext => Self::Ext,
            Mechanism::None => Self::None,
        })
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

/// The order of a host, if plans are made for it.
pub const fn order(name: HostName) -> Option<HostScheduler> {
    match name {
        HostName::Pedf => Some(HostScheduler::PartitionedEarliestDeadline),
        HostName::Gedf => Some(HostScheduler::GlobalEarliestDeadline),
        HostName::Pdm => Some(HostScheduler::PartitionedDeadlineMonotonic),
        HostName::Gdm => Some(HostScheduler::GlobalDeadlineMonotonic),
        HostName::Prm | HostName::Grm | HostName::Pfp | HostName::Gfp => None,
    }
}

/// The server, if plans are made for it.
pub const fn server(name: ServerName) -> Option<VcpuServer> {
    match name {
        ServerName::Cbs => Some(VcpuServer::ConstantBandwidth),
        ServerName::Periodic => Some(VcpuServer::Periodic),
        ServerName::Sporadic => Some(VcpuServer::Sporadic),
        ServerName::Deferrable => Some(VcpuServer::Deferrable),
        ServerName::CapacityReclaiming => Some(VcpuServer::CapacityReclaiming),
        ServerName::Polling | ServerName::WorkConserving => None,
    }
}

impl From<VcpuServer> for ServerName {
    fn from(server: VcpuServer) -> Self {
        match server {
            VcpuServer::ConstantBandwidth => Self::Cbs,
            VcpuServer::Periodic => Self::Periodic,
            VcpuServer::Sporadic => Self::Sporadic,
            VcpuServer::Deferrable => Self::Deferrable,
            VcpuServer::CapacityReclaiming => Self::CapacityReclaiming,
        }
    }
}
