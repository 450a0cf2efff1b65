//! A host: its files and its threads, and readings that more than one module needs.

mod cgroup;
mod descriptors;
mod device;
mod nic;
mod printable;
mod vfio;
mod vm;
mod vm_names;

pub use nic::{Nic, nic, without_interrupts};
pub use printable::printable;
pub use vm::{Vm, vm};
pub use vm_names::{VmSelector, find as find_vm};

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::cpu_set::CpuSet;
use crate::demux::{Demultiplexer, KernelDemultiplexer};
use crate::error::HostError;
use crate::links::{KernelLinks, Links};
use crate::parse::{self, PF_IO_WORKER, PF_KTHREAD, PF_NO_SETAFFINITY, PF_USER_WORKER, Stat};
use crate::threads::{KernelThreads, Threads};
use crate::tree::{HostTree, RootedTree};

/// A host: the running one, or a fake.
#[derive(Clone)]
pub struct Machine {
    /// Its files.
    pub tree: Arc<dyn HostTree>,
    /// Its threads' scheduling.
    pub threads: Arc<dyn Threads>,
    /// What its files do not say of its network devices.
    pub links: Arc<dyn Links>,
    /// Early demultiplexing of its packets.
    pub demux: Arc<dyn Demultiplexer>,
}

/// A thread, identified so that a later thread with the same number is not taken for it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ThreadId {
    /// The process (thread group).
    pub pid: u32,
    /// The thread.
    pub tid: u32,
    /// When it started, in clock ticks after boot.
    pub start_time: u64,
    /// Its name, for people.
    pub comm: String,
}

impl std::fmt::Display for ThreadId {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "thread {} ({})", self.tid, printable(&self.comm))
    }
}

/// A thread as `/proc` lists it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Thread {
    /// Which one.
    pub id: ThreadId,
    /// The parent process.
    pub parent: u32,
    /// `PF_` flags.
    pub flags: u64,
}

impl Thread {
    /// Whether it belongs to the kernel.
    pub fn is_kernel(&self) -> bool {
        self.flags & PF_KTHREAD != 0
    }

    /// Whether the kernel started it as `vhost_task_create()` does: in a process of users, but
    /// without their code. A process can rename it, but not make one.
    pub(crate) fn is_vhost_task(&self) -> bool {
        self.flags & PF_USER_WORKER != 0 && self.flags & (PF_IO_WORKER | PF_KTHREAD) == 0
    }

    /// Whether its affinity may be changed.
    pub fn is_movable(&self) -> bool {
        self.flags & PF_NO_SETAFFINITY == 0
    }
}

impl Machine {
    /// The running host.
    pub fn real() -> Self {
        Self {
            tree: Arc::new(RootedTree::new("/")),
            threads: Arc::new(KernelThreads),
            links: Arc::new(KernelLinks),
            demux: Arc::new(KernelDemultiplexer::default()),
        }
    }

    /// Reads a file that must be there.
    pub(crate) fn must_read(&self, path: &str) -> Result<String, HostError> {
        self.tree
            .read(path)
            .map_err(|source| HostError::io("read", path, source))
    }

    /// Every thread of the host. Threads that end meanwhile are left out.
    pub fn all_threads(&self) -> Result<Vec<Thread>, HostError> {
        let names = self
            .tree
            .list("/proc")
            .map_err(|source| HostError::io("list", "/proc", source))?;
        let mut threads = Vec::new();
        for pid in names.iter().filter_map(|name| name.parse().ok()) {
            threads.extend(self.threads_of(pid));
        }
        threads.sort_by_key(|thread| thread.id.tid);
        Ok(threads)
    }

    /// The threads of a process; none if it has ended.
    pub fn threads_of(&self, pid: u32) -> Vec<Thread> {
        let names = self
            .tree
            .list(&format!("/proc/{pid}/task"))
            .unwrap_or_default();
        names
            .iter()
            .filter_map(|name| name.parse().ok())
            .filter_map(|tid| self.thread(pid, tid))
            .collect()
    }

    /// One thread; none if it has ended.
    pub fn thread(&self, pid: u32, tid: u32) -> Option<Thread> {
        let line = self
            .tree
            .read(&format!("/proc/{pid}/task/{tid}/stat"))
            .ok()?;
        let Stat {
            tid: read,
            comm,
            parent,
            flags,
            start_time,
            state,
        } = parse::stat(&line)?;
        // A zombie has no scheduling left to change.
        (read == tid && !matches!(state, 'Z' | 'X')).then_some(Thread {
            id: ThreadId {
                pid,
                tid,
                start_time,
                comm,
            },
            parent,
            flags,
        })
    }

    /// Whether this very thread still runs.
    pub fn still_runs(&self, id: &ThreadId) -> bool {
        self.thread(id.pid, id.tid)
            .is_some_and(|now| now.id.start_time == id.start_time)
    }

    /// The CPUs that are online.
    pub fn online(&self) -> Result<CpuSet, HostError> {
        let path = "/sys/devices/system/cpu/online";
        self.must_read(path)?
            .parse()
            .map_err(|error: crate::cpu_set::CpuSetError| HostError::Malformed {
                path: path.into(),
                problem: error.to_string(),
            })
    }

    /// Whether the kernel is PREEMPT_RT, and the file that says so.
    pub fn preempt_rt(&self) -> (bool, String) {
        if let Ok(text) = self.tree.read("/sys/kernel/realtime") {
            return (
                text.trim() == "1",
                format!("/sys/kernel/realtime is {}", text.trim()),
            );
        }
        let path = "/proc/sys/kernel/version";
        match self.tree.read(path) {
            Ok(text) => {
                let rt = text
                    .split_ascii_whitespace()
                    .any(|word| word == "PREEMPT_RT");
                (rt, format!("{path} is `{}`", text.trim()))
            }
            Err(error) => (false, format!("{path} cannot be read: {error}")),
        }
    }

    /// The kernel's release string.
    pub fn kernel_release(&self) -> Option<String> {
        let text = self.tree.read("/proc/sys/kernel/osrelease").ok()?;
        Some(text.trim().to_owned())
    }

    /// Which boot this is; journals of an earlier boot describe nothing that is left.
    pub(crate) fn boot_id(&self) -> Result<String, HostError> {
        Ok(self
            .must_read("/proc/sys/kernel/random/boot_id")?
            .trim()
            .to_owned())
    }

    /// Clock ticks since boot.
    pub(crate) fn now_ticks(&self) -> Result<u64, HostError> {
        let path = "/proc/uptime";
        parse::uptime_ticks(&self.must_read(path)?).ok_or_else(|| HostError::Malformed {
            path: path.into(),
            problem: "it does not start with seconds and hundredths".into(),
        })
    }
}
