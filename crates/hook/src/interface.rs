//! A VM's real-time interface, from what its cloud or its owner wrote about it: `rt:budget`, `rt:period` and their kin.
//!
//! The rules are those of `nova/src/steadyvm_nova/interface.py`, which sells by them; nova/tests/data/interfaces.json is
//! read by the tests of both. `rt:budget` is of all VCPUs together, shared evenly and rounded up; `rt:period` is that
//! of each. Times are whole microseconds, or carry `us` or `ms`. `rt:tasks` names tasks instead, of which the analysis
//! makes the interface of least bandwidth under global EDF in the guest.

use std::collections::BTreeMap;

use steadyvm_analysis::plan::sold::{self, SoldTask as Task, VCPU_BUDGET_MIN_US};

/// Each of so many VCPUs may run for the budget in every period.
pub use steadyvm_analysis::plan::sold::SoldInterface as Interface;

/// What every key begins with.
pub const PREFIX: &str = "rt:";
const BUDGET: &str = "rt:budget";
const VCPU_BUDGET: &str = "rt:vcpu_budget";
const PERIOD: &str = "rt:period";
const TASKS: &str = "rt:tasks";
/// Nova's own keys that give a VM whole CPUs, or VCPUs of a real-time priority.
const CPU_POLICY: &str = "hw:cpu_policy";
const CPU_REALTIME: &str = "hw:cpu_realtime";

const AMOUNTS: [&str; 3] = [BUDGET, VCPU_BUDGET, TASKS];
/// All keys there are.
pub const KEYS: [&str; 4] = [BUDGET, VCPU_BUDGET, TASKS, PERIOD];
/// Keys of others that do not go with ours.
pub const OTHERS: [&str; 2] = [CPU_POLICY, CPU_REALTIME];

/// The kernel's bounds on a `SCHED_DEADLINE` period (`sched_deadline_period_min_us`, `_max_us`).
const PERIOD_US: std::ops::RangeInclusive<u64> = 100..=4_194_304;
const VCPUS_MAX: u32 = 1024;
const TASKS_MAX: usize = 16;
const TASKS_LENGTH_MAX: usize = 1024;

/// What is wrong with a VM's keys, and what to write instead.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct SpecError(String);

/// A VM's keys and their values.
pub type Specs = BTreeMap<String, String>;

/// The interface of a VM with so many VCPUs; none of a VM that is not real-time. Keys without [`PREFIX`] are others'.
///
/// # Errors
/// Anything else.
pub fn interface_of(specs: &Specs, vcpus: u32) -> Result<Option<Interface>, SpecError> {
    let mut own: BTreeMap<&str, &str> = BTreeMap::new();
    for (key, value) in specs.iter().filter(|(key, _)| key.starts_with(PREFIX)) {
        if !KEYS.contains(&key.as_str()) {
            let known = KEYS.join(", ");
            return wrong(format!("{} is not known; known are {known}", shown(key)));
        }
        own.insert(key, value);
    }
    if own.is_empty() {
        return Ok(None);
    }
    refuse_whole_cpus(specs)?;
    if !(1..=VCPUS_MAX).contains(&vcpus) {
        return wrong(format!(
            "a real-time VM has 1 to {VCPUS_MAX} VCPUs; this one has {vcpus}"
        ));
    }
    let given: Vec<&str> = (AMOUNTS.into_iter())
        .filter(|key| own.contains_key(key))
        .collect();
    let amount = match given[..] {
        [amount] => amount,
        [] => {
            return wrong(format!(
                "{PERIOD} is given without a budget; add {BUDGET} (of all VCPUs together), {VCPU_BUDGET} (of each) or \
                 {TASKS}"
            ));
        }
        _ => {
            let given = given.join(" and ");
            return wrong(format!("{given} exclude each other; keep one of them"));
        }
    };
    let period_us = (own.get(PERIOD).map(|text| period(text))).transpose()?;
    if amount == TASKS {
        return of_tasks(own[TASKS], period_us, vcpus).map(Some);
    }
    let Some(period_us) = period_us else {
        return wrong(format!(
            "{amount} is given without {PERIOD}; add {PERIOD}, such as {PERIOD}=10ms"
        ));
    };
    of_budget(amount, own[amount], period_us, vcpus).map(Some)
}

