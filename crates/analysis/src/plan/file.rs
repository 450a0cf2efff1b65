//! `steadyvm.toml`: the host, its VMs, their tasks or interfaces, services.
//!
//! Rule: a VM's settings are its own, then those of its class, then those the class `extends`; a circle
//! of classes is an error. Times are "10ms" or whole nanoseconds. An unknown field is an error.
//! Example: examples/steadyvm.toml; every field: docs/design/plan-file.md.

mod classes;
mod vm;

use std::collections::BTreeMap;

use serde::{Deserialize, de::IgnoredAny};
use toml::Spanned;

use self::vm::Settings;
use super::{
    HostName, InputError, MAX_TASKS, MAX_VMS, Method, Needs, Request, ServerName, Service, Unit,
    Vm, duration::Written, json::count,
};
use crate::{
    host::{Host, overhead::Overheads},
    latency::ReceivePath,
    time::Time,
};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    host: HostTable,
    #[serde(default)]
    class: BTreeMap<String, Spanned<Settings>>,
    #[serde(default)]
    vm: Vec<Spanned<Settings>>,
    #[serde(default)]
    service: Vec<Spanned<ServiceTable>>,
    /// For `steadyvm simulate`.
    #[serde(rename = "simulate")]
    _simulate: Option<IgnoredAny>,
    /// For `steadyvm net`.
    #[serde(rename = "net")]
    _net: Option<IgnoredAny>,
    /// For `steadyvm net`.
    #[serde(rename = "nic")]
    _nics: Option<IgnoredAny>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct HostTable {
    pcpus: i64,
    scheduler: HostName,
    #[serde(default)]
    server: ServerName,
    #[serde(default)]
    method: Method,
    #[serde(default)]
    overheads: OverheadTable,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, default)]
struct OverheadTable {
    quantum: Written,
    scheduler: Written,
    context_switch: Written,
    migration: Written,
    cache_reload: Written,
}

impl Default for OverheadTable {
    fn default() -> Self {
        let none = Written(0);
        Self {
            quantum: none,
            scheduler: none,
            context_switch: none,
            migration: none,
            cache_reload: none,
        }
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ServiceTable {
    name: String,
    vm: String,
    task: String,
    limit: Option<Written>,
    #[serde(default)]
    receive: ReceiveTable,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, default)]
struct ReceiveTable {
    interrupt: Written,
    packet: Written,
    batch: i64,
    ahead: i64,
}

impl Default for ReceiveTable {
    fn default() -> Self {
        Self {
            interrupt: Written(0),
            packet: Written(0),
            batch: 1,
            ahead: 0,
        }
    }
}

/// Reads a plan file.
///
/// # Errors
/// What is not as described above, with its line.
pub fn parse(text: &str) -> Result<Request, InputError> {
    let file: File = toml::from_str(text).map_err(|error| {
        let place = error
            .span()
            .map_or_else(|| "the file".to_owned(), |span| line(text, span.start));
        InputError::new(place, error.message())
    })?;
    if file.vm.is_empty() {
        return Err(InputError::new(
            "the file",
            "there is no [[vm]]; name at least one VM",
        ));
    }
    if file.vm.len() > MAX_VMS {
        return Err(InputError::new(
            "the file",
            format!("a plan holds at most {MAX_VMS} VMs"),
        ));
    }
    let mut vms = Vec::with_capacity(file.vm.len());
    let mut tasks = 0;
    for vm in &file.vm {
        let place = line(text, vm.span().start);
        let table = vm.get_ref();
        let settings = classes::settings(table, &file.class, text).map_err(|error| InputError {
            place: error.place.if_empty(&place),
            ..error
        })?;
        let Some(name) = &table.name else {
            return Err(InputError::new(place, "this VM has no name; give it one"));
        };
        let vm = settings.read(name, &place, |offset| line(text, offset))?;
        if let Needs::Tasks(needs) = &vm.needs {
            tasks += needs.tasks.len();
        }
        vms.push(vm);
    }
    if tasks > MAX_TASKS {
        return Err(InputError::new(
            "the file",
            format!("a plan holds at most {MAX_TASKS} tasks"),
        ));
    }
    super::run::check_names(&vms)?;
    let services = file
        .service
        .iter()
        .map(|service| read_service(service.get_ref(), &vms, &line(text, service.span().start)))
        .collect::<Result<_, _>>()?;
    Ok(Request {
        host: file.host.read()?,
        host_name: file.host.scheduler,
        method: file.host.method,
        vms,
        services,
        unit: Unit::Nanosecond,
    })
}

/// "line L column C" of a byte offset.
fn line(text: &str, offset: usize) -> String {
    let before = text.get(..offset).unwrap_or(text);
    let number = before.matches('\n').count() + 1;
    let column = before.chars().rev().take_while(|&c| c != '\n').count() + 1;
    format!("line {number} column {column}")
}

trait IfEmpty {
    fn if_empty(self, other: &str) -> String;
}

impl IfEmpty for String {
    fn if_empty(self, other: &str) -> String {
        if self.is_empty() {
            other.to_owned()
        } else {
            self
        }
    }
}

impl HostTable {
    fn read(&self) -> Result<Host, InputError> {
        let cpus = count("host.pcpus", self.pcpus, crate::host::MAX_CPUS)?;
        let Written(quantum) = self.overheads.quantum;
        let overheads = Overheads {
            quantum,
            scheduler: self.overheads.scheduler.0,
            context_switch: self.overheads.context_switch.0,
            migration: self.overheads.migration.0,
            cache_reload: self.overheads.cache_reload.0,
        };
        Host::new(cpus, self.scheduler.into(), self.server.into(), overheads)
            .map_err(|error| InputError::new("host.overheads", error))
    }
}

fn read_service(table: &ServiceTable, vms: &[Vm], place: &str) -> Result<Service, InputError> {
    let wrong = |message: String| InputError::new(place, message);
    let name = &table.name;
    let vm = vms
        .iter()
        .position(|vm| vm.name == table.vm)
        .ok_or_else(|| {
            wrong(format!(
                "service \"{name}\" is in VM \"{}\", but no [[vm]] has that name",
                table.vm
            ))
        })?;
    let Needs::Tasks(needs) = &vms[vm].needs else {
        return Err(wrong(format!(
            "service \"{name}\": VM \"{}\" has no tasks to bound it by; give it tasks",
            table.vm
        )));
    };
    let task = needs
        .tasks
        .iter()
        .position(|task| task.name == table.task)
        .ok_or_else(|| {
            wrong(format!(
                "service \"{name}\": VM \"{}\" has no task \"{}\"",
                table.vm, table.task
            ))
        })?;
    let receive = ReceivePath {
        interrupt: table.receive.interrupt.0,
        packet: table.receive.packet.0,
        batch: table.receive.batch,
        ahead: table.receive.ahead,
    };
    receive
        .bound()
        .map_err(|error| wrong(format!("service \"{name}\": {error}")))?;
    let limit: Option<Time> = table
        .limit
        .map(|limit| crate::error::positive("the limit", limit.0))
        .transpose()
        .map_err(|error| wrong(format!("service \"{name}\": {error}")))?;
    Ok(Service {
        name: name.clone(),
        vm,
        task,
        receive,
        limit,
    })
}
