//! Classes: settings that several VMs share.

use std::collections::BTreeMap;

use super::{places::Places, vm::Settings};
use crate::plan::InputError;

/// A VM's settings over those of its class, over those the class extends, and so on.
/// An error without a place belongs to the VM.
pub(super) fn settings(
    vm: &Settings,
    classes: &BTreeMap<String, Settings>,
    places: &Places,
) -> Result<Settings, InputError> {
    if vm.extends.is_some() {
        return Err(InputError::new(
            "",
            "a VM has a class; only a class extends another",
        ));
    }
    if vm.net.is_some() {
        return Err(InputError::new(
            "",
            "a VM has its network settings from its class; move them to [class.NAME.net]",
        ));
    }
    let mut settings = vm.clone();
    let mut chain: Vec<&str> = Vec::new();
    let mut place = String::new();
    let mut next = vm.class.as_deref();
    while let Some(name) = next {
        let Some(class) = classes.get(name) else {
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
        settings.fill_from(class);
        next = class.extends.as_deref();
    }
    Ok(settings)
}
