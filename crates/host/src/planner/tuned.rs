//! The peer: what tuned's profile `realtime-virtual-host` sets while a host runs, and where libvirt's
//! documented XML of a real-time VM puts its threads.
//!
//! Each constant names the file of Debian's package tuned 2.20.0-1 below /usr/lib/tuned that it is from; `realtime-virtual-host`
//! includes `realtime`, that `network-latency`, and that `latency-performance`. What the profile puts on the kernel's
//! command line ([`command_line`](crate::profile::tuned::command_line)) takes a boot: a host that was not booted so is
//! refused. What of the profile is left out, and why: docs/guide/methods.md.

use super::dedicated;
use super::step::Step;
use super::threads::policy;
use crate::error::HostError;
use crate::profile::{ThreadPriority, TunedProfile};
use crate::settings::files::known::{FILES, WORKQUEUES};
use crate::settings::{ChangeOf, File, Form, Machine, SettingKind, Thread, ThreadId};

/// The kernel's threads by the beginning of their names, and their FIFO priorities:
/// realtime-virtual-host/tuned.conf, `[scheduler]`.
const THREADS: [(&str, u32); 4] = [("ksoftirqd", 2), ("ktimers", 2), ("rcuc", 4), ("rcub", 4)];

/// The steps. `ends` are the threads that serve: RT VCPUs, each on an isolated CPU of its own, or
/// the threads of RT processes.
///
/// # Errors
/// More of them than isolated CPUs, which nobody balances: two would share one for good.
pub(super) fn steps(
    machine: &Machine,
    threads: &[Thread],
    profile: &TunedProfile,
    ends: Vec<ThreadId>,
    own: &[Step],
) -> Result<Vec<Step>, HostError> {
    let isolated = &profile.isolated;
    if ends.len() > isolated.len() {
        return Err(HostError::BadInput {
            what: format!(
                "method tuned has the isolated CPUs {isolated} for {} VCPUs or threads",
                ends.len()
            ),
            fix: "isolate a CPU for each (isolcpus=, nohz_full=, rcu_nocbs=), or name fewer with --vm \
                  PID:VCPU"
                .into(),
        });
    }
    let mut steps: Vec<Step> = FILES
        .into_iter()
        .filter_map(|(path, form, value)| file(machine, path, form, value))
        .collect();
    for (name, priority) in THREADS {
        let members = threads
            .iter()
            .filter(|thread| thread.is_kernel() && thread.id.comm.starts_with(name));
        for thread in members {
            let why = format!("as {name} in tuned's realtime-virtual-host");
            let priority = ThreadPriority::Fifo(priority);
            steps.extend(policy(machine, &thread.id, priority, 0, &why)?);
        }
    }
    let path = dedicated::Path {
        threads: ends,
        ..dedicated::Path::default()
    };
    // Of single workqueues: their masks are given back from what they were, as the common one's.
    let queues = machine.tree.list(WORKQUEUES).unwrap_or_default();
    let masks = queues
        .iter()
        .map(|name| format!("{WORKQUEUES}/{name}/cpumask"));
    steps.extend(dedicated::masks(machine, isolated, masks, own)?);
    steps.extend(dedicated::steps(machine, threads, isolated, &path, own)?);
    Ok(steps)
}

/// None where the kernel has no such file, as tuned passes over it.
fn file(machine: &Machine, path: &str, form: Form, value: &str) -> Option<Step> {
    let setting = File::new(machine, path, form);
    let old = setting.read(machine).ok()?;
    let new = value.to_owned();
    let change = ChangeOf { setting, old, new };
    Some(Step::optional(change, "as tuned's realtime-virtual-host"))
}
