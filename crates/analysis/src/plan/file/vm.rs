//! One VM of a plan file.

use std::ops::Deref;

use steadyvm_config::{self as config, Written};

use super::{places::Places, within};
use crate::{
    error::positive,
    host::Host,
    interface::{MAX_VCPUS, best_period::PeriodRange},
    plan::{
        InputError, InterfaceName, NamedTask, Needs, Period, Played, SchedulerName, TaskNeeds,
        Unit, Vm,
    },
    ratio::{Fraction, Interval},
    task::Task,
};

/// A `[[vm]]` with what its classes add.
#[derive(Clone, Default)]
pub(super) struct Settings(pub config::Vm);

impl Deref for Settings {
    type Target = config::Vm;

    fn deref(&self) -> &config::Vm {
        &self.0
    }
}

/// CPUs, where a VM names some.
type Numbers = Option<Vec<u32>>;

/// Whether a VM names tasks itself.
pub(super) fn has_tasks(vm: &config::Vm) -> bool {
    vm.tasks.as_ref().is_some_and(|tasks| !tasks.is_empty())
}

impl Settings {
    /// Takes what is not set yet from `other`.
    pub(super) fn fill_from(&mut self, other: &config::Vm) {
        let (own, other) = (&mut self.0, other.clone());
        own.rt = own.rt.or(other.rt);
        own.soft = own.soft.or(other.soft);
        own.scheduler = own.scheduler.or(other.scheduler);
        own.interface = own.interface.or(other.interface);
        own.period = own.period.or(other.period);
        own.budget = own.budget.or(other.budget);
        own.deadline = own.deadline.or(other.deadline);
        own.vcpus = own.vcpus.or(other.vcpus);
        if own.vcpu_cpus.is_none() {
            own.cpus = own.cpus.take().or(other.cpus);
        }
        own.tasks = own.tasks.take().or(other.tasks);
    }

    /// Whether the file says nothing of what the VM executes or gets: it is not planned. Half of it is a slip.
    pub(super) fn is_passed_over(&self, served: bool) -> bool {
        let said = self.0.tasks.is_some()
            || self.0.budget.is_some()
            || self.0.period.is_some()
            || self.0.interface.is_some()
            || self.0.scheduler.is_some();
        self.0.rt != Some(false) && !served && !said
    }

    /// The CPUs that the VM may use, and that of each VCPU where it is given. An error has its key.
    fn cpus(&self, vcpus: Option<u32>) -> Result<(Numbers, Numbers), (&'static str, String)> {
        let (mask, homes) = (&self.0.cpus, &self.0.vcpu_cpus);
        for (key, numbers) in [("cpus", mask), ("vcpu_cpus", homes)] {
            if numbers.as_ref().is_some_and(Vec::is_empty) {
                let message = format!("{key} is empty; name at least one CPU or leave it out");
                return Err((key, message));
            }
        }
        let Some(homes) = homes else {
            return Ok((mask.clone(), None));
        };
        if mask.is_some() {
            let message = "vcpu_cpus has the CPU of each VCPU already; leave out cpus";
            return Err(("cpus", message.to_owned()));
        }
        if vcpus.is_some_and(|vcpus| vcpus as usize != homes.len()) {
            let message = format!(
                "vcpu_cpus has {} numbers, and vcpus another; it names the CPU of each VCPU",
                homes.len()
            );
            return Err(("vcpu_cpus", message));
        }
        Ok((Some(homes.clone()), Some(homes.clone())))
    }

