//! Plans: the interfaces of a host's VMs, their placement, and the bounds of their services.
//!
//! Rule: a plan is feasible iff every real-time VM has an interface, the host admits all their VCPUs,
//! and every service's bound is within its limit. VMs that are not real-time get what is left and never
//! matter to the answer.
//!
//! Input is text ([`json`] for tools, [`file`] for people); the answer is a [`Report`] that prints as
//! JSON, text ([`text`]) or a picture ([`svg`]). Nothing here reads or writes a file.

mod choice;
pub mod cluster;
mod costs;
mod enforcement;
mod explain;
pub mod file;
pub mod json;
mod names;
mod outcome;
pub mod random;
mod receive;
mod report;
mod run;
mod service;
mod slowed;
pub mod sold;
mod suggest;
pub mod svg;
pub mod sweep;
pub mod text;
mod value;
mod view;
mod way;

pub use costs::{Measured, Missing};
pub use names::{
    Enforcement, HostName, InterfaceName, SchedulerName, ServerName, order as order_of,
    server as server_of,
};
pub use receive::ReceiveWork;
pub use report::{
    CpuReport, Explanation, Install, InterfaceReport, ReceiveReport, Report, ServiceReport,
    StageReport, TermReport, VcpuReport, VmReport,
};
pub use run::{holds, run};
pub use view::duration_ns;

use std::fmt;

use crate::{
    host::Host, interface::best_period::PeriodRange, path::Arrivals, task::Task, time::Time,
};

/// The most VMs in one plan.
pub const MAX_VMS: usize = 10_000;

/// The most tasks in one plan.
pub const MAX_TASKS: usize = 1_000_000;

/// Bad input: where, and what to do.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{place}: {message}")]
pub struct InputError {
    /// Line and column, or the path of the field.
    pub place: String,
    /// What is wrong, why, and what to do.
    pub message: String,
}

impl InputError {
    fn new(place: impl Into<String>, message: impl fmt::Display) -> Self {
        let message = format!("{message}");
        Self {
            place: place.into(),
            message,
        }
    }
}

impl From<steadyvm_config::Error> for InputError {
    fn from(error: steadyvm_config::Error) -> Self {
        let place = error.place.map(|place| place.to_string());
        Self {
            place: place.unwrap_or_else(|| "the file".to_owned()),
            message: error.message,
        }
    }
}

/// A host and what is asked of it.
#[derive(Debug, Clone)]
pub struct Request {
    host: Host,
    /// The numbers of its CPUs, ascending, where they are not 0 and up. Within a request CPUs are counted.
    cpu_numbers: Option<Vec<u32>>,
    host_name: HostName,
    /// Whether something bounds what packets wait for on the receive path.
    receives_in_bounds: bool,
    enforce: Option<Enforcement>,
    vms: Vec<Vm>,
    services: Vec<Service>,
    /// Other traffic on the services' paths.
    flows: Vec<way::Flow>,
    unit: Unit,
    /// Costs of the host that neither the file nor a measurement has.
    missing: Vec<Missing>,
    /// What was supposed while reading.
    notes: Vec<String>,
}

/// What one unit of time is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Unit {
    Nanosecond,
    Callers,
}

impl Unit {
    /// An error in this unit.
    fn error(self, error: &crate::Error) -> String {
        error.shown(|time| self.show(time.into()))
    }

    /// A time for the kernel, if the unit is known.
    const fn nanoseconds(self, time: Time) -> Option<Time> {
        match self {
            Self::Nanosecond => Some(time),
            Self::Callers => None,
        }
    }

    /// A time for people.
    fn show(self, time: i128) -> String {
        match self {
            Self::Nanosecond => steadyvm_config::show(time),
            Self::Callers => time.to_string(),
        }
    }
}

#[derive(Debug, Clone)]
struct Vm {
    place: String,
    name: String,
    /// CPUs that it may use; of `homes` each once.
    mask: Option<Vec<u32>>,
    /// The CPU of each VCPU, where it was given.
    homes: Option<Vec<u32>>,
    needs: Needs,
    /// What bounds those that receive for it.
    receive: Vec<receive::ReceiveServer>,
}

#[derive(Debug, Clone)]
enum Needs {
    /// Compute the interface from the tasks.
    Tasks(TaskNeeds),
    /// The interface is given: this budget in all, evenly on so many VCPUs.
    Given {
        budget: Time,
        period: Time,
        vcpus: u32,
        /// Of a soft VM: what runs in it, of which nothing is promised.
        played: Option<Played>,
    },
    /// Not real-time.
    BestEffort { vcpus: u32 },
}

/// The tasks of a soft VM, and how its guest orders them.
#[derive(Debug, Clone)]
struct Played {
    tasks: Vec<NamedTask>,
    scheduler: SchedulerName,
}

#[derive(Debug, Clone)]
struct TaskNeeds {
    tasks: Vec<NamedTask>,
    scheduler: SchedulerName,
    interface: InterfaceName,
    period: Period,
    vcpus: Option<u32>,
    /// Use this total budget, if it suffices.
    budget: Option<Time>,
}

#[derive(Debug, Clone)]
struct NamedTask {
    name: String,
    task: Task,
}

#[derive(Debug, Clone, Copy)]
enum Period {
    Fixed(Time),
    Best(PeriodRange),
    /// Not given: the best of a few.
    Chosen,
}

#[derive(Debug, Clone)]
struct Service {
    name: String,
    vm: usize,
    task: usize,
    /// Its requests on the wire.
    requests: Arrivals,
    receive: way::Way,
    send: way::Way,
    /// The way in, bounded.
    receive_path: way::Passage,
    /// From the guest's wake-up to its task.
    wake: Time,
    /// The way back, bounded for every plan that meets the limit.
    send_path: way::Passage,
    limit: Option<Time>,
    /// Terms of its ways that neither the file nor a measurement has.
    missing: Vec<Missing>,
    /// Why no plan can do it.
    impossible: Option<Impossible>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Impossible {
    /// Receive path, execution, wake-up and way back alone exceed the limit or the deadline.
    TooLong,
    /// A path has no bound.
    Path(String),
}

impl TaskNeeds {
    /// Whether the plan chooses the interface or its period.
    const fn is_chosen(&self) -> bool {
        matches!(self.period, Period::Chosen)
            || matches!(
                self.interface,
                InterfaceName::Reservation | InterfaceName::Best
            )
    }

    fn tasks(&self) -> Vec<Task> {
        self.tasks.iter().map(|named| named.task).collect()
    }
}
