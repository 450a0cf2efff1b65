//! The words of the input, as the analysis' own.

pub use steadyvm_config::{Enforcement, HostName, InterfaceName, SchedulerName, ServerName};

use crate::{
    host::{HostScheduler, VcpuServer},
    interface::{GuestScheduler, InterfaceKind},
};

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

impl From<VcpuServer> for ServerName {
    fn from(server: VcpuServer) -> Self {
        match server {
            VcpuServer::ConstantBandwidth => Self::Cbs,
            VcpuServer::Periodic => Self::Periodic,
            VcpuServer::Sporadic => Self::Sporadic,
            VcpuServer::Deferrable => Self::Deferrable,
        }
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
