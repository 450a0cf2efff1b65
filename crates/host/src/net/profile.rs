//! What a profile of the receive path asks for. Pure: no machine, no file.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
pub use steadyvm_config::{HIGHEST_PRIORITY, TapQdisc, ThreadPriority};

use super::budget::VcpuBudget;
use super::demux::DemuxProfile;
use super::tuned::{self, TunedProfile};
use super::vcpu_scheduler::SchedulerProfile;
use crate::cpu_set::CpuSet;
use crate::discover::{User, VmSelector};
use crate::error::HostError;
use crate::fair_server::LONGEST_PIECE_NS;
use crate::links::FlowRule;
use crate::machine::Machine;
use crate::method::{Priorities, Target};
use crate::threads::Scheduling;

/// What a network class sets. `None`: left as it is.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Class {
    /// Its name in the file.
    pub name: String,
    /// IRQ threads of its NICs and queues, and of the devices that its VMs have by passthrough (VFIO).
    pub irq: Option<ThreadPriority>,
    /// NAPI threads of its NICs and queues, where NAPI is threaded.
    pub napi: Option<ThreadPriority>,
    /// Whether its NICs poll in threads; none: where there are no IRQ threads to poll in.
    pub threaded_napi: Option<bool>,
    /// CPUs for its interrupts, NAPI threads and vhost workers.
    pub cpus: Option<CpuSet>,
    /// vhost workers of its VMs.
    pub vhost: Option<ThreadPriority>,
    /// Whether nobody wrote `vhost`: it is the built-in class's. Workers of a VM with a budget do not get it.
    #[serde(default)]
    pub vhost_is_built_in: bool,
    /// VCPUs of its VMs, but VCPU 0, which keeps the guest's housekeeping.
    pub vcpu: Option<ThreadPriority>,
    /// QEMU's IO threads of its VMs (`-object iothread`): disks, and cards without vhost.
    #[serde(default)]
    pub io: Option<ThreadPriority>,
    /// The main threads of its VMs' monitors. QEMU's does all devices that have no thread of their own, and holds the lock
    /// that a VCPU waits for to leave KVM.
    #[serde(default)]
    pub main: Option<ThreadPriority>,
    /// Root queueing discipline of its VMs' taps.
    pub tap_qdisc: Option<TapQdisc>,
    /// Packets that its VMs' taps take through the bridge at once, 1 to [`steadyvm_config::LARGEST_BATCH`]; none:
    /// as they are, but 1 for VMs below `levels_from`.
    pub tap_batch: Option<u32>,
}

/// A NIC and its classes.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NicProfile {
    /// The interface.
    pub name: String,
    /// Its class.
    pub class: Class,
    /// Receive queues with a class of their own.
    pub queues: BTreeMap<u32, Class>,
    /// Packets that the NIC itself is to put into a queue.
    pub steer: Vec<FlowRule>,
    /// Whether it polls as it does now: `threaded_napi` of its class is not looked at.
    #[serde(default)]
    pub leave_napi: bool,
    /// Whether nobody named it: what it refuses is skipped.
    #[serde(default)]
    pub is_other: bool,
    /// Where the profile names it, for messages.
    pub place: String,
}

/// A VM and its class.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct VmProfile {
    /// Its name, as its monitor was told (`-name`).
    pub name: String,
    /// The process of its monitor; found by what follows if it is not given.
    pub pid: Option<u32>,
    /// When that process started: a later one with its number is another.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start_time: Option<u64>,
    /// The unit of the system's systemd that it runs in, in place of its name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unit: Option<String>,
    /// The cgroup that it runs in or below, in place of its name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cgroup: Option<String>,
    /// The users of whose processes its name or unit is believed, besides root; empty: libvirt's.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub users: Vec<User>,
    /// The VCPUs that `vcpu` is for; empty: all but VCPU 0.
    pub rt_vcpus: Vec<u32>,
    /// Budgets by VCPU; these get no priority of the class.
    #[serde(default)]
    pub budgets: BTreeMap<u32, VcpuBudget>,
    /// Its class.
    pub class: Class,
    /// Where the profile names it, for messages.
    pub place: String,
}

