//! A thread's scheduling policy and priority.

use std::io;
use std::thread;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::kernel::{Policy, Scheduling};
use crate::error::HostError;
use crate::settings::{Entries, Machine, SettingKind, ThreadId};

/// A thread's scheduling policy, with its priority or budget.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ThreadPolicy {
    /// The thread.
    pub thread: ThreadId,
}

impl SettingKind for ThreadPolicy {
    type Value = Scheduling;

    fn subject(&self) -> String {
        format!("policy of {}", self.thread)
    }

    fn thread(&self) -> Option<u32> {
        Some(self.thread.tid)
    }

    fn text(&self, value: &Scheduling) -> String {
        value.to_string()
    }

    fn is_same_setting(&self, other: &Self) -> bool {
        self.thread.is(&other.thread)
    }

    fn must_exist(&self, machine: &Machine) -> Result<(), HostError> {
        machine.must_run(&self.thread)
    }

    fn read(&self, machine: &Machine) -> Result<Scheduling, HostError> {
        machine.must_run(&self.thread)?;
        machine
            .threads
            .scheduling(self.thread.tid)
            .map_err(|cause| HostError::io("read", self.subject(), cause))
    }

    fn write(&self, machine: &Machine, _from: &Scheduling, to: &Scheduling) -> io::Result<()> {
        set(machine, self.thread.tid, to)
    }

    /// From 6.12 on the kernel reports a slice for normal threads and takes one given back as the
    /// thread's own: so none is given first, and the recorded one only if the kernel's default
    /// differs from it.
    fn restore(
        &self,
        machine: &Machine,
        old: &Scheduling,
        _new: &Scheduling,
    ) -> io::Result<Option<String>> {
        let tid = self.thread.tid;
        if old.policy == Policy::Deadline {
            return set(machine, tid, old).map(|()| None);
        }
        let plain = Scheduling {
            runtime_ns: 0,
            ..*old
        };
        machine.threads.set_scheduling(tid, &plain)?;
        let own_slice =
            old.runtime_ns != 0 && machine.threads.scheduling(tid)?.runtime_ns != old.runtime_ns;
        if own_slice {
            machine.threads.set_scheduling(tid, old)?;
        }
        Ok(None)
    }

    fn same(&self, one: &Scheduling, other: &Scheduling) -> bool {
        one.same_as(other)
    }

    fn hint(&self, machine: &Machine, to: &Scheduling, errno: i32) -> Option<&'static str> {
        // Only the admission of SCHED_DEADLINE answers this (kernel/sched/syscalls.c, sched_dl_overflow).
        if errno == libc::EBUSY {
            return Some(
                "; the CPUs have no room for this budget: the kernel admits 95 % of them, less what other \
                 deadline threads and each CPU's fair server have; plan smaller budgets",
            );
        }
        if errno != libc::EPERM {
            return None;
        }
        if to.policy == Policy::Deadline {
            return is_pinned(machine, self.thread.tid)?.then_some(
                "; SCHED_DEADLINE takes only threads that may run on all CPUs of their root domain, and this one may \
                 not: look for pins (libvirt: remove <vcpupin> and the cpuset of <vcpu>; Nova: cpu_shared_set) and for \
                 cpusets (AllowedCPUs= of its unit or a slice above), or plan with scheduler = \"pedf\"",
            );
        }
        // It governs FIFO and round robin, and not SCHED_DEADLINE.
        machine.has_rt_group_scheduling().then_some(
            "; this kernel has RT_GROUP_SCHED: give the thread's cpu control group a budget \
             (cpu.rt_runtime_us), move the thread to the root group, or run as root",
        )
    }

    fn snapshot(machine: &Machine, entries: &mut Entries) -> Result<(), HostError> {
        for thread in machine.all_threads()? {
            if let Ok(scheduling) = machine.threads.scheduling(thread.id.tid) {
                let entry = comparable(&scheduling);
                entries.insert(thread.id.entry(), entry);
            }
        }
        Ok(())
    }

    #[cfg(any(test, feature = "fake"))]
    fn example(host: &crate::settings::fake::FakeHost) -> crate::settings::ChangeOf<Self> {
        host.thread(800, 800, "example", 0);
        let machine = host.machine();
        crate::settings::ChangeOf {
            setting: Self {
                thread: ThreadId {
                    pid: 800,
                    tid: 800,
                    start_time: 2400,
                    comm: "example".into(),
                },
            },
            old: machine
                .threads
                .scheduling(800)
                .unwrap_or(Scheduling::normal()),
            new: Scheduling::fifo(11, 0),
        }
    }
}

