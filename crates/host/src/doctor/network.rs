//! The physical network interfaces: queues, interrupts, threaded NAPI.

use super::{Check, check, text};
use crate::discover;
use crate::machine::{Machine, Thread};

pub(super) fn checks(machine: &Machine) -> Vec<Check> {
    let names: Vec<String> = machine
        .tree
        .list("/sys/class/net")
        .unwrap_or_default()
        .into_iter()
        .filter(|name| {
            machine
                .tree
                .exists(&format!("/sys/class/net/{name}/device"))
        })
        .collect();
    let threads = machine.all_threads().unwrap_or_default();
    let mut checks = vec![count(&names)];
    for name in &names {
        checks.push(queues(machine, &threads, name));
        checks.push(threaded_napi(machine, name));
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
        return check.warn(found, &format!("ip link set {name} up"));
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
