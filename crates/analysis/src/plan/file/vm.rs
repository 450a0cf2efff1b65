//! One VM of a plan file.

use serde::{
    Deserialize, Deserializer,
    de::{self, IgnoredAny, IntoDeserializer},
};
use toml::Spanned;

use crate::{
    error::positive,
    interface::{MAX_VCPUS, best_period::PeriodRange},
    plan::{
        InputError, InterfaceName, NamedTask, Needs, Period, SchedulerName, TaskNeeds, Vm,
        duration::Written, json::count,
    },
    ratio::Fraction,
    task::Task,
};

/// A `[[vm]]`, or a `[class.NAME]` (which has no name, and `extends` in place of `class`).
#[derive(Deserialize, Clone)]
#[serde(deny_unknown_fields)]
pub(super) struct Settings {
    pub name: Option<String>,
    pub class: Option<String>,
    pub extends: Option<String>,
    rt: Option<bool>,
    scheduler: Option<SchedulerName>,
    interface: Option<InterfaceName>,
    period: Option<PeriodTable>,
    budget: Option<Written>,
    vcpus: Option<i64>,
    cpus: Option<Vec<u32>>,
    tasks: Option<Vec<Spanned<TaskTable>>>,
    /// For `steadyvm net`.
    pub net: Option<IgnoredAny>,
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
#[serde(deny_unknown_fields)]
pub(super) struct TaskTable {
    name: Option<String>,
    c: Written,
    d: Option<Written>,
    t: Written,
    jitter: Option<Written>,
    suspension: Option<Written>,
    /// Percent of c to plan with; 120 adds a margin of a fifth.
    execution_percent: Option<i64>,
}

impl Settings {
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

    /// The VM these settings describe.
    pub(super) fn read(
        self,
        name: &str,
        place: &str,
        line: impl Fn(usize) -> String,
    ) -> Result<Vm, InputError> {
        let wrong = |message: String| InputError::new(place, format!("VM \"{name}\": {message}"));
        let vcpus = self
            .vcpus
            .map(|vcpus| count(&format!("{place}: VM \"{name}\": vcpus"), vcpus, MAX_VCPUS))
            .transpose()?;
        let mask = self.cpus;
        if mask.as_ref().is_some_and(Vec::is_empty) {
            return Err(wrong(
                "cpus is empty; name at least one CPU or leave it out".to_owned(),
            ));
        }
        let vm = |needs| Vm {
            place: place.to_owned(),
            name: name.to_owned(),
            mask,
            needs,
        };
        if self.rt == Some(false) {
            return Ok(vm(Needs::BestEffort {
                vcpus: vcpus.unwrap_or(1),
            }));
        }
        let period = self
            .period
            .ok_or_else(|| wrong("period is missing; set the period of its VCPUs".to_owned()))?
            .read()
            .map_err(|error| wrong(error.to_string()))?;
        let budget = self
            .budget
            .map(|budget| positive("the budget", budget.0))
            .transpose()
            .map_err(|error| wrong(error.to_string()))?;
        let Some(tables) = self.tasks else {
            let (Some(budget), Period::Fixed(period)) = (budget, period) else {
                return Err(wrong(
                    "there are no tasks; give tasks, or a budget and one period, or rt = false"
                        .to_owned(),
                ));
            };
            let vcpus = vcpus.unwrap_or(1);
            crate::supply::MultiprocessorPeriodic::new(period, budget, vcpus)
                .map_err(|error| wrong(error.to_string()))?;
            return Ok(vm(Needs::Given {
                budget,
                period,
                vcpus,
            }));
        };
        if tables.is_empty() {
            return Err(wrong(
                "the list of tasks is empty; give it at least one".to_owned(),
            ));
        }
        let tasks = tables
            .iter()
            .enumerate()
            .map(|(number, table)| {
                table.get_ref().read(number).map_err(|error| {
                    let message = format!("VM \"{name}\": task {number}: {error}");
                    InputError::new(line(table.span().start), message)
                })
            })
            .collect::<Result<_, _>>()?;
        let needs = TaskNeeds {
            tasks,
            scheduler: self.scheduler.unwrap_or(SchedulerName::Edf),
            interface: self.interface.unwrap_or(InterfaceName::Prm),
            period,
            vcpus,
            budget,
        };
        needs.check().map_err(wrong)?;
        Ok(vm(Needs::Tasks(needs)))
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
            task = task.with_execution_factor(Fraction::new(percent.into(), 100))?;
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