/// What gives VCPUs whole CPUs takes these from the pool that budgets are kept in.
fn refuse_whole_cpus(specs: &Specs) -> Result<(), SpecError> {
    if let Some(policy) = specs.get(CPU_POLICY)
        && ["dedicated", "mixed"].contains(&policy.as_str())
    {
        return wrong(format!(
            "{CPU_POLICY}={policy} gives VCPUs whole CPUs of their own, which takes no budget; leave out either it or \
             the {PREFIX} extra specs"
        ));
    }
    let yes = ["yes", "true", "on", "1", "t", "y"];
    if let Some(realtime) = specs.get(CPU_REALTIME)
        && yes.contains(&realtime.to_lowercase().as_str())
    {
        return wrong(format!(
            "{CPU_REALTIME} gives VCPUs a real-time priority, and {PREFIX} extra specs a budget; leave out one of them"
        ));
    }
    Ok(())
}

fn wrong<T>(what: String) -> Result<T, SpecError> {
    Err(SpecError(what))
}

/// Microseconds of "4000", "4000us" or "4ms".
fn time_us(key: &str, text: &str) -> Result<u64, SpecError> {
    let (number, scale) = match text.strip_suffix("ms") {
        Some(number) => (number, 1000),
        None => (text.strip_suffix("us").unwrap_or(text), 1),
    };
    let is_number = (1..=9).contains(&number.len())
        && number.bytes().all(|byte| byte.is_ascii_digit())
        && !number.starts_with('0');
    match number.parse::<u64>() {
        Ok(number) if is_number => Ok(number * scale),
        _ => wrong(format!(
            "{key}={} is no time; write a positive whole number of microseconds, such as 4000, 4000us or 4ms",
            shown(text)
        )),
    }
}

fn period(text: &str) -> Result<u64, SpecError> {
    let period_us = time_us(PERIOD, text)?;
    if PERIOD_US.contains(&period_us) {
        return Ok(period_us);
    }
    wrong(format!(
        "{PERIOD}={} is outside {} us to {} us, the periods that a host can enforce",
        shown(text),
        PERIOD_US.start(),
        PERIOD_US.end()
    ))
}

fn of_budget(key: &str, text: &str, period_us: u64, vcpus: u32) -> Result<Interface, SpecError> {
    let total_us = time_us(key, text)?;
    let is_total = key == BUDGET;
    let budget_us = if is_total {
        total_us.div_ceil(vcpus.into())
    } else {
        total_us
    };
    if budget_us > period_us {
        let most = period_us * if is_total { u64::from(vcpus) } else { 1 };
        return wrong(format!(
            "{key}={} is more than a whole CPU for each of {vcpus} VCPUs; at most {most} us fit into {PERIOD}={period_us} us",
            shown(text)
        ));
    }
    if budget_us < VCPU_BUDGET_MIN_US {
        return wrong(format!(
            "{key}={} leaves each of {vcpus} VCPUs less than {VCPU_BUDGET_MIN_US} us; raise it",
            shown(text)
        ));
    }
    Ok(Interface {
        period_us,
        budget_us,
        vcpus,
    })
}

