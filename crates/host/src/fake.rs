//! A host in memory: files, threads and interrupts that behave as the kernel's do, and that fail
//! or crash when told to.

mod demux;
mod fair_server;
mod links;
pub mod paper;
mod storage;
mod vcpu_scheduler;
mod vms;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::io;
use std::panic::resume_unwind;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use steadyvm_demux::Specification;
use steadyvm_sched::enforcement::Enforcement;

use crate::cpu_set::CpuSet;
use crate::links::{FlowRule, Moderation, PortSocket};
use crate::lockdown;
use crate::machine::Machine;
use crate::parse::{PF_KTHREAD, PF_NO_SETAFFINITY};
use crate::threads::{Policy, Reserved, Scheduling, Threads};
use crate::tree::HostTree;

pub use storage::{FaultyStorage, StorageFault};

/// A thread of the fake host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FakeThread {
    /// Its process.
    pub pid: u32,
    /// Its name.
    pub comm: String,
    /// Its parent process.
    pub parent: u32,
    /// `PF_` flags.
    pub flags: u64,
    /// When it started, in ticks.
    pub start_time: u64,
    /// Its policy.
    pub scheduling: Scheduling,
    /// Its CPUs.
    pub cpus: CpuSet,
}

/// An interrupt of the fake host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FakeIrq {
    /// Its action.
    pub name: String,
    /// The CPUs it may go to.
    pub cpus: CpuSet,
    /// The CPU it goes to.
    pub effective: usize,
    /// The kernel keeps its CPUs: writing fails with EIO.
    pub managed: bool,
    /// It moves when it next fires, as without interrupt remapping.
    pub deferred: bool,
}

/// Flow steering of a fake NIC.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FakeFlowSteering {
    /// Whether it is on.
    pub on: bool,
    /// The rules by place; `None`: one that steadyvm does not write.
    pub rules: BTreeMap<u32, Option<FlowRule>>,
}

/// What happens at a mutation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// The process dies before the change is made.
    CrashBefore,
    /// The process dies after the change is made.
    CrashAfter,
    /// The kernel refuses with this error number.
    Refuse(i32),
    /// The kernel reports success and does nothing.
    Ignore,
    /// This thread ends just before.
    End(u32),
    /// The kernel counts the root domain anew just before, as for a reader of `sched_rt_runtime_us`.
    Recount,
}

/// Everything the fake host holds.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FakeState {
    /// Plain files.
    pub files: BTreeMap<String, String>,
    /// Files that can be written.
    pub writable: BTreeSet<String>,
    /// Symbolic links: path to real path.
    pub links: BTreeMap<String, String>,
    /// Character devices by path, with their numbers.
    pub devices: BTreeMap<String, String>,
    /// The users of processes that are not root's.
    pub users: BTreeMap<u32, u32>,
    /// Threads by number.
    pub threads: BTreeMap<u32, FakeThread>,
    /// Interrupts by number.
    pub irqs: BTreeMap<u32, FakeIrq>,
    /// CPUs online.
    pub online: CpuSet,
    /// Files `threaded` of network devices that have no NAPI of their own: EOPNOTSUPP.
    pub unthreadable: BTreeSet<String>,
    /// The cpusets of processes that do not have all CPUs: see [`FakeHost::cpuset`].
    pub cpusets: BTreeMap<u32, CpuSet>,
    /// Root queueing disciplines by device, where they are not the kernel's default.
    pub qdiscs: BTreeMap<String, String>,
    /// `rx-frames` by device, where it is not 0.
    pub rx_frames: BTreeMap<String, u32>,
    /// Interrupt moderation by NIC, for those that have it.
    pub moderation: BTreeMap<String, Moderation>,
    /// Send buffers in bytes by process and descriptor, of queues of taps that have a limit.
    pub send_buffers: BTreeMap<(u32, u32), u32>,
    /// Flow steering by NIC, for those that have it.
    pub flow_steering: BTreeMap<String, FakeFlowSteering>,
    /// NAPI threads to come by NIC: they appear when `threaded` is first set to 1.
    pub napi_threads: BTreeMap<String, Vec<u32>>,
    /// Early demultiplexing, if it is installed.
    pub demux: Option<Specification>,
    /// Port, thread and priority of the sockets that it knows.
    pub demux_sockets: Vec<(u16, u32, u32)>,
    /// What the scheduler of virtual CPUs enforces, if it is at work.
    pub vcpu_scheduler: Option<Enforcement>,
    /// What the root domain counts of `SCHED_DEADLINE` bandwidth.
    pub deadline_bandwidth: u64,
    /// What of that its threads have: what a root domain begins with that is counted anew.
    pub deadline_threads: u64,
    /// The sockets that have a port.
    pub sockets: Vec<PortSocket>,
    /// How often threads will be refused `SCHED_DEADLINE` since they are busy where they keep their CPU.
    pub busy: BTreeMap<u32, u32>,
    /// Core-scheduling cookies of threads.
    pub core_cookies: BTreeMap<u32, u64>,
    /// The caller may not ask for them: it is not root.
    pub hides_core_cookies: bool,
    /// Files of debugfs that can be written are kept from everyone: see [`FakeHost::lock_down`].
    pub locked_down: bool,
}

