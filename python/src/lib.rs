//! The Python package: the same calls as `steadyvm plan`, without the GIL while they compute.
//!
//! Rule: a request or a plan file goes in as text, a plan comes out as JSON text; `__init__.py` turns
//! both into dictionaries. Bad input is a `ValueError` that says where and what to do.

// Arguments come out of Python objects by value.
#![allow(clippy::needless_pass_by_value)]

mod admission;
mod many;

use pyo3::{exceptions::PyValueError, prelude::*};
use steadyvm_analysis::{
    PriorityOrder, Task, Time, Work,
    guest::fixed_priority,
    interface,
    plan::{self, InputError, Report, Request},
    supply::{Dedicated, MultiprocessorPeriodic, PeriodicResource, Supply},
};

fn value_error(error: impl std::fmt::Display) -> PyErr {
    PyValueError::new_err(error.to_string())
}

fn report(
    parse: impl FnOnce() -> Result<Request, InputError> + Send,
    py: Python<'_>,
) -> PyResult<Report> {
    py.allow_threads(|| parse().and_then(|request| plan::run(&request)))
        .map_err(value_error)
}

fn to_json(report: &Report) -> PyResult<String> {
    serde_json::to_string(report).map_err(value_error)
}

/// The plan of a JSON request, as JSON text.
#[pyfunction]
fn plan_json(py: Python<'_>, request: &str) -> PyResult<String> {
    to_json(&report(|| plan::json::parse(request), py)?)
}

/// The plan of a steadyvm.toml, as JSON text.
#[pyfunction]
fn plan_toml(py: Python<'_>, text: &str) -> PyResult<String> {
    to_json(&report(|| plan::file::parse(text), py)?)
}

/// The plan of a steadyvm.toml, as text for people.
#[pyfunction]
#[pyo3(signature = (text, explain = false))]
fn plan_text(py: Python<'_>, text: &str, explain: bool) -> PyResult<String> {
    Ok(plan::text::render(
        &report(|| plan::file::parse(text), py)?,
        explain,
    ))
}

/// The plan of a steadyvm.toml, as an SVG picture.
#[pyfunction]
fn plan_svg(py: Python<'_>, text: &str) -> PyResult<String> {
    Ok(plan::svg::render(&report(|| plan::file::parse(text), py)?))
}

fn tasks(parameters: &[(Time, Time, Time)]) -> PyResult<Vec<Task>> {
    let task = |(index, &(c, d, t))| {
        let place = |error| value_error(format!("parameters[{index}]: {error}"));
        Task::new(c, d, t).map_err(place)
    };
    parameters.iter().enumerate().map(task).collect()
}

/// The least periodic-resource budget of one VCPU, or None. A plan asks for more where the host's server is
/// sporadic, or `cbs` under fixed priorities.
#[pyfunction]
fn minimal_budget(
    py: Python<'_>,
    parameters: Vec<(Time, Time, Time)>,
    scheduler: &str,
    period: Time,
) -> PyResult<Option<Time>> {
    let tasks = tasks(&parameters)?;
    let scheduler = match scheduler {
        "edf" => interface::GuestScheduler::EarliestDeadline,
        "dm" => interface::GuestScheduler::DeadlineMonotonic,
        other => {
            let message = format!("scheduler is {other:?}: it must be \"edf\" or \"dm\"");
            return Err(PyValueError::new_err(message));
        }
    };
    let kind = interface::InterfaceKind::PeriodicResource;
    py.allow_threads(|| {
        interface::minimal(&tasks, scheduler, kind, period, None, &mut Work::default())
    })
    .map(|found| found.ok().map(|interface| interface.budget))
    .map_err(value_error)
}

