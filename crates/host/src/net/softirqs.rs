//! Steps for the kernel's deferred work: how much the receive softirq does at once, and where
//! ksoftirqd and RCU's threads stand.

use super::profile::{Softirqs, ThreadPriority};
use crate::change::{Change, Form, Step};
use crate::error::HostError;
use crate::levels;
use crate::machine::{Machine, Thread};

/// Threads of RCU, by the beginning of their names (kernel/rcu/tree*.c): grace periods, boosting,
/// callbacks on their CPU and off it.
const RCU_THREADS: [&str; 6] = [
    "rcu_preempt",
    "rcu_sched",
    "rcub/",
    "rcuc/",
    "rcuog/",
    "rcuop/",
];

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
        let change = Change::File {
            path: path.into(),
            form: Form::Text,
            old: machine.must_read(path)?.trim().to_owned(),
            new: value.to_string(),
        };
        steps.push(Step {
            change,
            why: "so that a round of the receive softirq ends earlier".into(),
            required: true,
        });
    }
    if let Some(priority) = softirqs.levels_from {
        let (asker, instead) = ("[net] levels_from", "leave levels_from out");
        steps.extend(levels::steps(machine, priority, asker, instead)?);
    }
    let groups: [(&[&str], Option<ThreadPriority>); 2] = [
        (&["ksoftirqd/"], softirqs.ksoftirqd),
        (&RCU_THREADS, softirqs.rcu),
    ];
    for (names, priority) in groups {
        let Some(priority) = priority else { continue };
        let members = threads.iter().filter(|thread| {
            thread.is_kernel() && names.iter().any(|name| thread.id.comm.starts_with(name))
        });
        for thread in members {
            let why = "so that deferred work of all stands below the receive path";
            steps.push(policy(machine, &thread.id, priority, 0, why)?);
        }
    }
    Ok(())
}

/// A step that gives a thread its priority.
pub(super) fn policy(
    machine: &Machine,
    thread: &crate::machine::ThreadId,
    priority: ThreadPriority,
    flags: u64,
    why: &str,
) -> Result<Step, HostError> {
    let old = machine
        .threads
        .scheduling(thread.tid)
        .map_err(|source| HostError::io("read the policy of", thread.to_string(), source))?;
    let mut new = priority.scheduling(flags);
    new.flags |= old.flags & crate::threads::RESET_ON_FORK;
    Ok(Step {
        change: Change::ThreadPolicy {
            thread: thread.clone(),
            old,
            new,
        },
        why: why.to_owned(),
        required: true,
    })
}
