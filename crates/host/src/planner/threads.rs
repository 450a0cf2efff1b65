//! Steps for one thread: its rank, and its CPUs.

use super::step::Step;
use crate::cpu_set::CpuSet;
use crate::error::{HostError, at};
use crate::profile::class::scheduling;
use crate::profile::{Class, ThreadPriority};
use crate::settings::{ChangeOf, Machine, ThreadAffinity, ThreadId, ThreadPolicy};

/// A step that gives a thread its priority; none if it ended meanwhile.
pub(super) fn policy(
    machine: &Machine,
    thread: &ThreadId,
    priority: ThreadPriority,
    flags: u64,
    why: &str,
) -> Result<Option<Step>, HostError> {
    let old = match machine.threads.scheduling(thread.tid) {
        Ok(old) => old,
        Err(error) if error.raw_os_error() == Some(libc::ESRCH) => return Ok(None),
        Err(cause) => {
            return Err(HostError::io(
                "read the policy of",
                thread.to_string(),
                cause,
            ));
        }
    };
    let mut new = scheduling(priority, flags);
    new.flags |= old.flags & crate::settings::threads::RESET_ON_FORK;
    let setting = ThreadPolicy {
        thread: thread.clone(),
    };
    Ok(Some(Step::required(ChangeOf { setting, old, new }, why)))
}

/// None if the thread ended meanwhile.
pub(super) fn thread_cpus(
    machine: &Machine,
    thread: &ThreadId,
    cpus: &CpuSet,
) -> Result<Option<Step>, HostError> {
    let old = match machine.threads.affinity(thread.tid) {
        Ok(old) => old,
        Err(error) if error.raw_os_error() == Some(libc::ESRCH) => return Ok(None),
        Err(cause) => return Err(HostError::io("read the CPUs of", thread.to_string(), cause)),
    };
    let change = ChangeOf {
        setting: ThreadAffinity {
            thread: thread.clone(),
        },
        old,
        new: cpus.clone(),
    };
    Ok(Some(Step::required(
        change,
        "because its class or service has these CPUs",
    )))
}

pub(super) fn check_cpus(class: &Class, online: &CpuSet, place: &str) -> Result<(), HostError> {
    match &class.cpus {
        Some(cpus) if !cpus.is_subset(online) => Err(HostError::BadInput {
            what: at(
                place,
                &format!(
                    "class \"{}\" wants CPUs {cpus}, of which not all are online",
                    class.name
                ),
            ),
            fix: format!("name some of {online}"),
        }),
        _ => Ok(()),
    }
}
