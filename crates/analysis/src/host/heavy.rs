//! The density test of global EDF with some VCPUs counted as whole CPUs.
//!
//! Model: servers or sporadic tasks under global EDF on m processors, each of which demands, in every window,
//! what a fluid of rate delta = C / (D - J) demands: constant-bandwidth servers do, whenever they sleep or
//! wake, and so do periodic, polling and sporadic ones.
//!
//! Formula: VCPU k keeps its deadlines if for some j < m, with H the j VCPUs of greatest density other than k and
//! R the rest, sum over R of delta <= (m - j) - (m - j - 1) max over R of delta. j = 0 is [`super::gfb`].
//!
//! Why: at any instant the jobs of H occupy at most j processors, so EDF is work conserving for R on m - j
//! of them at least. The jobs of R are feasible on uniform processors of speeds delta, one a server (that is the
//! fluid); Funk, Goossens and Baruah (RTSS 2001, theorem 2) then give that EDF on m - j unit processors meets
//! every deadline of R, whatever the arrivals are. Every k has its own H.
//!
//! Beside fair servers, which take at most F(t) of any window of t on all processors together, the left side has
//! sup F(t) / t more, over windows from the shortest deadline on. Why: say k is the first to miss, at d. Go back from d to
//! the release of k, and from there, as long as R together is behind its fluid, to the release of one that is behind. In
//! each of these stretches that one executes less than its density of the time. While it waits, m - j processors have jobs of R
//! or fair servers; while it executes, one does. All stretches together are a window of at least the deadline of k, so
//! that fair servers take what is counted here. So R is not behind at d: a contradiction.
//!
//! Complexity: O(n log n + n m). Sufficient. Fixed-point sums, rounded up.

use super::fair::FairServers;
use crate::{
    ratio::{Fraction, Interval},
    task::Task,
    time::Amount,
};

/// True if the test shows `tasks` schedulable on `processors`.
pub(super) fn test(tasks: &[Task], processors: usize, fair_servers: Option<FairServers>) -> bool {
    let count = tasks.len();
    let Some(shortest) = tasks.iter().map(Task::window).min() else {
        return true;
    };
    if count <= processors && fair_servers.is_none() {
        return true;
    }
    let lost = fair_servers.map_or(0, |them| {
        Interval::of([them.share(shortest)].into_iter()).upper()
    });
    let one = Interval::of([Fraction::new(1, 1)].into_iter()).upper();
    let mut densities: Vec<Amount> = tasks
        .iter()
        .map(|task| Interval::of([task.density()].into_iter()).upper())
        .collect();
    densities.sort_unstable_by(|a, b| b.cmp(a));
    // rest[j]: the sum of all but the j greatest.
    let mut rest = vec![0; count + 1];
    for index in (0..count).rev() {
        rest[index] = rest[index + 1] + densities[index];
    }
    let free = |taken: usize| (processors - taken) as Amount;
    // With the `taken` greatest as whole CPUs, every VCPU that is not one of them.
    let density = |index: usize| densities.get(index).copied().unwrap_or(0);
    let light = (0..processors.min(count)).find(|&taken| {
        rest[taken] + (free(taken) - 1) * density(taken) + lost <= free(taken) * one
    });
    let heavy = |index: usize| {
        (index + 1..processors).any(|taken| {
            let others = rest.get(taken + 1).copied().unwrap_or(0);
            free(taken) * density(index) + others + lost <= free(taken) * one
        })
    };
    light.is_some_and(|light| (0..light).all(heavy))
}
