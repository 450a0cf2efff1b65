//! The parts of a host that fail each by itself.
//!
//! Rule: a host is many VMs. What one VM, card or process is refused is refused to it alone: it is left as it was
//! before the attempt, and the others are served, in whatever order the file names them.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::printable::printable;

/// A part of a host that fails by itself.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "kind", content = "name")]
pub enum Group {
    /// Settings of the whole host: deferred work, the fair server, throttling.
    #[default]
    Host,
    /// What enforces budgets of virtual CPUs.
    Scheduler,
    /// Early demultiplexing.
    Demux,
    /// The CPUs that other work is kept from.
    Isolation,
    /// A card, by its interface.
    Nic(String),
    /// A way to VMs on a card that they share, by its interface: its virtual functions, or its XDP program.
    #[serde(alias = "functions")]
    SharedCard(String),
    /// The macvtaps on a card, by its interface.
    Macvtaps(String),
    /// A VM, by its name in the file.
    Vm(String),
    /// A process that is a service itself.
    Process(u32),
    /// A service of the host, by its systemd unit.
    HostService(String),
}

impl Group {
    /// Whether it is that of every host, which needs no word.
    pub(crate) fn is_host(&self) -> bool {
        *self == Self::Host
    }
}

impl fmt::Display for Group {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Host => formatter.write_str("this host"),
            Self::Scheduler => formatter.write_str("the scheduler of VCPU budgets"),
            Self::Demux => formatter.write_str("early demultiplexing"),
            Self::Isolation => formatter.write_str("the isolated CPUs"),
            Self::Nic(name) => write!(formatter, "card {}", printable(name)),
            Self::SharedCard(name) => write!(formatter, "shared card {}", printable(name)),
            Self::Macvtaps(name) => write!(formatter, "macvtaps on {}", printable(name)),
            Self::Vm(name) => write!(formatter, "VM \"{}\"", printable(name)),
            Self::HostService(unit) => write!(formatter, "service {}", printable(unit)),
            Self::Process(pid) => write!(formatter, "process {pid}"),
        }
    }
}
