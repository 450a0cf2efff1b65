//! The change that would make an infeasible plan feasible.
//!
//! Rule: a change is named only after it was tried: more budget (for a budget given too small), another
//! interface or more VCPUs (for a VM no single CPU can hold), another scheduler of the host, more CPUs, a
//! reservation that wakes with the request, or another VCPU period (a
//! longer one saves overheads, a shorter one bandwidth; each VM's period halved, doubled, ...).

use super::{
    HostName, InterfaceName, Needs, Period, Request, SchedulerName, ServiceReport, TaskNeeds, Vm,
    enforcement, names,
    outcome::{Outcome, interface_of, least_interface, vcpus_of},
    service,
};
use crate::{
    host::{Admission, Processors, admit},
    time::MAX_TIME,
    work::Work,
};

pub(super) fn changes(
    request: &Request,
    outcomes: &[Outcome],
    admission: Option<&Admission>,
    processors: Option<Processors>,
    services: &[ServiceReport],
) -> Vec<String> {
    let mut work = Work::new(2 * Work::DEFAULT_STEPS);
    let work = &mut work;
    let mut changes: Vec<String> = request
        .vms
        .iter()
        .zip(outcomes)
        .filter_map(|(vm, outcome)| for_vm(request, vm, outcome, work))
        .collect();
    if admission.is_some_and(|admission| !admission.is_feasible()) {
        changes.extend(other_scheduler(request));
        changes.extend(more_cpus(request, processors));
        changes.extend(other_period(request, work));
    }
    let late = services
        .iter()
        .zip(&request.services)
        .filter(|(report, _)| !report.met);
    for (_, service) in late {
        changes.extend(wake_with_request(request, service, work));
        changes.extend(shorter_bound(request, service, work));
    }
    changes
}

fn for_vm(request: &Request, vm: &Vm, outcome: &Outcome, work: &mut Work) -> Option<String> {
    let Needs::Tasks(needs) = &vm.needs else {
        return None;
    };
    match outcome {
        Outcome::TooSmall { least, .. } => Some(format!(
            "more budget: give VM \"{}\" {} in every {}",
            vm.name,
            request.unit.show(least.budget.into()),
            request.unit.show(least.period.into()),
        )),
        Outcome::NoInterface(_) => other_interface(request, vm, needs, work),
        _ => None,
    }
}

/// The first of these that gives the VM an interface: EDF, several VCPUs, any number of VCPUs.
fn other_interface(
    request: &Request,
    vm: &Vm,
    needs: &TaskNeeds,
    work: &mut Work,
) -> Option<String> {
    let (dm, prm) = (SchedulerName::Dm, InterfaceName::Prm);
    let free = TaskNeeds {
        vcpus: None,
        ..needs.clone()
    };
    let mut with = |scheduler: SchedulerName, interface: InterfaceName, what: String| {
        let tried = TaskNeeds {
            scheduler,
            interface,
            ..free.clone()
        };
        let interface = least_interface(&tried, &request.host, work).ok()?.ok()?;
        Some(format!(
            "VM \"{}\": {what}: {} in every {} on {} VCPUs suffices",
            vm.name,
            request.unit.show(interface.budget.into()),
            request.unit.show(interface.period.into()),
            interface.vcpu_budgets.len(),
        ))
    };
    if needs.scheduler == dm && needs.interface == prm {
        let edf = with(SchedulerName::Edf, prm, "EDF in the guest".to_owned());
        if edf.is_some() {
            return edf;
        }
    }
    if needs.interface == prm && needs.scheduler != SchedulerName::Pedf {
        // Pinned tasks need no help of the guest and mostly less: named unless it fails.
        let pinned = with(
            SchedulerName::Pedf,
            prm,
            "more VCPUs, tasks pinned to them (pedf, prm)".to_owned(),
        );
        return pinned.or_else(|| {
            with(
                SchedulerName::Gedf,
                InterfaceName::Dmpr,
                "more VCPUs (gedf, dmpr)".to_owned(),
            )
        });
    }
    let fixed = needs.vcpus?;
    with(
        needs.scheduler,
        needs.interface,
        format!("more VCPUs than {fixed}"),
    )
}

/// Another scheduler of the host that holds the same VMs on the same CPUs: pinned EDF first, as most hold there. What a VM
/// needs may differ: `cbs` is another server under fixed priorities.
fn other_scheduler(request: &Request) -> Option<String> {
    const ORDER: [HostName; 4] = [HostName::Pedf, HostName::Pdm, HostName::Gedf, HostName::Gdm];
    ORDER.into_iter().find_map(|name| {
        let mut changed = request.clone();
        let order = names::order(name)?;
        (changed.host, changed.host_name) = (request.host.with_scheduler(order), name);
        enforcement::check(&changed).ok()?;
        placed(&changed, &mut Work::default())?;
        Some(format!(
            "another scheduler: the host holds these VMs on its {} CPUs under {}",
            changed.host.cpus(),
            name.word()
        ))
    })
}

