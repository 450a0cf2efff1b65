//! The kernel: how it was built and booted.

use std::io::Read;

use flate2::read::GzDecoder;

use super::check::{Check, check, text};
use super::network;
use crate::discover::{Processes, all_vms};
use crate::parse;
use crate::settings::Machine;
use crate::settings::lockdown::{self, Lockdown};

pub(super) fn checks(machine: &Machine) -> Vec<Check> {
    let config = Config::read(machine);
    let mut checks = vec![preempt_rt(machine), bh_lock(machine, config.as_ref())];
    checks.extend(command_line(machine));
    checks.push(btf(machine));
    checks.push(sched_ext(machine));
    checks.push(core_scheduling(machine));
    checks.push(lockdown(machine));
    checks
}

/// A kernel's build configuration, and where it was read.
pub(super) struct Config {
    pub(super) path: String,
    text: String,
}

/// No kernel configuration is larger unpacked.
const LARGEST_CONFIG: u64 = 4 << 20;

impl Config {
    pub(super) fn read(machine: &Machine) -> Option<Self> {
        let path = "/proc/config.gz".to_owned();
        if let Ok(packed) = machine.tree.read_bytes(&path) {
            let mut text = String::new();
            let unpacked = GzDecoder::new(&packed[..])
                .take(LARGEST_CONFIG)
                .read_to_string(&mut text);
            if unpacked.is_ok() {
                return Some(Self { path, text });
            }
        }
        let release = machine.kernel_release()?;
        [
            format!("/boot/config-{release}"),
            format!("/lib/modules/{release}/config"),
        ]
        .into_iter()
        .find_map(|path| {
            let text = machine.tree.read(&path).ok()?;
            Some(Self { path, text })
        })
    }

    pub(super) fn has(&self, option: &str) -> bool {
        self.text
            .lines()
            .any(|line| line.trim() == format!("{option}=y"))
    }
}

fn preempt_rt(machine: &Machine) -> Check {
    let check = check(
        "kernel.preempt-rt",
        "PREEMPT_RT",
        "Only there are interrupt handlers threads with priorities, so that the RT NIC's can run \
         before all others. Methods preempt-rt and dedicated need it.",
    );
    let (is_rt, found) = machine.preempt_rt();
    if is_rt {
        check.ok(found)
    } else {
        check.bad(
            found,
            "boot a PREEMPT_RT kernel (on Debian: apt install linux-image-rt-amd64)",
        )
    }
}

/// Whether interrupt threads wait for each other's softirqs, and what that means for the NICs.
///
/// Until 6.18 disabling softirqs takes a lock of the CPU, which boosts its holder. Without the lock
/// nobody boosts a preempted `net_rx_action()`, and a NAPI that is queued behind it waits with it
/// (`____napi_schedule()` raises nothing while `in_net_rx_action`). So the other NICs' NAPI belongs
/// into threads on every version.
fn bh_lock(machine: &Machine, config: Option<&Config>) -> Check {
    let check = check(
        "kernel.bh-lock",
        "softirq lock",
        "The RT NIC's interrupt thread waits for a softirq round of a non-RT NIC on its CPU: with \
         the lock for its end, without it until the preempted thread runs again, which nobody \
         hastens.",
    );
    if !machine.preempt_rt().0 {
        return check.warn(
            "not PREEMPT_RT: no thread runs before a softirq that has begun",
            "boot a PREEMPT_RT kernel",
        );
    }
    let release = machine.kernel_release().unwrap_or_default();
    let Some(version) = parse::kernel_version(&release) else {
        return check.unknown(format!("kernel release `{release}` has no version"), "");
    };
    let option = "CONFIG_PREEMPT_RT_NEEDS_BH_LOCK";
    let lock = if version < (6, 18) {
        format!("kernel {release} always takes the lock (until 6.18)")
    } else {
        match config {
            None => format!(
                "neither /proc/config.gz nor /boot/config-{release} can be read, where {option} \
                 would say whether there is a lock"
            ),
            Some(config) if config.has(option) => format!("{} has {option}=y", config.path),
            Some(config) => format!(
                "{} does not set {option}: no lock, and no boost either",
                config.path
            ),
        }
    };
    let shared = network::nics_on_the_poll_list(machine);
    if shared.len() < 2 {
        return check.ok(format!(
            "{lock}; at most one NIC is polled in softirqs, so none waits for another"
        ));
    }
    check.warn(
        format!("{lock}; polled in softirqs: {}", shared.join(", ")),
        "turn threaded NAPI on for the non-RT NICs (echo 1 > /sys/class/net/NIC/threaded), on any \
         version: methods rt-profile and rt-levels do it",
    )
}

