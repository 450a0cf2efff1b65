//! Hosts: does a host keep the promise of every VCPU?
//!
//! Model: VCPUs with budget, period and a deadline at the period's end, on identical CPUs, some
//! restricted to a mask of CPUs; real-time VCPUs come before all other work.
//!
//! | host scheduler | test | kind |
//! |---|---|---|
//! | pEDF | each CPU: utilisation at most 1 (demand bound with jitter) | exact a CPU |
//! | pDM | each CPU: response times | exact a CPU |
//! | gEDF | density ([`gfb`]), interference ([`bcl`]) or response times ([`rta`]) | sufficient |
//! | gDM | interference or response times | sufficient |
//!
//! Servers: how a VCPU's budget behaves while its guest sleeps decides what it may demand.
//! [`VcpuServer::TaskLike`] stands for periodic and sporadic servers and for the constant-bandwidth
//! server with `SCHED_DEADLINE`'s wake-up rule (on waking, a budget that could exceed the bandwidth
//! before its deadline gets a new deadline): none demands more than a sporadic task (Theta, Pi).
//! [`VcpuServer::Deferrable`] may run a whole budget at the end of one period and the next at once: it
//! has jitter Pi - Theta ([`partitioned`], [`bcl`]); the density and response-time tests are not used.
//!
//! VCPUs that always run (Theta = Pi) get CPUs of their own first; the tests see the rest.

mod admission;
pub mod baker;
pub mod bcl;
pub mod gfb;
mod matching;
mod minimal;
pub mod overhead;
mod packing;
pub mod partitioned;
pub mod rta;

pub use admission::{Admission, Placement, Rejection, RejectionReason, admit};
pub use minimal::{Processors, minimal_processors};

use crate::{
    error::{Error, positive},
    host::overhead::Overheads,
    ratio::Fraction,
    task::Task,
    time::Time,
};

/// The most CPUs of a host.
pub const MAX_CPUS: u32 = 4_096;

/// How a host schedules VCPUs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HostScheduler {
    /// Partitioned EDF.
    PartitionedEarliestDeadline,
    /// Partitioned deadline-monotonic.
    PartitionedDeadlineMonotonic,
    /// Global EDF.
    GlobalEarliestDeadline,
    /// Global deadline-monotonic.
    GlobalDeadlineMonotonic,
}

impl HostScheduler {
    /// Whether each VCPU is pinned to one CPU.
    pub const fn is_partitioned(self) -> bool {
        matches!(
            self,
            Self::PartitionedEarliestDeadline | Self::PartitionedDeadlineMonotonic
        )
    }

    const fn dispatch(self) -> Dispatch {
        match self {
            Self::PartitionedEarliestDeadline | Self::GlobalEarliestDeadline => {
                Dispatch::EarliestDeadline
            }
            _ => Dispatch::FixedPriority,
        }
    }
}

/// What decides between two ready VCPUs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Dispatch {
    EarliestDeadline,
    FixedPriority,
}

/// How a VCPU's budget behaves while the guest has nothing to run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum VcpuServer {
    /// Never demands more than a sporadic task: periodic, sporadic, or CBS as in `SCHED_DEADLINE`.
    #[default]
    TaskLike,
    /// Keeps its budget until the period ends.
    Deferrable,
}

/// A host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Host {
    cpus: u32,
    scheduler: HostScheduler,
    server: VcpuServer,
    overheads: Overheads,
}

impl Host {
    /// A host with `cpus` CPUs for VCPUs.
    ///
    /// # Errors
    /// A number of CPUs or an overhead out of range.
    pub fn new(
        cpus: u32,
        scheduler: HostScheduler,
        server: VcpuServer,
        overheads: Overheads,
    ) -> Result<Self, Error> {
        if cpus == 0 || cpus > MAX_CPUS {
            return Err(Error::OutOfRange {
                what: "the number of CPUs",
                value: cpus.into(),
                low: 1,
                high: MAX_CPUS.into(),
            });
        }
        Ok(Self {
            cpus,
            scheduler,
            server,
            overheads: overheads.checked()?,
        })
    }

    /// The same host with another number of CPUs.
    pub(crate) const fn with_cpus(self, cpus: u32) -> Self {
        Self { cpus, ..self }
    }

    /// The number of CPUs.
    pub const fn cpus(&self) -> u32 {
        self.cpus
    }

    /// The scheduler.
    pub const fn scheduler(&self) -> HostScheduler {
        self.scheduler
    }

    /// The overheads.
    pub const fn overheads(&self) -> &Overheads {
        &self.overheads
    }
}

/// A VCPU to place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Vcpu {
    vm: usize,
    budget: Time,
    period: Time,
    mask: Option<Vec<u32>>,
}

impl Vcpu {
    /// A VCPU of the VM numbered `vm`; siblings are kept apart where possible.
    ///
    /// # Errors
    /// Times out of range, or a budget above the period.
    pub fn new(vm: usize, budget: Time, period: Time) -> Result<Self, Error> {
        let budget = positive("the VCPU budget", budget)?;
        let period = positive("the VCPU period", period)?;
        if budget > period {
            return Err(Error::Exceeds {
                what: "the VCPU budget",
                value: budget,
                limit_name: "its period",
                limit: period,
                advice: "a VCPU runs on one processor at a time",
            });
        }
        Ok(Self {
            vm,
            budget,
            period,
            mask: None,
        })
    }

    /// The same VCPU restricted to the CPUs in `mask`.
    ///
    /// # Errors
    /// An empty mask.
    pub fn on(mut self, mut mask: Vec<u32>) -> Result<Self, Error> {
        if mask.is_empty() {
            return Err(Error::Empty {
                what: "the CPU mask",
                advice: "name at least one CPU",
            });
        }
        mask.sort_unstable();
        mask.dedup();
        self.mask = Some(mask);
        Ok(self)
    }

    /// Theta.
    pub const fn budget(&self) -> Time {
        self.budget
    }

    /// Pi.
    pub const fn period(&self) -> Time {
        self.period
    }

    /// The VM's number.
    pub const fn vm(&self) -> usize {
        self.vm
    }

    /// Theta / Pi.
    pub fn bandwidth(&self) -> Fraction {
        Fraction::new(self.budget.into(), self.period.into())
    }

    const fn is_full(&self) -> bool {
        self.budget == self.period
    }
}

/// A VCPU as the tests see it: with the host's overheads, restricted to CPUs that are left.
#[derive(Debug, Clone)]
pub(crate) struct Candidate {
    /// Position among the VCPUs given.
    pub index: usize,
    pub vm: usize,
    pub task: Task,
    pub mask: Option<Vec<u32>>,
}

impl Candidate {
    /// `None` if budget and overheads do not fit the period.
    fn new(index: usize, vcpu: &Vcpu, host: &Host) -> Option<Self> {
        let execution = host.overheads.inflate(vcpu.budget, vcpu.period);
        let jitter = if vcpu.is_full() {
            0
        } else {
            host.overheads.quantum
        };
        (execution.saturating_add(jitter) <= vcpu.period).then(|| Self {
            index,
            vm: vcpu.vm,
            task: Task::server(execution, vcpu.period, vcpu.period, jitter),
            mask: vcpu.mask.clone(),
        })
    }

    fn allows(&self, cpu: u32) -> bool {
        self.mask
            .as_ref()
            .is_none_or(|mask| mask.binary_search(&cpu).is_ok())
    }

    fn shares_cpu(&self, other: &Self) -> bool {
        match (&self.mask, &other.mask) {
            (Some(mask), Some(_)) => mask.iter().any(|&cpu| other.allows(cpu)),
            _ => true,
        }
    }
}