impl VmProfile {
    /// How it is found.
    pub fn selector(&self) -> VmSelector {
        let by_unit = || self.unit.clone().map(VmSelector::Unit);
        let by_cgroup = || self.cgroup.clone().map(VmSelector::Cgroup);
        let found_by = self.pid.map(VmSelector::Pid);
        found_by
            .or_else(by_unit)
            .or_else(by_cgroup)
            .unwrap_or_else(|| VmSelector::Name(self.name.clone()))
    }

    /// The rank of its vhost workers. A budget bounds VCPUs only: a worker of a FIFO rank has the CPU for as long as the
    /// guest gives it packets. So one of a VM with a budget has such a rank only where the file says so.
    pub(super) fn vhost(&self, by_ext: Option<&SchedulerProfile>) -> Option<ThreadPriority> {
        let by_ext = by_ext.is_some_and(|it| it.vms.contains_key(&self.name));
        let has_budget = by_ext || !self.budgets.is_empty();
        self.class
            .vhost
            .filter(|_| !(has_budget && self.class.vhost_is_built_in))
    }

    /// Whether anything is to be set for it. A VM of the plan alone is there for how it is found.
    pub(super) fn asks(&self) -> bool {
        let nothing = Class {
            name: self.class.name.clone(),
            ..Class::default()
        };
        self.class != nothing || !self.budgets.is_empty()
    }
}

/// A process of the host that is itself a service, and its class.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessProfile {
    /// The process.
    pub pid: u32,
    /// When it started: a later one with its number is another.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start_time: Option<u64>,
    /// Its class: its threads get `vcpu`, as the end of the path.
    pub class: Class,
}

/// Settings of the kernel's deferred work, for the whole host. `None`: left as it is.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Softirqs {
    /// `net.core.netdev_budget`: packets in one round of the receive softirq.
    pub budget_packets: Option<u32>,
    /// `net.core.netdev_budget_usecs`: time of one round.
    pub budget_us: Option<u32>,
    /// ksoftirqd of every CPU.
    pub ksoftirqd: Option<ThreadPriority>,
    /// The threads of RCU.
    pub rcu: Option<ThreadPriority>,
    /// The threads of the timers (`ktimers/N` of PREEMPT_RT).
    #[serde(default)]
    pub timers: Option<ThreadPriority>,
    /// Interrupt threads of devices that are neither network cards nor a VM's, such as disks: they are raised to it.
    #[serde(default)]
    pub device_irq: Option<ThreadPriority>,
    /// `net.core.rtnet_prio`: IRQ threads with this priority or more poll their NICs at the RT
    /// level, on a kernel with our patches.
    pub levels_from: Option<u32>,
}

/// The methods' piece.
const FAIR_SERVER_US: u32 = (LONGEST_PIECE_NS / 1000) as u32;

/// A profile of the receive path.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Profile {
    /// NICs in the order of the file.
    pub nics: Vec<NicProfile>,
    /// VMs in the order of the file.
    pub vms: Vec<VmProfile>,
    /// Services that are processes of the host itself.
    #[serde(default)]
    pub processes: Vec<ProcessProfile>,
    /// Deferred work.
    pub softirqs: Softirqs,
    /// The longest piece in which the fair server of a CPU gives normal threads their share;
    /// `None`: left as it is.
    #[serde(default)]
    pub fair_server_us: Option<u32>,
    /// Early demultiplexing, if it is asked for.
    #[serde(default)]
    pub demux: Option<DemuxProfile>,
    /// The CPU that serves the NICs, VMs and processes that are named, and nothing else.
    #[serde(default)]
    pub dedicated_cpu: Option<usize>,
    /// Whether RT throttling is switched off.
    #[serde(default)]
    pub rt_throttling_off: bool,
    /// The peer, in place of ranks of the path.
    #[serde(default)]
    pub tuned: Option<TunedProfile>,
    /// Budgets by the `sched_ext` scheduler; none: by `SCHED_DEADLINE`.
    #[serde(default)]
    pub vcpu_scheduler: Option<SchedulerProfile>,
}

