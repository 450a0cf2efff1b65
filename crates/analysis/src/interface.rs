//! Interfaces: the least budget with which a VM's tasks meet their deadlines, and its VCPUs.
//!
//! | kind | guest scheduler | meaning |
//! |---|---|---|
//! | PRM | EDF, DM, global EDF | one VCPU; the exact test of one processor |
//! | PRM | partitioned EDF | best fit on as many VCPUs as needed, the least budget for each |
//! | MPR | EDF, global EDF | Theorem 1; the fewest VCPUs that can do, then the least total budget |
//! | MPR | DM | the same under global DM |
//! | MPR | partitioned EDF | best fit; the least total budget whose even spread serves every VCPU |
//! | DMPR | EDF, global EDF, DM | the least number of full VCPUs, then the least partial budget |
//! | DMPR | partitioned EDF | best fit; the VCPU that needs least is partial, the others are full |
//!
//! For a given period, more VCPUs never lower an MPR's total budget: with the same budget the supply
//! falls and the condition's left side rises. So "fewest VCPUs, then least budget" is the least budget.
//!
//! Minimality: with integer budgets, by bisection; every test is monotone in the budget. If the allowed
//! work ends, the budget found so far is returned, sufficient, with `exact` false.

pub mod best_period;
mod budget;
mod earliest_deadline;
mod edp;
mod global;
mod partitioned;
pub mod reservation;
mod uniprocessor;

pub use budget::Least;
pub use edp::minimal_edp;
pub use global::{minimal_dmpr, minimal_mpr};
pub use uniprocessor::minimal_prm;

use crate::{
    error::{Error, positive},
    guest::partitioned::LocalScheduler,
    host::{overhead::Overheads, starts::Wakes},
    ratio::Fraction,
    supply::{Dedicated, MultiprocessorPeriodic, PeriodicResource, Replenishment},
    task::Task,
    time::{Amount, Time},
    verdict::{Stop, Verdict, Violation},
    work::Work,
};

/// The scheduler inside a guest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GuestScheduler {
    /// Fixed priorities, deadline monotonic.
    DeadlineMonotonic,
    /// EDF.
    EarliestDeadline,
    /// Global EDF.
    GlobalEarliestDeadline,
    /// Partitioned EDF.
    PartitionedEarliestDeadline,
}

impl GuestScheduler {
    const fn local(self) -> LocalScheduler {
        match self {
            Self::DeadlineMonotonic => LocalScheduler::DeadlineMonotonic,
            _ => LocalScheduler::EarliestDeadline,
        }
    }
}

/// The resource model of an interface.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InterfaceKind {
    /// Periodic resource model.
    PeriodicResource,
    /// Multiprocessor periodic resource model.
    Multiprocessor,
    /// Deterministic multiprocessor periodic resource model.
    DeterministicMultiprocessor,
}

/// The VCPUs that an interface is made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Resource {
    /// Their resource model.
    pub kind: InterfaceKind,
    /// How the host's servers replenish them.
    pub replenishment: Replenishment,
}

impl From<InterfaceKind> for Resource {
    fn from(kind: InterfaceKind) -> Self {
        Self {
            kind,
            replenishment: Replenishment::AtOnce,
        }
    }
}

/// What a VM needs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Interface {
    /// The common period of its VCPUs, Pi.
    pub period: Time,
    /// The sum of their budgets, Theta.
    pub budget: Time,
    /// The budget of each VCPU; an even spread may leave a zero.
    pub vcpu_budgets: Vec<Time>,
    /// For partitioned guests, the tasks of each VCPU.
    pub partition: Option<Vec<Vec<usize>>>,
    /// `Some`: a reservation that begins when the VCPU wakes and is due so long after ([`reservation`]); else
    /// the budget comes at any time in the period.
    pub due: Option<Time>,
    /// How the host's servers replenish its VCPUs.
    pub replenishment: Replenishment,
    /// True if no smaller integer budget, and no fewer VCPUs, pass the test (partitioned guests: for the
    /// partition found). False if a bound on the work was reached before that was shown.
    pub exact: bool,
}

impl Interface {
    /// What of `tasks` (those it is for) wakes its VCPU `vcpu`. Where tasks are not pinned, each of them may wake each VCPU.
    pub fn wakes(&self, tasks: &[Task], vcpu: usize) -> Wakes {
        if let (Some(_), &[task]) = (self.due, tasks) {
            return Wakes::Request(task);
        }
        let members = (self.partition.as_ref()).and_then(|partition| partition.get(vcpu));
        Wakes::Tasks(members.map_or_else(
            || tasks.into(),
            |members| {
                (members
                    .iter()
                    .filter_map(|&member| tasks.get(member).copied()))
                .collect()
            },
        ))
    }

    /// What its VCPUs cost a host in each period where nobody takes their CPUs.
    pub fn cost(&self, tasks: &[Task], overheads: &Overheads) -> Amount {
        let early = self.due.is_some_and(|due| due < self.period);
        (self.vcpu_budgets.iter().enumerate())
            .map(|(vcpu, &budget)| {
                let margin = if early {
                    overheads.margin.of(budget)
                } else {
                    0
                };
                let starts = overheads.own_starts(&self.wakes(tasks, vcpu), self.period, early);
                let cost = overheads.inflate(budget, self.period, starts);
                Amount::from(cost) + Amount::from(margin)
            })
            .sum()
    }

