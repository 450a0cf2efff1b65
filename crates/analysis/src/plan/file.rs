//! Requests: the host, its VMs, their tasks or interfaces, services. `steadyvm.toml` and JSON say the same.
//!
//! Rule: a VM's settings are its own, then those of its class, then those the class `extends`; a circle
//! of classes is an error. Times are "10ms" or whole units: nanoseconds in a file. An unknown field is an error.
//! A service with c, t and limit makes a task, and its VM if there is none of that name; what is left out is
//! chosen ([`super::choice`]).
//! Example: examples/steadyvm.toml; every field: docs/reference/steadyvm.toml.md.

mod classes;
mod cpus;
mod host;
pub(super) mod places;
mod service;
mod vm;

use std::collections::{BTreeMap, HashSet};

use serde::{Deserialize, de::IgnoredAny};

use self::{
    host::HostTable,
    places::Places,
    service::{FlowTable, ServiceTable, carry},
    vm::Settings,
};
use super::{
    HostName, InputError, InterfaceName, MAX_TASKS, MAX_VMS, Method, Needs, Request, Service, Unit,
    Vm, hints, report::SCHEMA_VERSION, way::Flow,
};
use crate::{
    host::{Host, HostScheduler, VcpuServer, overhead::Overheads},
    interface::reservation,
};

#[derive(Deserialize)]
#[serde(
    deny_unknown_fields,
    expecting = "an object with \"vms\" and \"host\", or a service"
)]
pub(super) struct File {
    schema_version: Option<u32>,
    /// JSON: "ns" makes every whole number nanoseconds, as in a file.
    pub unit: Option<UnitName>,
    host: Option<HostTable>,
    #[serde(default)]
    class: BTreeMap<String, Settings>,
    #[serde(default, alias = "vms")]
    vm: Vec<Settings>,
    #[serde(default, alias = "services")]
    service: Vec<ServiceTable>,
    /// Other traffic on the services' paths.
    #[serde(default, alias = "flows")]
    flow: Vec<FlowTable>,
    /// For `steadyvm net`.
    #[serde(rename = "net")]
    _net: Option<IgnoredAny>,
    /// For `steadyvm net`.
    #[serde(rename = "nic")]
    _nics: Option<IgnoredAny>,
    /// For whom enforces budgets.
    #[serde(rename = "sched")]
    _sched: Option<IgnoredAny>,
    /// For `steadyvm plan --sweep`.
    #[serde(rename = "random")]
    _random: Option<IgnoredAny>,
    /// For `steadyvm simulate`.
    #[serde(rename = "simulate")]
    _simulate: Option<IgnoredAny>,
}

#[derive(Deserialize, Clone, Copy)]
pub(super) enum UnitName {
    #[serde(rename = "ns")]
    Nanosecond,
}

/// Reads a plan file.
///
/// # Errors
/// What is not as described above, with its line.
pub fn parse(text: &str) -> Result<Request, InputError> {
    parse_with(text, None)
}

/// The same on the machine that the file may be for: a host that does not say its CPUs has those of `here`, by number.
///
/// # Errors
/// As of [`parse`].
pub fn parse_here(text: &str, here: &[u32]) -> Result<Request, InputError> {
    parse_with(text, Some(here))
}

/// What a file says of its host's CPUs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostCpus {
    /// Their numbers, ascending.
    pub cpus: Vec<u32>,
    /// Who schedules VCPUs: "pedf", "gedf", "pdm" or "gdm".
    pub scheduler: &'static str,
}

/// The CPUs of a file's host; none if the file has no `[host]`. `here`: as in [`parse_here`].
///
/// # Errors
/// As of [`parse`], but for VMs and services.
pub fn host_cpus(text: &str, here: &[u32]) -> Result<Option<HostCpus>, InputError> {
    let Some(table) = read(text)?.host else {
        return Ok(None);
    };
    let (count, numbers) = table.cpus(&Places::of_toml(text), Some(here))?;
    Ok(Some(HostCpus {
        cpus: numbers.unwrap_or_else(|| (0..count).collect()),
        scheduler: table.scheduler.word(),
    }))
}

fn parse_with(text: &str, here: Option<&[u32]>) -> Result<Request, InputError> {
    read(text)?.read(&Places::of_toml(text), Unit::Nanosecond, here)
}

fn read(text: &str) -> Result<File, InputError> {
    if text.trim_start().starts_with('{') {
        return Err(InputError::new(
            "the file",
            "this is JSON, and its name says TOML; name it *.json, or give it on standard input: steadyvm plan -",
        ));
    }
    toml::from_str(text).map_err(|error| {
        let place = error.span().map_or_else(
            || "the file".to_owned(),
            |span| places::line(text, span.start),
        );
        InputError::new(place, hints::words(error.message()))
    })
}

