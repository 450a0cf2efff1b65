//! The interface that a cloud sells a VM: so much for each of its VCPUs, in whole microseconds.
//!
//! nova/src/steadyvm_nova/interface.py has the same rule, and sells by it; the hook and the simulator of clusters take this one.

use serde_json::json;

use super::{json, run};

/// The kernel takes no runtime below 1,024 ns (`DL_SCALE`).
pub const VCPU_BUDGET_MIN_US: u64 = 2;
/// Where the period is free, whole milliseconds are tried.
const PERIODS_MS: std::ops::RangeInclusive<u64> = 2..=30;

/// Each of so many VCPUs may run for the budget in every period.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct SoldInterface {
    /// Of each VCPU.
    pub period_us: u64,
    /// Of one VCPU.
    pub budget_us: u64,
    /// How many.
    pub vcpus: u32,
}

/// Execution time, deadline and period of a task, in microseconds.
pub type SoldTask = (u64, u64, u64);

/// The interface of least bandwidth for a guest under global EDF (MPR; Easwaran et al. 2009).
pub fn least_interface(
    tasks: &[SoldTask],
    period_us: Option<u64>,
    vcpus: u32,
) -> Option<SoldInterface> {
    let shortest_us = tasks.iter().map(|(_, d, _)| *d).min()?;
    let periods: Vec<u64> = match period_us {
        Some(period_us) => vec![period_us],
        None => (PERIODS_MS.map(|ms| ms * 1000))
            .filter(|&us| us <= shortest_us)
            .collect(),
    };
    let mut best: Option<SoldInterface> = None;
    // From the longest on: equal bandwidth at a longer period costs fewer context switches.
    for period_us in periods.into_iter().rev() {
        let Some(budget_us) = budget(tasks, period_us, vcpus) else {
            continue;
        };
        let is_less = best.is_none_or(|best| {
            u128::from(budget_us) * u128::from(best.period_us)
                < u128::from(best.budget_us) * u128::from(period_us)
        });
        if is_less {
            best = Some(SoldInterface {
                period_us,
                budget_us,
                vcpus,
            });
        }
    }
    best
}

/// The least even budget of a VCPU, in microseconds; none if there is none.
fn budget(tasks: &[SoldTask], period_us: u64, vcpus: u32) -> Option<u64> {
    let is_one = vcpus == 1;
    let task = |(c, d, t): &SoldTask| json!({"c": c, "d": d, "t": t});
    let request = json!({
        "vms": [{
            "name": "vm",
            "scheduler": if is_one { "edf" } else { "gedf" },
            "interface": if is_one { "prm" } else { "mpr" },
            "period": period_us,
            "vcpus": vcpus,
            "tasks": tasks.iter().map(task).collect::<Vec<_>>(),
        }],
        "host": {"pcpus": vcpus, "scheduler": "pedf"},
    });
    let request = json::parse(&request.to_string()).ok()?;
    let report = run(&request).ok()?;
    let interface = report.vms.first()?.interface.as_ref()?;
    if interface.vcpus > vcpus as usize {
        return None;
    }
    let total_us = u64::try_from(interface.budget).ok()?;
    // Tasks of next to nothing need less than the kernel gives.
    Some(total_us.div_ceil(vcpus.into()).max(VCPU_BUDGET_MIN_US))
}