    /// Decides whether `budget`, spread evenly over the same VCPUs, would do for `tasks` (those the
    /// interface is for): the witness for a given budget that is too small.
    pub fn test_with(
        &self,
        budget: Time,
        tasks: &[Task],
        scheduler: GuestScheduler,
        work: &mut Work,
    ) -> Verdict {
        let vcpus = u32::try_from(self.vcpu_budgets.len()).unwrap_or(u32::MAX);
        let Ok(resource) = MultiprocessorPeriodic::new(self.period, budget, vcpus) else {
            return Verdict::Undecided(Stop::precision());
        };
        let resource = resource.replenished(self.replenishment);
        let Some(partition) = &self.partition else {
            return global::test(tasks, scheduler, &resource, work);
        };
        for (members, budget) in partition.iter().zip(resource.vcpu_budgets()) {
            let local: Vec<Task> = members.iter().map(|&member| tasks[member]).collect();
            let verdict = PeriodicResource::new(self.period, budget)
                .map(|vcpu| vcpu.replenished(self.replenishment))
                .map_or(Verdict::Undecided(Stop::precision()), |vcpu| {
                    scheduler.local().test(&local, &vcpu, work)
                });
            match verdict {
                Verdict::Schedulable => {}
                Verdict::Unschedulable(violation) => {
                    return Verdict::Unschedulable(Violation {
                        index: members[violation.index],
                        ..violation
                    });
                }
                undecided @ Verdict::Undecided(_) => return undecided,
            }
        }
        Verdict::Schedulable
    }

    /// Total bandwidth, Theta / Pi.
    pub fn bandwidth(&self) -> Fraction {
        Fraction::new(self.budget.into(), self.period.into())
    }
}

/// Why a VM has no interface.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Infeasible {
    /// Even whole processors do not suffice; where the test fails with them.
    Violation(Violation),
    /// This task fits on none of the allowed VCPUs.
    DoesNotFit {
        /// Index of the task.
        task: usize,
        /// Where the VCPU that has most room left fails with it, on a whole processor.
        closest: Violation,
    },
    /// A bound was reached before any budget was shown to suffice.
    Undecided(Stop),
}

/// The least interface of `resource` for `tasks` under `scheduler`, with VCPUs of `period`.
///
/// `vcpus` fixes the parallelism: exactly that many for MPR and DMPR (full plus partial), at most that
/// many for a partitioned guest, and 1 for a PRM.
///
/// # Errors
/// No tasks, times or counts out of range, a PRM of several VCPUs for a guest that is not partitioned.
pub fn minimal(
    tasks: &[Task],
    scheduler: GuestScheduler,
    resource: impl Into<Resource>,
    period: Time,
    vcpus: Option<u32>,
    work: &mut Work,
) -> Result<Result<Interface, Infeasible>, Error> {
    let resource = resource.into();
    let Resource {
        kind,
        replenishment,
    } = resource;
    positive("the VCPU period", period)?;
    if tasks.is_empty() {
        return Err(Error::Empty {
            what: "the list of tasks",
            advice: "give a VM at least one task",
        });
    }
    if vcpus.is_some_and(|vcpus| vcpus == 0 || vcpus > MAX_VCPUS) {
        return Err(Error::OutOfRange {
            what: "the number of VCPUs",
            value: vcpus.unwrap_or_default().into(),
            low: 1,
            high: MAX_VCPUS.into(),
        });
    }
    if scheduler == GuestScheduler::PartitionedEarliestDeadline {
        return Ok(partitioned::minimal(tasks, resource, period, vcpus, work));
    }
    match kind {
        InterfaceKind::PeriodicResource => match vcpus {
            None | Some(1) => Ok(minimal_prm(
                tasks,
                scheduler.local(),
                period,
                replenishment,
                work,
            )),
            Some(vcpus) => Err(Error::Contradiction {
                what: format!("a PRM interface is one VCPU, but {vcpus} are asked for"),
                advice: "use mpr or dmpr, or the partitioned scheduler pedf",
            }),
        },
        InterfaceKind::Multiprocessor => {
            minimal_mpr(tasks, scheduler, period, vcpus, replenishment, work)
        }
        InterfaceKind::DeterministicMultiprocessor => {
            minimal_dmpr(tasks, scheduler, period, vcpus, replenishment, work)
        }
    }
}

/// The most VCPUs a VM may ask for.
pub const MAX_VCPUS: u32 = 4_096;

/// Turns the failed test of the largest budget into a reason.
fn reason(verdict: &Verdict) -> Infeasible {
    match verdict {
        Verdict::Unschedulable(violation) => Infeasible::Violation(*violation),
        Verdict::Undecided(stop) => Infeasible::Undecided(*stop),
        Verdict::Schedulable => Infeasible::Undecided(Stop::precision()),
    }
}

/// The verdict of `count` whole processors for one local scheduler.
fn whole_processor(tasks: &[Task], scheduler: LocalScheduler, work: &mut Work) -> Verdict {
    scheduler.test(tasks, &Dedicated::new(1), work)
}