impl File {
    /// Its version, and that it has VMs or services and not too many.
    fn check_lists(&self, places: &Places) -> Result<(), InputError> {
        if self
            .schema_version
            .is_some_and(|version| version != SCHEMA_VERSION)
        {
            return Err(InputError::new(
                "schema_version",
                "this version of steadyvm reads version 1",
            ));
        }
        if self.vm.is_empty() && self.service.is_empty() {
            return Err(InputError::new(
                places.vms(),
                "the list is empty; name at least one VM, or a service. The shortest plan is\n  \
                 [[service]]\n  vm = \"web\"\n  c = \"2ms\"\n  t = \"10ms\"\n  limit = \"5ms\"",
            ));
        }
        if self.vm.len() > MAX_VMS || self.service.len() > MAX_VMS {
            let message = format!("a plan holds at most {MAX_VMS} VMs and as many services");
            return Err(InputError::new(places.vms(), message));
        }
        Ok(())
    }

    /// `here`: see [`parse_here`].
    pub(super) fn read(
        self,
        places: &Places,
        unit: Unit,
        here: Option<&[u32]>,
    ) -> Result<Request, InputError> {
        self.check_lists(places)?;
        let mut notes = Vec::new();
        let mut cpu_numbers = None;
        let (host, host_name, method, enforce) = match &self.host {
            Some(table) => {
                let (count, numbers) = table.cpus(places, here)?;
                cpu_numbers = numbers;
                (
                    table.read(count, unit)?,
                    table.scheduler,
                    table.method,
                    table.enforce,
                )
            }
            None if self.vm.is_empty() => {
                notes.push("no host is given: this is for one CPU under pedf".to_owned());
                (one_cpu()?, HostName::Pedf, Method::default(), None)
            }
            None => {
                let message = "missing field `host`: with [[vm]] tables the plan needs the host they are for, such as\n  \
                               [host]\n  pcpus = 4\n  scheduler = \"pedf\"";
                return Err(InputError::new(places.host(), message));
            }
        };
        let host = super::enforcement::host(host, enforce);
        let (mut vms, mut tasks) = (Vec::with_capacity(self.vm.len()), 0);
        for (index, table) in self.vm.iter().enumerate() {
            let place = places.vm(index);
            let settings =
                classes::settings(table, &self.class, places).map_err(|error| InputError {
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
            let served = self
                .service
                .iter()
                .any(|service| service.makes_task() && service.vm == *name);
            let mut settings = settings.read(name, index, places, unit, served)?;
            settings.number_cpus(&host, cpu_numbers.as_deref())?;
            if settings.is_best_effort() && table.has_tasks() {
                notes.push(format!(
                    "VM \"{name}\" is rt = false, so nothing is promised to its tasks; leave out rt to plan them"
                ));
            }
            tasks += settings.task_count();
            vms.push(settings);
        }
        let mut services = Vec::with_capacity(self.service.len());
        for (index, table) in self.service.iter().enumerate() {
            let place = places.service(index);
            services.push(table.read(&mut vms, &place, unit)?);
            tasks += 1;
        }
        if self.flow.len() > MAX_VMS {
            let message = format!("a plan holds at most {MAX_VMS} flows");
            return Err(InputError::new("flow", message));
        }
        let flows = (self.flow.iter().enumerate())
            .map(|(index, table)| table.read(index, unit))
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
        check_service_names(&self.service, &mut services, places)?;
        carry(&mut vms, &mut services, &flows);
        if tasks > MAX_TASKS {
            let message = format!("a plan holds at most {MAX_TASKS} tasks");
            return Err(InputError::new(places.vms(), message));
        }
        vms.iter().try_for_each(|vm| vm.check(&host))?;
        super::run::check_names(&vms)?;
        Ok(Request {
            host,
            cpu_numbers,
            host_name,
            method,
            enforce,
            vms,
            services,
            flows,
            unit,
            notes,
        })
    }
}

/// Services without a name of their own are numbered where they share one; given names must differ.
fn check_service_names(
    tables: &[ServiceTable],
    services: &mut [Service],
    places: &Places,
) -> Result<(), InputError> {
    let mut seen = HashSet::new();
    for (index, (table, service)) in tables.iter().zip(services).enumerate() {
        if table.is_named() && !seen.insert(service.name.clone()) {
            let message = format!(
                "a second service is called \"{}\"; names must differ",
                service.name
            );
            return Err(InputError::new(places.service(index), message));
        }
        let plain = service.name.clone();
        let mut number = 1;
        while !table.is_named() && !seen.insert(service.name.clone()) {
            number += 1;
            service.name = format!("{plain} {number}");
        }
    }
    Ok(())
}

fn one_cpu() -> Result<Host, InputError> {
    let scheduler = HostScheduler::PartitionedEarliestDeadline;
    Host::new(1, scheduler, VcpuServer::default(), Overheads::default())
        .map_err(|error| InputError::new("host", error))
}

impl Vm {
    fn is_best_effort(&self) -> bool {
        matches!(self.needs, Needs::BestEffort { .. })
    }

    /// What must hold once the services have given their tasks.
    fn check(&self, host: &Host) -> Result<(), InputError> {
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
