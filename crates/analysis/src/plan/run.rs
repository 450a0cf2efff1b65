//! Computes a plan.
//!
//! Rule: first every VM's interface, then admission of all VCPUs, then the services' bounds. Each VM
//! has at most its own share of the plan's allowance of work, so that one cannot starve the others.

use std::collections::HashSet;

use super::{
    CpuReport, Explanation, InputError, Install, InterfaceReport, Needs, ReceiveReport, Report,
    Request, Unit, VcpuReport, Vm, VmReport,
    choice::Choice,
    enforcement, explain,
    outcome::{Outcome, Owner, interface_of, vcpus_of},
    report::SCHEMA_VERSION,
    service, suggest,
};
use crate::{
    host::{Admission, Host, Placement, Vcpu, admit_and_count, admit_on_some},
    time::Time,
    work::Work,
};

/// The allowance of all VMs of a plan together.
const PLAN_STEPS: u64 = 5 * Work::DEFAULT_STEPS;

pub(super) fn check_names(vms: &[Vm]) -> Result<(), InputError> {
    let mut seen = HashSet::new();
    for vm in vms {
        if vm.name.is_empty() {
            return Err(InputError::new(
                &vm.place,
                "the VM's name is empty; give it one",
            ));
        }
        if vm.name.contains('\n') {
            let message = "the VM's name has a line break; use one line";
            return Err(InputError::new(&vm.place, message));
        }
        if !seen.insert(&vm.name) {
            let message = format!("a second VM is called \"{}\"; names must differ", vm.name);
            return Err(InputError::new(&vm.place, message));
        }
    }
    Ok(())
}

/// Every VM's interface on its own.
fn interfaces(request: &Request) -> Result<Vec<Outcome>, InputError> {
    let mut work = Work::new(PLAN_STEPS);
    let mut outcomes = Vec::with_capacity(request.vms.len());
    for vm in &request.vms {
        let mut share = work.take(Work::DEFAULT_STEPS);
        let outcome = interface_of(vm, &request.host, request.unit, &mut share)
            .map_err(|error| InputError::new(&vm.place, request.unit.error(&error)))?;
        work.give_back(&share);
        outcomes.push(outcome);
    }
    Ok(outcomes)
}

/// Whether the plan of `request` is feasible, and no more: what [`run`] says without its report, the least number of
/// CPUs and the changes that would help.
///
/// # Errors
/// As [`run`].
pub fn holds(request: &Request) -> Result<bool, InputError> {
    enforcement::check(request)?;
    let outcomes = interfaces(request)?;
    let (vcpus, owners) = vcpus_of(request, &outcomes)?;
    if !outcomes.iter().all(Outcome::is_complete) {
        return Ok(false);
    }
    let (admission, _) = admit_on_some(&request.host, &vcpus);
    let Some(places) = Places::of(&admission) else {
        return Ok(false);
    };
    let met = service::bounds(request, &outcomes, &mut Vec::new())
        .iter()
        .all(|service| service.met);
    if !met || request.enforce.is_none() {
        return Ok(met);
    }
    let vms = vm_reports(request, &outcomes, Some(places), &vcpus, &owners);
    Ok(enforcement::refusals(request, &vms).is_empty())
}

/// Computes the plan of `request`.
///
/// # Errors
/// Parameters that contradict each other, with the VM they belong to.
pub fn run(request: &Request) -> Result<Report, InputError> {
    enforcement::check(request)?;
    let outcomes = interfaces(request)?;
    let (vcpus, owners) = vcpus_of(request, &outcomes)?;
    let complete = outcomes.iter().all(Outcome::is_complete);
    let (admission, processors) = if complete {
        let (admission, processors) = admit_and_count(&request.host, &vcpus);
        (Some(admission), processors)
    } else {
        (None, None)
    };
    let mut explanations: Vec<Explanation> = request
        .vms
        .iter()
        .zip(&outcomes)
        .filter_map(|(vm, outcome)| explain::vm(vm, outcome, request.unit))
        .collect();
    if let Some(Admission {
        outcome: Err(rejection),
        ..
    }) = &admission
    {
        let owner = owners[rejection.vcpu];
        explanations.push(explain::host(request, rejection, &vcpus, owner));
    }
    let services = service::bounds(request, &outcomes, &mut explanations);
    let places = admission.as_ref().and_then(Places::of);
    let vms = vm_reports(request, &outcomes, places, &vcpus, &owners);
    let refusals = enforcement::refusals(request, &vms);
    let feasible = admission.as_ref().is_some_and(Admission::is_feasible)
        && services.iter().all(|service| service.met)
        && refusals.is_empty();
    explanations.extend(refusals);
    let notes = enforcement::notes(request, &vms);
    let suggestions = if feasible {
        Vec::new()
    } else {
        suggest::changes(
            request,
            &outcomes,
            admission.as_ref(),
            processors,
            &services,
        )
    };
    let mut incomplete = Vec::new();
    for vm in 0..request.vms.len() {
        let more = request.missing_of(vm, &outcomes);
        if more.len() > incomplete.len() {
            incomplete = more.to_vec();
        }
    }
    Ok(Report {
        schema_version: SCHEMA_VERSION,
        feasible,
        min_pcpus: processors.map(|processors| processors.count),
        min_pcpus_exact: processors.is_some_and(|processors| processors.exact),
        pcpus: request.host.cpus(),
        scheduler: request.host_name.word(),
        vms,
        cpus: cpu_reports(request, &vcpus, places),
        services,
        incomplete,
        explanations,
        suggestions,
        notes,
        nanoseconds: request.unit == super::Unit::Nanosecond,
    })
}

