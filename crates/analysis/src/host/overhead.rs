//! What the hypervisor's own work costs a VCPU.
//!
//! Model: a VCPU that is not always running is released, scheduled, switched to and from k times in each of
//! its periods, and each time finds its caches cold. A server that idles its budget away: k = 1. One whose guest may
//! sleep: k = 1 + sum over its tasks of ceil((Pi + J) / T), as every release may wake it, and twice that for a task
//! that suspends itself once a job; a reservation that wakes with the request: k = 1.
//! Besides, budgets are enforced, and releases seen, at the
//! scheduler's quantum if it has one.
//!
//! Formula: with quantum q > 0: budget' = ceil(Theta / q) q and scheduler calls = budget' / q + 1, and
//! the VCPU's release is seen up to q late (jitter); with q = 0: budget' = Theta, two calls. Where a guest that sleeps
//! keeps the rest of its budget, one q more: the rest may begin anywhere in a quantum, and its end is seen after it.
//! C = budget' + (calls - 2) scheduler + k (2 scheduler + 2 switches + cache reload, + migration on a global
//! scheduler).
//! A VCPU with Theta = Pi is never switched and costs nothing more.
//!
//! Complexity: O(1). Sources: Xu et al., RTSS 2013 (cache-aware); the dissertation's section 3.3.3.

use crate::{
    error::{Error, not_negative},
    task::Task,
    time::{Time, div_ceil},
};

/// Costs of the host's scheduler, each a time; zero by default.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Overheads {
    /// The quantum at which budgets and releases are looked at; 0 = at once.
    pub quantum: Time,
    /// One scheduling decision.
    pub scheduler: Time,
    /// One switch from a VCPU to another.
    pub context_switch: Time,
    /// Moving a VCPU to another CPU; 0 on partitioned hosts.
    pub migration: Time,
    /// Filling the caches again after a switch.
    pub cache_reload: Time,
    /// How often a guest may sleep and wake in one of its VCPU's periods; 1 for one that idles its budget away;
    /// 0: what each VCPU says ([`super::Vcpu::waking`]).
    pub wakeups: Time,
    /// Whether a guest that sleeps keeps the rest of its budget. [`super::Host::new`] sets it from the server.
    pub keeps_budget: bool,
}

impl Default for Overheads {
    fn default() -> Self {
        Self {
            quantum: 0,
            scheduler: 0,
            context_switch: 0,
            migration: 0,
            cache_reload: 0,
            wakeups: 1,
            keeps_budget: false,
        }
    }
}

/// How often a guest with `tasks` on a VCPU makes it run anew in one of its periods, at most: once as its budget
/// comes back, and once for each release, and each end of a suspension, that may wake it.
pub fn wakeups(tasks: impl Iterator<Item = Task>, period: Time) -> Time {
    let wakes = |task: Task| {
        let releases = div_ceil(period.saturating_add(task.jitter()), task.period());
        if task.suspension() > 0 {
            releases.saturating_mul(2)
        } else {
            releases
        }
    };
    tasks.map(wakes).fold(1, Time::saturating_add)
}

impl Overheads {
    /// Checks the range of every cost.
    ///
    /// # Errors
    /// A negative or too large cost.
    pub fn checked(self) -> Result<Self, Error> {
        not_negative("the quantum", self.quantum)?;
        not_negative("the scheduler's cost", self.scheduler)?;
        not_negative("the context switch's cost", self.context_switch)?;
        not_negative("the migration's cost", self.migration)?;
        not_negative("the cache reload's cost", self.cache_reload)?;
        not_negative("the number of wake-ups", self.wakeups)?;
        Ok(self)
    }

    /// The processor time that `budget` in each `period` costs the host, of a VCPU whose guest sleeps and wakes
    /// `wakeups` times in a period, unless the host's number says otherwise. May exceed the period.
    pub fn inflate(&self, budget: Time, period: Time, wakeups: Time) -> Time {
        if budget == 0 || budget == period {
            return budget;
        }
        let (budget, calls) = if self.quantum > 0 {
            let quanta = div_ceil(budget, self.quantum) + Time::from(self.keeps_budget);
            (quanta.saturating_mul(self.quantum), quanta + 1)
        } else {
            (budget, 2)
        };
        let once = (2 * self.scheduler)
            .saturating_add(2 * self.context_switch)
            .saturating_add(self.cache_reload)
            .saturating_add(self.migration);
        let wakeups = if self.wakeups > 0 {
            self.wakeups
        } else {
            wakeups
        };
        (calls - 2)
            .saturating_mul(self.scheduler)
            .saturating_add(budget)
            .saturating_add(wakeups.max(1).saturating_mul(once))
    }
}
