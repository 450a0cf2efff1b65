//! The fair server of a CPU: what `SCHED_DEADLINE` gives to normal threads before VCPUs.
//!
//! Model: from 6.12 on a deadline server of each CPU, of runtime R in period P, waits until normal threads have starved so
//! long that R is all that is left before its deadline; then it runs at once, due R later (deferred,
//! `dl_server_timer` in kernel/sched/deadline.c). What starves them may be FIFO threads, which no plan counts. So it is a
//! task (R, D = R, T = P) beside the VCPUs.
//!
//! Formula: it takes at most R (1 + floor((t - R) / P)) of a window of t >= R. On an EDF CPU the VCPUs' demand and that are
//! at most t, for all t from the shortest deadline on.
//!
//! Why not for shorter windows: no budget that begins with its period (or with the request) is due in a shorter window.
//! What is, is the rest of a budget whose guest slept; that may be late by R. R <= Pi - Theta follows from the
//! condition at t = Pi, and a periodic resource promises nothing of such a rest sooner than Pi - Theta after it is due:
//! who wakes x before its deadline has used at most Pi - x of Theta.
//!
//! On a global host a window may begin within a piece: then it is R floor(t / P) + min(R, t mod P). The servers of all CPUs
//! together are a term of the density test (`heavy`). With no more VCPUs than CPUs, a VCPU waits only while fair servers have
//! the k = m - n + 1 CPUs or more that the others leave: at most m / k of these. With 2 k > m it is one of these: two such
//! times have a CPU in common, so that they lie in one piece of its server or P - R apart.

use crate::{
    ratio::Fraction,
    task::Task,
    time::{Amount, Time},
};

/// R and P.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FairServer {
    /// The longest piece in which normal threads run before VCPUs.
    pub runtime: Time,
    /// Of how long.
    pub period: Time,
}

impl FairServer {
    /// What steadyvm sets on a host: the kernel's share in pieces of 1 ms.
    pub const IN_SHORT_PIECES: Self = Self {
        runtime: 1_000_000,
        period: 20_000_000,
    };

    /// The task that it is on an EDF CPU.
    pub(super) fn task(self) -> Task {
        Task::server(self.runtime, self.runtime, self.period, 0)
    }

    /// What it takes of a window at most.
    pub(crate) fn demand(self, window: Time) -> Amount {
        if window < self.runtime {
            return 0;
        }
        let whole = (window - self.runtime) / self.period;
        Amount::from(self.runtime) * Amount::from(whole + 1)
    }

    /// What it takes of any window at most, of one that begins within a piece, too.
    fn of_any(self, window: Time) -> Amount {
        let (whole, rest) = (window / self.period, window % self.period);
        Amount::from(self.runtime) * Amount::from(whole) + Amount::from(rest.min(self.runtime))
    }

    /// The first window from `from` on in which it takes more than in `from`.
    pub(super) fn next_step(self, from: Time) -> Time {
        let past = (from - self.runtime).max(0) / self.period;
        (past + 1) * self.period + self.runtime
    }
}

/// The fair servers of all CPUs of a cluster.
#[derive(Debug, Clone, Copy)]
pub(super) struct FairServers {
    /// Each of them.
    pub each: FairServer,
    /// How many CPUs there are.
    pub cpus: usize,
}

impl FairServers {
    /// What they take of a window at most, of all CPUs.
    pub fn demand(self, window: Time) -> Amount {
        self.cpus as Amount * self.each.of_any(window)
    }

    /// The window of at least `shortest` of which they take the largest share: later steps are flatter.
    pub fn worst(self, shortest: Time) -> Time {
        let share = |at: Time| Fraction::new(self.each.of_any(at), at.into());
        let next = self.each.next_step(shortest);
        match super::gfb::compare(share(shortest), share(next)) {
            std::cmp::Ordering::Less => next,
            _ => shortest,
        }
    }

    /// That share, in CPUs.
    pub fn share(self, shortest: Time) -> Fraction {
        let at = self.worst(shortest);
        Fraction::new(self.demand(at), at.into())
    }

    /// True if each of no more VCPUs than CPUs has room beside them: `processors` are those that all VCPUs share.
    pub fn leave_each(self, vcpus: &[Task], processors: usize) -> bool {
        let Some(idle) = (processors + 1).checked_sub(vcpus.len()) else {
            return false;
        };
        vcpus.iter().all(|vcpu| {
            let waits = if 2 * idle > self.cpus {
                self.each.of_any(vcpu.window())
            } else {
                self.demand(vcpu.window()) / (idle.max(1) as Amount)
            };
            idle > 0 && Amount::from(vcpu.demand()) + waits <= Amount::from(vcpu.window())
        })
    }
}