/// Worst-case response times under DM on one processor, in the order given; None beyond the deadline.
#[pyfunction]
fn response_times(
    py: Python<'_>,
    parameters: Vec<(Time, Time, Time)>,
) -> PyResult<Vec<Option<Time>>> {
    let tasks = tasks(&parameters)?;
    py.allow_threads(|| {
        let order = PriorityOrder::DeadlineMonotonic.order(&tasks);
        let sorted: Vec<Task> = order.iter().map(|&i| tasks[i]).collect();
        let (supply, mut work) = (Dedicated::new(1), Work::default());
        let mut responses = vec![None; tasks.len()];
        for (level, &index) in order.iter().enumerate() {
            let limit = sorted[level].window();
            responses[index] =
                fixed_priority::response_time(&sorted, level, &supply, limit, &mut work)
                    .map_err(|_| value_error("the response times need too much work to compute"))?;
        }
        Ok(responses)
    })
}

/// The supply bound function of a periodic resource; with `vcpus`, of an MPR.
#[pyfunction]
#[pyo3(signature = (period, budget, window, vcpus = None))]
fn supply_bound(period: Time, budget: Time, window: Time, vcpus: Option<u32>) -> PyResult<i128> {
    if !(0..=steadyvm_analysis::time::MAX_TIME).contains(&window) {
        return Err(PyValueError::new_err(format!(
            "window is {window}: it must be 0 to 2^53"
        )));
    }
    match vcpus {
        None => PeriodicResource::new(period, budget).map(|resource| resource.supply(window)),
        Some(vcpus) => MultiprocessorPeriodic::new(period, budget, vcpus)
            .map(|resource| resource.supply(window)),
    }
    .map_err(value_error)
}

/// A VM of `admit_hosts`: budget and period of each of its VCPUs, nanoseconds, and how many it has.
type RtVm = (Time, Time, u32);

/// What `admit_hosts` says of a host: whether it holds its VMs and the new one, and if not, why.
type HostVerdict = (bool, Option<String>);

/// Whether each host can take one more VM. One call without the GIL for all hosts.
#[pyfunction]
#[pyo3(signature = (hosts, request, scheduler = "pedf", server = "cbs"))]
fn admit_hosts(
    py: Python<'_>,
    hosts: Vec<(u32, Vec<RtVm>)>,
    request: RtVm,
    scheduler: &str,
    server: &str,
) -> PyResult<Vec<HostVerdict>> {
    let without_plan = |what: &str, word: &str| {
        PyValueError::new_err(format!("{what}: no plan is made for `{word}`"))
    };
    let order = plan::order_of(named(scheduler, "scheduler")?)
        .ok_or_else(|| without_plan("scheduler", scheduler))?;
    let server =
        plan::server_of(named(server, "server")?).ok_or_else(|| without_plan("server", server))?;
    py.allow_threads(|| {
        (hosts.iter().enumerate())
            .map(|(index, (cpus, vms))| {
                admission::host(*cpus, vms, request, order, server).map_err(|error| {
                    value_error(format!("{}: {}", error.place(index), error.error))
                })
            })
            .collect()
    })
}

/// A word of the plan file.
fn named<T: serde::de::DeserializeOwned>(word: &str, what: &str) -> PyResult<T> {
    serde_json::from_value(word.into()).map_err(|error| value_error(format!("{what}: {error}")))
}

#[pymodule]
fn _steadyvm(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    module.add_function(wrap_pyfunction!(plan_json, module)?)?;
    module.add_function(wrap_pyfunction!(plan_toml, module)?)?;
    module.add_function(wrap_pyfunction!(plan_text, module)?)?;
    module.add_function(wrap_pyfunction!(plan_svg, module)?)?;
    module.add_function(wrap_pyfunction!(minimal_budget, module)?)?;
    module.add_function(wrap_pyfunction!(response_times, module)?)?;
    module.add_function(wrap_pyfunction!(supply_bound, module)?)?;
    module.add_function(wrap_pyfunction!(admit_hosts, module)?)?;
    module.add_function(wrap_pyfunction!(many::sweep_json, module)?)?;
    module.add_function(wrap_pyfunction!(many::sweep_csv, module)?)?;
    module.add_function(wrap_pyfunction!(many::sweep_svg, module)?)?;
    module.add_function(wrap_pyfunction!(many::curves_json, module)?)?;
    module.add_function(wrap_pyfunction!(many::cluster_json, module)?)
}
