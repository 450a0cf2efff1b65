//! The least MPR and DMPR for a global guest.
//!
//! Model: sporadic tasks under global EDF or global DM. Formula: the fewest VCPUs for which whole
//! processors pass the test, then the least budget on them. As many whole processors as tasks always
//! suffice. Complexity: log2 n tests for the number of VCPUs, log2 (m' Pi) for the budget.
//! Sources: Shin, Easwaran and Lee, ECRTS 2008; Xu et al., RTSS 2013.

use super::{GuestScheduler, Infeasible, Interface, MAX_VCPUS, budget, reason, uniprocessor};
use crate::{
    error::Error,
    guest::{global_edf, global_fixed_priority},
    host::gfb,
    ratio::Interval,
    supply::{
        Dedicated, DeterministicMultiprocessor, MultiprocessorPeriodic, Replenishment, Supply,
    },
    task::{PriorityOrder, Task},
    time::Time,
    verdict::{Stop, Verdict},
    work::Work,
};

/// The least MPR of `period` for `tasks`.
///
/// # Errors
/// Times out of range; inside, the reason if whole processors do not suffice.
pub fn minimal_mpr(
    tasks: &[Task],
    scheduler: GuestScheduler,
    period: Time,
    vcpus: Option<u32>,
    replenishment: Replenishment,
    work: &mut Work,
) -> Result<Result<Interface, Infeasible>, Error> {
    minimal_on::<MultiprocessorPeriodic>(tasks, scheduler, period, vcpus, replenishment, work)
}

/// The least DMPR of `period` for `tasks`: `vcpus - 1` full VCPUs and a partial one.
///
/// # Errors
/// Times out of range; inside, the reason if whole processors do not suffice.
pub fn minimal_dmpr(
    tasks: &[Task],
    scheduler: GuestScheduler,
    period: Time,
    vcpus: Option<u32>,
    replenishment: Replenishment,
    work: &mut Work,
) -> Result<Result<Interface, Infeasible>, Error> {
    minimal_on::<DeterministicMultiprocessor>(tasks, scheduler, period, vcpus, replenishment, work)
}

/// A resource model whose budget is looked for on a given number of VCPUs.
trait Model: Supply + Sized {
    fn on(
        vcpus: u32,
        period: Time,
        budget: Time,
        replenishment: Replenishment,
    ) -> Result<Self, Error>;

    /// The budget with which all VCPUs always run.
    fn whole(vcpus: u32, period: Time) -> Time;

    fn budgets(&self) -> Vec<Time>;
}

impl Model for MultiprocessorPeriodic {
    fn on(
        vcpus: u32,
        period: Time,
        budget: Time,
        replenishment: Replenishment,
    ) -> Result<Self, Error> {
        Self::new(period, budget, vcpus).map(|vcpus| vcpus.replenished(replenishment))
    }

    fn whole(vcpus: u32, period: Time) -> Time {
        Time::from(vcpus).saturating_mul(period)
    }

    fn budgets(&self) -> Vec<Time> {
        self.vcpu_budgets()
    }
}

impl Model for DeterministicMultiprocessor {
    fn on(
        vcpus: u32,
        period: Time,
        budget: Time,
        replenishment: Replenishment,
    ) -> Result<Self, Error> {
        Self::new(period, budget, vcpus - 1).map(|vcpus| vcpus.replenished(replenishment))
    }

    fn whole(_vcpus: u32, period: Time) -> Time {
        period
    }

    fn budgets(&self) -> Vec<Time> {
        self.vcpu_budgets()
    }
}

fn minimal_on<M: Model>(
    tasks: &[Task],
    scheduler: GuestScheduler,
    period: Time,
    vcpus: Option<u32>,
    replenishment: Replenishment,
    work: &mut Work,
) -> Result<Result<Interface, Infeasible>, Error> {
    let guest = Guest::new(tasks, scheduler);
    let (vcpus, fewest) = match guest.vcpus(vcpus, work) {
        Ok(found) => found,
        Err(infeasible) => return Ok(Err(infeasible)),
    };
    let whole = M::whole(vcpus, period);
    let on = |budget| M::on(vcpus, period, budget, replenishment);
    on(whole)?;
    if vcpus == 1 {
        let interface =
            uniprocessor::least_on_whole(tasks, scheduler.local(), period, replenishment, work);
        return Ok(Ok(interface));
    }
    let least = budget::least_below(1, whole, |budget| {
        on(budget).map_or(Verdict::Undecided(Stop::precision()), |model| {
            guest.test(&model, work)
        })
    });
    let vcpu_budgets = on(least.budget)?.budgets();
    Ok(Ok(Interface {
        period,
        budget: vcpu_budgets.iter().sum(),
        vcpu_budgets,
        partition: None,
        due: None,
        replenishment,
        exact: fewest && least.exact,
    }))
}