/// A priority, as the kernel is asked for it.
pub(crate) fn scheduling(priority: ThreadPriority, flags: u64) -> Scheduling {
    match priority {
        ThreadPriority::Normal => Scheduling::normal(),
        ThreadPriority::Fifo(priority) => Scheduling::fifo(priority, flags),
    }
}

impl Class {
    /// A class that every file has without writing it: "rt" is the path of `preempt-rt`
    /// ([`Priorities`]), "best-effort" is polled in threads below it.
    pub fn built_in(name: &str) -> Option<Self> {
        let fifo = |priority| Some(ThreadPriority::Fifo(priority));
        let ranks = Priorities::default();
        let class = match name {
            "rt" => Self {
                irq: fifo(ranks.irq),
                napi: fifo(ranks.napi),
                vhost: fifo(ranks.vhost),
                vhost_is_built_in: true,
                vcpu: fifo(ranks.vcpu),
                tap_qdisc: Some(TapQdisc::Noqueue),
                ..Self::default()
            },
            "best-effort" => Self {
                napi: Some(ThreadPriority::Normal),
                threaded_napi: Some(true),
                ..Self::default()
            },
            _ => return None,
        };
        Some(Self {
            name: name.to_owned(),
            ..class
        })
    }

    /// Takes what is not set yet from `other`.
    pub(super) fn fill_from(&mut self, other: &Self) {
        self.irq = self.irq.or(other.irq);
        self.napi = self.napi.or(other.napi);
        self.threaded_napi = self.threaded_napi.or(other.threaded_napi);
        self.cpus = self.cpus.take().or_else(|| other.cpus.clone());
        if self.vhost.is_none() {
            self.vhost = other.vhost;
            self.vhost_is_built_in = other.vhost_is_built_in;
        }
        self.vcpu = self.vcpu.or(other.vcpu);
        self.io = self.io.or(other.io);
        self.main = self.main.or(other.main);
        self.tap_qdisc = self.tap_qdisc.or(other.tap_qdisc);
        self.tap_batch = self.tap_batch.or(other.tap_batch);
    }

    /// Whether a stage stands below the one it feeds, in which case it could never be fed while
    /// that one is busy; or a thread of the monitor below the VCPUs that wait for it.
    fn inversion(&self) -> Option<String> {
        let stages = [
            ("irq", self.irq),
            ("napi", self.napi),
            ("vhost", self.vhost),
            ("vcpu", self.vcpu),
        ];
        let set: Vec<(&str, ThreadPriority)> = stages
            .into_iter()
            .filter_map(|(name, priority)| Some((name, priority?)))
            .collect();
        let of_path = set.windows(2).find(|pair| pair[0].1 < pair[1].1);
        let of_monitor = || {
            let vcpu = self.vcpu?;
            let threads = [("io", self.io), ("main", self.main)];
            let mut set = threads
                .into_iter()
                .filter_map(|(name, it)| Some((name, it?)));
            let below = set.find(|(_, priority)| *priority < vcpu)?;
            Some([below, ("vcpu", vcpu)])
        };
        let [(first, low), (second, high)] = match of_path {
            Some(pair) => [pair[0], pair[1]],
            None => of_monitor()?,
        };
        Some(format!(
            "class \"{}\": {first} = {low} stands below {second} = {high}, which waits for it",
            self.name
        ))
    }

    /// The lowest FIFO priority of its receive path, if it has one.
    fn lowest_fifo(&self) -> Option<u32> {
        [
            self.irq, self.napi, self.vhost, self.vcpu, self.io, self.main,
        ]
        .into_iter()
        .filter_map(|priority| match priority? {
            ThreadPriority::Fifo(priority) => Some(priority),
            ThreadPriority::Normal => None,
        })
        .min()
    }
}

