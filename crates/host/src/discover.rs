//! What serves a NIC, a VM and a service on this host: interrupts, kernel threads, VCPU threads.
//! Read only.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::error::HostError;
use crate::machine::{Machine, Thread, ThreadId};
use crate::parse;

/// What serves a NIC.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Nic {
    /// The interface.
    pub name: String,
    /// Its interrupts, with their actions.
    pub irqs: BTreeMap<u32, String>,
    /// The threads that handle them; none unless interrupts are threaded.
    pub irq_threads: Vec<ThreadId>,
    /// Its NAPI kthreads; none unless threaded NAPI is on.
    pub napi_threads: Vec<ThreadId>,
}

/// What serves a VM.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Vm {
    /// The process of its monitor.
    pub pid: u32,
    /// Its VCPU threads by VCPU number.
    pub vcpus: BTreeMap<u32, ThreadId>,
    /// Its vhost workers.
    pub vhost_workers: Vec<ThreadId>,
}

/// Finds what serves a NIC. `threads` are all threads of the host.
pub fn nic(machine: &Machine, threads: &[Thread], name: &str) -> Result<Nic, HostError> {
    let class = format!("/sys/class/net/{name}");
    if name.is_empty()
        || name.contains('/')
        || name.starts_with('.')
        || !machine.tree.exists(&class)
    {
        let known = machine
            .tree
            .list("/sys/class/net")
            .unwrap_or_default()
            .join(", ");
        return Err(HostError::BadInput {
            what: format!("there is no network interface `{name}` ({class})"),
            fix: format!("name one of: {known}"),
        });
    }
    let mut numbers = BTreeSet::new();
    let mut virtio = None;
    if let Ok(device) = machine.tree.real_path(&format!("{class}/device")) {
        numbers.extend(device_irqs(machine, &device));
        // A virtio NIC's device is virtioN; the interrupts belong to the PCI device above it.
        let (parent, last) = device.rsplit_once('/').unwrap_or(("", &device));
        if last.starts_with("virtio") {
            virtio = Some(last.to_owned());
            if parent.starts_with("/sys/devices/pci") {
                numbers.extend(device_irqs(machine, parent));
            }
        }
    }
    let interrupts = parse::interrupts(&machine.must_read("/proc/interrupts")?);
    let mut irqs = BTreeMap::new();
    for interrupt in interrupts {
        let named = interrupt.actions.iter().any(|action| {
            belongs_to(action, name) || virtio.as_ref().is_some_and(|own| belongs_to(action, own))
        });
        if named || (numbers.contains(&interrupt.irq) && !interrupt.actions.is_empty()) {
            irqs.insert(interrupt.irq, interrupt.actions.join(", "));
        }
    }
    let irq_threads = kernel_threads(threads, |comm| {
        parse::irq_of_thread(comm).is_some_and(|irq| irqs.contains_key(&irq))
    });
    let napi_threads = kernel_threads(threads, |comm| is_napi_thread_of(comm, name));
    Ok(Nic {
        name: name.to_owned(),
        irqs,
        irq_threads,
        napi_threads,
    })
}

/// A process of the host that is itself the service.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Process {
    /// Its number.
    pub pid: u32,
    /// Its threads.
    pub threads: Vec<ThreadId>,
}

/// Finds a process of the host by its number.
pub fn process(machine: &Machine, pid: u32) -> Result<Process, HostError> {
    let own = machine.threads_of(pid);
    let refused = |what| {
        Err(HostError::BadInput {
            what,
            fix: "name the running process of the service".into(),
        })
    };
    if own.is_empty() {
        return refused(format!("there is no process {pid} (/proc/{pid}/task)"));
    }
    if let Some(thread) = own.iter().find(|thread| thread.is_kernel()) {
        return refused(format!("{} belongs to the kernel", thread.id));
    }
    Ok(Process {
        pid,
        threads: own.into_iter().map(|thread| thread.id).collect(),
    })
}

