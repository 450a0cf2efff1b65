//! One VM of a plan file.

use super::places::Places;
use crate::{
    error::positive,
    host::Host,
    interface::{MAX_VCPUS, best_period::PeriodRange},
    plan::{
        InputError, InterfaceName, NamedTask, Needs, Period, SchedulerName, TaskNeeds, Unit, Vm,
        duration::{Count, Written},
    },
    ratio::{Fraction, Interval},
    task::Task,
};
use serde::{
    Deserialize, Deserializer,
    de::{self, IgnoredAny, IntoDeserializer},
};

/// A `[[vm]]`, or a `[class.NAME]` (which has no name, and `extends` in place of `class`).
#[derive(Deserialize, Clone, Default)]
#[serde(deny_unknown_fields, expecting = "an object that describes a VM")]
pub(super) struct Settings {
    pub name: Option<String>,
    pub class: Option<String>,
    pub extends: Option<String>,
    pub rt: Option<bool>,
    scheduler: Option<SchedulerName>,
    interface: Option<InterfaceName>,
    period: Option<PeriodTable>,
    budget: Option<Written>,
    vcpus: Option<Count>,
    cpus: Option<Vec<u32>>,
    tasks: Option<Vec<TaskTable>>,
    /// For `steadyvm net`.
    pub net: Option<IgnoredAny>,
    /// Where the VM runs, for who sets budgets.
    pub unit: Option<IgnoredAny>,
    pub cgroup: Option<IgnoredAny>,
    pub user: Option<IgnoredAny>,
    /// Whose VM it is, for `steadyvm hook`.
    pub process: Option<IgnoredAny>,
    pub prepared_by: Option<IgnoredAny>,
}

/// A period, or a range of which the best is taken.
#[derive(Clone, Copy)]
enum PeriodTable {
    Fixed(Written),
    Range(RangeTable),
}

#[derive(Deserialize, Clone, Copy)]
#[serde(deny_unknown_fields)]
struct RangeTable {
    from: Written,
    to: Written,
    step: Written,
}

impl<'de> Deserialize<'de> for PeriodTable {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;

        impl<'de> de::Visitor<'de> for Visitor {
            type Value = PeriodTable;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("a period such as \"10ms\", or { from = .., to = .., step = .. }")
            }

            fn visit_i64<E: de::Error>(self, value: i64) -> Result<PeriodTable, E> {
                Ok(PeriodTable::Fixed(Written(value)))
            }

            fn visit_u64<E: de::Error>(self, value: u64) -> Result<PeriodTable, E> {
                Written::deserialize(value.into_deserializer()).map(PeriodTable::Fixed)
            }

            fn visit_str<E: de::Error>(self, value: &str) -> Result<PeriodTable, E> {
                Written::deserialize(value.into_deserializer()).map(PeriodTable::Fixed)
            }

            fn visit_map<A: de::MapAccess<'de>>(self, map: A) -> Result<PeriodTable, A::Error> {
                let deserializer = de::value::MapAccessDeserializer::new(map);
                RangeTable::deserialize(deserializer).map(PeriodTable::Range)
            }
        }

        deserializer.deserialize_any(Visitor)
    }
}

#[derive(Deserialize, Clone)]
#[serde(deny_unknown_fields, expecting = "an object with \"c\" and \"t\"")]
pub(super) struct TaskTable {
    name: Option<String>,
    c: Written,
    d: Option<Written>,
    t: Written,
    #[serde(alias = "j")]
    jitter: Option<Written>,
    #[serde(alias = "s")]
    suspension: Option<Written>,
    /// Percent of c to plan with; 120 adds a margin of a fifth.
    execution_percent: Option<Count>,
}

impl Settings {
    /// Whether it names tasks itself.
    pub(super) fn has_tasks(&self) -> bool {
        self.tasks.as_ref().is_some_and(|tasks| !tasks.is_empty())
    }

