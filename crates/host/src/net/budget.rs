//! Budgets of virtual CPUs, enforced by `SCHED_DEADLINE`.
//!
//! A virtual CPU then gets its runtime in every period before all FIFO and normal threads, and no more
//! (kernel/sched/deadline.c, constant bandwidth server). The kernel refuses what the CPUs cannot hold, and
//! threads that may not run on all CPUs of their root domain.

use serde::{Deserialize, Serialize};

use super::profile::at;
use crate::engine::Step;
use crate::error::HostError;
use crate::machine::{Machine, ThreadId};
use crate::settings::{ChangeOf, SettingKind, ThreadPolicy};
use crate::threads::Scheduling;

/// The least runtime that the kernel takes (`DL_SCALE` bits: include/linux/sched.h).
const LEAST_RUNTIME_NS: u64 = 1 << 10;
/// `sysctl_sched_dl_period_min` of kernel/sched/deadline.c.
const LEAST_PERIOD_NS: u64 = 100_000;
/// `sysctl_sched_dl_period_max` of kernel/sched/deadline.c, 2^22 us.
const MOST_PERIOD_NS: u64 = (1 << 22) * 1000;

/// CPU time of a virtual CPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct VcpuBudget {
    /// CPU time in every period.
    pub runtime_ns: u64,
    /// When that time is there at the latest, after the virtual CPU wakes.
    pub deadline_ns: u64,
    /// The period.
    pub period_ns: u64,
}

impl VcpuBudget {
    /// What the kernel would refuse, in words.
    ///
    /// # Errors
    /// The rule that the budget breaks.
    pub fn check(&self) -> Result<(), String> {
        let Self {
            runtime_ns,
            deadline_ns,
            period_ns,
        } = *self;
        let ranges = [
            ("runtime", runtime_ns, LEAST_RUNTIME_NS, deadline_ns),
            ("deadline", deadline_ns, runtime_ns, period_ns),
            ("period", period_ns, LEAST_PERIOD_NS, MOST_PERIOD_NS),
        ];
        for (name, value, least, most) in ranges {
            if !(least..=most).contains(&value) {
                return Err(format!(
                    "a {name} of {value} ns is not within {least} to {most} ns, which SCHED_DEADLINE asks for"
                ));
            }
        }
        Ok(())
    }

    fn scheduling(&self, flags: u64) -> Scheduling {
        Scheduling::deadline(self.runtime_ns, self.deadline_ns, self.period_ns, flags)
    }
}

/// The step that gives a virtual CPU its budget. `place` is the VM's in the file, for messages.
pub(super) fn step(
    machine: &Machine,
    thread: &ThreadId,
    budget: &VcpuBudget,
    place: &str,
) -> Result<Option<Step>, HostError> {
    budget.check().map_err(|what| HostError::BadInput {
        what: at(place, &what),
        fix: "choose another period or budget".into(),
    })?;
    let setting = ThreadPolicy {
        thread: thread.clone(),
    };
    let old = match setting.read(machine) {
        Ok(old) => old,
        Err(HostError::Vanished { .. }) => return Ok(None),
        Err(error) => return Err(error),
    };
    // Without it a thread with a budget cannot start others (kernel/sched/core.c, sched_fork).
    let new = budget.scheduling(crate::threads::RESET_ON_FORK);
    let why = "so that it gets its planned budget in every period, and no more";
    Ok(Some(Step::required(ChangeOf { setting, old, new }, why)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_kernel_refuses_is_refused_with_its_rule() {
        let good = VcpuBudget {
            runtime_ns: 2_000_000,
            deadline_ns: 10_000_000,
            period_ns: 10_000_000,
        };
        good.check().unwrap();
        for (bad, name) in [
            (
                VcpuBudget {
                    runtime_ns: 1000,
                    ..good
                },
                "runtime",
            ),
            (
                VcpuBudget {
                    runtime_ns: 10_000_001,
                    ..good
                },
                "runtime",
            ),
            (
                VcpuBudget {
                    deadline_ns: 10_000_001,
                    ..good
                },
                "deadline",
            ),
            (
                VcpuBudget {
                    runtime_ns: 50_000,
                    deadline_ns: 99_999,
                    period_ns: 99_999,
                },
                "period",
            ),
            (
                VcpuBudget {
                    period_ns: MOST_PERIOD_NS + 1,
                    ..good
                },
                "period",
            ),
        ] {
            assert!(
                bad.check().unwrap_err().starts_with(&format!("a {name}")),
                "{bad:?}"
            );
        }
    }
}
