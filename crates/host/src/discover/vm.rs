//! What serves a VM: a process is one if the kernel says so, not if it calls itself one.
//!
//! Anybody may start a process with QEMU's command line and QEMU's thread names. What cannot be
//! made up is a KVM VM among its descriptors, the thread that KVM says runs a VCPU, and the flag
//! of a thread that the kernel started itself. Names count only inside such a process, where they
//! tell its own threads apart.

use std::collections::{BTreeMap, BTreeSet};
use std::io::ErrorKind;

use serde::{Deserialize, Serialize};

use super::descriptors::Descriptors;
use super::makers::vcpus_of_debugfs;
use super::processes::Processes;
use super::socket_servers::trusted_socket_servers;
use super::vfio;
use crate::error::HostError;
use crate::parse;
use crate::printable::printable;
use crate::settings::links::macvtap_of;
use crate::settings::{Machine, Thread, ThreadId};

/// What serves a VM.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Vm {
    /// The process of its monitor.
    pub pid: u32,
    /// Its VCPU threads by VCPU number.
    pub vcpus: BTreeMap<u32, ThreadId>,
    /// How many VCPUs it has: more than are known while they are being made.
    pub vcpu_count: usize,
    /// What carries packets between its cards and the host: vhost workers, and the threads of
    /// `steadyvm up` that pass a card's interrupts on. All are one stage of the path.
    pub vhost_workers: Vec<ThreadId>,
    /// The threads of `steadyvm sockets serve` that serve its outsourced sockets.
    #[serde(default)]
    pub socket_servers: Vec<ThreadId>,
    /// The interrupts of devices that are passed through to it (VFIO), with their actions.
    #[serde(default)]
    pub vfio_irqs: BTreeMap<u32, String>,
    /// The threads that handle those; none unless interrupts are threaded.
    #[serde(default)]
    pub vfio_threads: Vec<ThreadId>,
    /// QEMU's IO threads (`IO iothread0`), which serve disks and, by `iothread=`, other devices.
    #[serde(default)]
    pub io_threads: Vec<ThreadId>,
    /// The monitor's main thread. Of QEMU it holds the lock that a VCPU needs to leave KVM.
    #[serde(default)]
    pub main_thread: Option<ThreadId>,
    /// The macvtaps that it has open in this network namespace.
    #[serde(default)]
    pub macvtaps: Vec<String>,
    /// Whether it is a program without a VM, whose threads of a name are taken for VCPUs.
    #[serde(default)]
    pub is_container: bool,
    /// What of it could not be told for sure.
    #[serde(default)]
    pub warnings: Vec<String>,
}

/// Finds what serves a VM. `threads` are all threads of the host.
///
/// # Errors
/// A process that is not there, that holds no KVM VM, or whose VCPUs cannot be told; or that this
/// user may not look at.
pub fn vm(machine: &Machine, threads: &[Thread], pid: u32) -> Result<Vm, HostError> {
    vm_of(machine, &Processes::of(threads), pid)
}

/// The same of one look, in which what is the whole host's is read once.
pub(super) fn vm_of(
    machine: &Machine,
    processes: &Processes<'_>,
    pid: u32,
) -> Result<Vm, HostError> {
    // Before the threads: a thread names itself and then makes its VCPU, so each VCPU that is found here has one.
    let files = match processes.files(machine, pid) {
        Ok(files) => files,
        // There is none, or it has ended.
        Err(error) if error.kind() == ErrorKind::NotFound => Descriptors::default(),
        Err(error) => return Err(HostError::io("list", format!("/proc/{pid}/fd"), error)),
    };
    let own = machine.threads_of(pid);
    if own.is_empty() {
        return Err(HostError::BadInput {
            what: format!("there is no process {pid} (/proc/{pid}/task)"),
            fix: "name the running process of the VM's monitor, such as qemu-system-x86_64".into(),
        });
    }
    if files.kvm_vms.is_empty() {
        return Err(HostError::BadInput {
            what: format!(
                "process {pid} ({}) holds no KVM VM: none of /proc/{pid}/fd is anon_inode:kvm-vm",
                printable(&own[0].id.comm)
            ),
            fix: "name the process of the VM's monitor itself, not what started it; a monitor \
                  that emulates the processor is not one"
                .into(),
        });
    }
    let vcpus = vcpus(machine, processes, &own, pid, &files)?;
    let mut warnings = Vec::new();
    let of_the_kernel = processes.threads_of_the_kernel();
    let mut vhost_workers = vhost_workers(of_the_kernel, &own, &files, pid, &mut warnings);
    vhost_workers.extend(named(&own, is_card_of_steadyvm));
    let vfio_irqs = vfio::irqs(machine, &files);
    let vfio_threads = of_the_kernel
        .iter()
        .filter(|thread| {
            let irq = parse::irq_of_thread(&thread.id.comm);
            irq.is_some_and(|irq| vfio_irqs.contains_key(&irq))
        })
        .map(|thread| thread.id.clone())
        .collect();
    Ok(Vm {
        pid,
        vcpus,
        vcpu_count: files.vcpus.len(),
        vhost_workers,
        socket_servers: trusted_socket_servers(machine, processes, pid),
        vfio_irqs,
        vfio_threads,
        io_threads: named(&own, |comm| comm.starts_with("IO ")),
        main_thread: own
            .iter()
            .find(|thread| thread.id.tid == pid)
            .map(|thread| thread.id.clone()),
        macvtaps: macvtaps(machine, &files),
        is_container: false,
        warnings,
    })
}

