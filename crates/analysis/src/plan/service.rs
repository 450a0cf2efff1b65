//! Bounds of the services of a plan (see [`crate::latency`]).

use super::{
    Explanation, InterfaceName, Method, Needs, Request, SchedulerName, Service, ServiceReport,
    run::Outcome,
};
use crate::{
    guest::{edf, edf_response, fixed_priority},
    interface::Interface,
    latency::LatencyBound,
    supply::{DeterministicMultiprocessor, MultiprocessorPeriodic, PeriodicResource, Supply},
    task::{PriorityOrder, Task},
    time::Time,
    verdict::Verdict,
    work::Work,
};

pub(super) fn bounds(
    request: &Request,
    outcomes: &[Outcome],
    explanations: &mut Vec<Explanation>,
) -> Vec<ServiceReport> {
    request
        .services
        .iter()
        .map(|service| {
            let vm = &request.vms[service.vm];
            let bound = outcomes[service.vm].interface().and_then(|interface| {
                if request.method == Method::Vanilla {
                    let text = format!(
                        "service \"{}\" has no bound: with method \"vanilla\" nothing limits what its \
                         packets wait for on the receive path",
                        service.name
                    );
                    explanations.push(Explanation::words(&vm.name, text));
                    return None;
                }
                let found = bound(request, service, interface);
                if found.is_none() {
                    let text = format!(
                        "service \"{}\" has no bound that could be computed within the allowed work",
                        service.name
                    );
                    explanations.push(Explanation {
                        undecided: true,
                        ..Explanation::words(&vm.name, text)
                    });
                }
                found
            });
            let met = match (bound, service.limit) {
                (Some(bound), Some(limit)) => bound.total() <= limit,
                (bound, _) => bound.is_some(),
            };
            if let (Some(bound), Some(limit), false) = (bound, service.limit, met) {
                let show = |time: Time| request.unit.show(time.into());
                let text = format!(
                    "service \"{}\": bound {} = receive path {} + VCPU blackout {} + guest response {}, \
                     more than its limit {}",
                    service.name,
                    show(bound.total()),
                    show(bound.receive_path),
                    show(bound.blackout),
                    show(bound.guest_response),
                    show(limit),
                );
                let task = match &vm.needs {
                    Needs::Tasks(needs) => needs.tasks.get(service.task),
                    _ => None,
                };
                explanations.push(Explanation {
                    task: task.map(|named| named.name.clone()),
                    t: Some(limit),
                    demand: Some(bound.total().into()),
                    supply: Some(limit.into()),
                    ..Explanation::words(&vm.name, text)
                });
            }
            ServiceReport {
                name: service.name.clone(),
                vm: vm.name.clone(),
                bound: bound.map(|bound| bound.total()),
                receive_path: bound.map(|bound| bound.receive_path),
                blackout: bound.map(|bound| bound.blackout),
                guest_response: bound.map(|bound| bound.guest_response),
                limit: service.limit,
                met,
            }
        })
        .collect()
}

pub(super) fn bound(
    request: &Request,
    service: &Service,
    interface: &Interface,
) -> Option<LatencyBound> {
    let Needs::Tasks(needs) = &request.vms[service.vm].needs else {
        return None;
    };
    let receive_path = service.receive.bound().ok()?;
    let tasks = needs.tasks();
    let mut work = Work::default();
    let (response, blackout) = if let Some(partition) = &interface.partition {
        let vcpu = partition
            .iter()
            .position(|members| members.contains(&service.task))?;
        let members: Vec<Task> = partition[vcpu]
            .iter()
            .map(|&member| tasks[member])
            .collect();
        let index = partition[vcpu]
            .iter()
            .position(|&member| member == service.task)?;
        let supply =
            PeriodicResource::new(interface.period, *interface.vcpu_budgets.get(vcpu)?).ok()?;
        let response = edf_response_or_deadline(&members, index, &supply, &mut work)?;
        (response, blackout(&supply)?)
    } else if let [budget] = interface.vcpu_budgets[..] {
        let supply = PeriodicResource::new(interface.period, budget).ok()?;
        let response = match needs.scheduler {
            SchedulerName::Dm => {
                let order = PriorityOrder::DeadlineMonotonic.order(&tasks);
                let sorted: Vec<Task> = order.iter().map(|&i| tasks[i]).collect();
                let level = order.iter().position(|&i| i == service.task)?;
                let limit = sorted[level].window();
                match fixed_priority::response_time(&sorted, level, &supply, limit, &mut work) {
                    Ok(response) => response?,
                    // The interface holds it: its deadline bounds it.
                    Err(_) => tasks[service.task].deadline(),
                }
            }
            _ => edf_response_or_deadline(&tasks, service.task, &supply, &mut work)?,
        };
        (response, blackout(&supply)?)
    } else {
        (
            tasks[service.task].deadline(),
            several(needs.interface, interface)?,
        )
    };
    Some(LatencyBound::new(receive_path, response, blackout))
}

/// The deadline bounds the response of a schedulable task where computing it is too much work.
fn edf_response_or_deadline(
    tasks: &[Task],
    index: usize,
    supply: &PeriodicResource,
    work: &mut Work,
) -> Option<Time> {
    match edf_response::response_time(tasks, index, supply, work) {
        Ok(response) => Some(response),
        Err(Verdict::Undecided(_)) => edf::test(tasks, supply, &mut Work::default())
            .is_schedulable()
            .then(|| tasks[index].deadline()),
        Err(_) => None,
    }
}

/// The longest window without supply.
fn blackout(supply: &impl Supply) -> Option<Time> {
    supply.window_for(1).map(|window| window - 1)
}

fn several(kind: InterfaceName, interface: &Interface) -> Option<Time> {
    let vcpus = u32::try_from(interface.vcpu_budgets.len()).ok()?;
    match kind {
        InterfaceName::Dmpr => {
            let full = vcpus - 1;
            let partial = *interface.vcpu_budgets.last()?;
            blackout(&DeterministicMultiprocessor::new(interface.period, partial, full).ok()?)
        }
        _ => {
            blackout(&MultiprocessorPeriodic::new(interface.period, interface.budget, vcpus).ok()?)
        }
    }
}
