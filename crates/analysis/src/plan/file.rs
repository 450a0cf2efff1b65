//! Requests: the host, its VMs, their tasks or interfaces, services. `steadyvm.toml` and JSON say the same.
//!
//! Rule: a VM's settings are its own, then those of its class, then those the class `extends`; a circle
//! of classes is an error. Times are "10ms" or whole units: nanoseconds in a file. An unknown field is an error.
//! A service with c, t and limit makes a task, and its VM if there is none of that name; what is left out is
//! chosen ([`super::choice`]).
//! Example: examples/steadyvm.toml; every field: docs/reference/steadyvm.toml.md.

mod classes;
mod host;
pub(super) mod places;
mod service;
mod vm;

use std::collections::HashSet;

use steadyvm_config::{self as config, Count, File, Placed};

use self::{
    host::HostTable,
    places::Places,
    service::{ServiceTable, carry},
    vm::has_tasks,
};
use super::{
    Enforcement, HostName, InputError, InterfaceName, MAX_TASKS, MAX_VMS, Measured, Missing, Needs,
    Request, Service, Unit, Vm,
    costs::{self, Costs},
    receive,
    way::Flow,
};
use crate::{
    host::{Host, HostScheduler, VcpuServer},
    interface::reservation,
    time::Time,
};

/// Reads a plan file.
///
/// # Errors
/// What is not as described above, with its line.
pub fn parse(text: &str) -> Result<Request, InputError> {
    of(&File::parse("", text)?, None)
}

/// The request that a file makes. `here`: the CPUs of the machine that it may be for, by number; a host that does not say
/// its CPUs has those.
///
/// # Errors
/// What its values do not mean together, with the place.
pub fn of(file: &File, here: Option<&[u32]>) -> Result<Request, InputError> {
    of_measured(file, here, &Measured::default())
}

/// The same; costs that the file leaves out are those that were measured on its host.
///
/// # Errors
/// As of [`of()`].
pub fn of_measured(
    file: &File,
    here: Option<&[u32]>,
    measured: &Measured,
) -> Result<Request, InputError> {
    let places = Places::of_toml(file);
    request(file, &places, Unit::Nanosecond, here, measured)
}

/// What a file says of its host's CPUs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostCpus {
    /// Their numbers, ascending.
    pub cpus: Vec<u32>,
    /// Who schedules VCPUs: "pedf", "gedf", "pdm" or "gdm".
    pub scheduler: &'static str,
}

/// The CPUs of a file's host; none if the file has no `[host]`. `here`: as of [`of()`].
///
/// # Errors
/// As of [`of`], but for VMs and services.
pub fn host_cpus(file: &File, here: &[u32]) -> Result<Option<HostCpus>, InputError> {
    let Some(table) = &file.host else {
        return Ok(None);
    };
    let (count, numbers) = HostTable(table).cpus(&Places::of_toml(file), Some(here))?;
    Ok(Some(HostCpus {
        cpus: numbers.unwrap_or_else(|| (0..count).collect()),
        scheduler: table.scheduler.word(),
    }))
}

/// That it has VMs or services and not too many.
fn check_lists(file: &File, places: &Places) -> Result<(), InputError> {
    if file.vm.is_empty() && file.service.is_empty() {
        return Err(InputError::new(
            places.vms(),
            "the list is empty; name at least one VM, or a service. The shortest plan is\n  \
             [[service]]\n  vm = \"web\"\n  c = \"2ms\"\n  t = \"10ms\"\n  limit = \"5ms\"",
        ));
    }
    if file.vm.len() > MAX_VMS || file.service.len() > MAX_VMS {
        let message = format!("a plan holds at most {MAX_VMS} VMs and as many services");
        return Err(InputError::new(places.vms(), message));
    }
    Ok(())
}

