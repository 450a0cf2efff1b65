//! What the hypervisor's own work costs a VCPU.
//!
//! Model: a VCPU that is not always running starts to run k times in one of its budgets; each time costs a decision of the
//! scheduler, a switch, cold caches and, on a global scheduler, a move. [`super::starts`] has k: its own starts, and those
//! after others have had its CPU.
//! Besides, budgets are enforced, and releases seen, at the
//! scheduler's quantum if it has one.
//!
//! Formula: with quantum q > 0: budget' = (ceil(Theta / q) + 1) q and scheduler calls = budget' / q + 1, and
//! the VCPU's release is seen up to q late (jitter); with q = 0: budget' = Theta, two calls. One q more: a budget, or its
//! rest, may begin anywhere in a quantum, and its end is seen after it. What is too much is owed: the next period gets up
//! to q less.
//! C = budget' + (calls - 2) scheduler + k (scheduler + switch + cache reload + migration).
//! A VCPU with Theta = Pi is never switched and costs nothing more.
//!
//! Complexity: O(1). Sources: Xu et al., RTSS 2013 (cache-aware); the dissertation's section 3.3.3.

use crate::{
    error::{Error, not_negative},
    time::{Time, div_ceil},
};

/// What is installed of a reservation with D < T beyond what its request uses, so that nothing uses it up.
///
/// Why: a request that uses its runtime up makes `SCHED_DEADLINE` begin the next period by a timer, also while nobody is
/// there. The next request finds that period running, and its runtime cut to what is left of it ([`super::reservation`]).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Margin {
    /// For the reading of clocks and the way in and out; 0: no margin.
    pub once: Time,
    /// As much again for each tick of this length that may find it at work; 0: none does.
    pub tick: Time,
}

impl Margin {
    /// The kernel charges nanoseconds, and its own work in ticks (at most 1,000 in a second) to who runs: 1 us for the way
    /// in and out, 1 us for each tick.
    pub const OF_THE_KERNEL: Self = Self {
        once: 1_000,
        tick: 1_000_000,
    };

    /// Where a unit is the caller's: the least there is.
    pub const ONE_UNIT: Self = Self { once: 1, tick: 0 };

    /// On top of `runtime`.
    pub fn of(self, runtime: Time) -> Time {
        let ticks = if self.tick > 0 {
            div_ceil(runtime, self.tick) + 1
        } else {
            0
        };
        self.once.saturating_mul(ticks + 1)
    }
}

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
    /// How often a guest may sleep and wake in one of its VCPU's periods; 0: what each VCPU says
    /// ([`super::Vcpu::woken`]).
    pub wakeups: Time,
    /// What a reservation with D < T is installed more. [`super::Host`] sets it from server and scheduler.
    pub margin: Margin,
    /// How its servers come to run. [`super::Host`] sets it.
    pub keeping: Keeping,
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
            margin: Margin::default(),
            keeping: Keeping::default(),
        }
    }
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

    /// What one start costs.
    pub const fn once(&self) -> Time {
        self.scheduler
            .saturating_add(self.context_switch)
            .saturating_add(self.cache_reload)
            .saturating_add(self.migration)
    }

    /// The processor time that `budget` in each `period` costs the host, of a VCPU that starts `starts` times in a
    /// period. May exceed the period.
    pub fn inflate(&self, budget: Time, period: Time, starts: Time) -> Time {
        if budget == 0 || budget == period {
            return budget;
        }
        let (budget, calls) = if self.quantum > 0 {
            let quanta = div_ceil(budget, self.quantum) + 1;
            (quanta.saturating_mul(self.quantum), quanta + 1)
        } else {
            (budget, 2)
        };
        (calls - 2)
            .saturating_mul(self.scheduler)
            .saturating_add(budget)
            .saturating_add(starts.max(1).saturating_mul(self.once()))
    }
}

/// How a kind of server comes to run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Keeping {
    /// Idles its budget away: its guest's wake-ups find it on its CPU.
    Idles,
    /// The same, but another may run there meanwhile: each wake-up of its guest is a start.
    Lends,
    /// Keeps its budget to the end of a period that begins whatever its guest does.
    #[default]
    Keeps,
    /// Begins a period as its guest wakes.
    Begins,
    /// The same; a budget that is due before its period ends comes back in pieces.
    BeginsOrPieces,
    /// Its budget comes back in pieces.
    Pieces,
}