impl Profile {
    /// Notes when the processes started that are named by number.
    pub(crate) fn identify_processes(&mut self, machine: &Machine) {
        for process in &mut self.processes {
            process.start_time = machine.start_time(process.pid);
        }
        for vm in &mut self.vms {
            vm.start_time = vm.pid.and_then(|pid| machine.start_time(pid));
        }
    }

    /// The ranks of the path from the RT NICs to the RT VMs and processes: switch `rt`.
    pub fn of_target(target: &Target) -> Self {
        let Priorities {
            irq,
            napi,
            vhost,
            housekeeping,
            vcpu,
        } = target.priorities;
        let fifo = |priority| Some(ThreadPriority::Fifo(priority));
        let rt = Class {
            irq: fifo(irq),
            napi: fifo(napi),
            vhost: fifo(vhost),
            vcpu: fifo(vcpu),
            ..Class::default()
        };
        let nics = target.rt_nics.iter().map(|name| NicProfile {
            name: name.clone(),
            class: rt.clone(),
            leave_napi: true,
            ..NicProfile::default()
        });
        let vms = target.rt_vms.iter().map(|vm| VmProfile {
            name: format!("process {}", vm.pid),
            pid: Some(vm.pid),
            rt_vcpus: vm.rt_vcpus.clone(),
            class: Class {
                irq: rt.irq.filter(|_| !target.keep_vfio),
                ..rt.clone()
            },
            ..VmProfile::default()
        });
        let pids: BTreeSet<u32> = target.rt_processes.iter().copied().collect();
        let processes = pids.into_iter().map(|pid| ProcessProfile {
            pid,
            start_time: None,
            class: rt.clone(),
        });
        let rank = fifo(housekeeping).filter(|_| !target.keep_housekeeping);
        Self {
            nics: nics.collect(),
            vms: vms.collect(),
            processes: processes.collect(),
            softirqs: Softirqs {
                rcu: rank,
                timers: rank,
                device_irq: rank,
                ..Softirqs::default()
            },
            fair_server_us: (!target.keep_fair_server).then_some(FAIR_SERVER_US),
            rt_throttling_off: target.disable_rt_throttling,
            ..Self::default()
        }
    }

    /// The peer's: switch `tuned`. NICs have no part in it, which is what sets it apart from ours.
    pub(crate) fn of_tuned(target: &Target, tuned: TunedProfile) -> Self {
        let class = Class {
            vcpu: Some(ThreadPriority::Fifo(tuned::VCPU_PRIORITY)),
            ..Class::default()
        };
        let mut profile = Self::of_target(target);
        for vm in &mut profile.vms {
            vm.class = class.clone();
        }
        for process in &mut profile.processes {
            process.class = class.clone();
        }
        Self {
            vms: profile.vms,
            processes: profile.processes,
            rt_throttling_off: true,
            tuned: Some(tuned),
            ..Self::default()
        }
    }

    /// Puts the receive path of other NICs below that of those in it: switch `profile`.
    ///
    /// The others' NAPI is polled by threads of its own at normal priority: a threaded NAPI is
    /// never on the poll list that the RT NIC's thread goes through, and gives the softirq lock
    /// up after each poll.
    pub fn put_below(&mut self, other_nics: &[String]) {
        for nic in &mut self.nics {
            nic.leave_napi = false;
            nic.class.tap_qdisc = Some(TapQdisc::Noqueue);
        }
        for vm in &mut self.vms {
            vm.class.tap_qdisc = Some(TapQdisc::Noqueue);
        }
        let class = Class {
            name: "other".into(),
            napi: Some(ThreadPriority::Normal),
            threaded_napi: Some(true),
            ..Class::default()
        };
        self.nics.extend(other_nics.iter().map(|name| NicProfile {
            name: name.clone(),
            class: class.clone(),
            is_other: true,
            ..NicProfile::default()
        }));
    }

