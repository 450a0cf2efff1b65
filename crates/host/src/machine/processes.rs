//! The processes of a host that are no kernel's, as one look at its threads found them.

use std::cell::OnceCell;
use std::collections::BTreeMap;

use super::Thread;

/// The processes of one look. What VMs they claim to be is read once for all questions: a host may have as many VMs as processes.
pub struct Processes<'t> {
    threads: &'t [Thread],
    own: BTreeMap<u32, Process<'t>>,
}

#[derive(Default)]
pub(super) struct Process<'t> {
    pub threads: Vec<&'t Thread>,
    /// What its command line calls a VM, once it was read.
    pub vm_names: OnceCell<Vec<String>>,
}

impl<'t> Processes<'t> {
    /// Of all threads of a host.
    pub fn of(threads: &'t [Thread]) -> Self {
        let mut own: BTreeMap<u32, Process<'t>> = BTreeMap::new();
        for thread in threads.iter().filter(|thread| !thread.is_kernel()) {
            own.entry(thread.id.pid).or_default().threads.push(thread);
        }
        Self { threads, own }
    }

    /// All threads of the host, the kernel's too.
    pub fn threads(&self) -> &'t [Thread] {
        self.threads
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (u32, &Process<'t>)> {
        self.own.iter().map(|(pid, process)| (*pid, process))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake::FakeHost;
    use crate::machine::{VmSelector, find_vm};

    /// A host of 40 VMs that are looked for by name had 40 times 78 readings in each look.
    #[test]
    fn one_look_reads_a_command_line_once_however_many_vms_are_looked_for() {
        let host = FakeHost::default();
        host.thread(100, 100, "qemu-system-x86", 0);
        host.file("/proc/100/cmdline", "qemu\0-name\0first\0");
        let machine = host.machine();
        let threads = machine.all_threads().unwrap();
        let processes = Processes::of(&threads);
        let look = |processes: &Processes<'_>, name: &str| {
            let wanted = VmSelector::Name(name.into());
            find_vm(&machine, processes, &wanted, &mut Vec::new()).unwrap();
            let (_, process) = processes.iter().next().unwrap();
            process.vm_names.get().unwrap().clone()
        };
        assert_eq!(look(&processes, "absent"), ["first"]);
        host.file("/proc/100/cmdline", "qemu\0-name\0second\0");
        assert_eq!(look(&processes, "absent too"), ["first"]);
        assert_eq!(look(&Processes::of(&threads), "absent"), ["second"]);
    }
}