#[derive(Debug, Default)]
struct Inner {
    state: FakeState,
    mutations: usize,
    faults: BTreeMap<usize, Fault>,
}

/// A host in memory. Clones share the state.
#[derive(Debug, Clone, Default)]
pub struct FakeHost(Arc<Mutex<Inner>>);

impl FakeHost {
    /// A host with CPUs, a PREEMPT_RT kernel 6.12 and nothing else.
    pub fn new(cpus: usize) -> Self {
        let host = Self::default();
        host.edit(|state| {
            state.online = CpuSet::first(cpus);
            state.files.insert(
                "/sys/devices/system/cpu/online".into(),
                CpuSet::first(cpus).to_string(),
            );
        });
        host.file("/sys/kernel/realtime", "1\n");
        host.file("/proc/sys/kernel/osrelease", "6.12.95-steadyvm\n");
        host.file("/proc/sys/kernel/version", "#1 SMP PREEMPT_RT\n");
        host.file("/proc/sys/kernel/random/boot_id", "boot-1\n");
        host.file("/proc/uptime", "100.00 0.00\n");
        host
    }

    /// The host as the rest of the crate sees it.
    pub fn machine(&self) -> Machine {
        Machine {
            tree: Arc::new(self.clone()),
            threads: Arc::new(self.clone()),
            links: Arc::new(self.clone()),
            demux: Arc::new(self.clone()),
            vcpu_scheduler: Arc::new(self.clone()),
            runtime: None,
        }
    }

    /// A copy of everything.
    pub fn state(&self) -> FakeState {
        self.lock().state.clone()
    }

    /// Changes the host from outside.
    pub fn edit<T>(&self, change: impl FnOnce(&mut FakeState) -> T) -> T {
        change(&mut self.lock().state)
    }

    /// Adds a file that cannot be written.
    pub fn file(&self, path: &str, content: &str) {
        self.edit(|state| state.files.insert(path.into(), content.into()));
    }

    /// Locks the kernel down, as Secure Boot has it done: "integrity" or "confidentiality".
    pub fn lock_down(&self, word: &str) {
        let words = ["none", "integrity", "confidentiality"];
        let shown = words.map(|one| {
            if one == word {
                format!("[{one}]")
            } else {
                one.to_owned()
            }
        });
        self.file(lockdown::FILE, &(shown.join(" ") + "\n"));
        self.edit(|state| state.locked_down = word != "none");
    }

    /// Adds a file that can be written.
    pub fn writable_file(&self, path: &str, content: &str) {
        self.file(path, content);
        self.edit(|state| state.writable.insert(path.into()));
    }

    /// Adds a thread with normal scheduling and all CPUs.
    pub fn thread(&self, pid: u32, tid: u32, comm: &str, flags: u64) {
        self.edit(|state| {
            let thread = FakeThread {
                pid,
                comm: comm.into(),
                parent: u32::from(pid != 1),
                flags,
                start_time: u64::from(tid) * 3,
                scheduling: Scheduling::normal(),
                cpus: state.online.clone(),
            };
            state.threads.insert(tid, thread);
        });
    }