    /// The VM these settings describe. `served`: a service gives it a task.
    pub(super) fn read(
        self,
        name: &str,
        index: usize,
        places: &Places,
        unit: Unit,
        served: bool,
    ) -> Result<Vm, InputError> {
        let at = |field: &str, message: String| {
            InputError::new(
                places.field(index, field),
                format!("VM \"{name}\": {message}"),
            )
        };
        let bad = |field: &str, error: crate::Error| at(field, unit.error(&error));
        let vcpus = self
            .0
            .vcpus
            .map(|vcpus| within(vcpus, &places.field(index, "vcpus"), MAX_VCPUS))
            .transpose()?;
        let is_passed_over = self.is_passed_over(served);
        let tables = self.0.tasks.clone();
        let (mask, homes) = self
            .cpus(vcpus)
            .map_err(|(key, message)| at(key, message))?;
        let vcpus = vcpus.or(homes.as_ref().map(|homes| homes.len() as u32));
        let vm = |needs| Vm {
            place: places.vm(index),
            name: name.to_owned(),
            mask,
            homes,
            needs,
            receive: Vec::new(),
        };
        if self.0.deadline.is_some() {
            let message = "a plan computes when a budget is due: leave deadline out, or write the deadline of each task (d)";
            return Err(at("deadline", message.to_owned()));
        }
        if self.0.soft == Some(true) {
            let needs = self.soft(name, index, places, unit, served, vcpus)?;
            return Ok(vm(needs));
        }
        if self.0.rt == Some(false) || is_passed_over {
            return Ok(vm(Needs::BestEffort {
                vcpus: vcpus.unwrap_or(1),
            }));
        }
        let period =
            (self.0.period.map(read_period).transpose()).map_err(|error| bad("period", error))?;
        let budget = self
            .0
            .budget
            .map(|budget| positive("the budget", budget.0))
            .transpose()
            .map_err(|error| bad("budget", error))?;
        let tables = match tables {
            Some(tables) if tables.is_empty() && !served => {
                let message = "has no tasks: the list of tasks is empty; give it at least one";
                return Err(at("tasks", message.to_owned()));
            }
            Some(tables) => tables,
            None if served && budget.is_none() => Vec::new(),
            None => {
                let (Some(budget), Some(Period::Fixed(period))) = (budget, period) else {
                    let message =
                        "there are no tasks; give tasks, or a budget and one period, or rt = false";
                    return Err(at("tasks", message.to_owned()));
                };
                let vcpus = vcpus.unwrap_or(1);
                crate::supply::MultiprocessorPeriodic::new(period, budget, vcpus)
                    .map_err(|error| bad("budget", error))?;
                return Ok(vm(Needs::Given {
                    budget,
                    period,
                    vcpus,
                    played: None,
                }));
            }
        };
        let tasks = read_tasks(&tables, name, index, places, unit)?;
        // Nothing said of interface and period: the best are chosen.
        let interface = self
            .0
            .interface
            .unwrap_or(if period.is_none() && budget.is_none() {
                InterfaceName::Best
            } else {
                InterfaceName::Prm
            });
        let (scheduler, interface) = defaults(&tasks, vcpus, interface);
        let needs = TaskNeeds {
            tasks,
            scheduler: self.0.scheduler.unwrap_or(scheduler),
            interface,
            period: period.unwrap_or(Period::Chosen),
            vcpus,
            budget,
        };
        needs.check().map_err(|message| at("interface", message))?;
        Ok(vm(Needs::Tasks(needs)))
    }

    /// A VM whose budget is a floor, and of whose tasks nothing is promised.
    fn soft(
        &self,
        name: &str,
        index: usize,
        places: &Places,
        unit: Unit,
        served: bool,
        vcpus: Option<u32>,
    ) -> Result<Needs, InputError> {
        let at = |field: &str, message: &str| {
            let message = format!("VM \"{name}\": {message}");
            InputError::new(places.field(index, field), message)
        };
        if served {
            return Err(at(
                "soft",
                "a service has a bound, and a soft VM gives none; write the work as a task of the VM",
            ));
        }
        if self.0.rt == Some(false) {
            return Err(at(
                "soft",
                "rt = false has no budget at all; leave out one of the two",
            ));
        }
        let period = (self.0.period.map(read_period).transpose())
            .map_err(|error| at("period", &unit.error(&error)))?;
        let (Some(Written(budget)), Some(Period::Fixed(period)), Some(tables)) =
            (self.0.budget, period, &self.0.tasks)
        else {
            return Err(at("soft", "it needs a budget, one period, and tasks"));
        };
        let vcpus = vcpus.unwrap_or(1);
        if vcpus > 1 && self.0.scheduler == Some(SchedulerName::Pedf) {
            return Err(at(
                "scheduler",
                "a soft VM has no plan of which VCPU runs which task; use edf, gedf or dm",
            ));
        }
        crate::supply::MultiprocessorPeriodic::new(period, budget, vcpus)
            .map_err(|error| at("budget", &unit.error(&error)))?;
        Ok(Needs::Given {
            budget,
            period,
            vcpus,
            played: Some(Played {
                tasks: read_tasks(tables, name, index, places, unit)?,
                scheduler: self.0.scheduler.unwrap_or(SchedulerName::Edf),
            }),
        })
    }
}