/// The host of a request.
struct HostOf {
    host: Host,
    /// The numbers of its CPUs where these are known.
    cpu_numbers: Option<Vec<u32>>,
    /// Costs that nobody says.
    missing: Vec<Missing>,
    /// Costs that were measured and are counted.
    taken: Vec<(&'static str, Time)>,
}

/// The host that a file or request names, or that it is read on.
fn host_of(
    file: &File,
    places: &Places,
    unit: Unit,
    here: Option<&[u32]>,
    measured: &Measured,
    notes: &mut Vec<String>,
) -> Result<HostOf, InputError> {
    let table = file.host.as_ref().map(|host| &host.value);
    Ok(match (table, here) {
        // A service alone: the reader does not know the machine that it is for.
        (None, None) if file.vm.is_empty() => {
            notes.push("no host is given: this is for one CPU under pedf".to_owned());
            one_cpu(measured)?
        }
        (None, None) => {
            let message = "missing field `host`: with [[vm]] tables the plan needs the host they are for, such as\n  \
                           [host]\n  pcpus = 4\n  scheduler = \"pedf\"";
            return Err(InputError::new(places.host(), message));
        }
        _ => {
            let supposed = config::Host::default();
            let table = HostTable(table.unwrap_or(&supposed));
            let (count, numbers) = table.cpus(places, here)?;
            notes.extend(table.supposed(count, file.host.is_none()));
            let costs = table.costs(count, measured);
            HostOf {
                host: table.read(count, costs.overheads, unit, places)?,
                cpu_numbers: numbers,
                missing: costs.missing,
                taken: costs.taken,
            }
        }
    })
}

/// `here`: see [`of`].
pub(super) fn request(
    file: &File,
    places: &Places,
    unit: Unit,
    here: Option<&[u32]>,
    measured: &Measured,
) -> Result<Request, InputError> {
    check_lists(file, places)?;
    let mut notes = Vec::new();
    let table = file.host.as_ref().map(|host| &host.value);
    let HostOf {
        host,
        cpu_numbers,
        missing,
        mut taken,
    } = host_of(file, places, unit, here, measured, &mut notes)?;
    let host_name = table.map_or_else(HostName::default, |table| table.scheduler);
    let receives_in_bounds = table.is_none_or(|table| table.method.bounds_the_receive_path());
    let enforce = table.and_then(Enforcement::of);
    let host = super::enforcement::host(host, enforce, unit);
    let (mut vms, mut tasks) = (Vec::with_capacity(file.vm.len()), 0);
    for (index, table) in file.vm.iter().enumerate() {
        let place = places.vm(index);
        let settings =
            classes::settings(table, &file.class, places).map_err(|error| InputError {
                place: if error.place.is_empty() {
                    place.clone()
                } else {
                    error.place
                },
                ..error
            })?;
        let Some(name) = &table.name else {
            return Err(InputError::new(place, "this VM has no name; give it one"));
        };
        let served = file
            .service
            .iter()
            .any(|service| ServiceTable(service).makes_task() && service.vm == *name);
        if settings.is_passed_over(served) {
            notes.push(format!(
                "VM \"{name}\" has no tasks, no service and no budget: it is not planned, and gets no budget; give it tasks, or \
                 a budget and a period"
            ));
        }
        let mut settings = settings.read(name, index, places, unit, served)?;
        settings.number_cpus(&host, cpu_numbers.as_deref())?;
        let of_receive = places.field(index, "receive");
        settings.receive = receive::servers(table, &of_receive, unit, measured.packet)?;
        let is_by_rate =
            |receive: &config::ReceiveBudget| receive.rate.is_some() && receive.packet.is_none();
        if table.receive.as_ref().is_some_and(|it| is_by_rate(it)) {
            taken.extend(measured.packet.map(|time| ("receive.packet of a VM", time)));
        }
        if settings.is_best_effort() && has_tasks(table) {
            notes.push(format!(
                "VM \"{name}\" is rt = false, so nothing is promised to its tasks; leave out rt to plan them"
            ));
        }
        tasks += settings.task_count();
        vms.push(settings);
    }
    let mut services = Vec::with_capacity(file.service.len());
    for (index, table) in file.service.iter().enumerate() {
        let place = places.service(index);
        let table = ServiceTable(table);
        let way = table.measured_way(measured);
        taken.extend(way.interrupt.map(|time| ("receive.interrupt", time)));
        taken.extend(way.packet.map(|time| ("receive.packet", time)));
        services.push(table.read(&mut vms, &place, unit, way)?);
        tasks += 1;
    }
    let flows = flows(file, &services, unit)?;
    check_service_names(&file.service, &mut services, places)?;
    carry(&mut vms, &mut services, &flows);
    if tasks > MAX_TASKS {
        let message = format!("a plan holds at most {MAX_TASKS} tasks");
        return Err(InputError::new(places.vms(), message));
    }
    vms.iter().try_for_each(|vm| vm.check(&host))?;
    super::run::check_names(&vms)?;
    let mut said = HashSet::new();
    taken.retain(|cost| said.insert(*cost));
    notes.extend(costs::taken(&taken, unit));
    Ok(Request {
        host,
        cpu_numbers,
        host_name,
        receives_in_bounds,
        enforce,
        vms,
        services,
        flows,
        unit,
        missing,
        notes,
    })
}

/// The file's flows, each on a path that a service uses.
fn flows(file: &File, services: &[Service], unit: Unit) -> Result<Vec<Flow>, InputError> {
    if file.flow.len() > MAX_VMS {
        let message = format!("a plan holds at most {MAX_VMS} flows");
        return Err(InputError::new("flow", message));
    }
    let flows = (file.flow.iter().enumerate())
        .map(|(index, table)| service::flow(table, index, unit))
        .collect::<Result<Vec<_>, _>>()?;
    let used = |flow: &Flow| services.iter().any(|service| service.uses(&flow.on));
    if let Some((index, flow)) = (flows.iter().enumerate()).find(|(_, flow)| !used(flow)) {
        let message = format!(
            "flow \"{}\" is on path \"{}\", which no service's receive or send names; correct the name, or \
             leave the flow out",
            flow.name, flow.on
        );
        return Err(InputError::new(format!("flow[{index}]"), message));
    }
    Ok(flows)
}

/// Services without a name of their own are numbered where they share one; given names must differ.
fn check_service_names(
    tables: &[Placed<config::Service>],
    services: &mut [Service],
    places: &Places,
) -> Result<(), InputError> {
    let mut seen = HashSet::new();
    for (index, (table, service)) in tables.iter().zip(services).enumerate() {
        if table.name.is_some() && !seen.insert(service.name.clone()) {
            let message = format!(
                "a second service is called \"{}\"; names must differ",
                service.name
            );
            return Err(InputError::new(places.service(index), message));
        }
        let plain = service.name.clone();
        let mut number = 1;
        while table.name.is_none() && !seen.insert(service.name.clone()) {
            number += 1;
            service.name = format!("{plain} {number}");
        }
    }
    Ok(())
}

/// The number, if it is in `1..=high`.
fn within(count: Count, place: &str, high: u32) -> Result<u32, InputError> {
    u32::try_from(count.0)
        .ok()
        .filter(|&n| (1..=high).contains(&n))
        .ok_or_else(|| {
            let message = format!(
                "{} is out of range: it must be between 1 and {high}",
                count.0
            );
            InputError::new(place, message)
        })
}

fn one_cpu(measured: &Measured) -> Result<HostOf, InputError> {
    let scheduler = HostScheduler::PartitionedEarliestDeadline;
    let costs = Costs::of(&config::Overheads::default(), 0, false, measured);
    let host = Host::new(1, scheduler, VcpuServer::default(), costs.overheads);
    Ok(HostOf {
        host: host.map_err(|error| InputError::new("host", error))?,
        cpu_numbers: None,
        missing: costs.missing,
        taken: costs.taken,
    })
}

impl Vm {
    fn is_best_effort(&self) -> bool {
        matches!(self.needs, Needs::BestEffort { .. })
    }

