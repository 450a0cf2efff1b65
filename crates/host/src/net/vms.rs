//! Running VMs: their monitor by name, and their taps.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::discover;
use crate::error::HostError;
use crate::machine::{Machine, Processes};

use super::profile::{VmProfile, at};

/// A running VM of the profile.
pub(super) struct Running<'p> {
    pub profile: &'p VmProfile,
    pub vm: discover::Vm,
    /// The taps that it has open in this network namespace.
    pub taps: Vec<String>,
    /// Its taps that cannot be set from here.
    pub taps_elsewhere: Vec<String>,
}

/// A VM of a profile, and its threads that settings are of.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct VmThreads {
    /// Its name in the file.
    pub name: String,
    /// The process of its monitor; none if the VM does not run.
    pub pid: Option<u32>,
    /// Each thread by its number, and what it is for people: `VCPU 0`, `vhost worker`.
    pub threads: BTreeMap<u32, String>,
}

impl VmThreads {
    pub(super) fn of(name: &str, running: Option<&Running<'_>>) -> Self {
        let mut threads = BTreeMap::new();
        if let Some(Running { vm, .. }) = running {
            let others = vm
                .vhost_workers
                .iter()
                .map(|thread| (thread, "vhost worker"));
            let interrupts = vm
                .vfio_threads
                .iter()
                .map(|thread| (thread, "interrupt of its own device"));
            let io = vm.io_threads.iter().map(|thread| (thread, "IO thread"));
            let main = vm.main_thread.iter().map(|thread| (thread, "main thread"));
            threads.extend(
                (others.chain(interrupts).chain(io).chain(main))
                    .map(|(thread, what)| (thread.tid, what.to_owned())),
            );
            threads.extend(
                vm.vcpus
                    .iter()
                    .map(|(number, thread)| (thread.tid, format!("VCPU {number}"))),
            );
        }
        Self {
            name: name.to_owned(),
            pid: running.map(|running| running.vm.pid),
            threads,
        }
    }
}

/// Finds a VM; none if it does not run, or lacks a VCPU that is named as long as it is not at work. `warnings` tells of
/// processes that are not taken for it.
pub(super) fn find<'p>(
    machine: &Machine,
    processes: &Processes<'_>,
    profile: &'p VmProfile,
    warnings: &mut Vec<String>,
) -> Result<Option<Running<'p>>, HostError> {
    let (wanted, users) = (profile.selector(), &profile.users);
    let Some(vm) = discover::find_vm(machine, processes, &wanted, users, warnings)? else {
        return Ok(None);
    };
    if let Some(absent) = profile
        .rt_vcpus
        .iter()
        .find(|vcpu| !vm.vcpus.contains_key(vcpu))
    {
        if !vm.is_at_work(machine) {
            return Ok(None);
        }
        let known: Vec<String> = vm.vcpus.keys().map(ToString::to_string).collect();
        return Err(HostError::BadInput {
            what: at(
                &profile.place,
                &format!("VM {} has no VCPU {absent}", vm.pid),
            ),
            fix: format!("its VCPUs are {}", known.join(", ")),
        });
    }
    let (taps, taps_elsewhere) = taps(machine, vm.pid);
    Ok(Some(Running {
        profile,
        vm,
        taps,
        taps_elsewhere,
    }))
}

/// The taps a process has open in this network namespace, and those it has in another (a pod's).
/// The latter may have the names of taps here.
fn taps(machine: &Machine, pid: u32) -> (Vec<String>, Vec<String>) {
    let queues = tap_queues(machine, pid);
    let taps: BTreeSet<String> = queues.into_iter().map(|(_, tap)| tap).collect();
    let all_elsewhere = !taps.is_empty() && is_elsewhere(machine, pid);
    // A descriptor may also have been handed over from another namespace.
    let is_here = |tap: &String| {
        let flags = format!("/sys/class/net/{tap}/tun_flags");
        !all_elsewhere && machine.tree.exists(&flags)
    };
    taps.into_iter().partition(is_here)
}

/// The taps a process has open that can be set from here.
pub(crate) fn taps_of(machine: &Machine, pid: u32) -> Vec<String> {
    taps(machine, pid).0
}

/// Whether a process is in another network namespace. One that may not be looked at is.
fn is_elsewhere(machine: &Machine, pid: u32) -> bool {
    let namespace = |process: &str| machine.tree.link(&format!("/proc/{process}/ns/net")).ok();
    namespace(&pid.to_string()) != namespace("thread-self")
}

/// The descriptors by which a process has attached queues of taps, and the taps:
/// `/proc/PID/fdinfo/N` says `iff: tap0`.
pub(super) fn tap_queues(machine: &Machine, pid: u32) -> Vec<(u32, String)> {
    let directory = format!("/proc/{pid}/fdinfo");
    let names = machine.tree.list(&directory).unwrap_or_default();
    let queue_of = |name: &String| {
        let text = machine.tree.read(&format!("{directory}/{name}")).ok()?;
        let tap = text.lines().find_map(|line| line.strip_prefix("iff:"))?;
        let tap = tap.trim();
        // A queue that the guest does not use has none.
        (!tap.is_empty()).then_some((name.parse().ok()?, tap.to_owned()))
    };
    names.iter().filter_map(queue_of).collect()
}
