//! The parts of a host that fail each by itself.
//!
//! Rule: a host is many VMs. What one VM, card or process is refused is refused to it alone: it is left as it was
//! before the attempt, and the others are served, in whatever order the file names them.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::step::Step;
use crate::machine::printable;

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
    /// A VM, by its name in the file.
    Vm(String),
    /// A process that is a service itself.
    Process(u32),
}

/// A group that could not be served, and is as it was before the attempt.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    /// Whose settings are missing.
    pub group: Group,
    /// Why, and what to do.
    pub error: String,
    /// The setting that the kernel refused; none if the group could not be planned, as without its card.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subject: Option<String>,
}

impl Group {
    /// Whether it is that of every host, which needs no word.
    pub(super) fn is_host(&self) -> bool {
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
            Self::Vm(name) => write!(formatter, "VM \"{}\"", printable(name)),
            Self::Process(pid) => write!(formatter, "process {pid}"),
        }
    }
}

impl Failure {
    /// Whether one of these steps is the one that failed: trying the group again is trying the same.
    pub(super) fn is_about(&self, steps: &[Step]) -> bool {
        let mut steps = steps.iter().filter(|step| step.group == self.group);
        self.subject
            .as_ref()
            .is_some_and(|subject| steps.any(|step| step.change.subject() == *subject))
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}: {}", self.group, self.error)
    }
}
