//! The physical network interfaces: queues, interrupts, threaded NAPI.

use super::check::{Check, check, text};
use crate::discover;
use crate::settings::{Device, Functions, Machine, OwnFunction, Owner, SettingKind, Thread};

/// The interfaces that are devices.
fn physical(machine: &Machine) -> Vec<String> {
    let names = machine.tree.list("/sys/class/net").unwrap_or_default();
    let is_device = |name: &String| {
        let device = format!("/sys/class/net/{name}/device");
        machine.tree.exists(&device)
    };
    names.into_iter().filter(is_device).collect()
}

/// The NICs that share their CPU's poll list: those whose NAPI is not threaded.
pub(super) fn nics_on_the_poll_list(machine: &Machine) -> Vec<String> {
    let is_shared = |name: &String| {
        let threaded = text(machine, &format!("/sys/class/net/{name}/threaded"));
        threaded.is_none_or(|value| value == "0")
    };
    physical(machine).into_iter().filter(is_shared).collect()
}

pub(super) fn checks(machine: &Machine) -> Vec<Check> {
    let names = physical(machine);
    let threads = machine.all_threads().unwrap_or_default();
    let mut checks = vec![count(&names)];
    for name in &names {
        checks.push(queues(machine, &threads, name));
        checks.push(threaded_napi(machine, name));
        checks.push(moderation(machine, name));
        checks.push(functions(machine, name));
    }
    checks
}

fn count(names: &[String]) -> Check {
    let check = check(
        "network.nics",
        "physical NICs",
        "Real-time and other traffic need NICs of their own: within one, packets wait for each \
         other before the kernel sees them.",
    );
    let found = format!(
        "/sys/class/net has {} with a device: {}",
        names.len(),
        names.join(", ")
    );
    match names.len() {
        0 => check.bad(
            "/sys/class/net has no interface with a device",
            "give the host a NIC for real-time traffic, and another one for the rest",
        ),
        1 => check.warn(found, "add a NIC for the traffic that is not real-time"),
        _ => check.ok(found),
    }
}

fn queues(machine: &Machine, threads: &[Thread], name: &str) -> Check {
    let path = format!("/sys/class/net/{name}/queues");
    let check = check(
        &format!("network.queues.{name}"),
        &format!("{name}: queues"),
        "Each queue has an interrupt of its own, whose thread gets a priority and a CPU. An \
         interface that is down has asked for none.",
    );
    let receiving = machine
        .tree
        .list(&path)
        .unwrap_or_default()
        .iter()
        .filter(|queue| queue.starts_with("rx-"))
        .count();
    let Ok(nic) = discover::nic(machine, threads, name) else {
        return check.unknown(
            format!("{path}: {receiving}; interrupts cannot be read"),
            "",
        );
    };
    let found = format!(
        "{receiving} receive queues ({path}), {} interrupts (/proc/interrupts), {} IRQ threads",
        nic.irqs.len(),
        nic.irq_threads.len()
    );
    if nic.irqs.is_empty() {
        let (why, fix) = discover::without_interrupts(machine, name);
        return check.warn(format!("{found}: {why}"), &fix);
    }
    if machine.preempt_rt().0 && nic.irq_threads.is_empty() && nic.napi_threads.is_empty() {
        return check.warn(
            found,
            "this NIC cannot carry RT traffic: its handler is not a thread",
        );
    }
    check.ok(found)
}

fn threaded_napi(machine: &Machine, name: &str) -> Check {
    let path = format!("/sys/class/net/{name}/threaded");
    let check = check(
        &format!("network.threaded-napi.{name}"),
        &format!("{name}: threaded NAPI"),
        "Polled in a thread of its own, a non-RT NIC delays the RT NIC by one poll at most, not \
         by a whole softirq round.",
    );
    match text(machine, &path).as_deref() {
        Some("1") => check.ok(format!("{path} is 1")),
        Some(value) => check.warn(
            format!("{path} is {value}"),
            &format!("if {name} carries non-RT traffic, try echo 1 > {path}, and measure"),
        ),
        None => check.unknown(
            format!("{path} cannot be read"),
            "use a kernel of 5.12 or later, and bring the interface up",
        ),
    }
}

fn moderation(machine: &Machine, name: &str) -> Check {
    let check = check(
        &format!("network.moderation.{name}"),
        &format!("{name}: moderation"),
        "The NIC holds a packet back so that one interrupt serves several: a delay before any \
         priority counts.",
    );
    match machine.links.moderation(name) {
        Ok(found) if found.rx_us == 0 && !found.is_adaptive => {
            check.ok("rx-usecs is 0, adaptive-rx is off (ethtool -c)")
        }
        Ok(found) => check.warn(
            format!(
                "rx-usecs is {}, adaptive-rx is {} (ethtool -c)",
                found.rx_us,
                if found.is_adaptive { "on" } else { "off" }
            ),
            &format!("if {name} carries RT traffic: ethtool -C {name} adaptive-rx off rx-usecs 0"),
        ),
        Err(error) if error.raw_os_error() == Some(libc::EOPNOTSUPP) => {
            check.ok("the driver has none that ethtool shows")
        }
        Err(error) => check.unknown(format!("cannot be read: {error}"), ""),
    }
}

/// What a VM's `nic` finds there.
fn functions(machine: &Machine, name: &str) -> Check {
    let check = check(
        &format!("network.functions.{name}"),
        &format!("{name}: functions"),
        "A virtual function of a shared card, kept by the host, is a queue of a VM's own: `nic` in its table.",
    );
    let card = Device::find(machine, name);
    let setting = Functions { card: card.clone() };
    let Some(most) = setting.most(machine) else {
        return check
            .ok("it has none: a VM that must not wait for others here needs a card of its own");
    };
    let present = match setting.read(machine) {
        Ok(present) => present,
        Err(error) => return check.unknown(error.to_string(), ""),
    };
    let (mut of_vms, mut idle) = (0, 0);
    for number in 0..present {
        let card = card.clone();
        match (OwnFunction { card, number }).read(machine) {
            Ok(Owner::Vm { .. }) => of_vms += 1,
            Ok(Owner::Free { is_up: false, .. }) => idle += 1,
            // Of others, or not to be told.
            Ok(_) | Err(_) => {}
        }
    }
    let others = present - of_vms - idle;
    let found = format!(
        "{most} possible, {present} made: {of_vms} of VMs by steadyvm, {idle} idle, {others} of others"
    );
    if present > 0 && idle + of_vms == 0 {
        return check.warn(
            found,
            "leave one down and unused for each VM that names this card, or make more at boot",
        );
    }
    check.ok(found)
}
