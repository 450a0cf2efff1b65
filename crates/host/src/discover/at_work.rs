//! Whether a VM is at work: only then what it lacks is a fault.
//!
//! A monitor makes a VM piece by piece, and takes it apart piece by piece. QEMU that is told to end stops its VCPUs
//! (`qemu_cleanup()`) and closes vhost-net: the worker ends, then `vhost_net_release()` waits for RCU, and only then is the
//! tap closed. A process that is killed loses its threads in any order.

use super::vm::Vm;
use crate::parse::{self, PF_EXITING, PF_SIGNALED};
use crate::settings::{Machine, ThreadId};

/// `KVM_RUN` of include/uapi/linux/kvm.h, as `/proc/PID/task/TID/syscall` has it.
const KVM_RUN: &str = "0xae80";

impl Vm {
    /// Whether one of its VCPUs at least runs, or waits for its guest in KVM. None does while the VM is made or paused, or
    /// from the beginning of its end on. A program without a VM begins its threads when it likes: it lacks none.
    pub(crate) fn is_at_work(&self, machine: &Machine) -> bool {
        if self.is_container {
            return false;
        }
        let mut vcpus = self.vcpus.values();
        vcpus.any(|thread| is_in_kvm(machine, thread) && !ends(machine, thread))
    }
}

/// A thread that runs is; so is one that this user may not look at.
fn is_in_kvm(machine: &Machine, thread: &ThreadId) -> bool {
    let ThreadId { pid, tid, .. } = thread;
    let text = machine
        .tree
        .read(&format!("/proc/{pid}/task/{tid}/syscall"));
    // The system call's number and its arguments: ioctl(FD, KVM_RUN).
    text.map_or(true, |text| {
        text.trim() == "running" || text.split(' ').nth(2) == Some(KVM_RUN)
    })
}

/// The signal is pending until the thread takes it, and the flags tell from then on: this order misses neither.
fn ends(machine: &Machine, thread: &ThreadId) -> bool {
    let ThreadId { pid, tid, .. } = *thread;
    let status = machine.tree.read(&format!("/proc/{pid}/task/{tid}/status"));
    status.is_ok_and(|text| parse::is_killed(&text))
        || machine
            .thread(pid, tid)
            .is_none_or(|now| now.flags & (PF_EXITING | PF_SIGNALED) != 0)
}