    /// Where the path has priorities and nothing is said of the fair server: in short pieces, as in
    /// every method.
    pub fn bound_fair_server(&mut self) {
        if self.highest_of_tenants().is_some() {
            self.fair_server_us = self.fair_server_us.or(Some(FAIR_SERVER_US));
        }
    }

    /// The highest FIFO priority that a tenant keeps busy as it likes: vhost workers, VCPUs and threads of the monitor.
    pub(crate) fn highest_of_tenants(&self) -> Option<u32> {
        let vms = self.vms.iter().map(|vm| &vm.class);
        let ranks = vms.flat_map(|class| [class.vhost, class.vcpu, class.io, class.main]);
        let processes = self.processes.iter().map(|process| process.class.vcpu);
        ranks
            .chain(processes)
            .filter_map(|priority| match priority? {
                ThreadPriority::Fifo(priority) => Some(priority),
                ThreadPriority::Normal => None,
            })
            .max()
    }

    fn classes(&self) -> impl Iterator<Item = (&Class, &str)> {
        let nics = self.nics.iter().flat_map(|nic| {
            let queues = nic.queues.values();
            std::iter::once(&nic.class)
                .chain(queues)
                .map(|class| (class, nic.place.as_str()))
        });
        nics.chain(self.vms.iter().map(|vm| (&vm.class, vm.place.as_str())))
    }

    /// Refuses what inverts priorities by itself, whatever machine it is for.
    pub(super) fn check(&self) -> Result<(), HostError> {
        let wrong = |place: &str, what: String, fix: &str| {
            Err(HostError::BadInput {
                what: at(place, &what),
                fix: fix.into(),
            })
        };
        for (class, place) in self.classes() {
            if let Some(what) = class.inversion() {
                let Priorities {
                    irq,
                    napi,
                    vhost,
                    vcpu,
                    ..
                } = Priorities::default();
                let fix = format!(
                    "use irq >= napi >= vhost >= vcpu, and io and main not below vcpu; what class rt leaves \
                     out is irq = {irq}, napi = {napi}, vhost = {vhost} and vcpu = {vcpu}"
                );
                return wrong(place, what, &fix);
            }
        }
        let lowest = self
            .classes()
            .filter_map(|(class, place)| Some((class.lowest_fifo()?, class, place)))
            .min_by_key(|(priority, ..)| *priority);
        let Some((lowest, class, place)) = lowest else {
            return Ok(());
        };
        if let Some(ThreadPriority::Fifo(priority)) = self.softirqs.ksoftirqd
            && priority >= lowest
        {
            let what = format!(
                "[kernel] ksoftirqd = {priority} does not stand below class \"{}\", whose lowest stage \
                 has {lowest}",
                class.name
            );
            return wrong(place, what, "deferred work of the whole host comes last");
        }
        let highest = self.highest_of_tenants();
        for (name, priority) in [
            ("rcu", self.softirqs.rcu),
            ("timers", self.softirqs.timers),
            ("device_irq", self.softirqs.device_irq),
        ] {
            if let Some(ThreadPriority::Fifo(priority)) = priority
                && priority >= lowest
                && highest.is_none_or(|highest| priority <= highest)
            {
                let what = format!(
                    "[kernel] {name} = {priority} stands neither below class \"{}\", whose lowest \
                     stage has {lowest}, nor above all vhost workers and VCPUs",
                    class.name
                );
                let above = highest.map_or(lowest, |highest| highest + 1);
                let fix = format!("use {above} or more: a busy VCPU must not stop them");
                return wrong(place, what, &fix);
            }
        }
        Ok(())
    }
}

/// A message with its place in front, if there is one.
pub(super) fn at(place: &str, what: &str) -> String {
    if place.is_empty() {
        what.to_owned()
    } else {
        format!("{place}: {what}")
    }
}
