//! The peer: what tuned's profile `realtime-virtual-host` sets while a host runs, and where libvirt's
//! documented XML of a real-time VM puts its threads.
//!
//! Each constant names the file of Debian's package tuned 2.20.0-1 below /usr/lib/tuned that it is from; `realtime-virtual-host`
//! includes `realtime`, that `network-latency`, and that `latency-performance`. What the profile puts
//! on the kernel's command line ([`command_line`]) takes a boot: a host that was not booted so is refused. What of the profile is
//! left out, and why: docs/guide/methods.md.

use serde::{Deserialize, Serialize};

use super::profile::ThreadPriority;
use super::softirqs::policy;
use crate::cpu_set::CpuSet;
use crate::dedicated;
use crate::engine::Step;
use crate::error::HostError;
use crate::machine::{Machine, Thread, ThreadId};
use crate::settings::{ChangeOf, File, Form, SettingKind};

/// `<vcpusched scheduler="fifo" priority="1"/>`: libvirt.org/kbase/kvm-realtime.html.
pub const VCPU_PRIORITY: u32 = 1;

/// The CPUs that the kernel keeps out of load balancing: what was made of `isolcpus=`.
const ISOLATED: &str = "/sys/devices/system/cpu/isolated";

/// The CPU masks of workqueues: realtime/tuned.conf, `[sysfs]`. The one of all of them is among
/// what [`dedicated`] sets.
pub(crate) const WORKQUEUES: &str = "/sys/devices/virtual/workqueue";

/// Files and values.
pub(crate) const FILES: [(&str, Form, &str); 13] = [
    // latency-performance/tuned.conf, [sysctl]
    ("/proc/sys/vm/dirty_ratio", Form::Text, "10"),
    ("/proc/sys/vm/dirty_background_ratio", Form::Text, "3"),
    ("/proc/sys/vm/swappiness", Form::Text, "10"),
    // network-latency/tuned.conf, [sysctl] and [vm]
    ("/proc/sys/net/core/busy_read", Form::Text, "50"),
    ("/proc/sys/net/core/busy_poll", Form::Text, "50"),
    ("/proc/sys/net/ipv4/tcp_fastopen", Form::Text, "3"),
    ("/proc/sys/kernel/numa_balancing", Form::Text, "0"),
    (
        "/sys/kernel/mm/transparent_hugepage/enabled",
        Form::Choice,
        "never",
    ),
    // realtime/tuned.conf, [sysctl]; sched_rt_runtime_us is switched off as for everybody who asks for it.
    ("/proc/sys/kernel/hung_task_timeout_secs", Form::Text, "600"),
    ("/proc/sys/kernel/nmi_watchdog", Form::Text, "0"),
    ("/proc/sys/vm/stat_interval", Form::Text, "10"),
    ("/proc/sys/kernel/timer_migration", Form::Text, "0"),
    // realtime-virtual-host/tuned.conf, [sysfs]
    ("/sys/kernel/mm/ksm/run", Form::Text, "2"),
];

/// The kernel's threads by the beginning of their names, and their FIFO priorities:
/// realtime-virtual-host/tuned.conf, `[scheduler]`.
const THREADS: [(&str, u32); 4] = [("ksoftirqd", 2), ("ktimers", 2), ("rcuc", 4), ("rcub", 4)];

/// What the peer is applied to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TunedProfile {
    /// `isolated_cores` of /etc/tuned/realtime-virtual-host-variables.conf.
    pub isolated: CpuSet,
}

/// The words that the profile puts on the kernel's command line, for a host with these CPUs:
/// realtime/tuned.conf, network-latency/tuned.conf and realtime-virtual-host/tuned.conf,
/// `[bootloader]`, with `isolate_managed_irq=Y`, which is the package's default.
pub fn command_line(isolated: &CpuSet, others: &CpuSet) -> String {
    format!(
        "skew_tick=1 isolcpus=managed_irq,domain,{isolated} intel_pstate=disable nosoftlockup \
         tsc=reliable nohz=on nohz_full={isolated} rcu_nocbs={isolated} irqaffinity={others}"
    )
}

impl TunedProfile {
    /// For the CPUs that the kernel was booted without.
    ///
    /// # Errors
    /// There are none: the profile takes a boot.
    pub(crate) fn of(machine: &Machine) -> Result<Self, HostError> {
        let text = machine.tree.read(ISOLATED).unwrap_or_default();
        let isolated: CpuSet = text.trim().parse().unwrap_or_default();
        let online = machine.online()?;
        if !isolated.is_empty() && isolated != online {
            return Ok(Self { isolated });
        }
        let last = CpuSet::single(online.last().unwrap_or_default());
        let others = online.without(online.last().unwrap_or_default());
        Err(HostError::Unsupported {
            missing: format!("method tuned needs isolated CPUs, and {ISOLATED} has none"),
            fix: format!(
                "boot with {}, or use method dedicated, which needs no boot",
                command_line(&last, &others)
            ),
        })
    }
}

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