    /// Gives a process a control group whose cpuset has these CPUs, or changes that.
    pub fn cpuset(&self, pid: u32, cpus: &CpuSet) {
        self.file(&format!("/proc/{pid}/cgroup"), &format!("0::/g{pid}\n"));
        let path = format!("/sys/fs/cgroup/g{pid}/cpuset.cpus.effective");
        self.file(&path, &format!("{cpus}\n"));
        self.edit(|state| state.cpusets.insert(pid, cpus.clone()));
    }

    /// Takes a CPU offline, or brings it back.
    pub fn set_online(&self, cpus: &CpuSet) {
        self.file("/sys/devices/system/cpu/online", &format!("{cpus}\n"));
        self.edit(|state| state.online.clone_from(cpus));
    }

    /// Gives a network device another name.
    pub fn rename(&self, device: &str, new: &str) {
        let moved = |path: &str| {
            let parts: Vec<&str> = path.split('/').collect();
            let parts = parts
                .iter()
                .map(|part| if *part == device { new } else { part });
            parts.collect::<Vec<_>>().join("/")
        };
        self.edit(|state| {
            let files = std::mem::take(&mut state.files).into_iter();
            state.files = files.map(|(path, text)| (moved(&path), text)).collect();
            let writable = std::mem::take(&mut state.writable).into_iter();
            state.writable = writable.map(|path| moved(&path)).collect();
            let links = std::mem::take(&mut state.links).into_iter();
            state.links = links.map(|(from, to)| (moved(&from), moved(&to))).collect();
            if let Some(kind) = state.qdiscs.remove(device) {
                state.qdiscs.insert(new.to_owned(), kind);
            }
            if let Some(frames) = state.rx_frames.remove(device) {
                state.rx_frames.insert(new.to_owned(), frames);
            }
            if let Some(steering) = state.flow_steering.remove(device) {
                state.flow_steering.insert(new.to_owned(), steering);
            }
        });
    }

    /// Adds an interrupt for all CPUs that goes to one.
    pub fn irq(&self, irq: u32, name: &str, effective: usize) {
        self.edit(|state| {
            let cpus = state.online.clone();
            let name = name.to_owned();
            let new = FakeIrq {
                name,
                cpus,
                effective,
                managed: false,
                deferred: false,
            };
            state.irqs.insert(irq, new);
        });
    }

    /// Starts a process as a child of another: it inherits scheduling and CPUs.
    pub fn fork(&self, parent: u32, tid: u32, start_time: u64) {
        self.edit(|state| {
            let Some(model) = state.threads.get(&parent).cloned() else {
                return;
            };
            let child = FakeThread {
                pid: tid,
                parent: model.pid,
                start_time,
                ..model
            };
            state.threads.insert(tid, child);
        });
    }

    /// Arranges a fault at the mutation with this number, counted from now.
    pub fn fault_at(&self, mutation: usize, fault: Fault) {
        let mut inner = self.lock();
        let at = inner.mutations + mutation;
        inner.faults.insert(at, fault);
    }

    /// Removes all faults.
    pub fn heal(&self) {
        self.lock().faults.clear();
    }

    /// How many changes have been tried.
    pub fn mutations(&self) -> usize {
        self.lock().mutations
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts a mutation and lets the arranged fault happen.
    pub(super) fn mutate(
        &self,
        change: impl FnOnce(&mut FakeState) -> io::Result<()>,
    ) -> io::Result<()> {
        let mut inner = self.lock();
        let fault = {
            let at = inner.mutations;
            inner.faults.get(&at).copied()
        };
        inner.mutations += 1;
        match fault {
            None => change(&mut inner.state),
            Some(Fault::Ignore) => Ok(()),
            Some(Fault::End(tid)) => {
                inner.state.threads.remove(&tid);
                change(&mut inner.state)
            }
            Some(Fault::Recount) => {
                inner.state.recount();
                change(&mut inner.state)
            }
            Some(Fault::Refuse(number)) => Err(io::Error::from_raw_os_error(number)),
            Some(Fault::CrashBefore) => {
                drop(inner);
                resume_unwind(Box::new("fake crash before a change"));
            }
            Some(Fault::CrashAfter) => {
                let _ = change(&mut inner.state);
                drop(inner);
                resume_unwind(Box::new("fake crash after a change"));
            }
        }
    }
}

impl FakeState {
    fn real(&self, path: &str) -> String {
        let mut path = path.trim_end_matches('/').to_owned();
        for _ in 0..8 {
            let link = self.links.iter().rev().find(|(link, _)| {
                path.strip_prefix(link.as_str())
                    .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
            });
            let Some((link, target)) = link else { break };
            path = format!("{target}{}", &path[link.len()..]);
        }
        path
    }

