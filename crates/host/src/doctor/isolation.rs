//! Which CPUs are isolated, and from what.

use super::check::{Check, check, text};
use crate::cpu_set::CpuSet;
use crate::settings::Machine;

/// Three parameters keep three things away from a CPU. What the kernel made of two of them is in
/// sysfs; `rcu_nocbs=` is on its command line only, and implied by `nohz_full=`
/// (`tree_nocb.h`, `rcu_init_nohz()`).
pub(super) fn check_of(machine: &Machine) -> Check {
    let check = check(
        "kernel.isolation",
        "isolated CPUs",
        "Method dedicated moves threads and interrupts at run time. Load balancing, the timer tick \
         and RCU callbacks leave a CPU only by the kernel command line.",
    );
    let Some(line) = text(machine, "/proc/cmdline") else {
        return check.unknown("/proc/cmdline cannot be read", "");
    };
    let cpus = "/sys/devices/system/cpu";
    let in_sysfs = |file: &str| set(&text(machine, &format!("{cpus}/{file}")).unwrap_or_default());
    let isolated = in_sysfs("isolated");
    let tickless = in_sysfs("nohz_full");
    let mut offloaded = tickless.clone();
    let present = in_sysfs("present");
    let values = line.split_ascii_whitespace();
    for value in values.filter_map(|word| word.strip_prefix("rcu_nocbs")) {
        match value.strip_prefix('=') {
            // Alone or with `all` it is for every CPU.
            None | Some("all") => offloaded = present.clone(),
            Some(list) => {
                let listed = list_of(list, &present);
                offloaded = offloaded.iter().chain(listed.iter()).collect();
            }
        }
    }
    let all: CpuSet = isolated
        .iter()
        .chain(tickless.iter())
        .chain(offloaded.iter())
        .collect();
    if all.is_empty() {
        return check.warn(
            format!("no CPU is in {cpus}/isolated or {cpus}/nohz_full, none has rcu_nocbs="),
            "for method dedicated on CPU N, boot with isolcpus=domain,N nohz_full=N rcu_nocbs=N",
        );
    }
    let missing: Vec<String> = [
        ("isolcpus=", &isolated),
        ("nohz_full=", &tickless),
        ("rcu_nocbs=", &offloaded),
    ]
    .into_iter()
    .filter_map(|(parameter, has)| {
        let without: CpuSet = all.iter().filter(|&cpu| !has.contains(cpu)).collect();
        (!without.is_empty()).then(|| format!("{parameter} lacks CPUs {without}"))
    })
    .collect();
    if missing.is_empty() {
        return check.ok(format!(
            "CPUs {all} are in {cpus}/isolated and {cpus}/nohz_full, and have no RCU callbacks; \
             method dedicated should have one of them (--cpu)"
        ));
    }
    check.warn(
        format!("CPUs {all} are isolated in part: {}", missing.join("; ")),
        "name the same CPUs in isolcpus=domain, nohz_full= and rcu_nocbs=, and dedicate one of \
         them (--cpu)",
    )
}

/// A list of CPUs as sysfs writes it; an empty one is an empty line, or `(null)`.
fn set(text: &str) -> CpuSet {
    text.trim().parse().unwrap_or_default()
}

/// A list of the command line, where `N` stands for the last CPU (`cpulist`'s `4-N`).
fn list_of(text: &str, present: &CpuSet) -> CpuSet {
    let last = present.last().map(|cpu| cpu.to_string());
    set(&text.replace('N', &last.unwrap_or_default()))
}
