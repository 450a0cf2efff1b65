//! Budgets of virtual CPUs, enforced by `SCHED_DEADLINE`.
//!
//! A virtual CPU then gets its runtime in every period before all FIFO and normal threads, and no more
//! (kernel/sched/deadline.c, constant bandwidth server). The kernel refuses what the CPUs cannot hold, and
//! threads that may not run on all CPUs of their root domain: that is global EDF.
//!
//! **Partitioned EDF.** A cpuset partition would take the CPU from every other thread of the host. So the
//! kernel's admission is switched off (`sched_rt_runtime_us` = -1), the plan's takes its place, and each
//! virtual CPU is pinned to the CPU of its plan. From 6.12 on that sysctl limits nothing else: the fair server
//! keeps normal threads alive. Before, it also bounds FIFO threads, so that older kernels are refused.

use serde::{Deserialize, Serialize};

use super::profile::at;
use crate::cpu_set::CpuSet;
use crate::engine::Step;
use crate::error::HostError;
use crate::machine::{Machine, ThreadId};
use crate::parse;
use crate::settings::{ChangeOf, File, Form, SettingKind, ThreadAffinity, ThreadPolicy};
use crate::threads::Scheduling;

/// The least runtime that the kernel takes (`DL_SCALE` bits: include/linux/sched.h).
const LEAST_RUNTIME_NS: u64 = 1 << 10;
/// `sysctl_sched_dl_period_min` of kernel/sched/deadline.c.
const LEAST_PERIOD_NS: u64 = 100_000;
/// `sysctl_sched_dl_period_max` of kernel/sched/deadline.c, 2^22 us.
const MOST_PERIOD_NS: u64 = (1 << 22) * 1000;

/// Its -1 switches admission off.
const THROTTLING: &str = "/proc/sys/kernel/sched_rt_runtime_us";

/// CPU time of a virtual CPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct VcpuBudget {
    /// CPU time in every period.
    pub runtime_ns: u64,
    /// When that time is there at the latest, after the virtual CPU wakes.
    pub deadline_ns: u64,
    /// The period.
    pub period_ns: u64,
    /// The one CPU that it is kept on; none: any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu: Option<u32>,
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
            cpu: _,
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

/// Of each CPU, per cent: the kernel's 95 less the fair server's 5.
const USABLE_PERCENT: u64 = 90;

/// Takes the place of the kernel's admission: no CPU, nor all together, may be promised more than it would admit,
/// counted as `to_ratio()` does. Else budgets would starve every other thread, those of interrupts too.
fn admit(budgets: &[VcpuBudget], online: &CpuSet) -> Result<(), HostError> {
    let share = |budget: &VcpuBudget| {
        let ratio = (u128::from(budget.runtime_ns) << 20) / u128::from(budget.period_ns.max(1));
        u64::try_from(ratio).unwrap_or(u64::MAX)
    };
    let check = |place: String, load: u64, cpus: u64| {
        let room = USABLE_PERCENT * cpus * (1 << 20);
        if load.saturating_mul(100) <= room {
            return Ok(());
        }
        Err(HostError::BadInput {
            what: format!(
                "budgets of {:.1} % on {place} are more than the {} % that it has to give: 95 % of a CPU, less its fair \
                 server's 5 %",
                load as f64 * 100.0 / f64::from(1 << 20),
                USABLE_PERCENT * cpus
            ),
            fix: "plan with enforce = \"deadline\", smaller budgets or more CPUs; nothing was changed".into(),
        })
    };
    for cpu in online.iter() {
        let here = |budget: &&VcpuBudget| budget.cpu.is_some_and(|own| own as usize == cpu);
        let loads = budgets.iter().filter(here).map(share);
        check(format!("CPU {cpu}"), loads.fold(0, u64::saturating_add), 1)?;
    }
    let all = budgets.iter().map(share).fold(0, u64::saturating_add);
    check("all CPUs".into(), all, online.len() as u64)
}

/// The step that switches off the kernel's admission, which knows global EDF only, where these budgets pass ours.
pub(super) fn admission_off(machine: &Machine, budgets: &[VcpuBudget]) -> Result<Step, HostError> {
    admit(budgets, &machine.online()?)?;
    let release = machine.kernel_release().unwrap_or_default();
    if parse::kernel_version(&release).is_none_or(|version| version < (6, 12)) {
        return Err(HostError::Unsupported {
            missing: format!(
                "budgets on CPUs of their own on kernel {release}: without its admission its FIFO threads \
                 have no bound either"
            ),
            fix: "plan with scheduler = \"gedf\", or use Linux 6.12 or later".into(),
        });
    }
    let setting = File::new(machine, THROTTLING, Form::Text);
    let old = setting.read(machine)?;
    let new = "-1".to_owned();
    let why = "so that virtual CPUs with budgets stay on the CPUs of their plan, which admits them";
    Ok(Step::required(ChangeOf { setting, old, new }, why))
}

/// The steps that give a virtual CPU its budget, and its CPU before that. None if it ended meanwhile. `place` is
/// the VM's in the file, for messages.
pub(super) fn steps(
    machine: &Machine,
    thread: &ThreadId,
    budget: &VcpuBudget,
    place: &str,
) -> Result<Vec<Step>, HostError> {
    budget.check().map_err(|what| HostError::BadInput {
        what: at(place, &what),
        fix: "choose another period or budget".into(),
    })?;
    let setting = ThreadPolicy {
        thread: thread.clone(),
    };
    let old = match setting.read(machine) {
        Ok(old) => old,
        Err(HostError::Vanished { .. }) => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    let mut steps = Vec::new();
    if let Some(cpu) = budget.cpu {
        let cpus = CpuSet::single(cpu as usize);
        if !cpus.is_subset(&machine.online()?) {
            return Err(HostError::BadInput {
                what: at(
                    place,
                    &format!("its plan is for CPU {cpu}, which is not online"),
                ),
                fix: "bring the CPU online, or plan with fewer pcpus".into(),
            });
        }
        let setting = ThreadAffinity {
            thread: thread.clone(),
        };
        let old = match setting.read(machine) {
            Ok(old) => old,
            Err(HostError::Vanished { .. }) => return Ok(Vec::new()),
            Err(error) => return Err(error),
        };
        let why = "because its budget is planned on this CPU";
        let new = cpus;
        steps.push(Step::required(ChangeOf { setting, old, new }, why));
    }
    // Without it a thread with a budget cannot start others (kernel/sched/core.c, sched_fork).
    let new = budget.scheduling(crate::threads::RESET_ON_FORK);
    let why = "so that it gets its planned budget in every period, and no more";
    steps.push(Step::required(ChangeOf { setting, old, new }, why));
    Ok(steps)
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
            cpu: None,
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
                    cpu: None,
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
