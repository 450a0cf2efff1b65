//! Virtual machines: KVM, nesting, vhost.

use std::io::ErrorKind;

use super::check::{Check, check, text};
use crate::settings::Machine;

pub(super) fn checks(machine: &Machine) -> Vec<Check> {
    vec![
        device(machine),
        vendor(machine),
        nested(machine),
        vhost(machine),
        halt_polling(machine),
        timer_advance(machine),
        huge_page_recovery(machine),
    ]
}

fn device(machine: &Machine) -> Check {
    let path = "/dev/kvm";
    let check = check(
        "kvm.device",
        "KVM device",
        "Without KVM no VM runs at the speed of the CPU.",
    );
    match machine.tree.can_open(path) {
        Ok(()) => check.ok(format!("{path} opens")),
        Err(error) if error.kind() == ErrorKind::NotFound => check.bad(
            format!("{path} does not exist"),
            "enable virtualisation in the firmware and load kvm_intel or kvm_amd; in a VM, ask \
             its host for nested virtualisation",
        ),
        Err(error) if error.kind() == ErrorKind::PermissionDenied => check.warn(
            format!("{path} may not be opened by this user: {error}"),
            "run as root, or add the user to the group that owns it (kvm)",
        ),
        Err(error) => check.bad(
            format!("{path} does not open: {error}"),
            "see dmesg for kvm",
        ),
    }
}

/// The vendor modules and their processors.
const VENDORS: [(&str, &str); 2] = [("kvm_intel", "GenuineIntel"), ("kvm_amd", "AuthenticAMD")];

/// The module of this processor that is there: a kernel may have both built in.
fn vendors_module(machine: &Machine) -> Option<&'static str> {
    let cpuinfo = text(machine, "/proc/cpuinfo").unwrap_or_default();
    let is_loaded = |module: &str| machine.tree.exists(&format!("/sys/module/{module}"));
    VENDORS
        .iter()
        .find(|(module, vendor)| cpuinfo.contains(vendor) && is_loaded(module))
        .map(|(module, _)| *module)
}

fn vendor(machine: &Machine) -> Check {
    let check = check(
        "kvm.vendor",
        "KVM on hardware",
        "A /dev/kvm proves nothing: one without the processor's own virtualisation may run only \
         tiny guests and hang on a stock kernel.",
    );
    let modules = machine.tree.list("/sys/module").unwrap_or_default();
    if let Some(module) = vendors_module(machine) {
        return check.ok(format!("/sys/module/{module} is there"));
    }
    let cpuinfo = text(machine, "/proc/cpuinfo").unwrap_or_default();
    if !cpuinfo.contains("GenuineIntel") && !cpuinfo.contains("AuthenticAMD") {
        return check.unknown(
            "/proc/cpuinfo names neither an Intel nor an AMD processor",
            "let `steadyvm-lab shell` probe it: it boots a guest and gives up after a time limit",
        );
    }
    let others: Vec<&str> = modules
        .iter()
        .filter(|name| name.starts_with("kvm_"))
        .map(String::as_str)
        .collect();
    let found = if others.is_empty() {
        "neither kvm_intel nor kvm_amd is in /sys/module".to_owned()
    } else {
        format!(
            "neither kvm_intel nor kvm_amd is in /sys/module, but {}",
            others.join(", ")
        )
    };
    check.warn(
        found,
        "load kvm_intel or kvm_amd; where that is not possible, `steadyvm-lab shell` probes KVM by a \
         bounded boot and falls back to emulation",
    )
}

fn nested(machine: &Machine) -> Check {
    let check = check(
        "kvm.nested",
        "nested KVM",
        "Only the lab needs it: its emulated host runs KVM guests of its own. Without it the lab \
         emulates the processor.",
    );
    let path = |module: &str| format!("/sys/module/{module}/parameters/nested");
    if let Some((module, value)) =
        vendors_module(machine).and_then(|module| Some((module, text(machine, &path(module))?)))
    {
        let path = path(module);
        return if matches!(value.as_str(), "Y" | "1") {
            check.ok(format!("{path} is {value}"))
        } else {
            check.warn(
                format!("{path} is {value}"),
                &format!("reload the module with nested=1: modprobe -r {module}; modprobe {module} nested=1"),
            )
        };
    }
    check.unknown(
        "no kvm_intel or kvm_amd in /sys/module has a parameter `nested`",
        "nothing: the lab then emulates the processor",
    )
}

