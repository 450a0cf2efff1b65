//! Services of the host itself: `[[host_service]]`.

use steadyvm_config::{HostService, Placed};

use super::budget::VcpuBudget;
use super::classes::{Classes, must_have_class};
use super::fields::{cpus_of, unit_is_wrong, users, wrong};
use super::parts::HostServiceProfile;
use crate::error::HostError;
use crate::printable::printable;

/// What a table says.
pub(super) fn read(
    table: &Placed<HostService>,
    classes: &Classes,
) -> Result<HostServiceProfile, HostError> {
    let at = &table.place;
    let HostService {
        unit,
        user,
        class,
        rank,
        budget,
        period,
        cpus,
    } = &table.value;
    let name = printable(&unit.value);
    let who = format!("host service \"{name}\"");
    if let Some((what, fix)) = unit_is_wrong(&unit.value) {
        return Err(wrong(&unit.place, &format!("{who} {what}"), fix));
    }
    if unit.value.strip_suffix(".slice").is_some() {
        let what = format!("{who} is a slice, which holds many units");
        return Err(wrong(&unit.place, &what, "name each of its services"));
    }
    let given = [class.is_some(), rank.is_some(), budget.is_some()];
    if given.iter().filter(|given| **given).count() > 1 {
        let what = format!("{who} has more than one of class, rank and budget");
        return Err(wrong(at, &what, "keep one"));
    }
    if !given.contains(&true) && cpus.is_none() {
        let fix = "give it a class, a rank, a budget or cpus";
        return Err(wrong(at, &format!("{who} asks for nothing"), fix));
    }
    let rank = match class {
        Some(class) => {
            let of_class = must_have_class(class, at, classes)?.vcpu;
            let none = || {
                let what = format!("{who}: class \"{class}\" has no vcpu, which would be its rank");
                wrong(
                    at,
                    &what,
                    "add vcpu to the class, or give the service a rank",
                )
            };
            Some(of_class.ok_or_else(none)?)
        }
        None => *rank,
    };
    let budget = match (budget, period) {
        (None, None) => None,
        (Some(budget), Some(period)) => {
            let ns = |time: i64| u64::try_from(time).unwrap_or(0);
            let period_ns = ns(period.value.0);
            let read = VcpuBudget {
                runtime_ns: ns(budget.value.0),
                deadline_ns: period_ns,
                period_ns,
                ..VcpuBudget::default()
            };
            read.check().map_err(|what| {
                let fix = "choose another period or budget";
                wrong(&budget.place, &format!("{who}: {what}"), fix)
            })?;
            Some(read)
        }
        _ => {
            let what = format!("{who} has one of budget and period");
            return Err(wrong(at, &what, "give both, or neither"));
        }
    };
    if let (Some(_), Some(cpus)) = (&budget, cpus) {
        let what = format!(
            "{who} has a budget and cpus: SCHED_DEADLINE takes no thread with CPUs of its own"
        );
        return Err(wrong(&cpus.place, &what, "keep one, or give it a rank"));
    }
    let of_list = |list: &Placed<Vec<usize>>| {
        cpus_of("cpus", &list.value).map_err(|what| {
            wrong(
                &list.place,
                &format!("{who}: {what}"),
                "name CPUs of this host",
            )
        })
    };
    Ok(HostServiceProfile {
        unit: unit.value.clone(),
        users: users(&who, user.as_ref())?,
        rank,
        budget,
        cpus: cpus.as_ref().map(of_list).transpose()?,
        place: at.to_string(),
    })
}