/// How often `SCHED_DEADLINE` is asked for, and how long after one refusal again: a tenth of a second in all.
const MOST_TRIES: u32 = 100;
const PAUSE: Duration = Duration::from_millis(1);

/// Sets a policy. A thread that was preempted where it keeps its CPU (`migrate_disable()`: under PREEMPT_RT wherever it
/// holds a spin lock or has softirqs off) is refused `SCHED_DEADLINE` with EPERM, as if it were pinned
/// (kernel/sched/syscalls.c looks at `cpus_ptr`). It soon leaves there, so it is tried again; a thread that is
/// pinned is not.
fn set(machine: &Machine, tid: u32, to: &Scheduling) -> io::Result<()> {
    let try_once = || machine.threads.set_scheduling(tid, to);
    let may_pass = |error: &io::Error| {
        to.policy == Policy::Deadline
            && error.raw_os_error() == Some(libc::EPERM)
            && is_pinned(machine, tid) == Some(false)
    };
    for _ in 1..MOST_TRIES {
        match try_once() {
            Err(error) if may_pass(&error) => thread::sleep(PAUSE),
            done => return done,
        }
    }
    try_once()
}

/// Whether a thread may not run on all CPUs; none: it has ended.
fn is_pinned(machine: &Machine, tid: u32) -> Option<bool> {
    let may_run_on = machine.threads.affinity(tid).ok()?;
    Some(!machine.online().ok()?.is_subset(&may_run_on))
}

/// All that [`Scheduling::same_as`] compares.
fn comparable(scheduling: &Scheduling) -> String {
    let Scheduling {
        flags, deadline_ns, ..
    } = scheduling;
    match scheduling.policy {
        Policy::Deadline => format!("{scheduling}, deadline {deadline_ns} ns, flags {flags}"),
        _ if *flags == 0 => scheduling.to_string(),
        _ => format!("{scheduling}, flags {flags}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cpu_set::CpuSet;
    use crate::settings::fake::FakeHost;
    use crate::settings::threads::RESET_ON_FORK;

    /// Where the kernel has `RT_GROUP_SCHED`, too, a pinned VCPU was said to lack a budget of its control group.
    #[test]
    fn the_hint_names_what_the_policy_that_was_refused_depends_on() {
        let host = FakeHost::default();
        let setting = ThreadPolicy::example(&host).setting;
        let tid = setting.thread.tid;
        host.set_online(&"0-3".parse().unwrap());
        host.file("/sys/fs/cgroup/cpu/cpu.rt_runtime_us", "0\n");
        let deadline = Scheduling::deadline(4_000_000, 10_000_000, 10_000_000, RESET_ON_FORK);
        let hint = |to: &Scheduling| setting.hint(&host.machine(), to, libc::EPERM);
        let on = |cpus: &str| {
            let cpus: CpuSet = cpus.parse().unwrap();
            host.machine().threads.set_affinity(tid, &cpus).unwrap();
        };
        on("0-1");
        let pinned = hint(&deadline).unwrap();
        for place in ["<vcpupin>", "cpuset", "AllowedCPUs=", "cpu_shared_set"] {
            assert!(pinned.contains(place), "{pinned}");
        }
        on("0-3");
        assert_eq!(hint(&deadline), None);
        let fifo = hint(&Scheduling::fifo(70, 0)).unwrap();
        assert!(fifo.contains("RT_GROUP_SCHED"), "{fifo}");
    }
}
