//! Giving a thread back what it had, as it had it: the kernel remembers more than it was asked
//! to set.

use std::io;

use crate::cpu_set::{CpuSet, MAX_CPU};
use crate::machine::Machine;
use crate::threads::{Policy, Scheduling};

/// Restores a thread's scheduling. From 6.12 on the kernel reports a slice for normal threads
/// and takes one given back as the thread's own: so none is given first, and the recorded one
/// only if the kernel's default differs from it.
pub(crate) fn scheduling(machine: &Machine, tid: u32, old: &Scheduling) -> io::Result<()> {
    if old.policy == Policy::Deadline {
        return machine.threads.set_scheduling(tid, old);
    }
    let plain = Scheduling {
        runtime_ns: 0,
        ..*old
    };
    machine.threads.set_scheduling(tid, &plain)?;
    let own_slice =
        old.runtime_ns != 0 && machine.threads.scheduling(tid)?.runtime_ns != old.runtime_ns;
    if own_slice {
        machine.threads.set_scheduling(tid, old)
    } else {
        Ok(())
    }
}

/// Restores a thread's CPUs. A thread that was allowed everything gets everything back, not
/// today's list of CPUs: the kernel remembers the list it was given and would keep the thread
/// off CPUs that come online, or into its cpuset, later.
pub(crate) fn affinity(machine: &Machine, tid: u32, old: &CpuSet) -> io::Result<()> {
    let everything = CpuSet::first(MAX_CPU + 1);
    if machine.online().is_ok_and(|online| online == *old) {
        machine.threads.set_affinity(tid, &everything)?;
        if machine.threads.affinity(tid)? == *old {
            return Ok(());
        }
    }
    machine.threads.set_affinity(tid, old)
}
