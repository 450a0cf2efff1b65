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

/// What orders VCPUs: on all CPUs (global), or each on one CPU (partitioned).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum HostName {
    /// Partitioned EDF.
    #[default]
    Pedf,
    /// Global EDF.
    Gedf,
    /// Partitioned deadline-monotonic.
    Pdm,
    /// Global deadline-monotonic.
    Gdm,
    /// Partitioned rate-monotonic.
    Prm,
    /// Global rate-monotonic.
    Grm,
    /// Partitioned, by the priorities that VMs name.
    Pfp,
    /// Global, by the priorities that VMs name.
    Gfp,
}

impl HostName {
    /// All of them.
    pub const ALL: [Self; 8] = [
        Self::Pedf,
        Self::Gedf,
        Self::Pdm,
        Self::Gdm,
        Self::Prm,
        Self::Grm,
        Self::Pfp,
        Self::Gfp,
    ];

    /// The word itself.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Pedf => "pedf",
            Self::Gedf => "gedf",
            Self::Pdm => "pdm",
            Self::Gdm => "gdm",
            Self::Prm => "prm",
            Self::Grm => "grm",
            Self::Pfp => "pfp",
            Self::Gfp => "gfp",
        }
    }

    /// Whether each VCPU stays on one CPU.
    pub const fn is_partitioned(self) -> bool {
        matches!(self, Self::Pedf | Self::Pdm | Self::Prm | Self::Pfp)
    }

    /// Whether it is EDF.
    pub const fn is_edf(self) -> bool {
        matches!(self, Self::Pedf | Self::Gedf)
    }

    /// Whether plans are made for it.
    pub const fn is_planned(self) -> bool {
        matches!(self, Self::Pedf | Self::Gedf | Self::Pdm | Self::Gdm)
    }
}

/// Which host takes a VM, in a simulated cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PlacementPolicy {
    /// RT-Filter's claims, one sum a host, and RT-Weigher: most real-time CPU left.
    Nova,
    /// The same with a sum for each CPU.
    NovaPerCpu,
    /// Nova alone: most memory left, and no budget counts.
    NovaStock,
    /// The first host that the analysis admits.
    FirstFit,
    /// Of those the one with least real-time CPU left.
    BestFit,
    /// Of those the one with most left.
    WorstFit,
}

impl PlacementPolicy {
    /// The word itself.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Nova => "nova",
            Self::NovaPerCpu => "nova-per-cpu",
            Self::NovaStock => "nova-stock",
            Self::FirstFit => "first-fit",
            Self::BestFit => "best-fit",
            Self::WorstFit => "worst-fit",
        }
    }
}

/// A VCPU's server on the host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
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
    /// Polling server.
    Polling,
    /// Periodic, but servers of lower priority may run on their own budgets while it idles.
    WorkConserving,
    /// Periodic, but any other server may have the budget that it idles away.
    CapacityReclaiming,
}

impl ServerName {
    /// The word itself.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Cbs => "cbs",
            Self::Periodic => "periodic",
            Self::Sporadic => "sporadic",
            Self::Deferrable => "deferrable",
            Self::Polling => "polling",
            Self::WorkConserving => "work-conserving",
            Self::CapacityReclaiming => "capacity-reclaiming",
        }
    }

    /// Whether plans are made for it.
    pub const fn is_planned(self) -> bool {
        matches!(
            self,
            Self::Cbs
                | Self::Periodic
                | Self::Sporadic
                | Self::Deferrable
                | Self::CapacityReclaiming
        )
    }
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

/// How the packets of a VM are told apart on a card that others use, too.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CardWay {
    /// By the card, which puts them into the queue of a virtual function.
    Function,
    /// By an XDP program on the card.
    Xdp,
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