/// Where VCPUs are, and what each costs there.
#[derive(Clone, Copy)]
struct Places<'a> {
    placements: &'a [Placement],
    costs: &'a [Time],
}

impl<'a> Places<'a> {
    fn of(admission: &'a Admission) -> Option<Self> {
        let placements = admission.outcome.as_deref().ok()?;
        let costs = &admission.costs;
        Some(Self { placements, costs })
    }

    fn each(of: Option<Self>) -> impl Iterator<Item = (&'a Placement, Time)> {
        let (placements, costs) = of.map_or((&[][..], &[][..]), |of| (of.placements, of.costs));
        placements.iter().zip(costs.iter().copied())
    }
}

fn vm_reports(
    request: &Request,
    outcomes: &[Outcome],
    places: Option<Places<'_>>,
    vcpus: &[Vcpu],
    owners: &[Owner],
) -> Vec<VmReport> {
    let mut reports: Vec<VmReport> = request
        .vms
        .iter()
        .zip(outcomes)
        .map(|(vm, outcome)| vm_report(vm, outcome, &request.host, request.unit))
        .collect();
    let priorities = priorities(&request.host, vcpus);
    let owned = Places::each(places).zip(owners);
    for (index, ((placement, cost), &owner)) in owned.enumerate() {
        let (mut cpus, dedicated) = match placement {
            Placement::Dedicated(cpu) => (vec![*cpu], true),
            Placement::Pinned(cpu) => (vec![*cpu], false),
            Placement::Shared(cpus) => (cpus.clone(), false),
        };
        if let Some(numbers) = &request.cpu_numbers {
            let number = |cpu: &mut u32| *cpu = *numbers.get(*cpu as usize).unwrap_or(cpu);
            cpus.iter_mut().for_each(number);
        }
        let install = install(request, &vcpus[index], cost, &cpus, priorities.get(index));
        match owner {
            Owner::Vcpu(vm, position) => {
                let vcpu = &mut reports[vm].vcpus[position];
                (vcpu.cpus, vcpu.dedicated, vcpu.install) = (cpus, dedicated, install);
            }
            Owner::Receive(vm, position) => {
                let server = &mut reports[vm].receive[position];
                (server.cpus, server.install) = (cpus, install);
            }
        }
    }
    reports
}

fn install(
    request: &Request,
    vcpu: &Vcpu,
    runtime: Time,
    cpus: &[u32],
    priority: Option<&u32>,
) -> Option<Install> {
    let unit = request.unit;
    Some(Install {
        runtime_ns: unit.nanoseconds(runtime)?,
        deadline_ns: unit.nanoseconds(vcpu.deadline())?,
        period_ns: unit.nanoseconds(vcpu.period())?,
        cpus: cpus.to_vec(),
        margin_ns: unit.nanoseconds(vcpu.margin(request.host.overheads()))?,
        server: enforcement::server(request, vcpu),
        quantum_ns: unit.nanoseconds(request.host.overheads().quantum)?,
        priority: priority.copied(),
    })
}

/// On hosts of fixed priorities, one for each VCPU: the shorter its deadline the higher, from 98 down to 1.
fn priorities(host: &Host, vcpus: &[Vcpu]) -> Vec<u32> {
    if !host.scheduler().is_fixed_priority() {
        return Vec::new();
    }
    let mut order: Vec<usize> = (0..vcpus.len()).collect();
    order.sort_by_key(|&index| vcpus[index].deadline());
    let mut priorities = vec![1; vcpus.len()];
    for (rank, index) in (0_u32..).zip(order) {
        priorities[index] = 98_u32.saturating_sub(rank).max(1);
    }
    priorities
}

fn is_soft(vm: &Vm) -> bool {
    matches!(
        vm.needs,
        Needs::Given {
            played: Some(_),
            ..
        }
    )
}

