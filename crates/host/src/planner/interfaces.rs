//! Interfaces of a VM that the file gives a class of their own: which taps and vhost workers these are. What cannot be told
//! keeps the VM's class.

use crate::discover::{self, Interface};
use crate::error::at;
use crate::printable::printable;
use crate::profile::{InterfaceProfile, SchedulerProfile, ThreadPriority, VmProfile};
use crate::settings::{Machine, ThreadId};

/// An interface that has a class of its own, and what is known of it.
pub(super) struct OwnClass<'p> {
    pub profile: &'p InterfaceProfile,
    /// Its tap; none if it is not known.
    pub tap: Option<String>,
    /// Its vhost workers; none where they are not known.
    pub workers: Vec<ThreadId>,
}

impl OwnClass<'_> {
    pub fn class_name(&self) -> String {
        format!("class \"{}\"", printable(&self.profile.class.name))
    }

    /// The rank of its workers, and why: without one of its class they are normal, whoever raised them.
    pub fn rank(
        &self,
        vm: &VmProfile,
        by_ext: Option<&SchedulerProfile>,
    ) -> (Option<ThreadPriority>, String) {
        let of_class = vm.vhost_of(&self.profile.class, by_ext);
        let why = format!(
            "because interface {} of the VM has {}",
            self.profile,
            self.class_name()
        );
        (Some(of_class.unwrap_or(ThreadPriority::Normal)), why)
    }
}

/// Finds the interfaces of a VM that the file names. `warnings` tells of a VM at work what is not known of one.
pub(super) fn of<'p>(
    machine: &Machine,
    profile: &'p VmProfile,
    vm: &discover::Vm,
    taps: &[String],
    warnings: &mut Vec<String>,
) -> Vec<OwnClass<'p>> {
    if profile.interfaces.is_empty() {
        return Vec::new();
    }
    let known = discover::interfaces(machine, vm, taps);
    let mut lacks = Vec::new();
    let found = profile.interfaces.iter().map(|named| {
        let is_it = |interface: &&Interface| match &named.tap {
            Some(tap) => interface.tap.as_ref() == Some(tap),
            None => named.address.is_some() && interface.address == named.address,
        };
        let mut those = known.iter().filter(is_it);
        // Two cards of one address cannot be told apart.
        let only = those.next().filter(|_| those.next().is_none());
        let by_name = named.tap.clone().filter(|tap| taps.contains(tap));
        let tap = by_name.or_else(|| only?.tap.clone());
        let mut lack = |what: String| {
            let what = format!("VM \"{}\": {what}", printable(&profile.name));
            lacks.push(at(&named.place, &what));
        };
        if only.is_none() && tap.is_none() {
            lack(format!(
                "it has no interface {named} that is known: what serves it keeps the VM's class"
            ));
        } else if tap.is_none() && only.is_none_or(|it| it.macvtap.is_none()) {
            lack(format!("the tap of interface {named} is not known and keeps the VM's class"));
        }
        let workers = match only.map(|interface| &interface.workers) {
            Some(Ok(workers)) => workers.clone(),
            Some(Err(why)) if !vm.vhost_workers.is_empty() => {
                lack(format!(
                    "which vhost worker serves interface {named} cannot be told ({why}): all of the VM keep its class. Start the \
                     VM anew to have them told apart"
                ));
                Vec::new()
            }
            None if tap.is_some() && !vm.vhost_workers.is_empty() => {
                lack(format!(
                    "which vhost worker serves interface {named} cannot be told, since its monitor's command line does not have \
                     it: all of the VM keep its class"
                ));
                Vec::new()
            }
            _ => Vec::new(),
        };
        OwnClass {
            profile: named,
            tap,
            workers,
        }
    });
    let found = found.collect();
    if !lacks.is_empty() && vm.is_at_work(machine) {
        warnings.extend(lacks);
    }
    found
}
