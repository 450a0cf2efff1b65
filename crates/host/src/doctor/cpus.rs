//! The processors: siblings, frequency, sleep, clock.

use super::{Check, check, text};
use crate::machine::Machine;

pub(super) fn checks(machine: &Machine) -> Vec<Check> {
    vec![
        smt(machine),
        governor(machine),
        c_states(machine),
        clock_source(machine),
        constant_tsc(machine),
    ]
}

const CPUS: &str = "/sys/devices/system/cpu";

fn smt(machine: &Machine) -> Check {
    let path = format!("{CPUS}/smt/active");
    let check = check(
        "cpu.smt",
        "SMT",
        "Two threads of a core share its units: what runs on one slows the other, at any \
         priority.",
    );
    match text(machine, &path).as_deref() {
        Some("0") => check.ok(format!("{path} is 0")),
        Some("1") => check.warn(
            format!("{path} is 1"),
            "echo off > /sys/devices/system/cpu/smt/control, or leave the sibling of the \
             dedicated CPU idle",
        ),
        Some(other) => check.unknown(format!("{path} is `{other}`"), ""),
        None => check.unknown(format!("{path} cannot be read"), ""),
    }
}

fn governor(machine: &Machine) -> Check {
    let check = check(
        "cpu.governor",
        "frequency governor",
        "A CPU that has slowed down while it waited serves the next packet slowly.",
    );
    let Ok(online) = machine.online() else {
        return check.unknown(format!("{CPUS}/online cannot be read"), "");
    };
    let mut governors: Vec<String> = online
        .iter()
        .filter_map(|cpu| {
            text(
                machine,
                &format!("{CPUS}/cpu{cpu}/cpufreq/scaling_governor"),
            )
        })
        .collect();
    governors.sort();
    governors.dedup();
    let path = format!("{CPUS}/cpu*/cpufreq/scaling_governor");
    match governors.as_slice() {
        [] => check.unknown(
            format!("{path} does not exist"),
            "nothing here: the firmware or the hypervisor below sets the frequency",
        ),
        [only] if only == "performance" => check.ok(format!("{path} is performance")),
        several => check.warn(
            format!("{path}: {}", several.join(", ")),
            "cpupower frequency-set -g performance",
        ),
    }
}

/// A sleep state that takes longer to leave costs as much as the network path itself.
const TOLERABLE_EXIT_US: u64 = 50;

fn c_states(machine: &Machine) -> Check {
    let check = check(
        "cpu.c-states",
        "C-states",
        "The deeper a CPU sleeps between packets, the longer it takes to wake up for the next \
         one.",
    );
    let driver = text(machine, &format!("{CPUS}/cpuidle/current_driver"))
        .filter(|driver| !driver.is_empty())
        .unwrap_or_else(|| "none".into());
    let states = format!("{CPUS}/cpu0/cpuidle");
    let deepest = machine
        .tree
        .list(&states)
        .unwrap_or_default()
        .iter()
        .filter(|state| state.starts_with("state"))
        .filter_map(|state| {
            let read = |file: &str| text(machine, &format!("{states}/{state}/{file}"));
            let enabled = read("disable").is_none_or(|disable| disable == "0");
            let latency: u64 = read("latency")?.parse().ok()?;
            enabled.then(|| (latency, read("name").unwrap_or_else(|| state.clone())))
        })
        .max();
    match deepest {
        None => check.ok(format!("cpuidle driver: {driver}; no states in {states}")),
        Some((latency, name)) if latency <= TOLERABLE_EXIT_US => check.ok(format!(
            "cpuidle driver: {driver}; the deepest enabled state of {states} is {name}, {latency} \
             us to leave"
        )),
        Some((latency, name)) => check.warn(
            format!(
                "cpuidle driver: {driver}; the deepest enabled state of {states} is {name}, \
                 {latency} us to leave"
            ),
            "cpupower idle-set -D 50, or hold /dev/cpu_dma_latency open with 0",
        ),
    }
}

fn clock_source(machine: &Machine) -> Check {
    let path = "/sys/devices/system/clocksource/clocksource0/current_clocksource";
    let check = check(
        "cpu.clocksource",
        "clock source",
        "Reading a clock outside the CPU takes microseconds, and every packet is stamped.",
    );
    match text(machine, path) {
        Some(source) if ["tsc", "kvm-clock", "arch_sys_counter"].contains(&source.as_str()) => {
            check.ok(format!("{path} is {source}"))
        }
        Some(source) => check.warn(
            format!("{path} is {source}"),
            "see dmesg for why the TSC was given up (clocksource: Marking TSC unstable)",
        ),
        None => check.unknown(format!("{path} cannot be read"), ""),
    }
}

fn constant_tsc(machine: &Machine) -> Check {
    let path = "/proc/cpuinfo";
    let check = check(
        "cpu.constant-tsc",
        "constant TSC",
        "KVM refuses to start on PREEMPT_RT without it, because a change of frequency would stop \
         all VMs.",
    );
    let Some(cpuinfo) = text(machine, path) else {
        return check.unknown(format!("{path} cannot be read"), "");
    };
    let Some(flags) = cpuinfo.lines().find(|line| line.starts_with("flags")) else {
        return check.unknown(format!("{path} lists no flags: not an x86 processor"), "");
    };
    if flags
        .split_ascii_whitespace()
        .any(|flag| flag == "constant_tsc")
    {
        return check.ok(format!("{path} lists constant_tsc"));
    }
    let found = format!("{path} does not list constant_tsc");
    let fix = "use another machine for PREEMPT_RT hosts; in a VM, have the TSC passed through \
               (QEMU: -cpu host,+invtsc)";
    // A patched kernel, as in the lab, may run KVM all the same.
    let runs = machine.tree.exists("/dev/kvm");
    if runs {
        check.warn(found + ", but /dev/kvm exists", fix)
    } else {
        check.bad(found, fix)
    }
}
