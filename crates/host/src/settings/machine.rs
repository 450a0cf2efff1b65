//! A host: its files and its threads, and readings that more than one module needs.

use std::path::PathBuf;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::demux::{Demultiplexer, KernelDemultiplexer};
use super::files::{HostTree, RootedTree, known};
use super::functions::{KernelRedirects, Redirects};
use super::links::{KernelLinks, Links};
use super::threads::{KernelThreads, Threads};
use super::vcpu_budgets::{KernelVcpuScheduler, VcpuScheduler};
use crate::cpu_set::CpuSet;
use crate::error::HostError;
use crate::parse::{
    self, PF_IO_WORKER, PF_KTHREAD, PF_NO_SETAFFINITY, PF_USER_WORKER, SchedStat, Stat,
};
use crate::printable::printable;

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
    /// Redirection between cards and taps.
    pub redirects: Arc<dyn Redirects>,
    /// The scheduler of virtual CPUs.
    pub vcpu_scheduler: Arc<dyn VcpuScheduler>,
    /// The directory of the one lock of this machine; none: that in which the state directory is, as
    /// a fake host and a user who is not root have it.
    pub runtime: Option<PathBuf>,
}

/// The namespaces that give names of network devices and files their meaning, as `/proc/self/ns` has
/// them.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Namespaces {
    /// The network namespace (`net:[4026531840]`), where it is known.
    pub net: Option<String>,
    /// The mount namespace, where it is known.
    pub mnt: Option<String>,
}

impl Namespaces {
    /// The kind of the first that is known to differ.
    pub(crate) fn first_difference(&self, other: &Self) -> Option<&'static str> {
        let differ = |one: &Option<String>, other: &Option<String>| {
            one.is_some() && other.is_some() && one != other
        };
        if differ(&self.net, &other.net) {
            Some("network")
        } else if differ(&self.mnt, &other.mnt) {
            Some("mount")
        } else {
            None
        }
    }
}

/// A clock tick of procfs: `USER_HZ` is 100 on every architecture that runs KVM.
const TICK_NS: u64 = 10_000_000;

/// Where the lock of a machine is.
const RUNTIME_DIRECTORY: &str = "/run/steadyvm";

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

impl ThreadId {
    /// Whether the other is the same thread, which may have renamed itself.
    pub(crate) fn is(&self, other: &Self) -> bool {
        (self.tid, self.start_time) == (other.tid, other.start_time)
    }

    /// What identifies it in a snapshot.
    pub(crate) fn entry(&self) -> String {
        format!("thread {} of tick {}", self.tid, self.start_time)
    }
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
            redirects: Arc::new(KernelRedirects::default()),
            vcpu_scheduler: Arc::new(KernelVcpuScheduler::default()),
            runtime: nix::unistd::geteuid()
                .is_root()
                .then(|| RUNTIME_DIRECTORY.into()),
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
            cpu_ticks: _,
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

    /// When a process started; none if it has ended.
    pub(crate) fn start_time(&self, pid: u32) -> Option<u64> {
        self.thread(pid, pid).map(|leader| leader.id.start_time)
    }

    /// Whether the process that had this number has ended. Without a start time, whoever has it now is taken for it.
    pub(crate) fn has_ended(&self, pid: u32, start_time: Option<u64>) -> bool {
        match start_time {
            None => self.threads_of(pid).is_empty(),
            Some(_) => self.start_time(pid) != start_time,
        }
    }

    /// CPU time of this very thread since it began, in nanoseconds; none if it has ended. Where the kernel does not count
    /// nanoseconds, these are clock ticks of 10 ms, which may miss a thread that runs briefly.
    pub fn cpu_time_ns(&self, id: &ThreadId) -> Option<u64> {
        let ThreadId { pid, tid, .. } = id;
        let directory = format!("/proc/{pid}/task/{tid}");
        let counted = self.tree.read(&format!("{directory}/schedstat"));
        let counted = counted.ok().and_then(|text| SchedStat::parse(&text));
        // After the figure: it is this thread's if the number has not become another's by now.
        let stat = self.tree.read(&format!("{directory}/stat")).ok()?;
        let stat = parse::stat(&stat).filter(|stat| stat.start_time == id.start_time)?;
        let in_ticks = || stat.cpu_ticks.saturating_mul(TICK_NS);
        Some(counted.map_or_else(in_ticks, |counted| counted.ran_ns))
    }

