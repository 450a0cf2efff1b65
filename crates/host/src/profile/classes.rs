//! Classes of a file: what one extends, and its own.

use std::collections::BTreeMap;

use steadyvm_config::{Place, Placed, Vm};

use super::class::Class;
use super::fields::{cpus_of, wrong};
use crate::error::HostError;

pub(super) type Classes = BTreeMap<String, Placed<Vm>>;

/// The network settings of a class over those of the classes it extends; none if neither has
/// any.
pub(super) fn class(name: &str, at: &Place, classes: &Classes) -> Result<Option<Class>, HostError> {
    let mut settings: Option<Class> = None;
    let mut chain: Vec<&str> = Vec::new();
    let (mut next, mut at) = (Some(name), at);
    while let Some(wanted) = next {
        let Some((key, table)) = classes.get_key_value(wanted) else {
            if let Some(built_in) = Class::built_in(wanted) {
                settings.get_or_insert_default().fill_from(&built_in);
                break;
            }
            let what = format!("there is no class \"{wanted}\"");
            return Err(wrong(at, &what, &format!("add [class.{wanted}]")));
        };
        at = &table.place;
        if chain.contains(&key.as_str()) {
            let circle = format!("{} -> {key}", chain.join(" -> "));
            let what = format!("classes extend each other in a circle: {circle}");
            return Err(wrong(at, &what, "break it"));
        }
        chain.push(key);
        if table.path_key().is_some() {
            let own = class_net(table, name).map_err(|what| {
                wrong(
                    at,
                    &format!("class \"{key}\": {what}"),
                    "name CPUs of this host",
                )
            })?;
            settings.get_or_insert_default().fill_from(&own);
        }
        next = table.extends.as_deref();
        if next.is_none()
            && let Some(built_in) = Class::built_in(key)
        {
            settings.get_or_insert_default().fill_from(&built_in);
        }
    }
    if let Some(settings) = &mut settings {
        name.clone_into(&mut settings.name);
    }
    Ok(settings)
}

pub(super) fn must_have_class(
    name: &str,
    at: &Place,
    classes: &Classes,
) -> Result<Class, HostError> {
    class(name, at, classes)?.ok_or_else(|| {
        let what = format!("class \"{name}\" has no settings for the network");
        wrong(
            at,
            &what,
            &format!("add ranks, such as irq = 80, to [class.{name}]"),
        )
    })
}

fn class_net(net: &Vm, name: &str) -> Result<Class, String> {
    let cpus = net.path_cpus.as_ref();
    let cpus = cpus.map(|list| cpus_of("path_cpus", list)).transpose()?;
    Ok(Class {
        name: name.to_owned(),
        irq: net.irq,
        napi: net.napi,
        threaded_napi: net.threaded_napi,
        cpus,
        vhost: net.vhost,
        vhost_is_built_in: false,
        vcpu: net.vcpu,
        io: net.io,
        main: net.main,
        tap_qdisc: net.tap_qdisc,
        tap_batch: net.tap_batch,
    })
}
