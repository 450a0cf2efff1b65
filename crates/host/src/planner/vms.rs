//! Running VMs: their monitor by name, and their taps.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::interfaces::{self, OwnClass};
use crate::discover::{self, Processes};
use crate::error::HostError;
use crate::settings::links::taps;
use crate::settings::{Machine, ThreadId};

use crate::error::at;
use crate::profile::{Class, VmProfile};

/// A running VM of the profile.
pub(super) struct Running<'p> {
    pub profile: &'p VmProfile,
    pub vm: discover::Vm,
    /// The taps that it has open in this network namespace.
    pub taps: Vec<String>,
    /// Its taps that cannot be set from here.
    pub taps_elsewhere: Vec<String>,
    /// Its interfaces with a class of their own.
    pub interfaces: Vec<OwnClass<'p>>,
    /// How many of its interfaces go by a program in user space.
    pub interfaces_of_user_space: usize,
}

impl Running<'_> {
    /// The interface with a class of its own that a worker serves.
    pub fn interface_of(&self, worker: &ThreadId) -> Option<&OwnClass<'_>> {
        let mut all = self.interfaces.iter();
        all.find(|own| own.workers.contains(worker))
    }

    /// The class that a tap has.
    pub fn class_of_tap(&self, tap: &str) -> &Class {
        let mut all = self.interfaces.iter();
        let own = all.find(|own| own.tap.as_deref() == Some(tap));
        own.map_or(&self.profile.class, |own| &own.profile.class)
    }
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
    /// Its taps that have a class of their own.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub taps_of_other_classes: Vec<String>,
    /// How many of its interfaces go by a program in user space (`vhost-user`).
    #[serde(default)]
    pub interfaces_of_user_space: usize,
}

impl VmThreads {
    pub(super) fn of(name: &str, running: Option<&Running<'_>>) -> Self {
        let mut threads = BTreeMap::new();
        if let Some(Running { vm, .. }) = running {
            let interrupts = vm
                .vfio_threads
                .iter()
                .map(|thread| (thread, "interrupt of its own device"));
            let io = vm.io_threads.iter().map(|thread| (thread, "IO thread"));
            let main = vm.main_thread.iter().map(|thread| (thread, "main thread"));
            let servers = vm.socket_servers.iter();
            let servers = servers.map(|thread| (thread, "server of its sockets"));
            threads.extend(
                (interrupts.chain(io).chain(main).chain(servers))
                    .map(|(thread, what)| (thread.tid, what.to_owned())),
            );
            threads.extend(vm.vhost_workers.iter().map(|thread| {
                let what = match running.and_then(|it| it.interface_of(thread)) {
                    Some(own) => format!("vhost worker of {}, {}", own.profile, own.class_name()),
                    None => "vhost worker".to_owned(),
                };
                (thread.tid, what)
            }));
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
            taps_of_other_classes: running.map_or(Vec::new(), |running| {
                let own = running.interfaces.iter();
                own.filter_map(|own| own.tap.clone()).collect()
            }),
            interfaces_of_user_space: running.map_or(0, |it| it.interfaces_of_user_space),
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
    let (taps, taps_elsewhere) = if vm.is_container {
        // What a program has open is no card of a VM.
        (Vec::new(), Vec::new())
    } else {
        taps(machine, vm.pid)
    };
    let interfaces = interfaces::of(machine, profile, &vm, &taps, warnings);
    Ok(Some(Running {
        profile,
        interfaces_of_user_space: discover::interfaces_of_user_space(machine, vm.pid),
        vm,
        taps,
        taps_elsewhere,
        interfaces,
    }))
}

pub(super) fn runs_without(vm: &VmProfile, vcpu: u32) -> String {
    let name = &vm.name;
    format!("VM \"{name}\" is planned with VCPU {vcpu} and runs without it")
}