    /// Whether this very thread still runs.
    pub fn still_runs(&self, id: &ThreadId) -> bool {
        self.thread(id.pid, id.tid)
            .is_some_and(|now| now.id.start_time == id.start_time)
    }

    /// Fails if this very thread has ended.
    pub(crate) fn must_run(&self, id: &ThreadId) -> Result<(), HostError> {
        if self.still_runs(id) {
            return Ok(());
        }
        Err(HostError::Vanished {
            what: id.to_string(),
        })
    }

    /// The namespaces of this process.
    pub(crate) fn namespaces(&self) -> Namespaces {
        let of = |kind: &str| self.tree.link(&format!("/proc/self/ns/{kind}")).ok();
        Namespaces {
            net: of("net"),
            mnt: of("mnt"),
        }
    }

    /// Whether real-time threads need a budget of their control group.
    pub(crate) fn has_rt_group_scheduling(&self) -> bool {
        let cpu = [
            "/sys/fs/cgroup/cpu",
            "/sys/fs/cgroup/cpu,cpuacct",
            "/sys/fs/cgroup",
        ];
        cpu.iter()
            .any(|root| self.tree.exists(&format!("{root}/cpu.rt_runtime_us")))
    }

    /// The CPUs that are online and that a process's cpuset allows; none where that is not known.
    pub(crate) fn allowed_cpus(&self, pid: u32) -> Option<CpuSet> {
        let online = self.online().ok()?;
        match self.cpuset_of(pid) {
            Some(cpuset) => Some(cpuset.intersection(&online)),
            None => Some(online),
        }
    }

    /// What the cpuset of a process allows: that of its control group, or of the nearest above it
    /// that has one.
    fn cpuset_of(&self, pid: u32) -> Option<CpuSet> {
        let groups = self.tree.read(&format!("/proc/{pid}/cgroup")).ok()?;
        for line in groups.lines() {
            let mut parts = line.splitn(3, ':').skip(1);
            let (controllers, group) = (parts.next()?, parts.next()?);
            let (roots, name): (&[&str], &str) = match controllers {
                "" => (
                    &["/sys/fs/cgroup", "/sys/fs/cgroup/unified"],
                    "cpuset.cpus.effective",
                ),
                list if list.split(',').any(|name| name == "cpuset") => {
                    (&["/sys/fs/cgroup/cpuset"], "cpuset.effective_cpus")
                }
                _ => continue,
            };
            let mut group = group.trim_end_matches('/');
            loop {
                let mut files = roots.iter().map(|root| format!("{root}{group}/{name}"));
                let text = files.find_map(|file| self.tree.read(&file).ok());
                if let Some(cpus) = text.and_then(|text| text.parse().ok()) {
                    return Some(cpus);
                }
                let Some((above, _)) = group.rsplit_once('/') else {
                    break;
                };
                group = above;
            }
        }
        None
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

    /// The CPUs that are online and among which the kernel moves threads by itself: without isolated ones (`isolcpus`, and
    /// those of cpuset partitions, which the root group's effective CPUs leave out).
    pub fn balanced_cpus(&self) -> Result<CpuSet, HostError> {
        let set = |path: &str| self.tree.read(path).ok()?.parse::<CpuSet>().ok();
        let online = self.online()?;
        let isolated = set("/sys/devices/system/cpu/isolated").unwrap_or_default();
        let left = set("/sys/fs/cgroup/cpuset.cpus.effective").filter(|left| !left.is_empty());
        let is_left = |cpu: &usize| left.as_ref().is_none_or(|left| left.contains(*cpu));
        let balanced = online.iter().filter(|cpu| !isolated.contains(*cpu));
        Ok(balanced.filter(is_left).collect())
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

    /// Whether the kernel's receive path has levels (`kernel/patches/6.12`).
    pub fn has_levels(&self) -> bool {
        self.tree.read(known::PRIORITY).is_ok()
    }

    /// The kernel's release string.
    pub fn kernel_release(&self) -> Option<String> {
        let text = self.tree.read("/proc/sys/kernel/osrelease").ok()?;
        Some(text.trim().to_owned())
    }

    /// Which boot this is; journals of an earlier boot describe nothing that is left.
    ///
    /// # Errors
    /// The kernel does not tell.
    pub fn boot_id(&self) -> Result<String, HostError> {
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
