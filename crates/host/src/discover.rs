//! What serves a NIC, a VM and a service on this host: interrupts, kernel threads, VCPU threads.
//! Read only.

use serde::{Deserialize, Serialize};

use crate::error::HostError;
use crate::machine::{Machine, ThreadId};
pub use crate::machine::{
    Nic, Processes, User, Vm, VmSelector, absent_vm, all_vms, find_vm, holds_a_vm, may_be_vm, nic,
    vm, without_interrupts,
};

/// A process of the host that is itself the service.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Process {
    /// Its number.
    pub pid: u32,
    /// Its threads.
    pub threads: Vec<ThreadId>,
}

/// Finds a process of the host by its number.
pub fn process(machine: &Machine, pid: u32) -> Result<Process, HostError> {
    let own = machine.threads_of(pid);
    let refused = |what| {
        Err(HostError::BadInput {
            what,
            fix: "name the running process of the service".into(),
        })
    };
    if own.is_empty() {
        return refused(format!("there is no process {pid} (/proc/{pid}/task)"));
    }
    if let Some(thread) = own.iter().find(|thread| thread.is_kernel()) {
        return refused(format!("{} belongs to the kernel", thread.id));
    }
    Ok(Process {
        pid,
        threads: own.into_iter().map(|thread| thread.id).collect(),
    })
}
