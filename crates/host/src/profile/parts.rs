//! The parts of a host that a profile names: cards, VMs, processes, and the kernel's deferred work.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};
use steadyvm_config::{CardWay, User};

use super::budget::VcpuBudget;
use super::class::{Class, ThreadPriority};
use super::scheduler::SchedulerProfile;
use crate::address::{Address, format_address};
use crate::cpu_set::CpuSet;
use crate::discover::VmSelector;
use crate::printable::printable;
use crate::settings::PacketBudget;
use crate::settings::links::FlowRule;

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
    /// CPU time of each of its NAPI threads, in place of a rank: they poll for one VM alone. Empty: they have ranks.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub napi_budgets: Vec<VcpuBudget>,
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
    /// With the cgroup: the name of the threads that are its VCPUs, instead of a VM.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub threads: Option<String>,
    /// The users of whose processes its name or unit is believed, besides root; empty: libvirt's.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub users: Vec<User>,
    /// The card that its packets come by, which others use, too.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nic: Option<String>,
    /// Its hardware address on that card; none: that of its monitor's command line.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mac: Option<Address>,
    /// How that card tells its packets apart; none: by what the card can.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub way: Option<CardWay>,
    /// What receiving may cost the host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub receive: Option<PacketBudget>,
    /// The same of each NAPI thread of its function; empty: no bound.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub poll_budgets: Vec<VcpuBudget>,
    /// CPU time of each of its vhost workers, in place of a rank; empty: no bound.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub vhost_budgets: Vec<VcpuBudget>,
    /// The VCPUs that `vcpu` is for; empty: all but VCPU 0.
    pub rt_vcpus: Vec<u32>,
    /// Budgets by VCPU; these get no priority of the class.
    #[serde(default)]
    pub budgets: BTreeMap<u32, VcpuBudget>,
    /// Whether the plan counts on budgets that begin with a request: nothing else may wake those VCPUs.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub begins_with_request: bool,
    /// Its class.
    pub class: Class,
    /// Its interfaces with a class of their own.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub interfaces: Vec<InterfaceProfile>,
    /// Where the profile names it, for messages.
    pub place: String,
}

/// An interface of a VM, and its class.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct InterfaceProfile {
    /// Its hardware address, as the VM has it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<Address>,
    /// Its tap, in place of the address.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tap: Option<String>,
    /// Its class: its workers and its tap get what this has for them.
    pub class: Class,
    /// Where the profile names it, for messages.
    #[serde(default)]
    pub place: String,
}

impl fmt::Display for InterfaceProfile {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.address, &self.tap) {
            (Some(address), _) => formatter.write_str(&format_address(*address)),
            (None, tap) => formatter.write_str(&printable(tap.as_deref().unwrap_or_default())),
        }
    }
}

impl VmProfile {
    /// How it is found.
    pub fn selector(&self) -> VmSelector {
        let by_unit = || self.unit.clone().map(VmSelector::Unit);
        let by_cgroup = || {
            let cgroup = self.cgroup.clone()?;
            Some(match self.threads.clone() {
                Some(name) => VmSelector::Threads { cgroup, name },
                None => VmSelector::Cgroup(cgroup),
            })
        };
        let found_by = self.pid.map(VmSelector::Pid);
        found_by
            .or_else(by_unit)
            .or_else(by_cgroup)
            .unwrap_or_else(|| VmSelector::Name(self.name.clone()))
    }

    /// The rank of its vhost workers. A budget bounds VCPUs only: a worker of a FIFO rank has the CPU for as long as the
    /// guest gives it packets. So one of a VM with a budget has such a rank only where the file says so.
    pub fn vhost(&self, by_ext: Option<&SchedulerProfile>) -> Option<ThreadPriority> {
        self.vhost_of(&self.class, by_ext)
    }

    /// The same of the workers of an interface of this class.
    pub(crate) fn vhost_of(
        &self,
        class: &Class,
        by_ext: Option<&SchedulerProfile>,
    ) -> Option<ThreadPriority> {
        let by_ext = by_ext.is_some_and(|it| it.vms.contains_key(&self.name));
        let has_budget = by_ext || !self.budgets.is_empty();
        class
            .vhost
            .filter(|_| !(has_budget && class.vhost_is_built_in))
    }

    /// All that `SCHED_DEADLINE` is to keep for it, of its VCPUs and of what receives for it.
    pub fn deadline_budgets(&self) -> impl Iterator<Item = &VcpuBudget> {
        let receive = self.poll_budgets.iter().chain(&self.vhost_budgets);
        self.budgets.values().chain(receive)
    }

    /// Whether anything is to be set for it. A VM of the plan alone is there for how it is found.
    pub(crate) fn asks(&self) -> bool {
        let nothing = Class {
            name: self.class.name.clone(),
            ..Class::default()
        };
        self.class != nothing
            || self.deadline_budgets().next().is_some()
            || self.nic.is_some()
            || !self.interfaces.is_empty()
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

/// A service of the host, and what its threads get.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostServiceProfile {
    /// Its unit of the system's systemd.
    pub unit: String,
    /// The users of whose processes the unit is believed, besides root.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub users: Vec<User>,
    /// The rank of its threads.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rank: Option<ThreadPriority>,
    /// The budget of each of its threads, in place of a rank.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub budget: Option<VcpuBudget>,
    /// The CPUs of its threads.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpus: Option<CpuSet>,
    /// Where the profile names it, for messages.
    #[serde(default)]
    pub place: String,
}

/// Settings of the kernel's deferred work, for the whole host. `None`: left as it is.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Softirqs {
    /// `net.core.netdev_budget`: packets in one round of the receive softirq.
    pub budget_packets: Option<u32>,
    /// `net.core.netdev_budget_usecs`: time of one round.
    pub budget_us: Option<u32>,
    /// ksoftirqd of every CPU, and `backlog_napi`.
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
