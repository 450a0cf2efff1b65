//! A comparable dump of all host state that this crate can change.

use std::collections::{BTreeMap, HashMap};

use serde::{Deserialize, Serialize};

use crate::change;
use crate::cpu_set::CpuSet;
use crate::error::HostError;
use crate::fair_server;
use crate::links::Qdisc;
use crate::machine::{Machine, ThreadId};
use crate::net;
use crate::threads::Scheduling;
use crate::{levels, parse};

/// The host's scheduling state at one moment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Snapshot {
    /// The version of the format.
    pub schema_version: u32,
    /// Every thread.
    pub threads: Vec<ThreadState>,
    /// Every interrupt that has CPUs.
    pub irqs: BTreeMap<u32, IrqState>,
    /// Files of procfs and sysfs.
    pub files: BTreeMap<String, String>,
    /// Root queueing disciplines by device.
    #[serde(default)]
    pub qdiscs: BTreeMap<String, Qdisc>,
    /// What decides the batch of taps that a process has open, by tap: send buffers in bytes, and
    /// `rx-frames`.
    #[serde(default)]
    pub taps: BTreeMap<String, String>,
    /// Flow steering rules by NIC, for those that have any.
    #[serde(default)]
    pub flow_rules: BTreeMap<String, Vec<String>>,
}

/// A thread's scheduling.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ThreadState {
    /// The thread.
    #[serde(flatten)]
    pub id: ThreadId,
    /// Its policy.
    pub scheduling: Scheduling,
    /// Its CPUs.
    pub cpus: CpuSet,
    /// Whether its CPUs are its own: not of kworkers and per-CPU threads, which the kernel
    /// places, nor of IRQ threads, which follow their interrupt.
    pub placed_by_users: bool,
}

/// An interrupt's CPUs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct IrqState {
    /// Those allowed.
    pub cpus: CpuSet,
    /// Those it is delivered to.
    pub effective: Option<CpuSet>,
}

/// The files a snapshot holds, besides those of CPUs and of network queues.
const FILES: [&str; 9] = [
    "/sys/devices/virtual/workqueue/cpumask",
    "/proc/irq/default_smp_affinity",
    "/proc/sys/kernel/sched_rt_runtime_us",
    "/proc/sys/net/core/netdev_budget",
    "/proc/sys/net/core/netdev_budget_usecs",
    levels::PRIORITY,
    levels::QUANTUM,
    levels::SKB_PRIORITY,
    levels::XDP_PRIORITY,
];

impl Snapshot {
    /// Reads a host.
    pub fn take(machine: &Machine) -> Result<Self, HostError> {
        let mut threads = Vec::new();
        for thread in machine.all_threads()? {
            let (Ok(scheduling), Ok(cpus)) = (
                machine.threads.scheduling(thread.id.tid),
                machine.threads.affinity(thread.id.tid),
            ) else {
                continue;
            };
            let follows = thread.is_kernel() && parse::irq_of_thread(&thread.id.comm).is_some();
            let placed_by_users = thread.is_movable() && !follows;
            threads.push(ThreadState {
                id: thread.id,
                scheduling,
                cpus,
                placed_by_users,
            });
        }
        let mut irqs = BTreeMap::new();
        for irq in machine.tree.list("/proc/irq").unwrap_or_default() {
            let Ok(irq) = irq.parse() else { continue };
            let text = machine.tree.read(&change::irq_file(irq)).ok();
            if let Some(cpus) = text.and_then(|text| text.parse().ok()) {
                irqs.insert(
                    irq,
                    IrqState {
                        cpus,
                        effective: change::effective_of(machine, irq),
                    },
                );
            }
        }
        let mut paths: Vec<String> = FILES.iter().map(ToString::to_string).collect();
        for cpu in machine.online()?.iter() {
            paths.extend(["runtime", "period"].map(|name| fair_server::file(cpu, name)));
        }
        let mut qdiscs = BTreeMap::new();
        let mut flow_rules = BTreeMap::new();
        for nic in machine.tree.list("/sys/class/net").unwrap_or_default() {
            if let Ok(qdisc) = machine.links.root_qdisc(&nic) {
                qdiscs.insert(nic.clone(), qdisc);
            }
            flow_rules.extend(rules_of(machine, &nic));
            paths.push(format!("/sys/class/net/{nic}/threaded"));
            let queues = format!("/sys/class/net/{nic}/queues");
            for queue in machine.tree.list(&queues).unwrap_or_default() {
                paths.push(format!("{queues}/{queue}/rps_cpus"));
            }
        }
        let taps = taps(machine, &threads);
        let files = paths
            .into_iter()
            .filter_map(|path| {
                let text = machine.tree.read(&path).ok()?;
                Some((path, text.trim().to_owned()))
            })
            .collect();
        Ok(Self {
            schema_version: 1,
            threads,
            irqs,
            files,
            qdiscs,
            taps,
            flow_rules,
        })
    }

