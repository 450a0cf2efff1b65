//! Words that a file may choose from.

use serde::{Deserialize, Serialize};

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
    /// The word itself.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Cbs => "cbs",
            Self::Periodic => "periodic",
            Self::Sporadic => "sporadic",
            Self::Deferrable => "deferrable",
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

/// What keeps budgets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Mechanism {
    /// `deadline` where the plan is for EDF, since the kernel's own scheduler needs no process, costs less and missed no
    /// deadline beside many neighbours (docs/results/vcpu-scheduling.md); else `ext` if the kernel has it.
    #[default]
    Auto,
    /// Our `sched_ext` scheduler: any order, queue and server. A process of its own keeps it loaded.
    Ext,
    /// `SCHED_DEADLINE`, on any kernel: EDF with constant bandwidth servers.
    Deadline,
    /// Nothing: budgets are computed only.
    None,
}

/// What orders VCPUs that have a budget.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Priority {
    /// By absolute deadline: EDF.
    #[default]
    EarliestDeadline,
    /// By relative deadline: DM.
    DeadlineMonotonic,
    /// By period: RM.
    RateMonotonic,
    /// By `priority`, 0 first.
    Explicit,
}

/// Which VCPUs a CPU chooses from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Queue {
    /// All that may run on it.
    #[default]
    Global,
    /// Those whose first CPU it is.
    Partitioned,
}

/// A queueing discipline for a tap.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TapQdisc {
    /// None: packets go straight to the tap's ring, so that no preempted owner of a queue
    /// strands the packets of others.
    Noqueue,
    /// Three bands by `skb->priority`.
    Prio,
}

impl TapQdisc {
    /// Its name for the kernel.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Noqueue => "noqueue",
            Self::Prio => "prio",
        }
    }
}

/// A job that has not finished at its deadline.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Late {
    /// It goes on, and the next one of its task waits.
    #[default]
    Continue,
    /// It ends there, and the next one begins.
    Drop,
}

/// How the utilisations of random task sets are drawn.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Distribution {
    /// `UUniFast` (Bini and Buttazzo 2005).
    #[default]
    UUniFast,
    /// The dissertation's: mostly small tasks, and some large ones.
    Bimodal,
}
