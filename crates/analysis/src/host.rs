//! Hosts: does a host keep the promise of every VCPU?
//!
//! Model: VCPUs with budget Theta, deadline Delta and period Pi (Delta = Pi unless set) on identical CPUs, some
//! restricted to a mask of CPUs; real-time VCPUs come before all other work.
//!
//! Servers: how a VCPU's budget behaves while its guest sleeps decides what it may demand ([`VcpuServer`]), and
//! so which test is sound for it:
//!
//! | host | periodic | sporadic, constant bandwidth | deferrable |
//! |---|---|---|---|
//! | pEDF, one CPU | demand bound, exact ([`partitioned`]) | density, then demand ([`reservation`]) | demand bound with jitter Pi - Theta |
//! | pDM, a CPU | response times, exact | the same | response times with jitter Pi - Theta |
//! | gEDF | density ([`gfb`], [`heavy`]), interference ([`bcl`]), response times ([`rta`]) | density; sporadic: or interference | interference |
//! | gDM | interference, response times | interference | interference |
//!
//! Why response times are for periodic servers only: they take away the slack with which a job ends before its
//! deadline, and a server whose guest sleeps in the middle of its budget and wakes later ends as late as its
//! deadline. A constant-bandwidth server that wakes with more budget than its bandwidth allows gets a new
//! deadline less than Pi after its last one, so even "at most Theta in each Pi" ([`bcl`]) does not hold; that it
//! demands no more than a fluid of its density does, always, and the density tests need no more.
//!
//! Recommended for `SCHED_DEADLINE`: pEDF, where constant-bandwidth servers fill a CPU to 100 %.
//!
//! VCPUs that always run (Theta = Pi) get CPUs of their own first; the tests see the rest.

mod admission;
pub mod baker;
pub mod bcl;
mod clusters;
mod fair;
pub mod gfb;
mod heavy;
mod limited;
mod matching;
mod minimal;
pub mod overhead;
mod packing;
pub mod partitioned;
mod reservation;
pub mod rta;
mod rules;
pub mod starts;

pub use admission::{Admission, Placement, Rejection, RejectionReason, admit};
pub use fair::FairServer;
pub use minimal::{Processors, minimal_processors};
pub(crate) use minimal::{admit_and_count, admit_on_some};

