//! Classes: settings that several VMs share.
//!
//! Classes "rt" and "best-effort" need not be written, as for the receive path: the first sets nothing, VMs of the
//! second are not real-time. One that is written has what it leaves out from the built-in one, unless it extends another.

use std::collections::BTreeMap;

use steadyvm_config::{Placed, Vm};

use super::{places::Places, vm::Settings};
use crate::plan::InputError;

/// A VM's settings over those of its class, over those the class extends, and so on.
/// An error without a place belongs to the VM.
pub(super) fn settings(
    vm: &Vm,
    classes: &BTreeMap<String, Placed<Vm>>,
    places: &Places,
) -> Result<Settings, InputError> {
    if vm.extends.is_some() {
        return Err(InputError::new(
            "",
            "a VM has a class; only a class extends another",
        ));
    }
    if let Some(key) = vm.path_key() {
        let count = if key == "vcpu" {
            " (how many VCPUs a VM has is vcpus)"
        } else {
            ""
        };
        let message = format!("a VM has {key} from its class; move it to [class.NAME]{count}");
        return Err(InputError::new("", message));
    }
    let rt = Vm::default();
    let best_effort = Vm {
        rt: Some(false),
        ..Vm::default()
    };
    let mut settings = Settings(vm.clone());
    let mut chain: Vec<&str> = Vec::new();
    let mut place = String::new();
    let mut next = vm.class.as_deref();
    while let Some(name) = next {
        let built_in = match name {
            "rt" => Some(&rt),
            "best-effort" => Some(&best_effort),
            _ => None,
        };
        let written = classes.get(name).map(|class| &class.value);
        let Some(class) = written.or(built_in) else {
            return Err(InputError::new(
                place,
                format!("there is no class \"{name}\"; add [class.{name}]"),
            ));
        };
        place = places.class(name);
        if chain.contains(&name) {
            let circle = format!("{} -> {name}", chain.join(" -> "));
            let message = format!("classes extend each other in a circle: {circle}; break it");
            return Err(InputError::new(place, message));
        }
        chain.push(name);
        if class.name.is_some() || class.class.is_some() {
            let message = format!("class \"{name}\" cannot set name or class; use extends");
            return Err(InputError::new(place, message));
        }
        let is_of_one_vm = class.unit.is_some()
            || class.cgroup.is_some()
            || class.threads.is_some()
            || class.user.is_some()
            || class.interfaces.is_some()
            || class.vcpu_cpus.is_some()
            || class.process.is_some()
            || class.prepared_by.is_some();
        if is_of_one_vm {
            let message = format!(
                "class \"{name}\" cannot set unit, cgroup, threads, user, interfaces, vcpu_cpus, process or prepared_by, which are one VM's; \
                 move them to its [[vm]]"
            );
            return Err(InputError::new(place, message));
        }
        settings.fill_from(class);
        next = class.extends.as_deref();
        if next.is_none()
            && let Some(built_in) = built_in
        {
            settings.fill_from(built_in);
        }
    }
    Ok(settings)
}