fn vm_report(vm: &Vm, outcome: &Outcome, host: &Host, unit: Unit) -> VmReport {
    let tasks = match &vm.needs {
        Needs::Tasks(needs) => needs.tasks.as_slice(),
        _ => &[],
    };
    let utilization = (!tasks.is_empty()).then(|| {
        tasks
            .iter()
            .map(|named| named.task.execution_share().display_value())
            .sum()
    });
    let rt = !matches!(outcome, Outcome::BestEffort);
    let receive: Vec<ReceiveReport> = vm.receive.iter().map(ReceiveReport::of).collect();
    let Some(interface) = outcome.interface() else {
        let vcpu_count = match vm.needs {
            Needs::BestEffort { vcpus } => vcpus as usize,
            _ => 0,
        };
        let name = vm.name.clone();
        return VmReport {
            name,
            rt,
            soft: is_soft(vm),
            is_masked: vm.mask.is_some(),
            interface: None,
            ranks: Vec::new(),
            chosen: None,
            vcpu_count,
            vcpus: Vec::new(),
            receive,
        };
    };
    let pinned = |vcpu: usize| {
        let members = interface
            .partition
            .as_ref()
            .and_then(|partition| partition.get(vcpu));
        members
            .into_iter()
            .flatten()
            .map(|&task| tasks[task].name.clone())
            .collect()
    };
    let vcpus = interface
        .vcpu_budgets
        .iter()
        .enumerate()
        .map(|(vcpu, &budget)| VcpuReport {
            budget,
            deadline: interface.due.unwrap_or(interface.period),
            period: interface.period,
            cpus: Vec::new(),
            dedicated: false,
            install: None,
            tasks: pinned(vcpu),
        });
    VmReport {
        name: vm.name.clone(),
        rt,
        soft: is_soft(vm),
        is_masked: vm.mask.is_some(),
        interface: Some(InterfaceReport {
            period: interface.period,
            budget: interface.budget,
            deadline: interface.due,
            vcpus: interface.vcpu_budgets.len(),
            bandwidth: interface.bandwidth().display_value(),
            utilization,
            exact: interface.exact,
            away: service::away(interface),
        }),
        ranks: ranks(vm),
        chosen: chosen(vm, outcome, host, unit),
        vcpu_count: interface.vcpu_budgets.len(),
        vcpus: vcpus.collect(),
        receive,
    }
}

/// The names of its tasks by rank, where there is an order to keep.
fn ranks(vm: &Vm) -> Vec<String> {
    let order = service::ranks(vm);
    let Needs::Tasks(needs) = &vm.needs else {
        return Vec::new();
    };
    let named = |&task: &usize| needs.tasks[task].name.clone();
    if order.len() < 2 {
        return Vec::new();
    }
    order.iter().map(named).collect()
}

/// What the plan chose, and the next best, in words.
fn chosen(vm: &Vm, outcome: &Outcome, host: &Host, unit: Unit) -> Option<String> {
    let Outcome::Chosen(choices) = outcome else {
        return None;
    };
    let tasks = match &vm.needs {
        Needs::Tasks(needs) => needs.tasks(),
        _ => Vec::new(),
    };
    let words = |choice: &Choice| {
        let interface = &choice.interface;
        let due = interface.due.map_or(String::new(), |due| {
            format!(" within {}", unit.show(due.into()))
        });
        let cost = interface.cost(&tasks, host.overheads());
        format!(
            "{}, {}{due} in every {} = {:.3} CPUs with the host's costs",
            choice.name,
            unit.show(interface.budget.into()),
            unit.show(interface.period.into()),
            cost as f64 / interface.period as f64,
        )
    };
    let first = words(choices.first()?);
    Some(choices.get(1).map_or_else(
        || format!("chosen: {first}"),
        |next| format!("chosen: {first}; next: {}", words(next)),
    ))
}

fn cpu_reports(request: &Request, vcpus: &[Vcpu], places: Option<Places<'_>>) -> Vec<CpuReport> {
    let host = &request.host;
    let mut loads = vec![0.0; host.cpus() as usize];
    for (vcpu, (placement, cost)) in vcpus.iter().zip(Places::each(places)) {
        let load = cost as f64 / vcpu.period() as f64;
        let cpus = match placement {
            Placement::Dedicated(cpu) | Placement::Pinned(cpu) => std::slice::from_ref(cpu),
            Placement::Shared(cpus) => cpus,
        };
        for &cpu in cpus.iter().filter(|&&cpu| cpu < host.cpus()) {
            loads[cpu as usize] += load / cpus.len() as f64;
        }
    }
    let report = |(cpu, utilization): (u32, f64)| CpuReport {
        cpu,
        utilization,
        slack: (1.0 - utilization).max(0.0),
    };
    match &request.cpu_numbers {
        Some(numbers) => numbers.iter().copied().zip(loads).map(report).collect(),
        None => (0..).zip(loads).map(report).collect(),
    }
}
