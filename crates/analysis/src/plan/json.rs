//! The JSON interface, for other tools.
//!
//! `{"vms":[{"name","scheduler":"dm|edf|gedf|pedf","tasks":[{"c","d","t"}],"interface":"prm|mpr|dmpr",
//! "period":P,"vcpus":m}],"host":{"pcpus":m,"scheduler":"pedf|gedf|pdm|gdm"}}`, times as integers of one
//! unit of the caller's. Optional: a VM's "vcpus", "cpus" (mask) and "budget" (a total to use instead
//! of the least); a task's "j" (release jitter), "s" (self-suspension), "name"; a host's "server" and
//! "overheads"; "schema_version" (1).

use serde::Deserialize;

use super::{
    HostName, InputError, InterfaceName, MAX_TASKS, MAX_VMS, Method, NamedTask, Needs, Period,
    Request, SchedulerName, ServerName, TaskNeeds, Unit, Vm, report::SCHEMA_VERSION,
};
use crate::{
    host::{Host, overhead::Overheads},
    task::Task,
    time::Time,
};

#[derive(Deserialize)]
#[serde(deny_unknown_fields, expecting = "an object with \"vms\" and \"host\"")]
struct JsonRequest {
    schema_version: Option<u32>,
    vms: Vec<JsonVm>,
    host: JsonHost,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, expecting = "an object that describes a VM")]
struct JsonVm {
    name: String,
    scheduler: SchedulerName,
    tasks: Vec<JsonTask>,
    interface: InterfaceName,
    period: Time,
    vcpus: Option<i64>,
    budget: Option<Time>,
    cpus: Option<Vec<u32>>,
}

#[derive(Deserialize)]
#[serde(
    deny_unknown_fields,
    expecting = "an object with \"c\", \"d\" and \"t\""
)]
struct JsonTask {
    name: Option<String>,
    c: Time,
    d: Time,
    t: Time,
    #[serde(default)]
    j: Time,
    #[serde(default)]
    s: Time,
}

#[derive(Deserialize)]
#[serde(
    deny_unknown_fields,
    expecting = "an object with \"pcpus\" and \"scheduler\""
)]
struct JsonHost {
    pcpus: i64,
    scheduler: HostName,
    #[serde(default)]
    server: ServerName,
    #[serde(default)]
    overheads: JsonOverheads,
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields, default, expecting = "an object of overheads")]
struct JsonOverheads {
    quantum: Time,
    scheduler: Time,
    context_switch: Time,
    migration: Time,
    cache_reload: Time,
}

/// Reads a request.
///
/// # Errors
/// What is not as described above, with its line and column or the field's path.
pub fn parse(text: &str) -> Result<Request, InputError> {
    let request: JsonRequest = serde_json::from_str(text).map_err(|error| {
        let place = format!("line {} column {}", error.line(), error.column());
        let message = error.to_string();
        let suffix = format!(" at {place}");
        InputError::new(place, message.strip_suffix(&suffix).unwrap_or(&message))
    })?;
    if request
        .schema_version
        .is_some_and(|version| version != SCHEMA_VERSION)
    {
        return Err(InputError::new(
            "schema_version",
            "this version of steadyvm reads version 1",
        ));
    }
    if request.vms.is_empty() {
        return Err(InputError::new(
            "vms",
            "the list is empty; name at least one VM",
        ));
    }
    if request.vms.len() > MAX_VMS
        || request.vms.iter().map(|vm| vm.tasks.len()).sum::<usize>() > MAX_TASKS
    {
        let message = format!("a plan holds at most {MAX_VMS} VMs and {MAX_TASKS} tasks");
        return Err(InputError::new("vms", message));
    }
    let vms = request
        .vms
        .into_iter()
        .enumerate()
        .map(|(index, vm)| vm.read(index));
    let vms = vms.collect::<Result<Vec<Vm>, InputError>>()?;
    super::run::check_names(&vms)?;
    let host = request.host;
    let host_name = host.scheduler;
    Ok(Request {
        host: host.read()?,
        host_name,
        method: Method::default(),
        vms,
        services: Vec::new(),
        unit: Unit::Callers,
    })
}