/// A reservation that wakes with the request, for the only task of a VM.
fn wake_with_request(
    request: &Request,
    service: &super::Service,
    work: &mut Work,
) -> Option<String> {
    let mut changed = request.clone();
    let Needs::Tasks(needs) = &mut changed.vms[service.vm].needs else {
        return None;
    };
    if service.impossible.is_some() || needs.is_chosen() {
        return None;
    }
    (needs.interface, needs.period, needs.vcpus, needs.budget) =
        (InterfaceName::Best, Period::Chosen, None, None);
    if needs.scheduler != SchedulerName::Dm {
        needs.scheduler = SchedulerName::Edf;
    }
    let outcomes = placed(&changed, work)?;
    let interface = outcomes[service.vm].interface()?;
    let bound = service::bound(&changed, service, interface)?.total();
    (bound <= service.limit?).then(|| {
        format!(
            "interface \"best\" and no period for VM \"{}\": {} in every {} bounds service \"{}\" by {}",
            request.vms[service.vm].name,
            request.unit.show(interface.budget.into()),
            request.unit.show(interface.period.into()),
            service.name,
            request.unit.show(bound.into()),
        )
    })
}

/// The interfaces of a changed request, if its host holds them.
fn placed(changed: &Request, work: &mut Work) -> Option<Vec<Outcome>> {
    let outcomes: Vec<Outcome> = (changed.vms.iter())
        .map(|vm| interface_of(vm, &changed.host, changed.unit, work))
        .collect::<Result<_, _>>()
        .ok()?;
    let (vcpus, _) = vcpus_of(changed, &outcomes).ok()?;
    let holds = outcomes.iter().all(Outcome::is_complete)
        && admit(&changed.host, &vcpus, work).is_feasible();
    holds.then_some(outcomes)
}

fn more_cpus(request: &Request, processors: Option<Processors>) -> Option<String> {
    let needed = processors?.count;
    let more = needed
        .checked_sub(request.host.cpus())
        .filter(|&more| more > 0)?;
    let plural = if more == 1 {
        "one more CPU".to_owned()
    } else {
        format!("{more} more CPUs")
    };
    Some(format!(
        "{plural}: {needed} CPUs hold these VMs under {}",
        request.host_name.word()
    ))
}

/// One VM's period changed so that the host can hold all.
fn other_period(request: &Request, work: &mut Work) -> Option<String> {
    // (numerator, denominator): longer periods first, they cost fewer switches.
    const FACTORS: [(i64, i64); 6] = [(2, 1), (4, 1), (1, 2), (1, 4), (1, 8), (1, 16)];
    const MAX_TRIES: usize = 64;
    let mut tries = 0;
    for (number, vm) in request.vms.iter().enumerate() {
        let Needs::Tasks(TaskNeeds {
            period: Period::Fixed(period),
            budget: None,
            ..
        }) = vm.needs
        else {
            continue;
        };
        for (numerator, denominator) in FACTORS {
            let changed = period.checked_mul(numerator)? / denominator;
            if changed == 0 || changed > MAX_TIME || tries == MAX_TRIES {
                continue;
            }
            tries += 1;
            if holds_with_period(request, number, changed, work) {
                let kind = if changed > period {
                    "longer"
                } else {
                    "shorter"
                };
                return Some(format!(
                    "a {kind} period: VM \"{}\" with VCPUs of {} instead of {}",
                    vm.name,
                    request.unit.show(changed.into()),
                    request.unit.show(period.into()),
                ));
            }
        }
    }
    None
}

fn holds_with_period(request: &Request, number: usize, period: i64, work: &mut Work) -> bool {
    let changed = with_period(request, number, period);
    placed(&changed, work).is_some()
}

fn with_period(request: &Request, number: usize, period: i64) -> Request {
    let mut changed = request.clone();
    if let Needs::Tasks(needs) = &mut changed.vms[number].needs {
        needs.period = Period::Fixed(period);
    }
    changed
}

/// A shorter VCPU period that brings a service's bound within its limit.
fn shorter_bound(request: &Request, service: &super::Service, work: &mut Work) -> Option<String> {
    let vm = &request.vms[service.vm];
    let (
        Needs::Tasks(TaskNeeds {
            period: Period::Fixed(period),
            ..
        }),
        Some(limit),
    ) = (&vm.needs, service.limit)
    else {
        return None;
    };
    (1..=6).map(|halvings| period >> halvings).take_while(|&period| period > 0).find_map(|shorter| {
        let changed = with_period(request, service.vm, shorter);
        let outcome = interface_of(&changed.vms[service.vm], &changed.host, changed.unit, work).ok()?;
        let bound = service::bound(&changed, service, outcome.interface()?)?;
        (bound.total() <= limit && holds_with_period(request, service.vm, shorter, work)).then(|| {
            format!(
                "a shorter period: VM \"{}\" with VCPUs of {} instead of {} bounds service \"{}\" by {}",
                vm.name,
                request.unit.show(shorter.into()),
                request.unit.show((*period).into()),
                service.name,
                request.unit.show(bound.total().into()),
            )
        })
    })
}
