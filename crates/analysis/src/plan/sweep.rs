//! What if: one field of a plan over a range of values.
//!
//! Rule: the field is `host.FIELD`, `vm.NAME.FIELD` or `service.NAME.FIELD`, as in the file; every value is a plan
//! of its own. The range is `FROM..TO/STEP`, both ends included, times with units or whole numbers.

use std::fmt::Write;

use serde::Serialize;
use serde_json::Value;
use steadyvm_config::{Written, show};

use super::{
    InputError, Measured, Report, Unit, svg,
    value::{self, Object},
};
use crate::time::Time;

/// The most values of a sweep.
pub const MAX_POINTS: i64 = 10_000;

/// A field and its values.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Axis {
    /// Its path in the file.
    pub field: String,
    values: Vec<Time>,
    /// Written as times with units.
    times: bool,
}

/// One value, and the plan with it.
#[derive(Debug, Clone, Serialize)]
pub struct Point {
    /// The value: nanoseconds, or a count.
    pub value: Time,
    /// The value as people write it.
    pub shown: String,
    /// The plan.
    pub plan: Report,
}

impl Axis {
    /// Reads `vm.web.period=1ms..10ms/1ms`.
    ///
    /// # Errors
    /// What is not of that form, with what is.
    pub fn parse(text: &str) -> Result<Self, InputError> {
        let wrong = |what: &str| {
            let message = format!(
                "{what}; write FIELD=FROM..TO/STEP, for example vm.web.period=1ms..10ms/1ms or host.pcpus=1..8/1"
            );
            InputError::new(format!("sweep {text}"), message)
        };
        let (field, range) = text.split_once('=').ok_or_else(|| wrong("there is no ="))?;
        let (from, rest) = range
            .split_once("..")
            .ok_or_else(|| wrong("there is no .."))?;
        let (to, step) = rest
            .split_once('/')
            .ok_or_else(|| wrong("there is no /STEP"))?;
        let times = from.ends_with('s');
        let number = |part: &str| {
            let plain = part
                .parse::<Time>()
                .map_or_else(|_| part.into(), Value::from);
            let read: Result<Written, _> = serde_json::from_value(plain);
            read.map(|written| written.0)
                .map_err(|error| wrong(&error.to_string()))
        };
        let (from, to, step) = (number(from)?, number(to)?, number(step)?);
        if step < 1 || from < 0 || to < from || (to - from) / step >= MAX_POINTS {
            return Err(wrong(
                "FROM must not exceed TO, STEP is at least 1, and 10000 values are the most",
            ));
        }
        let count = (to - from) / step;
        Ok(Self {
            field: field.to_owned(),
            values: (0..=count).map(|index| from + index * step).collect(),
            times,
        })
    }

    fn shown(&self, value: Time) -> String {
        if self.times {
            show(value.into())
        } else {
            value.to_string()
        }
    }
}

/// The plan of `text` with each value of the axis. Costs that it leaves out are those that were measured on its host.
///
/// # Errors
/// A text that is no plan with one of the values, a field that does not exist.
pub fn run(text: &str, axis: &Axis, measured: &Measured) -> Result<Vec<Point>, InputError> {
    let object = value::of(text)?;
    (axis.values.iter())
        .map(|&value| {
            let mut changed = object.clone();
            set(&mut changed, &axis.field, value)?;
            let shown = axis.shown(value);
            let plan = value::plan_measured(changed, measured).map_err(|error| {
                InputError::new(
                    format!("{} = {shown}, {}", axis.field, error.place),
                    error.message,
                )
            })?;
            Ok(Point { value, shown, plan })
        })
        .collect()
}