/// The test of a global guest on any supply.
pub(super) fn test(
    tasks: &[Task],
    scheduler: GuestScheduler,
    supply: &impl Supply,
    work: &mut Work,
) -> Verdict {
    Guest::new(tasks, scheduler).test(supply, work)
}

struct Guest {
    /// Under fixed priorities, first, interrupts ([`crate::task`]), as tasks. On several VCPUs those of higher
    /// priorities count twice: the tests look at tasks in one order for all.
    tasks: Vec<Task>,
    order: Vec<usize>,
    /// How many of them are no interrupts.
    jobs: usize,
    fixed_priority: bool,
}

impl Guest {
    fn new(tasks: &[Task], scheduler: GuestScheduler) -> Self {
        let fixed_priority = scheduler == GuestScheduler::DeadlineMonotonic;
        let order = if fixed_priority {
            PriorityOrder::DeadlineMonotonic.order(tasks)
        } else {
            (0..tasks.len()).collect()
        };
        let sorted = order.iter().map(|&i| (i, tasks[i]));
        let interrupts = order.iter().filter_map(|&i| {
            let (task, period) = (&tasks[i], tasks[i].period());
            let alone = fixed_priority && task.interrupt() > 0;
            alone.then(|| {
                let jitter = task.jitter();
                (i, Task::server(task.interrupt(), period, period, jitter))
            })
        });
        let jobs = tasks.len();
        let (order, tasks) = interrupts.chain(sorted).unzip();
        Self {
            tasks,
            order,
            jobs,
            fixed_priority,
        }
    }

    fn test(&self, supply: &impl Supply, work: &mut Work) -> Verdict {
        // The test of one VCPU counts interrupts itself.
        let skipped = if supply.parallelism() <= 1 {
            self.interrupts()
        } else {
            0
        };
        let tasks = &self.tasks[skipped..];
        let verdict = if self.fixed_priority {
            global_fixed_priority::test(tasks, supply, work)
        } else {
            global_edf::test(tasks, supply, work)
        };
        match verdict {
            Verdict::Unschedulable(mut violation) => {
                violation.index = self.order[skipped + violation.index];
                Verdict::Unschedulable(violation)
            }
            verdict => verdict,
        }
    }

    const fn interrupts(&self) -> usize {
        self.tasks.len() - self.jobs
    }

    /// The number of VCPUs: the given one if it can do, else the fewest that can; and whether fewer are
    /// shown not to do.
    fn vcpus(&self, fixed: Option<u32>, work: &mut Work) -> Result<(u32, bool), Infeasible> {
        let mut test = |vcpus: u32| {
            let mut share = work.take(Work::DEFAULT_STEPS / 4);
            let verdict = if vcpus as usize >= self.jobs {
                Verdict::Schedulable
            } else {
                match self.test(&Dedicated::new(vcpus), &mut share) {
                    // Too many windows to look at: density suffices, too.
                    Verdict::Undecided(_)
                        if !self.fixed_priority
                            && self.tasks.iter().all(|task| task.interrupt() == 0)
                            && gfb::test(&self.tasks, vcpus) =>
                    {
                        Verdict::Schedulable
                    }
                    verdict => verdict,
                }
            };
            work.give_back(&share);
            verdict
        };
        if let Some(vcpus) = fixed {
            let verdict = test(vcpus);
            return if verdict.is_schedulable() {
                Ok((vcpus, true))
            } else {
                Err(reason(&verdict))
            };
        }
        let jobs = &self.tasks[self.interrupts()..];
        let utilization = Interval::of(jobs.iter().map(Task::utilization));
        let low = utilization.floor_times(1).max(1);
        let most = u32::try_from(self.jobs).unwrap_or(MAX_VCPUS).min(MAX_VCPUS);
        let low = u32::try_from(low).unwrap_or(most).min(most);
        // Few more than the utilisation usually do: look there first, in growing strides.
        let (mut fails_below, mut stride, mut decided) = (low, 0, true);
        loop {
            let probe = low.saturating_add(stride).min(most);
            let verdict = test(probe);
            if verdict.is_schedulable() {
                let found = budget::least_below(fails_below.into(), probe.into(), |vcpus| {
                    u32::try_from(vcpus).map_or(Verdict::Undecided(Stop::precision()), &mut test)
                });
                let vcpus = u32::try_from(found.budget).unwrap_or(probe);
                return Ok((vcpus, decided && found.exact));
            }
            if probe == most {
                return Err(reason(&verdict));
            }
            decided &= !matches!(verdict, Verdict::Undecided(_));
            fails_below = probe + 1;
            stride = (stride * 2).max(1);
        }
    }
}