/// A count that must be in `1..=high`.
pub(super) fn count(place: &str, value: i64, high: u32) -> Result<u32, InputError> {
    u32::try_from(value)
        .ok()
        .filter(|&n| (1..=high).contains(&n))
        .ok_or_else(|| {
            InputError::new(
                place,
                format!("{value} is out of range: it must be between 1 and {high}"),
            )
        })
}

impl JsonVm {
    fn read(self, index: usize) -> Result<Vm, InputError> {
        let place = format!("vms[{index}]");
        let at = |field: &str| format!("{place}.{field}");
        let mut tasks = Vec::with_capacity(self.tasks.len());
        for (number, task) in self.tasks.into_iter().enumerate() {
            let place = at(&format!("tasks[{number}]"));
            tasks.push(
                task.read(number)
                    .map_err(|error| InputError::new(place, error))?,
            );
        }
        if tasks.is_empty() {
            let message = format!("VM \"{}\" has no tasks; give it at least one", self.name);
            return Err(InputError::new(at("tasks"), message));
        }
        let period = crate::error::positive("the VCPU period", self.period)
            .map_err(|error| InputError::new(at("period"), error))?;
        let vcpus = self
            .vcpus
            .map(|vcpus| count(&at("vcpus"), vcpus, crate::interface::MAX_VCPUS))
            .transpose()?;
        let budget = self
            .budget
            .map(|budget| crate::error::positive("the budget", budget))
            .transpose()
            .map_err(|error| InputError::new(at("budget"), error))?;
        let needs = TaskNeeds {
            tasks,
            scheduler: self.scheduler,
            interface: self.interface,
            period: Period::Fixed(period),
            vcpus,
            budget,
        };
        needs
            .check()
            .map_err(|message| InputError::new(&place, message))?;
        if self.cpus.as_ref().is_some_and(Vec::is_empty) {
            return Err(InputError::new(
                at("cpus"),
                "the mask is empty; name at least one CPU",
            ));
        }
        Ok(Vm {
            place,
            name: self.name,
            mask: self.cpus,
            needs: Needs::Tasks(needs),
        })
    }
}

impl JsonTask {
    fn read(self, number: usize) -> Result<NamedTask, crate::Error> {
        let task = Task::new(self.c, self.d, self.t)?
            .with_suspension(self.s)?
            .with_jitter(self.j)?;
        Ok(NamedTask {
            name: self.name.unwrap_or_else(|| format!("tasks[{number}]")),
            task,
        })
    }
}

impl JsonHost {
    fn read(self) -> Result<Host, InputError> {
        let cpus = count("host.pcpus", self.pcpus, crate::host::MAX_CPUS)?;
        let overheads = Overheads {
            quantum: self.overheads.quantum,
            scheduler: self.overheads.scheduler,
            context_switch: self.overheads.context_switch,
            migration: self.overheads.migration,
            cache_reload: self.overheads.cache_reload,
        };
        Host::new(cpus, self.scheduler.into(), self.server.into(), overheads)
            .map_err(|error| InputError::new("host.overheads", error))
    }
}

impl TaskNeeds {
    /// Settings that do not go together.
    pub(super) fn check(&self) -> Result<(), String> {
        let partitioned = self.scheduler == SchedulerName::Pedf;
        if let (InterfaceName::Prm, Some(vcpus @ 2..), false) =
            (self.interface, self.vcpus, partitioned)
        {
            return Err(format!(
                "interface \"prm\" is one VCPU, but vcpus is {vcpus}; use \"mpr\" or \"dmpr\", or \
                 scheduler \"pedf\", or leave vcpus out"
            ));
        }
        let spread = self.interface == InterfaceName::Dmpr
            || (self.interface == InterfaceName::Prm && partitioned);
        if self.budget.is_some() && spread {
            return Err(
                "a total budget can be given for \"mpr\", and for \"prm\" on one VCPU; leave \
                        budget out to have it computed"
                    .to_owned(),
            );
        }
        if self.budget.is_some() && matches!(self.period, Period::Best(_)) {
            return Err("a budget belongs to one period, but period is a range".to_owned());
        }
        Ok(())
    }
}