    /// What must hold once the services have given their tasks.
    fn check(&self, host: &Host) -> Result<(), InputError> {
        let is_soft = matches!(
            self.needs,
            Needs::Given {
                played: Some(_),
                ..
            }
        );
        if is_soft && host.server() != VcpuServer::CapacityReclaiming {
            let message = format!(
                "VM \"{}\" is soft, and no other VM lends what it leaves of its budget: write server = \"capacity-reclaiming\" \
                 into [host], which enforce = \"ext\" keeps",
                self.name
            );
            return Err(InputError::new(&self.place, message));
        }
        let restarts = matches!(
            host.server(),
            VcpuServer::Sporadic | VcpuServer::ConstantBandwidth
        );
        if let Needs::Tasks(needs) = &self.needs
            && let Some(named) = (needs.tasks.iter()).find(|named| named.task.suspension() > 0)
            && restarts
        {
            let message = format!(
                "VM \"{}\": task {} suspends itself, and a server of the kinds cbs and sporadic may give a VCPU that sleeps and \
                 wakes a later deadline, so that nothing bounds its jobs; use server = \"periodic\" or \"deferrable\", or \
                 write the task as two without suspension",
                self.name, named.name
            );
            return Err(InputError::new(&self.place, message));
        }
        if let Needs::Tasks(needs) = &self.needs
            && needs.tasks.is_empty()
        {
            let message = format!("VM \"{}\" has no tasks; give it at least one", self.name);
            return Err(InputError::new(&self.place, message));
        }
        if let Needs::Tasks(needs) = &self.needs
            && needs.interface == InterfaceName::Reservation
            && (host.server() != VcpuServer::ConstantBandwidth
                || reservation::minimal(&needs.tasks()).is_none())
        {
            let message = format!(
                "VM \"{}\": a reservation is for one task without self-suspension, on a host whose server is \
                     cbs; use interface \"best\" or \"prm\"",
                self.name
            );
            return Err(InputError::new(&self.place, message));
        }
        Ok(())
    }
}
