//! Bounds of the services of a plan (see [`crate::latency`]).

use super::{
    Explanation, Impossible, InterfaceName, Needs, Request, SchedulerName, Service, ServiceReport,
    StageReport, TermReport, Vm,
    outcome::Outcome,
    way::{Passage, Traveller, passages},
};
use crate::{
    guest::{edf_response, fixed_priority},
    interface::Interface,
    latency::LatencyBound,
    supply::{DeterministicMultiprocessor, MultiprocessorPeriodic, PeriodicResource, Supply},
    task::{PriorityOrder, Task},
    time::Time,
    work::Work,
};

pub(super) fn bounds(
    request: &Request,
    outcomes: &[Outcome],
    explanations: &mut Vec<Explanation>,
) -> Vec<ServiceReport> {
    let mut found: Vec<Option<LatencyBound>> = (request.services.iter())
        .map(|service| {
            outcomes[service.vm]
                .interface()
                .filter(|_| request.receives_in_bounds)
                .and_then(|interface| bound(request, service, interface))
        })
        .collect();
    let ways = ways(request, &found);
    for (bound, (_, back)) in found.iter_mut().zip(&ways) {
        if let Some(bound) = bound {
            bound.send_path = bound.send_path.min(back.bound);
        }
    }
    (request.services.iter())
        .zip(found)
        .zip(ways)
        .map(|((service, bound), (there, back))| {
            let vm = &request.vms[service.vm];
            let met = match (bound, service.limit) {
                (Some(bound), Some(limit)) => bound.total() <= limit,
                (bound, _) => bound.is_some(),
            };
            let met = met && service.impossible.is_none();
            if !met && outcomes[service.vm].interface().is_some() {
                explanations.push(missed(request, service, bound));
            }
            let shown = bound.is_some();
            ServiceReport {
                name: service.name.clone(),
                vm: vm.name.clone(),
                bound: bound.map(|bound| bound.total()),
                receive_path: bound.map(|bound| bound.receive_path),
                blackout: bound.map(|bound| bound.blackout),
                guest_response: bound.map(|bound| bound.guest_response),
                guest_wakeup: bound.map(|bound| bound.guest_wakeup),
                send_path: bound.map(|bound| bound.send_path),
                guest_deadline: guest_task(request, service)
                    .filter(|_| shown)
                    .map(Task::window),
                guest_rank: rank(request, service).filter(|_| shown),
                stages: if shown {
                    vec![stage("receive", &there), stage("send", &back)]
                } else {
                    Vec::new()
                },
                incomplete: (service.missing.iter())
                    .chain(request.missing_of(service.vm, outcomes))
                    .copied()
                    .collect(),
                limit: service.limit,
                met,
            }
        })
        .collect()
}

fn guest_task<'r>(request: &'r Request, service: &Service) -> Option<&'r Task> {
    match &request.vms[service.vm].needs {
        Needs::Tasks(needs) => needs.tasks.get(service.task).map(|named| &named.task),
        _ => None,
    }
}

fn rank(request: &Request, service: &Service) -> Option<usize> {
    let order = ranks(&request.vms[service.vm]);
    let place = order.iter().position(|&task| task == service.task)?;
    Some(place + 1)
}

/// Under "dm" the tasks of a VM, the most urgent first, as they were analysed: by deadlines that the services' limits
/// and ways may have shortened. Whoever ranks by the file's `d` may get another order, and later answers.
pub(super) fn ranks(vm: &Vm) -> Vec<usize> {
    match &vm.needs {
        Needs::Tasks(needs) if needs.scheduler == SchedulerName::Dm => {
            PriorityOrder::DeadlineMonotonic.order(&needs.tasks())
        }
        _ => Vec::new(),
    }
}

/// The ways in and out with what this plan lets precede the way back.
fn ways(request: &Request, found: &[Option<LatencyBound>]) -> Vec<(Passage, Passage)> {
    let travellers: Vec<Traveller<'_>> = (request.services.iter().zip(found))
        .map(|(service, bound)| Traveller {
            name: &service.name,
            receive: &service.receive,
            send: &service.send,
            requests: service.requests,
            ready: bound
                .map(|bound| {
                    let sent = bound.total() - bound.send_path + service.send.in_front;
                    sent - service.receive_path.least
                })
                .into_iter()
                .chain(service.limit)
                .min()
                .unwrap_or_default(),
        })
        .collect();
    let refined = passages(&travellers, &request.flows, &mut Work::default());
    (request.services.iter().zip(refined))
        .map(|(service, refined)| {
            let first = (service.receive_path.clone(), service.send_path.clone());
            match refined {
                Ok((_, back)) if back.bound <= first.1.bound => (first.0, back),
                _ => first,
            }
        })
        .collect()
}

fn stage(name: &'static str, passage: &Passage) -> StageReport {
    let terms = passage.terms.iter().map(|(what, time)| TermReport {
        what: what.clone(),
        time: *time,
    });
    StageReport {
        name,
        on: passage.on.clone(),
        bound: passage.bound,
        least: passage.least,
        terms: terms.collect(),
    }
}