    fn content(&self, path: &str) -> Option<String> {
        let path = self.real(path);
        if let Some(content) = self.files.get(&path) {
            return Some(content.clone());
        }
        if path == "/proc/interrupts" {
            let mut text = " ".repeat(11);
            for cpu in self.online.iter() {
                let _ = write!(text, "CPU{cpu}       ");
            }
            for (irq, fake) in &self.irqs {
                let counts = " 0".repeat(self.online.len());
                let _ = write!(
                    text,
                    "\n{irq:3}:{counts}  PCI-MSI {irq}-edge      {}",
                    fake.name
                );
            }
            return Some(text + "\n");
        }
        let parts: Vec<&str> = path.trim_start_matches('/').split('/').collect();
        match parts.as_slice() {
            ["proc", pid, "task", tid, "stat"] => {
                let tid: u32 = tid.parse().ok()?;
                let thread = self.threads.get(&tid)?;
                (thread.pid.to_string() == *pid).then(|| {
                    format!(
                        "{tid} ({}) S {} 0 0 0 -1 {} 0 0 0 0 0 0 0 0 20 0 1 0 {} 0 0\n",
                        thread.comm, thread.parent, thread.flags, thread.start_time
                    )
                })
            }
            ["proc", pid, "status"] => {
                let pid: u32 = pid.parse().ok()?;
                let is_there = self.threads.values().any(|thread| thread.pid == pid);
                let user = self.users.get(&pid).copied().unwrap_or_default();
                is_there.then(|| format!("Name:\tx\nUid:\t{user}\t{user}\t{user}\t{user}\n"))
            }
            ["proc", "irq", irq, "smp_affinity_list"] => {
                Some(format!("{}\n", self.irqs.get(&irq.parse().ok()?)?.cpus))
            }
            ["proc", "irq", irq, "effective_affinity_list"] => Some(format!(
                "{}\n",
                self.irqs.get(&irq.parse().ok()?)?.effective
            )),
            _ => None,
        }
    }

    /// As `debugfs_locked_down()`: EPERM also for who only reads.
    fn open(&self, path: &str) -> io::Result<()> {
        let is_kept = self.locked_down
            && path.starts_with("/sys/kernel/debug/")
            && self.writable.contains(path);
        if is_kept {
            Err(error(libc::EPERM))
        } else {
            Ok(())
        }
    }

    fn paths(&self) -> Vec<String> {
        let mut paths: Vec<String> = self.files.keys().cloned().collect();
        paths.extend(self.links.keys().cloned());
        for (tid, thread) in &self.threads {
            paths.push(format!("/proc/{}/task/{tid}/stat", thread.pid));
        }
        paths.extend(
            self.irqs
                .keys()
                .map(|irq| format!("/proc/irq/{irq}/smp_affinity_list")),
        );
        paths
    }

    /// As the kernel does when a NIC's NAPI is first threaded.
    fn start_napi_threads(&mut self, device: &str) {
        let name = device.rsplit('/').next().unwrap_or(device).to_owned();
        for (index, tid) in self
            .napi_threads
            .remove(&name)
            .into_iter()
            .flatten()
            .enumerate()
        {
            let thread = FakeThread {
                pid: tid,
                comm: format!("napi/{name}-{}", 8193 + index),
                parent: 2,
                flags: PF_KTHREAD,
                start_time: u64::from(tid) * 3,
                scheduling: Scheduling::normal(),
                cpus: self.online.clone(),
            };
            self.threads.insert(tid, thread);
        }
    }