fn set(object: &mut Object, field: &str, value: Time) -> Result<(), InputError> {
    let wrong = |message: String| InputError::new(format!("sweep {field}"), message);
    let (what, rest) = field
        .split_once('.')
        .ok_or_else(|| wrong("begin with host., vm.NAME. or service.NAME.".to_owned()))?;
    let (target, name) = match what {
        "host" => (object.get_mut("host"), rest),
        "vm" | "service" => {
            let (owner, name) = rest
                .rsplit_once('.')
                .ok_or_else(|| wrong(format!("write {what}.NAME.FIELD")))?;
            let names = if what == "vm" {
                ["vm", "vms"]
            } else {
                ["service", "services"]
            };
            let called = |entry: &Value| {
                let of = |key: &str| entry.get(key).and_then(Value::as_str);
                let keys: &[&str] = if what == "vm" {
                    &["name"]
                } else {
                    &["name", "task", "vm"]
                };
                keys.iter().find_map(|key| of(key)) == Some(owner)
            };
            let list = value::list(object, names);
            (
                list.and_then(|list| list.iter_mut().find(|entry| called(entry))),
                name,
            )
        }
        _ => {
            return Err(wrong(
                "begin with host., vm.NAME. or service.NAME.".to_owned(),
            ));
        }
    };
    let Some(Value::Object(target)) = target else {
        return Err(wrong("the plan has no such part".to_owned()));
    };
    target.insert(name.to_owned(), value.into());
    Ok(())
}

/// CPUs that the real-time VCPUs take, with the host's costs.
fn used(report: &Report) -> f64 {
    report.cpus.iter().map(|cpu| cpu.utilization).sum()
}

fn bounds(report: &Report) -> impl Iterator<Item = (&str, Option<Time>)> {
    report
        .services
        .iter()
        .map(|service| (service.name.as_str(), service.bound))
}

/// A table for people.
pub fn text(axis: &Axis, points: &[Point]) -> String {
    let mut out = format!(
        "{:>12}  {:>12}  {:>8}  {:>8}",
        axis.field, "feasible", "CPUs", "needs"
    );
    let names = points.first().map(|point| bounds(&point.plan));
    for (name, _) in names.into_iter().flatten() {
        let _ = write!(out, "  {:>12}", format!("{name} [max]"));
    }
    let width = axis.field.chars().count().max(12);
    for point in points {
        let answer = if point.plan.feasible { "yes" } else { "no" };
        let needs = point
            .plan
            .min_pcpus
            .map_or("?".to_owned(), |cpus| cpus.to_string());
        let _ = write!(
            out,
            "\n{:>width$}  {answer:>12}  {:>8.3}  {needs:>8}",
            point.shown,
            used(&point.plan)
        );
        for (_, bound) in bounds(&point.plan) {
            let bound = bound.map_or("?".to_owned(), |bound| Unit::Nanosecond.show(bound.into()));
            let _ = write!(out, "  {bound:>12}");
        }
    }
    out.push('\n');
    out
}

/// The same as comma-separated values, times in nanoseconds.
pub fn csv(axis: &Axis, points: &[Point]) -> String {
    let mut out = format!("{},feasible,cpus,min_pcpus", quoted(&axis.field));
    for (name, _) in points
        .first()
        .into_iter()
        .flat_map(|point| bounds(&point.plan))
    {
        let _ = write!(out, ",{}", quoted(&format!("{name} bound_ns")));
    }
    for point in points {
        let needs = point
            .plan
            .min_pcpus
            .map_or(String::new(), |cpus| cpus.to_string());
        let _ = write!(
            out,
            "\n{},{},{:.6},{needs}",
            point.value,
            point.plan.feasible,
            used(&point.plan)
        );
        for (_, bound) in bounds(&point.plan) {
            let _ = write!(
                out,
                ",{}",
                bound.map_or(String::new(), |bound| bound.to_string())
            );
        }
    }
    out.push('\n');
    out
}

fn quoted(text: &str) -> String {
    let plain = text
        .chars()
        .all(|c| c.is_alphanumeric() || " ._-".contains(c));
    if plain {
        text.to_owned()
    } else {
        format!("\"{}\"", text.replace('"', "\"\""))
    }
}

/// The CPUs taken over the values; what is not feasible is hollow.
pub fn svg(axis: &Axis, points: &[Point]) -> String {
    let marks: Vec<(f64, f64, bool)> = (points.iter())
        .map(|point| (point.value as f64, used(&point.plan), point.plan.feasible))
        .collect();
    let ends = [points.first(), points.last()]
        .map(|end| end.map_or(String::new(), |end| end.shown.clone()));
    let curve = svg::Curve {
        name: "CPUs taken (hollow: not feasible)".to_owned(),
        marks,
    };
    svg::curves(&axis.field, &ends, &[curve])
}