/// The macvtaps that a process has open in this network namespace; none if it has ended.
#[cfg(test)]
pub(crate) fn macvtaps_of(machine: &Machine, processes: &Processes<'_>, pid: u32) -> Vec<String> {
    let files = processes.files(machine, pid).unwrap_or_default();
    macvtaps(machine, &files)
}

fn macvtaps(machine: &Machine, files: &Descriptors) -> Vec<String> {
    let devices = files.macvtaps.iter();
    let found = devices.filter_map(|device| macvtap_of(machine, device));
    found.collect()
}

fn named(own: &[Thread], is_meant: impl Fn(&str) -> bool) -> Vec<ThreadId> {
    own.iter()
        .filter(|thread| is_meant(&thread.id.comm))
        .map(|thread| thread.id.clone())
        .collect()
}

/// `net0/NAME`: passes a card's interrupts to the guest (crates/vmm, `Relay`).
fn is_card_of_steadyvm(comm: &str) -> bool {
    let role = comm.split_once('/').map(|(role, _)| role);
    role.and_then(|role| role.strip_prefix("net"))
        .is_some_and(|number| number.parse::<u32>().is_ok())
}

/// The threads that run VCPUs: KVM's own word where debugfs is mounted; of a VCPU that has not run yet, and where it is
/// not mounted, the threads' names, as far as the process has VCPUs of those numbers.
fn vcpus(
    machine: &Machine,
    processes: &Processes<'_>,
    own: &[Thread],
    pid: u32,
    files: &Descriptors,
) -> Result<BTreeMap<u32, ThreadId>, HostError> {
    let mut found = vcpus_of_debugfs(machine, processes.makers_of_vms(machine), own, files);
    let known: BTreeSet<u32> = found.keys().copied().collect();
    let running: BTreeSet<u32> = found.values().map(|thread| thread.tid).collect();
    for thread in own.iter().filter(|it| !running.contains(&it.id.tid)) {
        let Some(number) = parse::vcpu_of_thread(&thread.id.comm) else {
            continue;
        };
        if !files.vcpus.contains(&number) || known.contains(&number) {
            continue;
        }
        if let Some(other) = found.insert(number, thread.id.clone()) {
            return Err(HostError::BadInput {
                what: format!(
                    "process {pid} has two threads that call themselves VCPU {number}: {other} \
                     and {}",
                    thread.id
                ),
                fix: "mount debugfs on /sys/kernel/debug, where KVM says which one it is".into(),
            });
        }
    }
    if found.is_empty() {
        return Err(HostError::BadInput {
            what: format!("process {pid} has no thread that is known as a VCPU"),
            fix: "start QEMU with `-name NAME,debug-threads=on` so that its VCPU threads have \
                  names (CPU 0/KVM), or mount /sys/kernel/debug"
                .into(),
        });
    }
    Ok(found)
}

/// Since 6.4 a worker is a thread of the VM's own process that the kernel has started; before, and
/// with `fork_from_owner_default=0` from 6.17 on, a kernel thread. Both are named after the thread
/// that opened vhost.
fn vhost_workers(
    of_the_kernel: &[&Thread],
    own: &[Thread],
    files: &Descriptors,
    pid: u32,
    warnings: &mut Vec<String>,
) -> Vec<ThreadId> {
    if files.vhost_nets == 0 {
        return Vec::new();
    }
    let tids: BTreeSet<u32> = own.iter().map(|thread| thread.id.tid).collect();
    let is_owner = |owner: &str| owner.parse().is_ok_and(|owner| tids.contains(&owner));
    let kernel_threads = of_the_kernel.iter().copied().filter(|thread| {
        let owner = thread.id.comm.strip_prefix("vhost-");
        owner.is_some_and(is_owner)
    });
    let tasks = own
        .iter()
        .filter(|thread| thread.is_vhost_task() && thread.id.comm.starts_with("vhost-"));
    let mut workers: Vec<ThreadId> = tasks
        .chain(kernel_threads)
        .map(|thread| thread.id.clone())
        .collect();
    if files.other_vhosts > 0 && workers.len() > files.vhost_nets {
        // Nothing says which device a worker serves. Monitors make their cards' first.
        workers.sort_by_key(|worker| (worker.start_time, worker.tid));
        workers.truncate(files.vhost_nets);
        let names: Vec<String> = workers.iter().map(ToString::to_string).collect();
        warnings.push(format!(
            "VM {pid} has vhost devices other than cards (vsock, scsi): taken for its cards' \
             workers, as they are the oldest: {}",
            names.join(", ")
        ));
    }
    workers
}