use crate::{
    error::{Error, positive},
    host::{
        overhead::{Keeping, Margin, Overheads},
        starts::{Starter, Wakes},
    },
    ratio::Fraction,
    supply::Replenishment,
    task::Task,
    time::{Amount, Time},
    verdict::Violation,
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

    /// Whether VCPUs have fixed priorities.
    pub const fn is_fixed_priority(self) -> bool {
        matches!(self.dispatch(), Dispatch::FixedPriority)
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
    /// Executes or idles its budget away from the period's start on, as a periodic task does; a polling server,
    /// which drops the rest when the guest sleeps, demands no more.
    Periodic,
    /// Periodic, but others may have the budget that it idles away: it never gives less than that server, and demands no more.
    CapacityReclaiming,
    /// Replenishes what was used a period after the use began.
    Sporadic,
    /// `SCHED_DEADLINE`'s: keeps budget and deadline while the guest sleeps, unless the budget would exceed its
    /// bandwidth until the deadline. Under fixed priorities its counterpart, the sporadic server.
    #[default]
    ConstantBandwidth,
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
    usable_percent: u8,
    /// Of reservations with D < T, where its servers are `SCHED_DEADLINE`'s.
    margin: Margin,
    /// Of each CPU, where the kernel keeps budgets.
    fair_server: Option<FairServer>,
    /// Whether no guest can make another VM late.
    isolated: bool,
}

impl VcpuServer {
    /// Whether it is used up from its period's start on, whatever its guest does.
    pub const fn idles(self) -> bool {
        matches!(self, Self::Periodic | Self::CapacityReclaiming)
    }
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
            usable_percent: 100,
            margin: Margin::default(),
            fair_server: None,
            isolated: true,
        }
        .settled())
    }

    /// The same host, of whose CPUs what enforces budgets gives VCPUs no more than this share, 1 to 100 per cent.
    #[must_use]
    pub fn with_usable_percent(self, percent: u8) -> Self {
        Self {
            usable_percent: percent.clamp(1, 100),
            ..self
        }
    }

    /// The same host, whose constant-bandwidth servers are the kernel's: reservations with D < T are installed with this
    /// margin. (Under fixed priorities they are sporadic servers, which need none.)
    #[must_use]
    pub fn with_margin(self, margin: Margin) -> Self {
        Self { margin, ..self }.settled()
    }

    /// The same host, on whose CPUs this server runs before VCPUs.
    #[must_use]
    pub const fn with_fair_server(self, fair_server: Option<FairServer>) -> Self {
        Self {
            fair_server,
            ..self
        }
    }

    /// The same host; with `isolated` false its test believes that guests with reservations keep their precondition:
    /// nothing but the task wakes the VCPU. It then takes more VMs, and a guest that breaks it can make others late.
    #[must_use]
    pub const fn with_isolation(self, isolated: bool) -> Self {
        Self { isolated, ..self }
    }

    /// Whether no guest can make another VM late, whatever wakes its VCPUs.
    pub const fn is_isolated(&self) -> bool {
        self.isolated
    }

    /// The fair server of each CPU.
    pub const fn fair_server(&self) -> Option<FairServer> {
        self.fair_server
    }

    fn settled(mut self) -> Self {
        let is_the_kernels = self.server == VcpuServer::ConstantBandwidth
            && self.scheduler.dispatch() == Dispatch::EarliestDeadline;
        self.overheads.margin = if is_the_kernels {
            self.margin
        } else {
            Margin::default()
        };
        self.overheads.keeping = match self.server {
            VcpuServer::Periodic => Keeping::Idles,
            VcpuServer::CapacityReclaiming => Keeping::Lends,
            VcpuServer::Deferrable => Keeping::Keeps,
            _ if self.replenishment() == Replenishment::InPieces => Keeping::Pieces,
            // The policy has no constant-bandwidth server that is due early: a sporadic one stands for it.
            _ if self.overheads.margin == Margin::default() => Keeping::BeginsOrPieces,
            _ => Keeping::Begins,
        };
        self
    }

    /// The same host with another number of CPUs.
    pub(crate) const fn with_cpus(self, cpus: u32) -> Self {
        Self { cpus, ..self }
    }

    /// The number of CPUs.
    pub const fn cpus(&self) -> u32 {
        self.cpus
    }

    /// The same host under another scheduler.
    pub(crate) fn with_scheduler(self, scheduler: HostScheduler) -> Self {
        Self { scheduler, ..self }.settled()
    }

    /// How budgets behave while guests sleep.
    pub const fn server(&self) -> VcpuServer {
        self.server
    }

    /// How its servers replenish.
    pub const fn replenishment(&self) -> Replenishment {
        match self.server {
            VcpuServer::Sporadic => Replenishment::InPieces,
            VcpuServer::ConstantBandwidth if self.scheduler.is_fixed_priority() => {
                Replenishment::InPieces
            }
            _ => Replenishment::AtOnce,
        }
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
    deadline: Time,
    period: Time,
    mask: Option<Vec<u32>>,
    wakes: Wakes,
    reserved: bool,
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
            deadline: period,
            period,
            mask: None,
            wakes: Wakes::Unknown,
            reserved: false,
        })
    }

    /// The same VCPU with its budget due `deadline` after it wakes (or its period begins).
    ///
    /// # Errors
    /// A deadline below the budget or above the period.
    pub fn due(self, deadline: Time) -> Result<Self, Error> {
        let deadline = positive("the VCPU deadline", deadline)?;
        let wrong = |what, value, limit_name, limit| Error::Exceeds {
            what,
            value,
            limit_name,
            limit,
            advice: "set budget <= deadline <= period",
        };
        if deadline > self.period {
            return Err(wrong(
                "the VCPU deadline",
                deadline,
                "its period",
                self.period,
            ));
        }
        if self.budget > deadline {
            return Err(wrong(
                "the VCPU budget",
                self.budget,
                "its deadline",
                deadline,
            ));
        }
        Ok(Self { deadline, ..self })
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

    /// The same VCPU, which this wakes.
    #[must_use]
    pub fn woken(self, wakes: Wakes) -> Self {
        Self { wakes, ..self }
    }

    /// The same VCPU, a reservation of one task: nothing else wakes it ([`crate::interface::reservation`]).
    #[must_use]
    pub fn reserved(self) -> Self {
        Self {
            reserved: true,
            ..self
        }
    }

    /// What it costs the host in each period where nobody takes its CPU: its budget, the host's costs, and the margin where
    /// it is due before its period ends. What is to be installed is in [`Admission::costs`].
    pub fn cost(&self, overheads: &Overheads) -> Time {
        let early = self.deadline < self.period;
        let starts = overheads.own_starts(&self.wakes, self.period, early);
        overheads
            .inflate(self.budget, self.period, starts)
            .saturating_add(self.margin(overheads))
    }

    /// How much of [`Vcpu::cost`] is there so that no request uses it up.
    pub fn margin(&self, overheads: &Overheads) -> Time {
        if self.deadline < self.period && !self.is_full() {
            overheads.margin.of(self.budget)
        } else {
            0
        }
    }

    /// Theta.
    pub const fn budget(&self) -> Time {
        self.budget
    }

    /// Delta.
    pub const fn deadline(&self) -> Time {
        self.deadline
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
    /// A reservation of one task.
    pub reserved: bool,
    /// Where starts cost something.
    pub starter: Option<Box<Starter>>,
}

impl Candidate {
    /// `None` if budget and overheads do not fit the period.
    fn new(index: usize, vcpu: &Vcpu, host: &Host) -> Option<Self> {
        let execution = vcpu.cost(&host.overheads);
        let jitter = if vcpu.is_full() {
            0
        } else {
            host.overheads.quantum
        };
        (execution.saturating_add(jitter) <= vcpu.deadline).then(|| Self {
            index,
            vm: vcpu.vm,
            task: Task::server(execution, vcpu.deadline, vcpu.period, jitter),
            mask: vcpu.mask.clone(),
            reserved: vcpu.reserved,
            starter: (host.overheads.once() > 0)
                .then(|| Box::new(Starter::new(index, vcpu, &host.overheads))),
        })
    }

    /// Its task where it pays so much more for starts after others.
    fn paying(&self, more: Time) -> Result<Task, Violation> {
        let task = &self.task;
        let demand = task.demand().saturating_add(more);
        if demand.saturating_add(task.jitter()) > task.deadline() {
            return Err(Violation {
                index: self.index,
                at: task.deadline(),
                demand: Amount::from(demand) + Amount::from(task.jitter()),
                supply: task.deadline().into(),
            });
        }
        Ok(Task::server(
            demand,
            task.deadline(),
            task.period(),
            task.jitter(),
        ))
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