    /// As when a NIC goes down and up: its IRQ threads are new, with the kernel's priority.
    fn restart_irq_threads(&mut self, nics: &[String]) {
        let of_nics = |thread: &FakeThread| {
            let name = thread.comm.split_once('-').map_or("", |(_, action)| action);
            thread.comm.starts_with("irq/") && nics.iter().any(|nic| name.starts_with(nic.as_str()))
        };
        for thread in self.threads.values_mut().filter(|thread| of_nics(thread)) {
            thread.start_time += 1;
            thread.scheduling = Scheduling::fifo(50, 0);
        }
    }

    fn fire(&mut self) {
        for irq in self.irqs.values_mut() {
            irq.move_to_mask();
        }
    }
}

impl FakeIrq {
    /// As x86 does: the current CPU is kept as long as the mask allows it.
    fn move_to_mask(&mut self) {
        if !self.cpus.contains(self.effective) {
            self.effective = self.cpus.iter().next().unwrap_or(self.effective);
        }
    }
}

/// What a file shows that has a word of several, `old`, in brackets, when another is chosen.
fn chosen(old: &str, value: &str) -> Option<String> {
    old.contains('[').then(|| {
        let words = old.split_whitespace().map(|word| {
            let word = word.trim_matches(['[', ']']);
            if word == value {
                format!("[{word}]")
            } else {
                word.to_owned()
            }
        });
        words.collect::<Vec<_>>().join(" ")
    })
}

fn error(number: i32) -> io::Error {
    io::Error::from_raw_os_error(number)
}

impl HostTree for FakeHost {
    fn read_bytes(&self, path: &str) -> io::Result<Vec<u8>> {
        let inner = self.lock();
        inner.state.open(path)?;
        let content = inner.state.content(path);
        content
            .map(String::into_bytes)
            .ok_or_else(|| error(libc::ENOENT))
    }

    fn write(&self, path: &str, value: &str) -> io::Result<()> {
        self.mutate(|state| {
            let path = state.real(path);
            let parts: Vec<&str> = path.trim_start_matches('/').split('/').collect();
            if let ["proc", "irq", irq, "smp_affinity_list"] = parts.as_slice() {
                let number: u32 = irq.parse().map_err(|_| error(libc::ENOENT))?;
                let cpus: CpuSet = value.parse().map_err(|_| error(libc::EINVAL))?;
                let online = state.online.clone();
                let irq = state
                    .irqs
                    .get_mut(&number)
                    .ok_or_else(|| error(libc::ENOENT))?;
                if irq.managed {
                    return Err(error(libc::EIO));
                }
                if cpus.intersection(&online).is_empty() {
                    return Err(error(libc::EINVAL));
                }
                irq.cpus = cpus;
                if !irq.deferred {
                    irq.move_to_mask();
                }
                return Ok(());
            }
            if !state.files.contains_key(&path) {
                return Err(error(libc::ENOENT));
            }
            state.open(&path)?;
            if state.unthreadable.contains(&path) {
                return Err(error(libc::EOPNOTSUPP));
            }
            if !state.writable.contains(&path) {
                return Err(error(libc::EACCES));
            }
            if let Some(cpu) = FakeState::fair_server_of(&path) {
                return state.write_fair_server(cpu, &path, value);
            }
            if path == "/proc/sys/kernel/sched_rt_runtime_us" {
                state.recount();
            }
            if let (Some(device), "1") = (path.strip_suffix("/threaded"), value) {
                state.start_napi_threads(device);
            }
            let shown = state.files.get(&path).and_then(|old| chosen(old, value));
            let text = shown.unwrap_or_else(|| value.to_owned());
            state.files.insert(path, format!("{text}\n"));
            Ok(())
        })
    }

    fn write_from(&self, cpu: usize, path: &str, value: &str) -> io::Result<()> {
        if self.lock().state.online.contains(cpu) {
            self.write(path, value)
        } else {
            Err(error(libc::EINVAL))
        }
    }

    fn list(&self, path: &str) -> io::Result<Vec<String>> {
        let inner = self.lock();
        let directory = format!("{}/", inner.state.real(path));
        let names: BTreeSet<String> = inner
            .state
            .paths()
            .iter()
            .filter_map(|path| Some(path.strip_prefix(&directory)?.split('/').next()?.to_owned()))
            .collect();
        if names.is_empty() {
            Err(error(libc::ENOENT))
        } else {
            Ok(names.into_iter().collect())
        }
    }

