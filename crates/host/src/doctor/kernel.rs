//! The kernel: how it was built and booted.

use std::io::Read;

use flate2::read::GzDecoder;

use super::{Check, check, text};
use crate::machine::Machine;
use crate::parse;

pub(super) fn checks(machine: &Machine) -> Vec<Check> {
    let config = Config::read(machine);
    let mut checks = vec![preempt_rt(machine), bh_lock(machine, config.as_ref())];
    checks.extend(command_line(machine));
    checks.push(btf(machine));
    checks.push(sched_ext(machine));
    checks
}

/// A kernel's build configuration, and where it was read.
struct Config {
    path: String,
    text: String,
}

/// No kernel configuration is larger unpacked.
const LARGEST_CONFIG: u64 = 4 << 20;

impl Config {
    fn read(machine: &Machine) -> Option<Self> {
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

    fn has(&self, option: &str) -> bool {
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

fn bh_lock(machine: &Machine, config: Option<&Config>) -> Check {
    let check = check(
        "kernel.bh-lock",
        "softirq lock",
        "Where disabling softirqs takes a lock of the CPU, the RT NIC's interrupt thread waits \
         for the whole softirq round of a non-RT NIC: a priority inversion.",
    );
    let option = "CONFIG_PREEMPT_RT_NEEDS_BH_LOCK";
    let release = machine.kernel_release().unwrap_or_default();
    if !machine.preempt_rt().0 {
        return check.warn(
            "not PREEMPT_RT: no thread runs before a softirq that has begun",
            "boot a PREEMPT_RT kernel",
        );
    }
    let Some(version) = parse::kernel_version(&release) else {
        return check.unknown(format!("kernel release `{release}` has no version"), "");
    };
    if version < (6, 18) {
        return check.warn(
            format!("kernel {release} always takes the lock (until 6.18)"),
            "use a kernel of 6.18 or later, or turn threaded NAPI on for the non-RT NICs, which \
             shortens the wait to one poll",
        );
    }
    match config {
        None => check.unknown(
            format!("neither /proc/config.gz nor /boot/config-{release} can be read"),
            &format!("look for {option} in the kernel's configuration"),
        ),
        Some(config) if config.has(option) => check.warn(
            format!("{} has {option}=y", config.path),
            &format!("build the kernel without {option}"),
        ),
        Some(config) => check.ok(format!("{} does not set {option}", config.path)),
    }
}

fn command_line(machine: &Machine) -> Vec<Check> {
    let path = "/proc/cmdline";
    let line = text(machine, path);
    let isolation = check(
        "kernel.isolation",
        "isolated CPUs",
        "Method dedicated moves threads and interrupts at run time. The timer tick and RCU \
         callbacks leave a CPU only by the kernel command line.",
    );
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
        return [isolation, idle, mitigations]
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
    let isolated = words(&["isolcpus", "nohz_full", "rcu_nocbs"]);
    let idling = words(&[
        "idle",
        "intel_idle.max_cstate",
        "processor.max_cstate",
        "cpuidle.off",
        "haltpoll.guest_halt_poll_ns",
    ]);
    let mitigating = words(&["mitigations"]);
    vec![
        if isolated.is_empty() {
            isolation.warn(
                format!("{path} has none of isolcpus=, nohz_full=, rcu_nocbs="),
                "for method dedicated on CPU N, boot with nohz_full=N rcu_nocbs=N",
            )
        } else {
            isolation.ok(format!("{path}: {}", isolated.join(" ")))
        },
        if idling.is_empty() {
            idle.ok(format!("{path} has none: see C-states"))
        } else {
            idle.ok(format!("{path}: {}", idling.join(" ")))
        },
        if mitigating.contains(&"mitigations=off") {
            mitigations.warn(
                format!("{path}: {}", mitigating.join(" ")),
                "on a host of tenants who do not trust each other, remove it",
            )
        } else if mitigating.is_empty() {
            mitigations.ok(format!("{path} does not say: the kernel's default"))
        } else {
            mitigations.ok(format!("{path}: {}", mitigating.join(" ")))
        },
    ]
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
            format!("{path}/state is enabled: a scheduler is loaded already"),
            "stop it before you compare methods",
        ),
        Some(state) => check.ok(format!("{path}/state is {state}")),
        None => check.ok(format!("{path} is there")),
    }
}
