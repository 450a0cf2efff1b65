//! The CPUs a thread may run on.

use std::io;

use serde::{Deserialize, Serialize};

use crate::cpu_set::{CpuSet, MAX_CPU};
use crate::error::HostError;
use crate::parse;
use crate::settings::{Entries, Machine, SettingKind, ThreadId};

/// The CPUs a thread may run on.
///
/// The kernel remembers what it was asked for, and shows what of it the thread's cpuset allows and
/// is online: the rest comes back by itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ThreadAffinity {
    /// The thread.
    pub thread: ThreadId,
}

impl ThreadAffinity {
    /// What the kernel shows of a set that it was asked for: what of it is allowed now, or all that
    /// is allowed where nothing of it is left (`__set_cpus_allowed_ptr()` in kernel/sched/core.c).
    fn shown(&self, machine: &Machine, asked: &CpuSet) -> CpuSet {
        let Some(allowed) = machine.allowed_cpus(self.thread.pid) else {
            return asked.clone();
        };
        let shown = asked.intersection(&allowed);
        if shown.is_empty() { allowed } else { shown }
    }
}

impl SettingKind for ThreadAffinity {
    type Value = CpuSet;

    fn subject(&self) -> String {
        format!("CPUs of {}", self.thread)
    }

    fn thread(&self) -> Option<u32> {
        Some(self.thread.tid)
    }

    fn text(&self, value: &CpuSet) -> String {
        value.to_string()
    }

    fn is_same_setting(&self, other: &Self) -> bool {
        self.thread.is(&other.thread)
    }

    fn must_exist(&self, machine: &Machine) -> Result<(), HostError> {
        machine.must_run(&self.thread)
    }

    fn read(&self, machine: &Machine) -> Result<CpuSet, HostError> {
        machine.must_run(&self.thread)?;
        machine
            .threads
            .affinity(self.thread.tid)
            .map_err(|cause| HostError::io("read", self.subject(), cause))
    }

    fn write(&self, machine: &Machine, _from: &CpuSet, to: &CpuSet) -> io::Result<()> {
        machine.threads.set_affinity(self.thread.tid, to)
    }

    /// A thread that was allowed everything gets everything back, not today's list of CPUs: the
    /// kernel would keep the thread off CPUs that come online, or into its cpuset, later.
    fn restore(
        &self,
        machine: &Machine,
        old: &CpuSet,
        _new: &CpuSet,
    ) -> io::Result<Option<String>> {
        let tid = self.thread.tid;
        let everything = CpuSet::first(MAX_CPU + 1);
        let had_all = machine.online().is_ok_and(|online| online == *old)
            || machine.allowed_cpus(self.thread.pid).as_ref() == Some(old);
        if had_all {
            machine.threads.set_affinity(tid, &everything)?;
            let now = machine.threads.affinity(tid)?;
            if self.shows(machine, old, &now) {
                return Ok(None);
            }
        }
        match machine.threads.set_affinity(tid, old) {
            Ok(()) => Ok(None),
            // Nothing of it is left: offline, or out of the cpuset. Whatever is allowed, then.
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) => {
                machine.threads.set_affinity(tid, &everything)?;
                let now = machine.threads.affinity(tid)?;
                Ok(Some(format!(
                    "{}: it had {old}, of which nothing is online and allowed by its cpuset; it \
                     may use {now}",
                    self.subject()
                )))
            }
            Err(error) => Err(error),
        }
    }

    fn shows(&self, machine: &Machine, asked: &CpuSet, found: &CpuSet) -> bool {
        asked == found || self.shown(machine, asked) == *found
    }

    fn hint(&self, _machine: &Machine, _to: &CpuSet, errno: i32) -> Option<&'static str> {
        match errno {
            libc::EINVAL => {
                Some("; the cpuset of its cgroup does not allow this CPU: see /proc/PID/cpuset")
            }
            libc::EBUSY => Some("; a SCHED_DEADLINE thread keeps the CPUs it was admitted on"),
            _ => None,
        }
    }

    /// Without those that the kernel places itself: kworkers, threads of one CPU, and IRQ threads,
    /// which follow their interrupt.
    fn snapshot(machine: &Machine, entries: &mut Entries) -> Result<(), HostError> {
        for thread in machine.all_threads()? {
            let follows = thread.is_kernel() && parse::irq_of_thread(&thread.id.comm).is_some();
            if follows || !thread.is_movable() {
                continue;
            }
            if let Ok(cpus) = machine.threads.affinity(thread.id.tid) {
                entries.insert(thread.id.entry(), cpus.to_string());
            }
        }
        Ok(())
    }

    #[cfg(any(test, feature = "fake"))]
    fn example(host: &crate::settings::fake::FakeHost) -> crate::settings::ChangeOf<Self> {
        host.thread(801, 801, "example", 0);
        crate::settings::ChangeOf {
            setting: Self {
                thread: ThreadId {
                    pid: 801,
                    tid: 801,
                    start_time: 2403,
                    comm: "example".into(),
                },
            },
            old: host.state().online,
            new: CpuSet::single(1),
        }
    }
}
