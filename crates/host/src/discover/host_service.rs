//! The processes of a service of the host: those of a unit of the system's systemd.
//!
//! A unit is believed as that of a VM is ([`super::doubt`]): of processes of root, and of users that the file names.

use std::collections::BTreeMap;

use super::Process;
use super::doubt::{self, MOST_NAMED, Sought};
use super::processes::Processes;
use crate::error::HostError;
use crate::printable::printable;
use crate::settings::Machine;
use steadyvm_config::User;

/// The processes of a unit; none if it does not run. `users` are believed besides root; `warnings` tells of processes that
/// are not.
///
/// # Errors
/// The unit of a VM: a VM's threads have ranks of their own.
pub fn find(
    machine: &Machine,
    processes: &Processes<'_>,
    unit: &str,
    users: &[User],
    warnings: &mut Vec<String>,
) -> Result<Vec<Process>, HostError> {
    let believed = processes.passwd(machine).root_and(users);
    let mut found = Vec::new();
    let mut doubted = Vec::new();
    for (pid, doubt) in doubt::in_unit(machine, processes, unit, &believed) {
        let Some(process) = processes.get(pid) else {
            continue;
        };
        if let Some(doubt) = doubt {
            if doubted.len() <= MOST_NAMED {
                doubted.push((pid, doubt));
            }
            continue;
        }
        let files = process.files(machine, pid).as_ref();
        if files.is_ok_and(|files| !files.kvm_vms.is_empty()) {
            return Err(HostError::BadInput {
                what: format!(
                    "unit {} has a VM, of process {pid}, and is no service of the host",
                    printable(unit)
                ),
                fix: "name it in a [[vm]], by `unit`".into(),
            });
        }
        let threads = process.threads.iter();
        found.push(Process {
            pid,
            threads: threads.map(|thread| thread.id.clone()).collect(),
        });
    }
    let wanted = format!("unit {}", printable(unit));
    let sought = Sought::HostService;
    warnings.extend(doubt::tell(
        machine, processes, sought, &wanted, &believed, &doubted,
    ));
    Ok(found)
}

/// The processes of the units of the system's systemd that are meant, by unit.
pub fn units_of_the_system(
    machine: &Machine,
    processes: &Processes<'_>,
    is_meant: impl Fn(&str) -> bool,
) -> BTreeMap<String, Vec<u32>> {
    let mut found: BTreeMap<String, Vec<u32>> = BTreeMap::new();
    let all = processes.places(machine).units.values().flatten();
    for (unit, is_the_systems, pid) in all {
        if *is_the_systems && is_meant(unit) {
            found.entry(unit.clone()).or_default().push(*pid);
        }
    }
    found
}

/// Whether a process may be of one of these units, each with the users who are believed, as [`find`] takes them. Only the
/// one process is looked at.
pub fn may_be(machine: &Machine, pid: u32, wanted: &[(String, Vec<User>)]) -> bool {
    let threads = Vec::from_iter(machine.thread(pid, pid));
    let processes = Processes::of(&threads);
    wanted.iter().any(|(unit, users)| {
        let believed = processes.passwd(machine).root_and(users);
        let all = doubt::in_unit(machine, &processes, unit, &believed);
        all.iter().any(|(_, doubt)| doubt.is_none())
    })
}
