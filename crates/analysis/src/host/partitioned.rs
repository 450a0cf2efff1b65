//! One CPU of a partitioned host.
//!
//! Model: VCPUs pinned to one CPU under EDF or DM (shorter period first).
//!
//! Formula, pEDF, periodic: sum of utilisations at most 1 where no VCPU has jitter and D = T; else sum floor((t + J_k + T_k - D_k) / T_k) C_k <= t for all t ([`crate::guest::edf`]).
//! Sporadic and constant-bandwidth: [`super::reservation`]. Deferrable: J_k = q + Pi_k - C_k with a quantum q, for t >= min Pi: a VCPU's promise is for periods in which it is
//! ready from the start, so no promised window is shorter than a period; a VCPU that wakes a after its
//! period began is owed C - a by the deadline, which the condition at t = Pi gives (others' demand at
//! most Pi - C in it). Neither this nor the interference test ([`super::bcl`]) takes all that the other does: either suffices.
//!
//! Formula, pDM: w = C_i + sum ceil((w + J_j) / Pi_j) C_j <= Pi_i; for deferrable VCPUs J_j is
//! q + Pi_j - C_j ([`crate::server`]). Of equal deadlines the first one given has the higher priority, which matters
//! where jitter does.
//!
//! Complexity: O(n) without jitter under EDF, else pseudo-polynomial. Exact for periodic servers.
//! Sources: Liu and Layland 1973; Davis and Burns, RTSS 2005; Spuri 1996 (jitter).

use std::cmp::Ordering;

use super::{Dispatch, VcpuServer, bcl, reservation, rules::Rules};
use crate::{
    guest::{edf, fixed_priority},
    ratio::{Fraction, compare_sum},
    supply::Dedicated,
    task::Task,
    verdict::{Stop, Verdict, Violation},
    work::Work,
};

/// Decides whether VCPUs given as tasks (C with overheads, D = T = Pi, J seen release delay) keep their
/// promises on one CPU.
pub(super) fn test(vcpus: &[Task], rules: Rules, work: &mut Work) -> Verdict {
    match rules.dispatch {
        Dispatch::EarliestDeadline => earliest_deadline(vcpus, rules, work),
        Dispatch::FixedPriority => deadline_monotonic(vcpus, rules.server, work),
    }
}

fn earliest_deadline(
    vcpus: &[Task],
    Rules {
        server,
        fair_server,
        isolated,
        ..
    }: Rules,
    work: &mut Work,
) -> Verdict {
    let shortest = match server {
        VcpuServer::Sporadic | VcpuServer::ConstantBandwidth => {
            return reservation::test(vcpus, fair_server, isolated, work);
        }
        VcpuServer::Periodic | VcpuServer::CapacityReclaiming => 0,
        VcpuServer::Deferrable => vcpus.iter().map(Task::window).min().unwrap_or(0),
    };
    if let Err(exhausted) = work.spend(vcpus.len(), 0) {
        return exhausted.into();
    }
    let one = Fraction::new(1, 1);
    let load = compare_sum(vcpus.iter().map(Task::utilization), one);
    let implicit = |vcpu: &Task| vcpu.jitter() == 0 && vcpu.deadline() == vcpu.period();
    if server.idles() && vcpus.iter().all(implicit) {
        match load {
            Some(Ordering::Less | Ordering::Equal) => return Verdict::Schedulable,
            None => return Verdict::Undecided(Stop::precision()),
            Some(Ordering::Greater) => {}
        }
    }
    // The cheaper one first.
    if server == VcpuServer::Deferrable && bcl::passes_on_one(vcpus, work) {
        return Verdict::Schedulable;
    }
    let late: Vec<Task> = vcpus.iter().map(|vcpu| late_start(vcpu, server)).collect();
    edf::test_from(&late, &Dedicated::new(1), shortest, work)
}

/// The VCPU with the jitter it interferes with.
fn late_start(vcpu: &Task, server: VcpuServer) -> Task {
    let jitter = if server == VcpuServer::Deferrable {
        // The quantum's besides: what is replenished late is also taken away late. No more than Pi: its budget is
        // at least a quantum.
        (vcpu.deadline() - vcpu.demand() + vcpu.jitter()).min(vcpu.deadline())
    } else {
        vcpu.jitter()
    };
    Task::late_server(vcpu.demand(), vcpu.deadline(), vcpu.period(), jitter)
}

fn deadline_monotonic(vcpus: &[Task], server: VcpuServer, work: &mut Work) -> Verdict {
    let mut order: Vec<usize> = (0..vcpus.len()).collect();
    order.sort_by_key(|&i| vcpus[i].deadline());
    let mut stack: Vec<Task> = Vec::with_capacity(vcpus.len());
    for &index in &order {
        stack.push(vcpus[index]);
        let verdict = fixed_priority::test_task(&stack, stack.len() - 1, &Dedicated::new(1), work);
        match verdict {
            Verdict::Schedulable => {}
            Verdict::Unschedulable(violation) => {
                return Verdict::Unschedulable(Violation { index, ..violation });
            }
            Verdict::Undecided(stop) => return Verdict::Undecided(stop),
        }
        if let Some(last) = stack.last_mut() {
            *last = late_start(last, server);
        }
    }
    Verdict::Schedulable
}