    fn real_path(&self, path: &str) -> io::Result<String> {
        let inner = self.lock();
        let real = inner.state.real(path);
        let inside = format!("{real}/");
        let exists = inner.state.content(&real).is_some()
            || inner
                .state
                .paths()
                .iter()
                .any(|path| path.starts_with(&inside));
        if exists {
            Ok(real)
        } else {
            Err(error(libc::ENOENT))
        }
    }

    fn link(&self, path: &str) -> io::Result<String> {
        let inner = self.lock();
        let target = inner.state.links.get(path).cloned();
        target.ok_or_else(|| error(libc::EINVAL))
    }

    fn character_device(&self, path: &str) -> io::Result<Option<String>> {
        Ok(self.lock().state.devices.get(path).cloned())
    }

    fn can_open(&self, path: &str) -> io::Result<()> {
        let inner = self.lock();
        let real = inner.state.real(path);
        match inner.state.files.contains_key(&real) {
            false => Err(error(libc::ENOENT)),
            true if inner.state.writable.contains(&real) => Ok(()),
            true => Err(error(libc::EACCES)),
        }
    }

    fn wait(&self, _time: Duration) {
        self.lock().state.fire();
    }
}

impl Threads for FakeHost {
    fn core_cookie(&self, tid: u32) -> io::Result<u64> {
        let inner = self.lock();
        if inner.state.hides_core_cookies {
            return Err(error(libc::EPERM));
        }
        let exists = inner.state.threads.contains_key(&tid);
        let cookie = inner.state.core_cookies.get(&tid).copied();
        exists
            .then(|| cookie.unwrap_or(0))
            .ok_or_else(|| error(libc::ESRCH))
    }

    fn scheduling(&self, tid: u32) -> io::Result<Scheduling> {
        let inner = self.lock();
        let thread = inner
            .state
            .threads
            .get(&tid)
            .ok_or_else(|| error(libc::ESRCH))?;
        Ok(thread.scheduling)
    }

    fn set_scheduling(&self, tid: u32, scheduling: &Scheduling) -> io::Result<()> {
        self.mutate(|state| {
            let thread = state
                .threads
                .get_mut(&tid)
                .ok_or_else(|| error(libc::ESRCH))?;
            if scheduling.policy == Policy::Deadline
                && let Some(refusals) = state.busy.get_mut(&tid).filter(|left| **left > 0)
            {
                *refusals -= 1;
                return Err(error(libc::EPERM));
            }
            thread.scheduling = *scheduling;
            Ok(())
        })
    }

    fn affinity(&self, tid: u32) -> io::Result<CpuSet> {
        let inner = self.lock();
        let thread = inner
            .state
            .threads
            .get(&tid)
            .ok_or_else(|| error(libc::ESRCH))?;
        let online = &inner.state.online;
        let allowed = match inner.state.cpusets.get(&thread.pid) {
            Some(cpuset) => cpuset.intersection(online),
            None => online.clone(),
        };
        // Where nothing of what was asked for is left, the kernel takes all that is allowed.
        let shown = thread.cpus.intersection(&allowed);
        Ok(if shown.is_empty() { allowed } else { shown })
    }

    fn set_affinity(&self, tid: u32, cpus: &CpuSet) -> io::Result<()> {
        self.mutate(|state| {
            let online = state.online.clone();
            let cpusets = state.cpusets.clone();
            let thread = state
                .threads
                .get_mut(&tid)
                .ok_or_else(|| error(libc::ESRCH))?;
            let cpus = cpus.intersection(&online);
            let allowed = match cpusets.get(&thread.pid) {
                Some(cpuset) => cpus.intersection(cpuset),
                None => cpus.clone(),
            };
            if allowed.is_empty() || thread.flags & PF_NO_SETAFFINITY != 0 {
                return Err(error(libc::EINVAL));
            }
            thread.cpus = cpus;
            Ok(())
        })
    }

    fn reserve(&self, _cpus: &CpuSet, reservation: &Scheduling) -> io::Result<Box<dyn Reserved>> {
        fair_server::FakeReserved::admit(self, reservation)
    }
}
