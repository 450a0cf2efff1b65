//! Steps for the kernel's deferred work: how much the receive softirq does at once, and where
//! ksoftirqd, RCU's threads and the interrupts of disks and consoles stand.

use super::levels;
use super::step::Step;
use super::threads::policy;
use crate::discover::interrupts_of_cards_and_vms;
use crate::error::HostError;
use crate::method::Priorities;
use crate::parse;
use crate::profile::{Softirqs, ThreadPriority};
use crate::settings::threads::Policy;
use crate::settings::{Change, ChangeOf, File, Form, Machine, Thread};

/// Threads that take packets from the CPUs' backlogs: of softirqs, and those of PREEMPT_RT since Linux 6.10 (net/core/dev.c).
const BACKLOG_THREADS: [&str; 2] = ["ksoftirqd/", "backlog_napi/"];

/// Threads of RCU, by the beginning of their names (kernel/rcu/tree*.c): grace periods, boosting,
/// callbacks on their CPU and off it.
const RCU_THREADS: [&str; 7] = [
    "rcu_preempt",
    "rcu_sched",
    "rcu_exp_",
    "rcub/",
    "rcuc/",
    "rcuog/",
    "rcuop/",
];

/// Threads of PREEMPT_RT's timer softirqs (kernel/softirq.c).
const TIMER_THREADS: [&str; 1] = ["ktimers/"];

pub(super) fn steps(
    machine: &Machine,
    threads: &[Thread],
    softirqs: &Softirqs,
    steps: &mut Vec<Step>,
) -> Result<(), HostError> {
    let budgets = [
        ("/proc/sys/net/core/netdev_budget", softirqs.budget_packets),
        ("/proc/sys/net/core/netdev_budget_usecs", softirqs.budget_us),
    ];
    for (path, value) in budgets {
        let Some(value) = value else { continue };
        let change = ChangeOf {
            setting: File::new(machine, path, Form::Text),
            old: machine.must_read(path)?.trim().to_owned(),
            new: value.to_string(),
        };
        let why = "so that a round of the receive softirq ends earlier";
        steps.push(Step::required(change, why));
    }
    if let Some(priority) = softirqs.levels_from {
        let (asker, instead) = ("[net] levels_from", "leave levels_from out");
        steps.extend(levels::steps(machine, priority, asker, instead)?);
    }
    let last = "so that deferred work of all stands below the receive path";
    let alive = "so that no VCPU or packet stops it, and with it the host";
    let why = |priority| if is_above(priority) { alive } else { last };
    let groups: [(&[&str], Option<ThreadPriority>, &str); 3] = [
        (&BACKLOG_THREADS, softirqs.ksoftirqd, last),
        (&RCU_THREADS, softirqs.rcu, why(softirqs.rcu)),
        (&TIMER_THREADS, softirqs.timers, why(softirqs.timers)),
    ];
    for (names, priority, why) in groups {
        let Some(priority) = priority else { continue };
        let members = threads.iter().filter(|thread| {
            thread.is_kernel() && names.iter().any(|name| thread.id.comm.starts_with(name))
        });
        for thread in members {
            steps.extend(policy(machine, &thread.id, priority, 0, why)?);
        }
    }
    if let Some(ThreadPriority::Fifo(priority)) = softirqs.device_irq {
        steps.extend(device_interrupts(machine, threads, priority)?);
    }
    Ok(())
}

/// Raises the interrupt threads of disks, consoles and the like. The kernel has them at 50, where a VCPU that computes
/// keeps them from its CPU, and the fair server helps normal threads only. Cards' threads have the ranks of their
/// classes, and a thread that stands higher keeps its rank: somebody gave it.
fn device_interrupts(
    machine: &Machine,
    threads: &[Thread],
    priority: u32,
) -> Result<Vec<Step>, HostError> {
    let others = interrupts_of_cards_and_vms(machine, threads)?;
    let is_device = |thread: &&Thread| {
        let irq = parse::irq_of_thread(&thread.id.comm);
        thread.is_kernel() && irq.is_some_and(|irq| !others.contains(&irq))
    };
    let why = "so that no VCPU or packet stops disks and consoles, and with them the host";
    let mut steps = Vec::new();
    for thread in threads.iter().filter(is_device) {
        let step = policy(machine, &thread.id, ThreadPriority::Fifo(priority), 0, why)?;
        let is_raised = |step: &Step| match &step.change {
            Change::ThreadPolicy(change) => match change.old.policy {
                Policy::Fifo | Policy::RoundRobin => change.old.priority <= priority,
                Policy::Deadline => false,
                _ => true,
            },
            _ => true,
        };
        steps.extend(step.filter(is_raised));
    }
    Ok(steps)
}

/// Whether it is above the IRQ threads of all devices: no deferred work is put there by chance.
fn is_above(priority: Option<ThreadPriority>) -> bool {
    priority > Some(ThreadPriority::Fifo(Priorities::OTHER_IRQ_THREADS))
}
