//! Running VMs: their monitor by name, and their taps.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::discover::{self, Processes};
use crate::error::HostError;
use crate::settings::Machine;
use crate::settings::links::taps;

use crate::error::at;
use crate::profile::VmProfile;

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

pub(super) fn runs_without(vm: &VmProfile, vcpu: u32) -> String {
    let name = &vm.name;
    format!("VM \"{name}\" is planned with VCPU {vcpu} and runs without it")
}
