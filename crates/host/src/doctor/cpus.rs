//! The processors: siblings, frequency, sleep, clock.

use super::check::{Check, check, text};
use super::isolation;
use crate::cpu_set::CpuSet;
use crate::settings::Machine;

pub(super) fn checks(machine: &Machine) -> Vec<Check> {
    vec![
        smt(machine),
        governor(machine),
        c_states(machine),
        isolation::check_of(machine),
        clock_source(machine),
        constant_tsc(machine),
        firmware(),
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

/// Each CPU has states of its own, and a wish of its own how long waking up may take
/// (`pm_qos_resume_latency_us`: 0 is no wish, `n/a` is none at all). The shortest of it and the
/// whole machine's (`/dev/cpu_dma_latency`) bars states (`cpuidle_governor_latency_req()`).
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
    let global_us = global_latency_us(machine);
    let online = machine.online().unwrap_or_default();
    let deepest = online
        .iter()
        .map(|cpu| (cpu, deepest_state(machine, cpu, global_us)));
    let deep: Vec<(usize, u64, String)> = deepest
        .filter_map(|(cpu, state)| state.map(|(latency_us, name)| (cpu, latency_us, name)))
        .collect();
    let Some(worst) = deep.iter().max_by_key(|(_, latency_us, _)| *latency_us) else {
        return check.ok(format!(
            "cpuidle driver: {driver}; no states in {CPUS}/cpu*/cpuidle"
        ));
    };
    let (_, latency_us, name) = worst;
    let limit = match global_us {
        Some(us) => format!("/dev/cpu_dma_latency asks for {us} us"),
        None => "/dev/cpu_dma_latency cannot be read".into(),
    };
    if *latency_us <= TOLERABLE_EXIT_US {
        return check.ok(format!(
            "cpuidle driver: {driver}; the deepest state that any CPU may use is {name}, \
             {latency_us} us to leave ({limit})"
        ));
    }
    let slow = deep.iter().filter(|(_, us, _)| *us > TOLERABLE_EXIT_US);
    let slow: CpuSet = slow.map(|(cpu, ..)| *cpu).collect();
    check.warn(
        format!(
            "cpuidle driver: {driver}; CPUs {slow} may use states up to {name}, {latency_us} us to \
             leave ({limit})"
        ),
        "for the CPUs of the RT path: echo n/a > \
         /sys/devices/system/cpu/cpuN/power/pm_qos_resume_latency_us, or hold \
         /dev/cpu_dma_latency open with 0, or cpupower idle-set -D 50",
    )
}

/// The deepest state that a CPU may use: microseconds to leave it, and its name.
fn deepest_state(machine: &Machine, cpu: usize, global_us: Option<u64>) -> Option<(u64, String)> {
    let wish = format!("{CPUS}/cpu{cpu}/power/pm_qos_resume_latency_us");
    let wish_us = match text(machine, &wish).as_deref() {
        Some("n/a") => Some(0),
        Some(text) => text.parse().ok().filter(|&us| us > 0),
        None => None,
    };
    let limit_us = wish_us.into_iter().chain(global_us).min();
    let states = format!("{CPUS}/cpu{cpu}/cpuidle");
    machine
        .tree
        .list(&states)
        .unwrap_or_default()
        .iter()
        .filter(|state| state.starts_with("state"))
        .filter_map(|state| {
            let read = |file: &str| text(machine, &format!("{states}/{state}/{file}"));
            let enabled = read("disable").is_none_or(|disable| disable == "0");
            let latency_us: u64 = read("latency")?.parse().ok()?;
            let allowed = limit_us.is_none_or(|limit_us| latency_us <= limit_us);
            // The first is always allowed: there is no CPU without one.
            let usable = enabled && (allowed || state == "state0");
            usable.then(|| (latency_us, read("name").unwrap_or_else(|| state.clone())))
        })
        .max()
}

/// What `/dev/cpu_dma_latency` holds: 32 bits, in the machine's order.
fn global_latency_us(machine: &Machine) -> Option<u64> {
    let bytes = machine.tree.read_bytes("/dev/cpu_dma_latency").ok()?;
    let number = i32::from_ne_bytes(bytes.get(..4)?.try_into().ok()?);
    u64::try_from(number).ok()
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

/// No file counts them: `MSR_SMI_COUNT` is Intel's alone and needs the module msr.
fn firmware() -> Check {
    check(
        "cpu.smi",
        "firmware interrupts",
        "Firmware may stop all CPUs for milliseconds (SMI), below every kernel and priority.",
    )
    .unknown(
        "nothing in /proc or /sys counts them",
        "measure with no load for some minutes: rtla hwnoise, or the tracer hwlat; then switch off \
         in the firmware what makes them (legacy USB, power capping, error polling)",
    )
}
