//! What each VM of a plan gets, before placement.

use super::{
    InputError, Needs, Period, Request, SchedulerName, TaskNeeds, Unit, Vm,
    choice::{self, Choice},
};
use crate::{
    error::Error,
    host::{Host, Vcpu, starts::Wakes},
    interface::{Infeasible, Interface, Resource, best_period, minimal},
    ratio::Interval,
    supply::{MultiprocessorPeriodic, Replenishment},
    task::Task,
    verdict::Verdict,
    work::Work,
};

/// What a VM gets, before placement.
#[derive(Debug, Clone)]
pub(super) enum Outcome {
    Interface(Interface),
    /// Chosen by the plan: what would do, cheapest first.
    Chosen(Vec<Choice>),
    NoInterface(Infeasible),
    /// The given budget is below this least one.
    TooSmall {
        given: i64,
        least: Interface,
        /// The failed test of the given budget.
        verdict: Verdict,
    },
    BestEffort,
}

impl Outcome {
    /// Whether the VM can be placed.
    pub(super) const fn is_complete(&self) -> bool {
        matches!(
            self,
            Self::Interface(_) | Self::Chosen(_) | Self::BestEffort
        )
    }

    pub(super) fn interface(&self) -> Option<&Interface> {
        match self {
            Self::Interface(interface) => Some(interface),
            Self::Chosen(choices) => choices.first().map(|choice| &choice.interface),
            _ => None,
        }
    }
}

/// The interface of one VM on its own.
pub(super) fn interface_of(
    vm: &Vm,
    host: &Host,
    unit: Unit,
    work: &mut Work,
) -> Result<Outcome, Error> {
    let needs = match &vm.needs {
        Needs::Tasks(needs) => needs,
        Needs::BestEffort { .. } => return Ok(Outcome::BestEffort),
        Needs::Given {
            budget,
            period,
            vcpus,
            ..
        } => {
            return spread(*budget, *period, *vcpus, host.replenishment()).map(Outcome::Interface);
        }
    };
    if needs.is_chosen() {
        return Ok(match choice::ranked(needs, host, unit, work)? {
            Ok(choices) => Outcome::Chosen(choices),
            Err(reason) => Outcome::NoInterface(reason),
        });
    }
    let least = match least_interface(needs, host, work)? {
        Ok(least) => least,
        Err(reason) => return Ok(Outcome::NoInterface(reason)),
    };
    match needs.budget {
        None => Ok(Outcome::Interface(least)),
        Some(given) if given < least.budget => {
            let verdict = least.test_with(given, &needs.tasks(), needs.scheduler.into(), work);
            Ok(Outcome::TooSmall {
                given,
                least,
                verdict,
            })
        }
        Some(given) => {
            let vcpus = u32::try_from(least.vcpu_budgets.len()).unwrap_or(u32::MAX);
            let partition = least.partition;
            let interface = spread(given, least.period, vcpus, least.replenishment)?;
            Ok(Outcome::Interface(Interface {
                partition,
                ..interface
            }))
        }
    }
}

pub(super) fn least_interface(
    needs: &TaskNeeds,
    host: &Host,
    work: &mut Work,
) -> Result<Result<Interface, Infeasible>, Error> {
    let tasks = needs.tasks();
    let scheduler = needs.scheduler.into();
    let resource = Resource {
        kind: needs.interface.into(),
        replenishment: host.replenishment(),
    };
    match needs.period {
        Period::Fixed(period) => minimal(&tasks, scheduler, resource, period, needs.vcpus, work),
        Period::Best(range) => best_period::best(
            &tasks,
            scheduler,
            resource,
            range,
            needs.vcpus,
            host.overheads(),
            work,
        ),
        // Only of chosen interfaces, whose periods `choice` tries.
        Period::Chosen => Ok(Err(
            Infeasible::Undecided(crate::verdict::Stop::precision()),
        )),
    }
}

fn spread(
    budget: i64,
    period: i64,
    vcpus: u32,
    replenishment: Replenishment,
) -> Result<Interface, Error> {
    let vcpu_budgets = MultiprocessorPeriodic::new(period, budget, vcpus)?.vcpu_budgets();
    Ok(Interface {
        period,
        budget,
        vcpu_budgets,
        partition: None,
        due: None,
        replenishment,
        exact: true,
    })
}

/// Whose a server is, by VM and number in it.
#[derive(Debug, Clone, Copy)]
pub(super) enum Owner {
    /// A VCPU's.
    Vcpu(usize, usize),
    /// One of those that receive for the VM.
    Receive(usize, usize),
}

impl Owner {
    /// The VM.
    pub(super) const fn vm(self) -> usize {
        match self {
            Self::Vcpu(vm, _) | Self::Receive(vm, _) => vm,
        }
    }
}

/// Everything with a budget, and whose it is.
pub(super) type Owned = (Vec<Vcpu>, Vec<Owner>);

pub(super) fn vcpus_of(request: &Request, outcomes: &[Outcome]) -> Result<Owned, InputError> {
    let (mut vcpus, mut owners) = (Vec::new(), Vec::new());
    for (number, (vm, outcome)) in request.vms.iter().zip(outcomes).enumerate() {
        let Some(interface) = outcome.interface() else {
            continue;
        };
        let tasks = match &vm.needs {
            Needs::Tasks(needs) => needs.tasks(),
            _ => Vec::new(),
        };
        for (position, &budget) in interface.vcpu_budgets.iter().enumerate() {
            if budget == 0 {
                continue;
            }
            let wakes = if tasks.is_empty() {
                Wakes::Unknown
            } else {
                interface.wakes(&tasks, position)
            };
            let vcpu = Vcpu::new(number, budget, interface.period)
                .and_then(|vcpu| match interface.due {
                    Some(due) if budget < interface.period => Ok(vcpu.due(due)?.reserved()),
                    _ => Ok(vcpu),
                })
                .and_then(|vcpu| match vm.cpus_of(position) {
                    Some(cpus) => vcpu.on(cpus),
                    None => Ok(vcpu),
                });
            let wrong = |error| InputError::new(&vm.place, request.unit.error(&error));
            vcpus.push(vcpu.map_err(wrong)?.woken(wakes));
            owners.push(Owner::Vcpu(number, position));
        }
    }
    receive_servers(request, &mut vcpus, &mut owners)?;
    Ok((vcpus, owners))
}

/// What receives for VMs, in the same sum: of those that are not real-time, too.
fn receive_servers(
    request: &Request,
    vcpus: &mut Vec<Vcpu>,
    owners: &mut Vec<Owner>,
) -> Result<(), InputError> {
    for (number, vm) in request.vms.iter().enumerate() {
        for (position, server) in vm.receive.iter().enumerate() {
            // It may run anywhere, wherever the VM's VCPUs may.
            let one = Vcpu::new(number, server.budget, server.period);
            let wrong = |error| InputError::new(&vm.place, request.unit.error(&error));
            vcpus.push(one.map_err(wrong)?);
            owners.push(Owner::Receive(number, position));
        }
    }
    Ok(())
}

/// Whether the sum of the tasks' utilisations exceeds `processors` for certain.
pub(super) fn overloads(needs: &TaskNeeds, processors: u32) -> bool {
    let share = match needs.scheduler {
        SchedulerName::Dm => Task::execution_share,
        _ => Task::utilization,
    };
    Interval::of(needs.tasks().iter().map(share))
        .compare(crate::ratio::Fraction::new(processors.into(), 1))
        .is_some_and(std::cmp::Ordering::is_gt)
}
