//! The steps of one service of the host: its threads' ranks or budgets, and CPUs.
//!
//! A thread that it starts begins with normal scheduling (`RESET_ON_FORK`), so that what it starts for others has no rank of
//! its own; the watch gives new threads of the unit theirs.

use super::budget;
use super::threads::{policy, thread_cpus};
use super::wanted::Wanted;
use crate::cpu_set::CpuSet;
use crate::discover::{self, Processes};
use crate::error::{HostError, at};
use crate::printable::printable;
use crate::profile::HostServiceProfile;
use crate::settings::Machine;
use crate::settings::threads::RESET_ON_FORK;

/// Plans one. `is_partitioned`: VCPUs have budgets on CPUs of their own, which nobody but their plan admits.
pub(super) fn plan(
    machine: &Machine,
    processes: &Processes<'_>,
    service: &HostServiceProfile,
    online: &CpuSet,
    is_partitioned: bool,
    wanted: &mut Wanted,
) -> Result<(), HostError> {
    let HostServiceProfile {
        unit,
        users,
        rank,
        budget,
        cpus,
        place,
    } = service;
    let refused = |what: String, fix: &str| HostError::BadInput {
        what: at(place, &what),
        fix: fix.into(),
    };
    let name = printable(unit);
    if let Some(cpus) = cpus
        && !cpus.is_subset(online)
    {
        let what = format!("service {name} is for CPUs {cpus}, of which not all are online");
        return Err(refused(what, &format!("name some of {online}")));
    }
    if budget.is_some() && is_partitioned {
        let what = format!(
            "service {name} has a budget beside VCPUs whose budgets are planned CPU by CPU: nobody would admit it"
        );
        return Err(refused(
            what,
            "give it a rank, or plan with scheduler = \"gedf\"",
        ));
    }
    let warnings = &mut wanted.warnings;
    let found = discover::host_service(machine, processes, unit, users, warnings)?;
    if found.is_empty() {
        let what =
            format!("service {name} does not run: it is set when it starts and a watch runs");
        wanted.warnings.push(what);
    }
    for thread in found.iter().flat_map(|process| &process.threads) {
        let is_movable = machine.thread(thread.pid, thread.tid);
        let is_movable = is_movable.is_some_and(|thread| thread.is_movable());
        if let Some(cpus) = cpus.as_ref().filter(|_| is_movable) {
            wanted.steps.extend(thread_cpus(machine, thread, cpus)?);
        }
        if let Some(rank) = rank {
            let why = "so that a service of the host does not wait for VMs of lower rank";
            let steps = policy(machine, thread, *rank, RESET_ON_FORK, why)?;
            wanted.steps.extend(steps);
        }
        if let Some(budget) = budget {
            let steps = budget::steps(machine, thread, budget, budget::OF_PLAN, place)?;
            wanted.steps.extend(steps);
        }
    }
    Ok(())
}