fn read_tasks(
    tables: &[config::Placed<config::Task>],
    name: &str,
    index: usize,
    places: &Places,
    unit: Unit,
) -> Result<Vec<NamedTask>, InputError> {
    let read = |(number, table): (usize, &config::Placed<config::Task>)| {
        read_task(table, number).map_err(|error| {
            let message = format!("VM \"{name}\": task {number}: {}", unit.error(&error));
            InputError::new(places.task(index, number), message)
        })
    };
    tables.iter().enumerate().map(read).collect()
}

impl Vm {
    /// The CPUs that its VCPU of this number may use, if not all.
    pub(in crate::plan) fn cpus_of(&self, vcpu: usize) -> Option<Vec<u32>> {
        let home = self.homes.as_ref().and_then(|homes| homes.get(vcpu));
        home.map(|&cpu| vec![cpu]).or_else(|| self.mask.clone())
    }

    pub(super) fn task_count(&self) -> usize {
        match &self.needs {
            Needs::Tasks(needs) => needs.tasks.len(),
            Needs::Given {
                played: Some(played),
                ..
            } => played.tasks.len(),
            _ => 0,
        }
    }

    /// Every CPU it is restricted to is one of the host's; `numbers` are those of the host's, where they are not 0 and up.
    /// From here on CPUs are counted.
    pub(super) fn number_cpus(
        &mut self,
        host: &Host,
        numbers: Option<&[u32]>,
    ) -> Result<(), InputError> {
        let counted = |cpu: u32| match numbers {
            Some(numbers) => numbers.binary_search(&cpu).ok().map(|place| place as u32),
            None => (cpu < host.cpus()).then_some(cpu),
        };
        let is_each = self.homes.is_some();
        let named = self.mask.iter_mut().chain(&mut self.homes);
        for cpu in named.flatten() {
            *cpu = counted(*cpu).ok_or_else(|| {
                let hosts = match numbers {
                    Some(numbers) => config::ranges(numbers),
                    None => format!("0 to {}", host.cpus() - 1),
                };
                let key = if is_each { "vcpu_cpus" } else { "cpus" };
                let message = format!(
                    "VM \"{}\": {key} names CPU {cpu}, but the host has CPUs {hosts}",
                    self.name
                );
                InputError::new(&self.place, message)
            })?;
        }
        Ok(())
    }
}

/// The guest's scheduler and the interface of a VM that leaves them open. More than one VCPU: pinned tasks, which need no
/// help of the guest.
fn defaults(
    tasks: &[NamedTask],
    vcpus: Option<u32>,
    interface: InterfaceName,
) -> (SchedulerName, InterfaceName) {
    let load = Interval::of(tasks.iter().map(|named| named.task.utilization()));
    let overfull = load.compare(Fraction::new(1, 1)) == Some(std::cmp::Ordering::Greater);
    let several = vcpus.map_or(overfull, |vcpus| vcpus > 1);
    let scheduler = match interface {
        InterfaceName::Prm | InterfaceName::Best if several => SchedulerName::Pedf,
        _ => SchedulerName::Edf,
    };
    let interface = match interface {
        InterfaceName::Best if several => InterfaceName::Prm,
        _ => interface,
    };
    (scheduler, interface)
}

fn read_period(period: config::Period) -> Result<Period, crate::Error> {
    match period {
        config::Period::Fixed(Written(period)) => {
            positive("the VCPU period", period).map(Period::Fixed)
        }
        config::Period::Range(config::PeriodRange { from, to, step }) => {
            PeriodRange::new(from.0, to.0, step.0).map(Period::Best)
        }
    }
}

fn read_task(table: &config::Task, number: usize) -> Result<NamedTask, crate::Error> {
    let mut task = Task::new(table.c.0, table.d.unwrap_or(table.t).0, table.t.0)?;
    if let Some(percent) = table.execution_percent {
        task = task.with_execution_factor(Fraction::new(percent.0.into(), 100))?;
    }
    let none = Written(0);
    let task = task
        .with_suspension(table.suspension.unwrap_or(none).0)?
        .with_jitter(table.jitter.unwrap_or(none).0)?;
    let name = table
        .name
        .clone()
        .unwrap_or_else(|| format!("tasks[{number}]"));
    Ok(NamedTask { name, task })
}
