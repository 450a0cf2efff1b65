//! What serves a NIC, a VM and a service on this host: interrupts, kernel threads, VCPU threads.
//! Read only.

mod at_work;
pub(crate) mod cgroup;
mod claims;
mod container;
mod descriptors;
mod device;
mod doubt;
#[cfg(any(test, feature = "fake"))]
mod fake;
mod host_service;
mod interfaces;
mod makers;
mod netdevs;
mod nic;
mod owner;
mod processes;
mod receive;
mod socket_servers;
mod switches;
mod vfio;
mod vm;
mod vm_names;
mod wanted_vm;

use serde::{Deserialize, Serialize};
pub use steadyvm_config::User;

use crate::error::HostError;
use crate::settings::{Machine, ThreadId};

pub use cgroup::has_disk_limit;
pub(crate) use container::LONGEST_NAME as LONGEST_THREAD_NAME;
pub use host_service::{find as host_service, may_be as may_be_host_service, units_of_the_system};
pub(crate) use interfaces::{Interface, interfaces, of_user_space as interfaces_of_user_space};
pub(crate) use nic::interrupts_of_cards_and_vms;
pub use nic::{Nic, nic, polls_without_interrupts, without_interrupts};
pub use processes::Processes;
pub use receive::{ReceiveKind, ReceiveThread, receive_threads};
pub(crate) use switches::{
    OPEN_VSWITCH, has_open_vswitch_in_user_space, master, ports_of_open_vswitch,
};
#[cfg(test)]
pub(crate) use vm::macvtaps_of;
pub use vm::{Vm, vm};
pub use vm_names::{
    VmSelector, absent as absent_vm, all as all_vms, find as find_vm, holds_a_vm,
    may_be as may_be_vm,
};
pub use wanted_vm::WantedVm;

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
