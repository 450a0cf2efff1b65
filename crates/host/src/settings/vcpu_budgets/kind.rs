//! What the `sched_ext` scheduler of virtual CPUs enforces.

use std::io;

use serde::{Deserialize, Serialize};
use steadyvm_sched::config::{Priority, Queue};
use steadyvm_sched::enforcement::{Enforcement, Reserved};

use crate::error::HostError;
use crate::settings::{Entries, Machine, SettingKind};

/// The scheduler: there is one at most. Its value is none where the kernel's own scheduler has all threads.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct VcpuBudgets {}

impl VcpuBudgets {
    fn living(machine: &Machine, wanted: &Enforcement) -> Enforcement {
        let lives = |vcpu: &&Reserved| {
            let found = machine.threads.scheduling(vcpu.tid);
            !found.is_err_and(|error| error.raw_os_error() == Some(libc::ESRCH))
        };
        Enforcement {
            vcpus: wanted.vcpus.iter().filter(lives).cloned().collect(),
            ..wanted.clone()
        }
    }
}

/// The order in which VCPUs are named says nothing.
fn sorted(mut enforcement: Enforcement) -> Enforcement {
    enforcement.vcpus.sort();
    enforcement
}

impl SettingKind for VcpuBudgets {
    type Value = Option<Enforcement>;

    fn subject(&self) -> String {
        "VCPU budgets by sched_ext".to_owned()
    }

    fn text(&self, value: &Option<Enforcement>) -> String {
        let Some(enforcement) = value else {
            return "none: the kernel's own scheduler".to_owned();
        };
        let one = |vcpu: &Reserved| {
            let on = match vcpu.cpus[..] {
                [] => String::new(),
                [cpu] => format!(" on CPU {cpu}"),
                _ => format!(" on CPUs {:?}", vcpu.cpus),
            };
            format!(
                "{}/{}: {} of {} us by {} us ({}){on}",
                vcpu.vm,
                vcpu.vcpu,
                vcpu.budget_ns / 1000,
                vcpu.period_ns / 1000,
                vcpu.deadline_ns / 1000,
                vcpu.server
            )
        };
        let order = match enforcement.order {
            Priority::EarliestDeadline => "earliest-deadline",
            Priority::DeadlineMonotonic => "deadline-monotonic",
            Priority::RateMonotonic => "rate-monotonic",
            Priority::Explicit => "explicit",
        };
        let queue = match enforcement.queue {
            Queue::Global => "global",
            Queue::Partitioned => "partitioned",
        };
        let vcpus: Vec<String> = enforcement.vcpus.iter().map(one).collect();
        format!(
            "{order}, {queue}: {}",
            if vcpus.is_empty() {
                "no VCPU".to_owned()
            } else {
                vcpus.join(", ")
            }
        )
    }

    fn read(&self, machine: &Machine) -> Result<Option<Enforcement>, HostError> {
        let found = machine.vcpu_scheduler.enforced();
        found
            .map(|found| found.map(sorted))
            .map_err(|cause| HostError::io("read", self.subject(), cause))
    }

    /// Threads that have ended meanwhile need no budget.
    fn write(
        &self,
        machine: &Machine,
        _from: &Option<Enforcement>,
        to: &Option<Enforcement>,
    ) -> io::Result<()> {
        match to {
            Some(wanted) => machine
                .vcpu_scheduler
                .enforce(&Self::living(machine, wanted)),
            None => machine.vcpu_scheduler.end(),
        }
    }

    fn same(&self, one: &Option<Enforcement>, other: &Option<Enforcement>) -> bool {
        one.clone().map(sorted) == other.clone().map(sorted)
    }

    /// A loader that was started and not yet told anything.
    fn is_halfway(
        &self,
        old: &Option<Enforcement>,
        _new: &Option<Enforcement>,
        found: &Option<Enforcement>,
    ) -> bool {
        old.is_none() && found.as_ref().is_some_and(|it| it.vcpus.is_empty())
    }

    /// A thread that has ended has no budget any more.
    fn shows(
        &self,
        machine: &Machine,
        asked: &Option<Enforcement>,
        found: &Option<Enforcement>,
    ) -> bool {
        let asked = asked.as_ref().map(|asked| Self::living(machine, asked));
        self.same(&asked, found)
    }

    fn snapshot(machine: &Machine, entries: &mut Entries) -> Result<(), HostError> {
        let setting = Self {};
        // A loader that does not answer is no reason to show nothing of the host.
        let text = match setting.read(machine) {
            Ok(value) => setting.text(&value),
            Err(error) => error.to_string(),
        };
        entries.insert("this host".to_owned(), text);
        Ok(())
    }

    #[cfg(any(test, feature = "fake"))]
    fn example(host: &crate::settings::fake::FakeHost) -> crate::settings::ChangeOf<Self> {
        let tid = host.state().threads.keys().next().copied().unwrap_or(1);
        let vcpu = Reserved {
            vm: "rt".into(),
            vcpu: 0,
            tid,
            server: "cbs".into(),
            budget_ns: 4_000_000,
            deadline_ns: 10_000_000,
            period_ns: 10_000_000,
            priority: 0,
            cpus: Vec::new(),
        };
        crate::settings::ChangeOf {
            setting: Self {},
            old: None,
            new: Some(Enforcement {
                vcpus: vec![vcpu],
                ..Enforcement::default()
            }),
        }
    }
}