fn command_line(machine: &Machine) -> Vec<Check> {
    let path = "/proc/cmdline";
    let line = text(machine, path);
    let idle = check(
        "kernel.idle",
        "idle parameters",
        "They decide how deep the processor sleeps between packets, and so how long it takes to \
         wake up.",
    );
    let mitigations = check(
        "kernel.mitigations",
        "CPU mitigations",
        "They make every VM exit slower, and comparisons between machines that differ in them \
         mean nothing.",
    );
    let Some(line) = line else {
        return [idle, mitigations]
            .map(|check| check.unknown(format!("{path} cannot be read"), ""))
            .into();
    };
    let words = |names: &[&str]| -> Vec<&str> {
        line.split_ascii_whitespace()
            .filter(|word| {
                names.iter().any(|name| {
                    word.strip_prefix(name)
                        .is_some_and(|rest| rest.is_empty() || rest.starts_with('='))
                })
            })
            .collect()
    };
    let idling = words(&[
        "idle",
        "intel_idle.max_cstate",
        "processor.max_cstate",
        "cpuidle.off",
        "haltpoll.guest_halt_poll_ns",
    ]);
    let mitigating = words(MITIGATIONS);
    vec![
        if idling.is_empty() {
            idle.ok(format!("{path} has none: see C-states"))
        } else {
            idle.ok(format!("{path}: {}", idling.join(" ")))
        },
        if mitigating.iter().any(|word| switches_off(word)) {
            mitigations.warn(
                format!("{path}: {}", mitigating.join(" ")),
                "on a host of tenants who do not trust each other, remove what switches them off",
            )
        } else if mitigating.is_empty() {
            mitigations.ok(format!("{path} does not say: the kernel's default"))
        } else {
            mitigations.ok(format!("{path}: {}", mitigating.join(" ")))
        },
    ]
}

/// Parameters that change a mitigation (Documentation/admin-guide/hw-vuln).
const MITIGATIONS: &[&str] = &[
    "mitigations",
    "nopti",
    "pti",
    "kpti",
    "nospectre_v1",
    "nospectre_v2",
    "spectre_v2",
    "spectre_v2_user",
    "spec_store_bypass_disable",
    "nospec_store_bypass_disable",
    "l1tf",
    "mds",
    "tsx_async_abort",
    "mmio_stale_data",
    "reg_file_data_sampling",
    "retbleed",
    "spec_rstack_overflow",
    "gather_data_sampling",
    "srbds",
    "spectre_bhi",
    "indirect_target_selection",
    "tsa",
    "vmscape",
    "kvm-intel.vmentry_l1d_flush",
    "kvm.nx_huge_pages",
];

fn switches_off(word: &str) -> bool {
    match word.split_once('=') {
        Some((_, value)) => value
            .split(',')
            .any(|value| matches!(value, "off" | "0" | "never" | "n" | "N")),
        None => word.starts_with("no"),
    }
}

fn btf(machine: &Machine) -> Check {
    let path = "/sys/kernel/btf/vmlinux";
    let check = check(
        "kernel.btf",
        "BTF",
        "BPF programs that are built once need it to fit this kernel: schedulers and tracing.",
    );
    if machine.tree.exists(path) {
        check.ok(format!("{path} is there"))
    } else {
        check.warn(
            format!("{path} does not exist"),
            "use a kernel with CONFIG_DEBUG_INFO_BTF=y",
        )
    }
}

