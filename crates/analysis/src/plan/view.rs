//! What other tools may see of a request: the simulator needs the tasks and how each guest orders them.

use super::{Needs, Request, SchedulerName};
use crate::{host::Host, task::Task, time::Time};

impl Request {
    /// The host.
    pub const fn host(&self) -> &Host {
        &self.host
    }

    /// Who schedules its VCPUs: "pedf", "gedf", "pdm" or "gdm".
    pub const fn scheduler(&self) -> &'static str {
        self.host_name.word()
    }

    /// The tasks of the VM with this number, with their names; none for a VM of a given budget that is not soft, and for best effort.
    pub fn tasks(&self, vm: usize) -> impl Iterator<Item = (&str, &Task)> {
        let tasks = match self.vms.get(vm).map(|vm| &vm.needs) {
            Some(Needs::Tasks(needs)) => needs.tasks.as_slice(),
            Some(Needs::Given {
                played: Some(played),
                ..
            }) => played.tasks.as_slice(),
            _ => &[],
        };
        tasks.iter().map(|named| (named.name.as_str(), &named.task))
    }

    /// The scheduler in the VM with this number, if its tasks are known.
    pub fn guest_scheduler(&self, vm: usize) -> Option<SchedulerName> {
        match self.vms.get(vm).map(|vm| &vm.needs) {
            Some(Needs::Tasks(needs)) => Some(needs.scheduler),
            Some(Needs::Given {
                played: Some(played),
                ..
            }) => Some(played.scheduler),
            _ => None,
        }
    }

    /// The CPUs that the VM with this number is restricted to.
    pub fn cpus(&self, vm: usize) -> Option<&[u32]> {
        self.vms.get(vm)?.mask.as_deref()
    }
}

/// A time as plan files write it ("10ms", "1.5us"), ns; `None` if it is none.
pub fn duration_ns(text: &str) -> Option<Time> {
    steadyvm_config::duration_ns(text)
}