fn vhost(machine: &Machine) -> Check {
    let path = "/dev/vhost-net";
    let check = check(
        "kvm.vhost-net",
        "vhost-net",
        "It carries packets into the VM in a thread of its own, which gets a priority. Without it \
         QEMU's main thread does so, between all its other work.",
    );
    if machine.tree.exists(path) {
        check.ok(format!("{path} is there"))
    } else {
        check.warn(format!("{path} does not exist"), "modprobe vhost_net")
    }
}

fn halt_polling(machine: &Machine) -> Check {
    let path = "/sys/module/kvm/parameters/halt_poll_ns";
    let check = check(
        "kvm.halt-poll",
        "halt polling",
        "A VCPU that waits polls for so long before its thread sleeps. At real-time priority it \
         keeps the CPU from all that is below it meanwhile.",
    );
    match text(machine, path).as_deref() {
        Some("0") => check.ok(format!("{path} is 0")),
        Some(value) => check.warn(
            format!("{path} is {value}"),
            "on CPUs that RT VCPUs share with other work: echo 0 > \
             /sys/module/kvm/parameters/halt_poll_ns; on a CPU of its own leave it, as it shortens \
             the wake-up",
        ),
        None => check.unknown(format!("{path} cannot be read"), ""),
    }
}

/// Newer kernels have the switch `lapic_timer_advance`, older ones `lapic_timer_advance_ns`, which is -1 where KVM
/// finds out the time by itself (`arch/x86/kvm/lapic.c`).
fn timer_advance(machine: &Machine) -> Check {
    let check = check(
        "kvm.timer-advance",
        "guests' timers",
        "KVM sets a guest's timer early by the time that entering the guest takes. Without that, every timer \
         of a VM expires late by that time.",
    );
    let files = ["lapic_timer_advance", "lapic_timer_advance_ns"];
    for name in files {
        let path = format!("/sys/module/kvm/parameters/{name}");
        match text(machine, &path).as_deref() {
            Some("N" | "0") => {
                return check.warn(
                    format!("{path} is off"),
                    "load kvm without this parameter (/etc/modprobe.d, kernel command line): by default KVM \
                     measures that time itself",
                );
            }
            Some(value) => return check.ok(format!("{path} is {value}")),
            None => {}
        }
    }
    check.unknown("/sys/module/kvm/parameters has no lapic_timer_advance", "")
}

/// `kvm_nx_huge_page_recovery_worker()` frees a part of the split pages each time
/// (`arch/x86/kvm/mmu/mmu.c`).
fn huge_page_recovery(machine: &Machine) -> Check {
    let path = "/sys/module/kvm/parameters/nx_huge_pages";
    let ratio = "/sys/module/kvm/parameters/nx_huge_pages_recovery_ratio";
    let check = check(
        "kvm.huge-page-recovery",
        "recovery of guests' huge pages",
        "Against iTLB multihit, KVM splits huge pages from which a guest executes. Every few minutes a thread \
         takes small pages back from running VMs; the next access to each is an exit.",
    );
    match (text(machine, path), text(machine, ratio)) {
        (Some(splits), _) if splits != "Y" => check.ok(format!("{path} is {splits}")),
        (_, Some(ratio_now)) if ratio_now == "0" => check.ok(format!("{ratio} is 0")),
        (Some(_), Some(ratio_now)) => check.warn(
            format!("{path} is Y, {ratio} is {ratio_now}"),
            "echo 0 > /sys/module/kvm/parameters/nx_huge_pages_recovery_ratio: pages stay split",
        ),
        (Some(_), None) => check.unknown(format!("{ratio} cannot be read"), ""),
        (None, _) => check.ok(format!("{path} does not exist")),
    }
}