/// Why a service does not keep its limit, or has no bound at all.
fn missed(request: &Request, service: &Service, bound: Option<LatencyBound>) -> Explanation {
    let vm = &request.vms[service.vm];
    let show = |time: Time| request.unit.show(time.into());
    let name = &service.name;
    let named = match &vm.needs {
        Needs::Tasks(needs) => needs.tasks.get(service.task),
        _ => None,
    };
    let (limit, execution) = match (service.limit, named) {
        (Some(limit), Some(named)) => (limit, named.task.demand()),
        (None, Some(named)) => (named.task.deadline(), named.task.demand()),
        (limit, None) => (limit.unwrap_or_default(), 1),
    };
    let (there, back) = (service.receive_path.bound, service.send_path.bound);
    let least = there + execution + service.wake + back;
    let (demand, supply, text) = match (&service.impossible, bound) {
        // Before its packet is delivered nothing of a request can be executed.
        (Some(Impossible::Path(why)), _) => (execution, 0, format!("service \"{name}\": {why}")),
        (Some(Impossible::TooLong), _) => (
            least.max(limit.saturating_add(1)),
            limit,
            format!(
                "service \"{name}\": no plan can do this: receive path {}, execution {}, wake-up {} and way \
                 back {} do not fit {} even on an idle CPU; raise the limit (or the task's deadline), or shorten one of them",
                show(there),
                show(execution),
                show(service.wake),
                show(back),
                show(limit),
            ),
        ),
        (None, Some(bound)) => (
            bound.total(),
            limit,
            format!(
                "service \"{name}\": bound {} = receive path {} + VCPU blackout {} + guest response {} + guest \
                 wake-up {} + way back {}, more than its limit {}",
                show(bound.total()),
                show(bound.receive_path),
                show(bound.blackout),
                show(bound.guest_response),
                show(bound.guest_wakeup),
                show(bound.send_path),
                show(limit),
            ),
        ),
        // Before its packet is delivered nothing of a request can be executed.
        (None, None) => (
            execution,
            0,
            format!(
                "service \"{name}\" has no bound: under a method without ranks (\"vanilla\") nothing limits what its \
                 packets wait for on the receive path. In a window of t = {} a request demands {}, but only \
                 {} is certain to be supplied",
                show(limit),
                show(execution),
                show(0),
            ),
        ),
    };
    Explanation {
        task: named.map(|named| named.name.clone()),
        t: Some(limit),
        demand: Some(demand.into()),
        supply: Some(supply.into()),
        ..Explanation::words(&vm.name, text)
    }
}

pub(super) fn bound(
    request: &Request,
    service: &Service,
    interface: &Interface,
) -> Option<LatencyBound> {
    let Needs::Tasks(needs) = &request.vms[service.vm].needs else {
        return None;
    };
    if matches!(service.impossible, Some(Impossible::Path(_))) {
        return None;
    }
    let receive_path = service.receive_path.bound;
    let tasks = needs.tasks();
    let mut work = Work::default();
    let (response, blackout) = if let Some(due) = interface.due {
        // The reservation begins with the request.
        (tasks[service.task].jitter() + due, due - interface.budget)
    } else if let Some(partition) = &interface.partition {
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
        let supply = vcpu_supply(interface, *interface.vcpu_budgets.get(vcpu)?)?;
        let response = edf_response_or_deadline(&members, index, &supply, &mut work);
        (response, blackout(&supply)?)
    } else if let [budget] = interface.vcpu_budgets[..] {
        let supply = vcpu_supply(interface, budget)?;
        let response = match needs.scheduler {
            SchedulerName::Dm => {
                let order = PriorityOrder::DeadlineMonotonic.order(&tasks);
                let sorted: Vec<Task> = order.iter().map(|&i| tasks[i]).collect();
                let level = order.iter().position(|&i| i == service.task)?;
                let limit = sorted[level].window();
                match fixed_priority::response_time(&sorted, level, &supply, limit, &mut work) {
                    Ok(Some(response)) => response,
                    // The interface holds it: its deadline bounds it.
                    _ => tasks[service.task].deadline(),
                }
            }
            _ => edf_response_or_deadline(&tasks, service.task, &supply, &mut work),
        };
        (response, blackout(&supply)?)
    } else {
        (
            tasks[service.task].deadline(),
            several(needs.interface, interface)?,
        )
    };
    // Responses count from the release, at the packet's earliest delivery; the receive path has the jitter. The wake-up
    // and the guest's transmit path are in them.
    let variation = receive_path - service.receive_path.least;
    let shown_apart = service.wake + service.send.in_guest;
    let bound = LatencyBound::new(receive_path, response - variation - shown_apart, blackout);
    Some(LatencyBound {
        guest_wakeup: service.wake,
        send_path: service.send_path.bound,
        ..bound
    })
}

/// The interface holds the tasks, so the deadline bounds a response that is too much work to compute.
fn edf_response_or_deadline(
    tasks: &[Task],
    index: usize,
    supply: &PeriodicResource,
    work: &mut Work,
) -> Time {
    edf_response::response_time(tasks, index, supply, work).unwrap_or(tasks[index].deadline())
}

fn vcpu_supply(interface: &Interface, budget: Time) -> Option<PeriodicResource> {
    let vcpu = PeriodicResource::new(interface.period, budget).ok()?;
    Some(vcpu.replenished(interface.replenishment))
}

/// The longest time without supply of an only VCPU that does not begin with its request.
pub(super) fn away(interface: &Interface) -> Option<Time> {
    match (interface.due, &interface.vcpu_budgets[..]) {
        (None, &[budget]) => blackout(&vcpu_supply(interface, budget)?),
        _ => None,
    }
}

/// The longest window without supply.
fn blackout(supply: &impl Supply) -> Option<Time> {
    supply.window_for(1).map(|window| window - 1)
}

fn several(kind: InterfaceName, interface: &Interface) -> Option<Time> {
    let vcpus = u32::try_from(interface.vcpu_budgets.len()).ok()?;
    if kind == InterfaceName::Dmpr {
        let partial = *interface.vcpu_budgets.last()?;
        let vcpus = DeterministicMultiprocessor::new(interface.period, partial, vcpus - 1).ok()?;
        return blackout(&vcpus.replenished(interface.replenishment));
    }
    let vcpus = MultiprocessorPeriodic::new(interface.period, interface.budget, vcpus).ok()?;
    blackout(&vcpus.replenished(interface.replenishment))
}
