//! Who else ranks threads, and who is starved by ranks.

use super::check::{Check, check, text};
use super::kernel::Config;
use crate::method::Priorities;
use crate::printable::printable;
use crate::settings::threads::Policy;
use crate::settings::{Machine, Thread};

pub(super) fn checks(machine: &Machine) -> Vec<Check> {
    let threads = machine.all_threads().unwrap_or_default();
    vec![
        groups(machine),
        deferred_work(machine, &threads),
        daemons(&threads),
    ]
}

/// `sched_setscheduler()` refuses a real-time policy in a cgroup without `rt_runtime`, to root too
/// (`__sched_setscheduler()`, `tg_can_rt_schedulable`).
fn groups(machine: &Machine) -> Check {
    let check = check(
        "scheduling.rt-groups",
        "RT budgets of cgroups",
        "With RT_GROUP_SCHED a thread gets no real-time priority in a cgroup without a budget of \
         its own, and new ones have none: the kernel then says EPERM, to root too.",
    );
    let Some(config) = Config::read(machine) else {
        return check.unknown(
            "the kernel's configuration cannot be read",
            "look for CONFIG_RT_GROUP_SCHED in it",
        );
    };
    let option = "CONFIG_RT_GROUP_SCHED";
    if !config.has(option) {
        return check.ok(format!("{} does not set {option}", config.path));
    }
    let line = text(machine, "/proc/cmdline").unwrap_or_default();
    let by_default = !config.has("CONFIG_RT_GROUP_SCHED_DEFAULT_DISABLED");
    let said = line
        .split_ascii_whitespace()
        .rev()
        .find_map(|word| word.strip_prefix("rt_group_sched="));
    if !said.map_or(by_default, |value| value != "0") {
        return check.ok(format!(
            "{} sets {option}, switched off at boot",
            config.path
        ));
    }
    let fix = "keep VMs in the root cgroup of the controller cpu, or write a budget into \
               cpu.rt_runtime_us of theirs and of those above, or boot with rt_group_sched=0 (6.16 \
               and later)";
    let roots = ["/sys/fs/cgroup/cpu", "/sys/fs/cgroup/cpu,cpuacct"];
    let root = roots.into_iter().find(|root| {
        let file = format!("{root}/cpu.rt_runtime_us");
        machine.tree.exists(&file)
    });
    let Some(root) = root else {
        return check.warn(
            format!(
                "{} has {option}=y; cgroup version 2 gives no RT budgets",
                config.path
            ),
            fix,
        );
    };
    let names = machine.tree.list(root).unwrap_or_default();
    let without: Vec<String> = names
        .iter()
        .map(|name| format!("{root}/{name}/cpu.rt_runtime_us"))
        .filter(|file| text(machine, file).is_some_and(|value| value == "0"))
        .collect();
    let what = if without.is_empty() {
        "a new cgroup has no budget".to_owned()
    } else {
        format!("0 in {}", without.join(", "))
    };
    check.warn(format!("{} has {option}=y; {what}", config.path), fix)
}

/// What the kernel does later and in threads, on PREEMPT_RT at FIFO 1 by default.
const DEFERRED: [&str; 6] = [
    "ktimers/",
    "rcuc/",
    "rcub/",
    "rcu_preempt",
    "rcuog/",
    "rcu_exp_gp_kthre",
];

fn deferred_work(machine: &Machine, threads: &[Thread]) -> Check {
    let check = check(
        "scheduling.deferred-work",
        "RCU and timer threads",
        "An RT thread that computes without a pause keeps all below it from its CPU. The fair \
         server helps normal threads only: RCU then stalls, and with it the whole host.",
    );
    if !machine.preempt_rt().0 {
        return check.ok("not PREEMPT_RT: timers and RCU callbacks run in softirqs");
    }
    let vcpu = Priorities::default().vcpu;
    let mut below: Vec<String> = Vec::new();
    let mut seen = 0;
    for thread in threads.iter().filter(|thread| thread.is_kernel()) {
        let comm = &thread.id.comm;
        if !DEFERRED.iter().any(|start| comm.starts_with(start)) {
            continue;
        }
        let Ok(now) = machine.threads.scheduling(thread.id.tid) else {
            continue;
        };
        seen += 1;
        let is_real_time = matches!(now.policy, Policy::Fifo | Policy::RoundRobin);
        if !is_real_time || now.priority <= vcpu {
            below.push(format!("{comm} {now}"));
        }
    }
    if below.is_empty() {
        return check.ok(format!("{seen} threads stand above FIFO {vcpu}"));
    }
    let more = below.len().saturating_sub(6);
    below.truncate(6);
    let more = match more {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    check.warn(
        format!(
            "not above the VCPUs of steadyvm's methods (FIFO {vcpu}): {}{more}",
            below.join(", ")
        ),
        "let no RT VCPU compute without a pause; or rank these threads above the VCPUs (chrt -f -p \
         71 TID)",
    )
}

/// Daemons that change what a method sets, and how.
const DAEMONS: [(&str, &str); 8] = [
    (
        "tuned",
        "sets priorities and CPUs of threads by its profile's [scheduler], as they start",
    ),
    (
        "stalld",
        "lends starved threads SCHED_DEADLINE, so that RT threads wait for them",
    ),
    ("scx_loader", "loads sched_ext schedulers"),
    ("ananicy", "sets priorities by rules of names"),
    ("ananicy-cpp", "sets priorities by rules of names"),
    ("rtkit-daemon", "gives users' threads real-time priority"),
    ("rtirqd", "sets priorities of interrupt threads"),
    ("gamemoded", "sets priorities and governors"),
];

fn daemons(threads: &[Thread]) -> Check {
    let check = check(
        "scheduling.daemons",
        "daemons that rank threads",
        "They undo what a method sets, or put other threads above it, and neither side tells.",
    );
    let running: Vec<String> = threads
        .iter()
        .filter(|thread| !thread.is_kernel() && thread.id.tid == thread.id.pid)
        .filter_map(|thread| {
            let (name, does) = DAEMONS.iter().find(|(name, _)| *name == thread.id.comm)?;
            Some(format!(
                "{} (process {}) {does}",
                printable(name),
                thread.id.pid
            ))
        })
        .collect();
    if running.is_empty() {
        return check.ok("no process in /proc has the name of one");
    }
    check.warn(
        running.join("; "),
        "stop it while a method is in force, or leave the threads of NICs and VMs out of its rules \
         (tuned: ps_blacklist of [scheduler])",
    )
}
