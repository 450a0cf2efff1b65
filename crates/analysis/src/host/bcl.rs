//! The interference test of global scheduling (Bertogna, Cirinei and Lipari).
//!
//! Model: sporadic tasks under global EDF or global fixed priorities on m processors. Each task may be
//! restricted to some processors; a ready task then waits only while all of *its* processors execute
//! tasks that come before it.
//!
//! Formula: with window D_k - J_k and slack X = D_k - J_k - C_k, task k meets its deadline if
//! sum min(Ī_i, X) <= m_k X and fewer than m_k of the Ī_i exceed X, over the other tasks that share a
//! processor with it (only those of higher priority under fixed priorities), m_k its processors.
//! Ī is the work with carry-in of [`crate::workload`].
//!
//! Not for constant-bandwidth servers under EDF ([`super`]). Deferrable and sporadic VCPUs: Ī bounds every way of executing at most C in each period of length T = D, so the
//! test holds for them as it stands, jitter Pi - Theta included: a job that executes at the end of one
//! period and the next at the start of the following is the carry-in it counts. A VCPU that wakes a after
//! its period began is owed C - a by its deadline: the same slack in a shorter window.
//!
//! Complexity: O(n^2). Sufficient. Source: Bertogna, Cirinei and Lipari, ECRTS 2005.

use super::{Candidate, Dispatch, Host, Vcpu, clusters::pay_after_others};
use crate::{
    task::Task,
    time::{Amount, Time},
    verdict::{Verdict, Violation},
    work::Work,
    workload::{edf_carry_in, fixed_priority_window},
};

/// True if the test shows `vcpus` schedulable by `host`'s global scheduler; `None` for a partitioned
/// one, or when a budget with the costs of its own starts exceeds its period.
pub fn passes(host: &Host, vcpus: &[Vcpu]) -> Option<bool> {
    if host.scheduler.is_partitioned() {
        return None;
    }
    let mut candidates: Vec<Candidate> = vcpus
        .iter()
        .enumerate()
        .map(|(index, vcpu)| Candidate::new(index, vcpu, host))
        .collect::<Option<_>>()?;
    candidates.sort_by_key(|candidate| candidate.task.deadline());
    let cpus: Vec<u32> = (0..host.cpus).collect();
    if pay_after_others(host, &mut candidates, &cpus).is_err() {
        return Some(false);
    }
    let verdict = test(&candidates, host.scheduler.dispatch(), host.cpus as usize);
    Some(verdict.is_schedulable())
}

/// Decides whether each of `vcpus` (in priority order under fixed priorities) meets its deadline.
pub(super) fn test(vcpus: &[Candidate], dispatch: Dispatch, processors: usize) -> Verdict {
    (0..vcpus.len())
        .try_for_each(|index| check(vcpus, index, dispatch, processors))
        .into()
}

/// The same for VCPUs under EDF on one CPU: what others execute in a window is at most its slack.
pub(super) fn passes_on_one(vcpus: &[Task], work: &mut Work) -> bool {
    (vcpus.iter().enumerate()).all(|(index, this)| {
        let window = this.window();
        let others = (vcpus.iter().enumerate()).filter(|&(other, _)| other != index);
        let interference: Amount = others
            .map(|(_, other)| Amount::from(edf_carry_in(other, window).with))
            .sum();
        work.spend(vcpus.len(), window).is_ok()
            && interference <= Amount::from(window - this.demand())
    })
}

fn check(
    vcpus: &[Candidate],
    index: usize,
    dispatch: Dispatch,
    processors: usize,
) -> Result<(), Verdict> {
    let this = &vcpus[index];
    let window = this.task.window();
    let slack = window - this.task.demand();
    let usable = this.mask.as_ref().map_or(processors, Vec::len);
    let mut interference: Amount = 0;
    let mut exceeding = 0;
    for (position, other) in vcpus.iter().enumerate() {
        let skip = position == index
            || (dispatch == Dispatch::FixedPriority && position > index)
            || !this.shares_cpu(other);
        if skip {
            continue;
        }
        let work = workload(other, dispatch, window);
        interference += Amount::from(work.min(slack));
        exceeding += usize::from(work > slack);
    }
    let capacity = usable as Amount * Amount::from(slack);
    if interference <= capacity && exceeding < usable {
        return Ok(());
    }
    // A job is late as soon as others take one unit more than its slack on every processor: with the cut
    // there, demand exceeds supply in both cases.
    let own = usable as Amount * Amount::from(this.task.demand());
    Err(Verdict::Unschedulable(Violation {
        index: this.index,
        at: window,
        demand: interference + exceeding as Amount + own,
        supply: capacity + own,
    }))
}

fn workload(other: &Candidate, dispatch: Dispatch, window: Time) -> Time {
    match dispatch {
        Dispatch::EarliestDeadline => edf_carry_in(&other.task, window).with,
        Dispatch::FixedPriority => fixed_priority_window(&other.task, window).with,
    }
}
