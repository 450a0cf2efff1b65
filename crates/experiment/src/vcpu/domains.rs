//! Three domains of periodic tasks and the budgets of their VCPUs.
//!
//! Each VCPU has one task. Budgets are what the periodic resource model (Shin and Lee 2003) asks for, with work to
//! spare for an emulated host; the VCPUs are accepted by the bound of Goossens, Funk and Baruah for EDF on two CPUs.

use steadyvm_load::job::Task;

/// CPUs of a lab's host.
#[cfg(test)]
const CPUS: u64 = 2;

/// A VCPU with its task. Times in microseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Vcpu {
    /// Its name for the scheduler.
    pub name: &'static str,
    /// Its domain, 1 to 3.
    pub domain: usize,
    /// Budget in each period.
    pub budget_us: u64,
    /// The budget's period.
    pub period_us: u64,
    /// Execution time of a job, calibrated.
    pub execution_us: u64,
    /// The task's period, which is its deadline.
    pub task_period_us: u64,
}

/// The overloaded domain.
pub const OVERLOADED: usize = 2;

/// All VCPUs.
pub const VCPUS: [Vcpu; 4] = [
    vcpu("d1", 1, (20_000, 50_000), (14_000, 100_000)),
    vcpu("d2a", OVERLOADED, (20_000, 50_000), (14_000, 100_000)),
    vcpu("d2b", OVERLOADED, (20_000, 50_000), (14_000, 100_000)),
    vcpu("d3", 3, (40_000, 100_000), (35_000, 250_000)),
];

const fn vcpu(
    name: &'static str,
    domain: usize,
    (budget_us, period_us): (u64, u64),
    (execution_us, task_period_us): (u64, u64),
) -> Vcpu {
    Vcpu {
        name,
        domain,
        budget_us,
        period_us,
        execution_us,
        task_period_us,
    }
}

impl Vcpu {
    /// Its jobs in a window, or `least` where that has fewer; an overloaded task asks for more than a whole CPU. `units_per_ms`: of
    /// work.
    pub fn task(&self, window_s: u64, least: u64, overloaded: bool, units_per_ms: f64) -> Task {
        let execution_us = if overloaded && self.domain == OVERLOADED {
            self.task_period_us * 6 / 5
        } else {
            self.execution_us
        };
        Task {
            period_us: self.task_period_us,
            work: (execution_us as f64 / 1e3 * units_per_ms).round().max(1.0) as u64,
            jobs: (window_s * 1_000_000)
                .div_ceil(self.task_period_us)
                .max(least),
            backlog: true,
        }
    }

    /// The least that its budget supplies in any `window_us`.
    #[cfg(test)]
    fn least_supply_us(&self, window_us: u64) -> u64 {
        let blackout = self.period_us - self.budget_us;
        let Some(left) = window_us.checked_sub(blackout) else {
            return 0;
        };
        let (periods, rest) = (left / self.period_us, left % self.period_us);
        periods * self.budget_us + rest.saturating_sub(blackout)
    }
}

/// Whether two CPUs keep all budgets under EDF, and every budget its task's deadlines.
#[cfg(test)]
fn are_schedulable(vcpus: &[Vcpu]) -> bool {
    // In units of a millionth of a CPU.
    let share = |it: &Vcpu| it.budget_us * 1_000_000 / it.period_us;
    let total: u64 = vcpus.iter().map(share).sum();
    let most = vcpus.iter().map(share).max().unwrap_or(0);
    total <= CPUS * 1_000_000 - (CPUS - 1) * most
        && vcpus
            .iter()
            .all(|it| it.least_supply_us(it.task_period_us) >= it.execution_us)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_domains_are_schedulable_with_work_to_spare() {
        assert!(are_schedulable(&VCPUS));
        let longer = VCPUS.map(|it| Vcpu {
            execution_us: it.execution_us * 6 / 5,
            ..it
        });
        assert!(are_schedulable(&longer));
    }

    #[test]
    fn more_than_the_cpus_or_a_budget_have_is_not_schedulable() {
        let greedy = VCPUS.map(|it| Vcpu {
            budget_us: it.budget_us * 6 / 5,
            ..it
        });
        assert!(!are_schedulable(&greedy));
        let long = VCPUS.map(|it| Vcpu {
            execution_us: it.execution_us * 2,
            ..it
        });
        assert!(!are_schedulable(&long));
    }

    #[test]
    fn a_budgets_least_supply_is_the_periodic_resource_models() {
        // 20 in 50: nothing for 60, then 20 in every 50.
        let least = [59, 60, 70, 80, 110, 120].map(|ms| VCPUS[0].least_supply_us(ms * 1000));
        assert_eq!(least, [0, 0, 10_000, 20_000, 20_000, 30_000]);
    }

    #[test]
    fn only_the_overloaded_domain_asks_for_more() {
        for it in VCPUS {
            let [normal, overloaded] =
                [false, true].map(|overloaded| it.task(4, 1, overloaded, 100.0));
            assert_eq!(normal.work < overloaded.work, it.domain == OVERLOADED);
            assert_eq!(normal.jobs, 4_000_000 / it.task_period_us);
            // The domain of the longest period has as many as it is asked for, too.
            assert_eq!(it.task(4, 60, false, 100.0).jobs, 60);
            assert!(normal.backlog);
        }
    }
}