/// The tasks of `C/T` or `C/D/T` each.
fn tasks(text: &str) -> Result<Vec<Task>, SpecError> {
    let no_list = || {
        SpecError(format!(
            "{TASKS}={} is no list of tasks; write execution time and period of each, such as '10ms/33ms, 4ms/20ms', or \
             C/D/T with a deadline; at most {TASKS_MAX} tasks",
            shown(text)
        ))
    };
    if text.len() > TASKS_LENGTH_MAX || text.starts_with([',', ' ']) || text.ends_with([',', ' ']) {
        return Err(no_list());
    }
    let items: Vec<&str> = (text.split([',', ' ']))
        .filter(|item| !item.is_empty())
        .collect();
    if items.is_empty() || items.len() > TASKS_MAX {
        return Err(no_list());
    }
    let mut tasks = Vec::with_capacity(items.len());
    for item in items {
        let times = item.split('/').map(|time| time_us(TASKS, time));
        let times: Vec<u64> = times.collect::<Result<_, _>>().map_err(|_| no_list())?;
        let (c, d, t) = match times[..] {
            [c, t] => (c, t, t),
            [c, d, t] => (c, d, t),
            _ => return Err(no_list()),
        };
        if !(c <= d && d <= t) {
            return wrong(format!(
                "{TASKS}: the task {item} needs execution time <= deadline <= period"
            ));
        }
        tasks.push((c, d, t));
    }
    Ok(tasks)
}

fn of_tasks(text: &str, period_us: Option<u64>, vcpus: u32) -> Result<Interface, SpecError> {
    let tasks = tasks(text)?;
    sold::least_interface(&tasks, period_us, vcpus).ok_or_else(|| {
        let within = period_us.map_or("any period of 2 ms to 30 ms".to_owned(), |period_us| {
            format!("{PERIOD}={period_us} us")
        });
        SpecError(format!(
            "{TASKS}={}: no budget of {vcpus} VCPUs within {within} keeps all deadlines; give the VM more VCPUs, or a \
             shorter period",
            shown(text)
        ))
    })
}

/// Text of others, for a message: short, and without control characters.
pub fn shown(text: &str) -> String {
    let shown: String = text.escape_default().take(60).collect();
    let rest = if text.escape_default().nth(60).is_some() {
        "..."
    } else {
        ""
    };
    format!("'{shown}{rest}'")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde::Deserialize;

    use super::*;

    #[derive(Deserialize)]
    struct Case {
        specs: Specs,
        vcpus: u32,
        /// Period and budget of each VCPU; none of a VM that is not real-time.
        interface: Option<(u64, u64)>,
        /// Words of the refusal.
        refused: Option<String>,
    }

    /// The cases that the Python package, which sells by them, has too.
    #[test]
    fn every_recorded_case_is_as_it_is_sold() {
        let text = include_str!("../../../nova/tests/data/interfaces.json");
        let cases: Vec<Case> = serde_json::from_str(text).unwrap();
        assert!(cases.len() > 40);
        for case in cases {
            let found = interface_of(&case.specs, case.vcpus);
            match (&case.refused, found) {
                (Some(words), Err(error)) => {
                    assert!(error.to_string().contains(words), "{error}: {words}");
                }
                (None, Ok(found)) => {
                    let found = found.map(|found| {
                        assert_eq!(found.vcpus, case.vcpus);
                        (found.period_us, found.budget_us)
                    });
                    assert_eq!(found, case.interface, "{:?}", case.specs);
                }
                (_, found) => panic!("{:?}: {found:?}, not {:?}", case.specs, case.refused),
            }
        }
    }

    proptest! {
        #[test]
        fn whatever_comes_is_an_enforceable_interface_or_refused_in_ascii(
            specs in prop::collection::btree_map(
                prop::sample::select(&KEYS[..]).prop_map(str::to_owned),
                "[0-9]{1,12}(us|ms)?(/[0-9]{1,6}ms)?|.{0,30}",
                0..4,
            ),
            vcpus in 0_u32..2000,
        ) {
            match interface_of(&specs, vcpus) {
                Ok(None) => {}
                Ok(Some(found)) => {
                    prop_assert_eq!(found.vcpus, vcpus);
                    prop_assert!((2..=found.period_us).contains(&found.budget_us));
                    prop_assert!((100..=4_194_304).contains(&found.period_us));
                }
                Err(error) => {
                    let error = error.to_string();
                    prop_assert!(error.is_ascii() && error.len() < 600, "{}", error);
                }
            }
        }
    }
}