fn sched_ext(machine: &Machine) -> Check {
    let path = "/sys/kernel/sched_ext";
    let check = check(
        "kernel.sched-ext",
        "sched_ext",
        "It lets a VCPU scheduler be loaded. The methods of this version do without.",
    );
    if !machine.tree.exists(path) {
        return check.warn(
            format!("{path} does not exist"),
            "use a kernel of 6.12 or later with CONFIG_SCHED_CLASS_EXT=y",
        );
    }
    match text(machine, &format!("{path}/state")) {
        Some(state) if state == "enabled" => check.warn(
            format!(
                "{path}/state is enabled: a scheduler is loaded already. Its watchdog ends it when \
                 a task waits too long, as behind RT threads that fill a CPU"
            ),
            "stop it before you compare methods, and keep RT threads off some CPUs",
        ),
        Some(state) => check.ok(format!("{path}/state is {state}")),
        None => check.ok(format!("{path} is there")),
    }
}

/// Cookies stop budgets by `sched_ext` only.
fn core_scheduling(machine: &Machine) -> Check {
    let check = check(
        "kernel.core-scheduling",
        "core scheduling",
        "The kernel idles a sibling of a core by force where threads' cookies differ, whatever a scheduler has chosen: \
         budgets by sched_ext (mechanism = \"ext\") are refused to such VCPUs.",
    );
    let threads = match machine.all_threads() {
        Ok(threads) => threads,
        Err(error) => return check.unknown(error.to_string(), ""),
    };
    let vms = all_vms(machine, &Processes::of(&threads));
    let mut named = Vec::new();
    for (name, vm) in &vms {
        for thread in threads.iter().filter(|thread| thread.id.pid == vm.pid) {
            match machine.threads.core_cookie(thread.id.tid) {
                Ok(0) => {}
                Ok(_) => {
                    named.push(format!("{name} (thread {})", thread.id.tid));
                    break;
                }
                // It has ended.
                Err(error) if error.raw_os_error() == Some(libc::ESRCH) => {}
                Err(error) => {
                    let what = format!("the cookie of VM {name}'s threads: {error}");
                    return check.unknown(what, "run it as root");
                }
            }
        }
    }
    if named.is_empty() {
        return check.ok(format!(
            "none of {} VMs has a cookie on siblings",
            vms.len()
        ));
    }
    check.warn(
        format!("VMs with a cookie on siblings: {}", named.join(", ")),
        steadyvm_sched::core_scheduling::FIX,
    )
}

fn lockdown(machine: &Machine) -> Check {
    let path = lockdown::FILE;
    let check = check(
        "kernel.lockdown",
        "lockdown",
        "Under Secure Boot the kernel keeps from root what could change it: the fair server's files, \
         modules and kernels without a known signature.",
    );
    let boot = match lockdown::secure_boot(machine) {
        Some(true) => "Secure Boot is on",
        Some(false) => "Secure Boot is off",
        None => "the firmware says nothing of Secure Boot",
    };
    match Lockdown::of(machine) {
        Lockdown::Off => check.ok(format!("{path} is none; {boot}")),
        Lockdown::On(word) => {
            let also = match word.as_str() {
                "confidentiality" => ", tracing is refused",
                _ => "",
            };
            check.warn(
                format!("{path} is {word}; {boot}: the fair server keeps its pieces of up to 50 ms{also}"),
                "switch Secure Boot off in the firmware (and lockdown= in /proc/cmdline); or keep it, \
                 leave the fair server (--keep-fair-server), and sign kernels and modules that you \
                 build with a key that the firmware knows (mokutil --import)",
            )
        }
        Lockdown::NoFile if machine.tree.exists("/sys/kernel/security/lsm") => check.ok(format!(
            "{path} does not exist: this kernel has no lockdown"
        )),
        Lockdown::NoFile => check.unknown(
            format!("{path} does not exist; {boot}"),
            "mount securityfs (mount -t securityfs securityfs /sys/kernel/security)",
        ),
    }
}