    /// What differs from an earlier snapshot, a line each. Threads that are in only one of the
    /// two are left out, and so is what the kernel places by itself.
    pub fn differences(&self, earlier: &Self) -> Vec<String> {
        let mut found = Vec::new();
        // The name is not part of the identity: kworkers rename themselves.
        let key = |id: &ThreadId| (id.tid, id.start_time);
        let before: HashMap<_, _> = earlier
            .threads
            .iter()
            .map(|thread| (key(&thread.id), thread))
            .collect();
        for now in &self.threads {
            let Some(old) = before.get(&key(&now.id)) else {
                continue;
            };
            if !now.scheduling.same_as(&old.scheduling) {
                found.push(format!(
                    "{}: {} -> {}",
                    now.id, old.scheduling, now.scheduling
                ));
            }
            if now.placed_by_users && now.cpus != old.cpus {
                found.push(format!("{}: CPUs {} -> {}", now.id, old.cpus, now.cpus));
            }
        }
        for (irq, now) in &self.irqs {
            let before = earlier.irqs.get(irq);
            if let Some(old) = before.filter(|old| old.cpus != now.cpus) {
                found.push(format!("IRQ {irq}: CPUs {} -> {}", old.cpus, now.cpus));
            }
        }
        for (path, now) in &self.files {
            if let Some(old) = earlier.files.get(path).filter(|old| *old != now) {
                found.push(format!("{path}: {old} -> {now}"));
            }
        }
        for (device, now) in &self.qdiscs {
            if let Some(old) = earlier.qdiscs.get(device).filter(|old| *old != now) {
                found.push(format!(
                    "queueing discipline of {device}: {} -> {}",
                    old.kind, now.kind
                ));
            }
        }
        for (tap, now) in &self.taps {
            if let Some(old) = earlier.taps.get(tap).filter(|old| *old != now) {
                found.push(format!("batch of {tap}: {old} -> {now}"));
            }
        }
        for (nic, now) in &self.flow_rules {
            if let Some(old) = earlier.flow_rules.get(nic).filter(|old| *old != now) {
                found.push(format!(
                    "flow steering of {nic}: {} -> {}",
                    old.join(", "),
                    now.join(", ")
                ));
            }
        }
        found
    }
}

/// A NIC's rules, and whether they are in use; none if it steers no flows.
fn rules_of(machine: &Machine, nic: &str) -> Option<(String, Vec<String>)> {
    let table = machine.links.flow_rules(nic).ok()?;
    let is_on = machine.links.flow_steering(nic).ok()?;
    let mut rules = vec![if is_on { "on" } else { "off" }.to_owned()];
    rules.extend(table.rules.iter().map(|(place, rule)| match rule {
        Some(rule) => format!("{place}: {rule}"),
        None => format!("{place}: other"),
    }));
    Some((nic.to_owned(), rules))
}

/// The taps that processes have open; who may not see that sees none.
fn taps(machine: &Machine, threads: &[ThreadState]) -> BTreeMap<String, String> {
    let nics = machine.tree.list("/sys/class/net").unwrap_or_default();
    let is_tap = |nic: &String| {
        let flags = format!("/sys/class/net/{nic}/tun_flags");
        machine.tree.exists(&flags)
    };
    let mut taps = BTreeMap::new();
    // Looking through every process's descriptors takes time.
    if !nics.iter().any(is_tap) {
        return taps;
    }
    let processes = threads
        .iter()
        .filter(|thread| thread.id.tid == thread.id.pid);
    for pid in processes.map(|process| process.id.pid) {
        for tap in net::taps_of(machine, pid) {
            let Ok(bytes) = net::send_buffers(machine, pid, &tap) else {
                continue;
            };
            let frames = machine.links.rx_frames(&tap).unwrap_or(0);
            taps.insert(tap, format!("send buffer {bytes:?}, rx-frames {frames}"));
        }
    }
    taps
}