    /// Takes what is not set yet from `other`.
    pub(super) fn fill_from(&mut self, other: &Self) {
        let other = other.clone();
        self.rt = self.rt.or(other.rt);
        self.scheduler = self.scheduler.or(other.scheduler);
        self.interface = self.interface.or(other.interface);
        self.period = self.period.or(other.period);
        self.budget = self.budget.or(other.budget);
        self.vcpus = self.vcpus.or(other.vcpus);
        self.cpus = self.cpus.take().or(other.cpus);
        self.tasks = self.tasks.take().or(other.tasks);
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
            .vcpus
            .map(|vcpus| vcpus.within(&places.field(index, "vcpus"), MAX_VCPUS))
            .transpose()?;
        let mask = self.cpus;
        if mask.as_ref().is_some_and(Vec::is_empty) {
            let message = "cpus is empty; name at least one CPU or leave it out";
            return Err(at("cpus", message.to_owned()));
        }
        let vm = |needs| Vm {
            place: places.vm(index),
            name: name.to_owned(),
            mask,
            needs,
        };
        if self.rt == Some(false) {
            return Ok(vm(Needs::BestEffort {
                vcpus: vcpus.unwrap_or(1),
            }));
        }
        let period = (self.period.map(PeriodTable::read).transpose())
            .map_err(|error| bad("period", error))?;
        let budget = self
            .budget
            .map(|budget| positive("the budget", budget.0))
            .transpose()
            .map_err(|error| bad("budget", error))?;
        let tables = match self.tasks {
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
                }));
            }
        };
        let tasks = tables
            .iter()
            .enumerate()
            .map(|(number, table)| {
                table.read(number).map_err(|error| {
                    let message = format!("VM \"{name}\": task {number}: {}", unit.error(&error));
                    InputError::new(places.task(index, number), message)
                })
            })
            .collect::<Result<Vec<_>, _>>()?;
        // Nothing said of interface and period: the best are chosen.
        let interface = self
            .interface
            .unwrap_or(if period.is_none() && budget.is_none() {
                InterfaceName::Best
            } else {
                InterfaceName::Prm
            });
        // More than one VCPU: pinned tasks, which need no help of the guest.
        let load = Interval::of(
            tasks
                .iter()
                .map(|named: &NamedTask| named.task.utilization()),
        );
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
        let needs = TaskNeeds {
            tasks,
            scheduler: self.scheduler.unwrap_or(scheduler),
            interface,
            period: period.unwrap_or(Period::Chosen),
            vcpus,
            budget,
        };
        needs.check().map_err(|message| at("interface", message))?;
        Ok(vm(Needs::Tasks(needs)))
    }
}

impl Vm {
    pub(super) fn task_count(&self) -> usize {
        match &self.needs {
            Needs::Tasks(needs) => needs.tasks.len(),
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
        for cpu in self.mask.iter_mut().flatten() {
            *cpu = counted(*cpu).ok_or_else(|| {
                let hosts = match numbers {
                    Some(numbers) => super::cpus::ranges(numbers),
                    None => format!("0 to {}", host.cpus() - 1),
                };
                let message = format!(
                    "VM \"{}\": cpus names CPU {cpu}, but the host has CPUs {hosts}",
                    self.name
                );
                InputError::new(&self.place, message)
            })?;
        }
        Ok(())
    }
}

impl PeriodTable {
    fn read(self) -> Result<Period, crate::Error> {
        match self {
            Self::Fixed(Written(period)) => positive("the VCPU period", period).map(Period::Fixed),
            Self::Range(RangeTable { from, to, step }) => {
                PeriodRange::new(from.0, to.0, step.0).map(Period::Best)
            }
        }
    }
}

impl TaskTable {
    fn read(&self, number: usize) -> Result<NamedTask, crate::Error> {
        let mut task = Task::new(self.c.0, self.d.unwrap_or(self.t).0, self.t.0)?;
        if let Some(percent) = self.execution_percent {
            task = task.with_execution_factor(Fraction::new(percent.0.into(), 100))?;
        }
        let none = Written(0);
        let task = task
            .with_suspension(self.suspension.unwrap_or(none).0)?
            .with_jitter(self.jitter.unwrap_or(none).0)?;
        let name = self
            .name
            .clone()
            .unwrap_or_else(|| format!("tasks[{number}]"));
        Ok(NamedTask { name, task })
    }
}
