//! A host in memory: files, threads and interrupts that behave as the kernel's do, and that fail
//! or crash when told to.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::panic::resume_unwind;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use steadyvm_demux::Specification;
use steadyvm_redirect::Pair;
use steadyvm_sched::enforcement::Enforcement;

use super::functions::{PacketBudget, Received};
use super::links::{FlowRule, Moderation, Napi, PortSocket};
use super::threads::Scheduling;
use crate::address::Address;
use crate::cpu_set::CpuSet;
use crate::settings::{Machine, lockdown};

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
    /// The cards below macvtaps, by macvtap.
    pub macvtaps: BTreeMap<String, String>,
    /// The cutoff of broadcast queueing by card, where it is not the kernel's.
    pub broadcast_cutoffs: BTreeMap<String, i32>,
    /// Flow steering by NIC, for those that have it.
    pub flow_steering: BTreeMap<String, FakeFlowSteering>,
    /// NAPI threads to come by NIC: they appear when `threaded` is first set to 1.
    pub napi_threads: BTreeMap<String, Vec<u32>>,
    /// The address that a card filters for a function, by card and number.
    pub function_addresses: BTreeMap<(String, u32), Address>,
    /// XDP programs by their name: the addresses that each looks for, with the index of the tap.
    pub programs: BTreeMap<String, BTreeMap<Address, u32>>,
    /// Budgets of addresses that programs look for.
    pub packet_budgets: BTreeMap<(String, Address), PacketBudget>,
    /// What has come to addresses that programs look for.
    pub received: BTreeMap<Address, Received>,
    /// Packets to others that programs have seen.
    pub passed: u64,
    /// Cards whose drivers run XDP programs and redirect.
    pub with_xdp: BTreeSet<String>,
    /// Devices that are on and carry no packets.
    pub without_link: BTreeSet<String>,
    /// Devices whose card answers them on no CPU but this. Each has its link once it is switched off there.
    pub asks_from: BTreeMap<String, usize>,
    /// Functions that are joined with taps, by the name of their programs.
    pub redirects: BTreeMap<String, Pair>,
    /// Those that hand what the VM sends to the function, too.
    pub sending: BTreeSet<String>,
    /// The NAPIs of devices that the kernel tells of, by device.
    pub napis: BTreeMap<String, Vec<Napi>>,
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
    /// What files have once somebody waits.
    pub after_waiting: BTreeMap<String, String>,
    /// Files of debugfs that can be written are kept from everyone: see [`FakeHost::lock_down`].
    pub locked_down: bool,
}

#[derive(Debug, Default)]
pub(crate) struct Inner {
    pub(crate) state: FakeState,
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
            redirects: Arc::new(self.clone()),
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

    pub(crate) fn lock(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts a mutation and lets the arranged fault happen.
    pub(crate) fn mutate(
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

pub(crate) fn error(number: i32) -> io::Error {
    io::Error::from_raw_os_error(number)
}