/// Finds what serves a VM.
pub fn vm(machine: &Machine, threads: &[Thread], pid: u32) -> Result<Vm, HostError> {
    let own = machine.threads_of(pid);
    if own.is_empty() {
        return Err(HostError::BadInput {
            what: format!("there is no process {pid} (/proc/{pid}/task)"),
            fix: "name the running process of the VM's monitor, such as qemu-system-x86_64".into(),
        });
    }
    let mut vcpus: BTreeMap<u32, ThreadId> = own
        .iter()
        .filter_map(|thread| Some((parse::vcpu_of_thread(&thread.id.comm)?, thread.id.clone())))
        .collect();
    if vcpus.is_empty() {
        vcpus = vcpus_of_debugfs(machine, &own, pid);
    }
    if vcpus.is_empty() {
        return Err(HostError::BadInput {
            what: format!("process {pid} has no thread that is known as a VCPU"),
            fix: "check that it is a KVM VM; start QEMU with `-name NAME,debug-threads=on` so \
                  that its VCPU threads have names (CPU 0/KVM), or mount /sys/kernel/debug"
                .into(),
        });
    }
    // Since 6.4 a vhost worker is a thread of the VM's own process; before, it was a kernel
    // thread named after the thread that opened vhost.
    let tids: BTreeSet<u32> = own.iter().map(|thread| thread.id.tid).collect();
    let mut vhost_workers: Vec<ThreadId> = own
        .iter()
        .filter(|thread| thread.id.comm.starts_with("vhost-"))
        .map(|thread| thread.id.clone())
        .collect();
    vhost_workers.extend(kernel_threads(threads, |comm| {
        comm.strip_prefix("vhost-")
            .and_then(|owner| owner.parse().ok())
            .is_some_and(|owner| tids.contains(&owner))
    }));
    Ok(Vm {
        pid,
        vcpus,
        vhost_workers,
    })
}

/// The interrupts of a device: its MSI vectors, or its line if it has none.
fn device_irqs(machine: &Machine, device: &str) -> Vec<u32> {
    let vectors: Vec<u32> = machine
        .tree
        .list(&format!("{device}/msi_irqs"))
        .unwrap_or_default()
        .iter()
        .filter_map(|name| name.parse().ok())
        .collect();
    if !vectors.is_empty() {
        return vectors;
    }
    let line = machine.tree.read(&format!("{device}/irq")).ok();
    line.and_then(|text| text.trim().parse().ok())
        .filter(|&irq| irq > 0)
        .into_iter()
        .collect()
}

/// Whether an action's name is the owner's, alone or followed by a queue (`eth0-rx-1`,
/// `virtio2-input.0`).
fn belongs_to(action: &str, owner: &str) -> bool {
    action
        .strip_prefix(owner)
        .is_some_and(|rest| rest.is_empty() || rest.starts_with(['-', ':', '.', '@']))
}

/// Whether a kernel thread polls a NIC (`napi/eth0-8193`). Linux cuts names after 15 bytes, so
/// a long interface name leaves no room for the number.
fn is_napi_thread_of(comm: &str, nic: &str) -> bool {
    let Some(rest) = comm.strip_prefix("napi/") else {
        return false;
    };
    match rest.strip_prefix(nic) {
        Some(tail) => tail.is_empty() || tail.starts_with('-'),
        None => comm.len() == 15 && nic.starts_with(rest),
    }
}

fn kernel_threads(threads: &[Thread], matches: impl Fn(&str) -> bool) -> Vec<ThreadId> {
    threads
        .iter()
        .filter(|thread| thread.is_kernel() && matches(&thread.id.comm))
        .map(|thread| thread.id.clone())
        .collect()
}

/// The VCPU threads as KVM's debugfs names them (`/sys/kernel/debug/kvm/<pid>-<fd>/vcpu0/pid`),
/// for monitors that do not name their threads.
fn vcpus_of_debugfs(machine: &Machine, own: &[Thread], pid: u32) -> BTreeMap<u32, ThreadId> {
    let root = "/sys/kernel/debug/kvm";
    let mut found = BTreeMap::new();
    for vm in machine.tree.list(root).unwrap_or_default() {
        if vm
            .split_once('-')
            .is_none_or(|(owner, _)| owner != pid.to_string())
        {
            continue;
        }
        for entry in machine
            .tree
            .list(&format!("{root}/{vm}"))
            .unwrap_or_default()
        {
            let vcpu = entry
                .strip_prefix("vcpu")
                .and_then(|number| number.parse().ok());
            let tid = machine
                .tree
                .read(&format!("{root}/{vm}/{entry}/pid"))
                .ok()
                .and_then(|text| text.trim().parse::<u32>().ok());
            let (Some(vcpu), Some(tid)) = (vcpu, tid) else {
                continue;
            };
            if let Some(thread) = own.iter().find(|thread| thread.id.tid == tid) {
                found.insert(vcpu, thread.id.clone());
            }
        }
    }
    found
}
