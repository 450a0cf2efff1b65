//! Response-time analysis of global scheduling (Bertogna and Cirinei).
//!
//! Model: sporadic tasks (no deferrable servers: slack would not be kept) under global EDF or global
//! fixed priorities on m processors.
//!
//! Formula: R_k is the least R with R = C_k + floor(sum min(W_i(R), I_i, R - C_k + 1) / m), where
//! W_i(R) = work of task i in a window of length R when its carried-in job ends S_i before its deadline,
//! and under EDF I_i = the work due within D_k - J_k, its carried-in job also ending S_i early. Slacks
//! S_i = D_i - J_i - R_i start at 0 and grow round by round; schedulable if every R_k <= D_k - J_k in
//! some round. Fixed priorities: only higher priorities interfere.
//!
//! Complexity: pseudo-polynomial; at most [`ROUNDS`] rounds. Sufficient.
//! Source: Bertogna and Cirinei, RTSS 2007.

use super::{Candidate, Dispatch};
use crate::{
    task::Task,
    time::{Amount, Time},
    work::{Exhausted, Work},
    workload::packed,
};

/// Rounds of slack improvement.
pub const ROUNDS: usize = 8;

/// True if the analysis shows `vcpus` (in priority order under fixed priorities) schedulable.
pub(super) fn test(
    vcpus: &[Candidate],
    dispatch: Dispatch,
    processors: usize,
    work: &mut Work,
) -> bool {
    let mut slacks = vec![0; vcpus.len()];
    for _ in 0..ROUNDS {
        let (mut all, mut grown) = (true, false);
        for index in 0..vcpus.len() {
            match response(vcpus, index, dispatch, processors, &slacks, work) {
                Ok(Some(response)) => {
                    let slack = vcpus[index].task.window() - response;
                    grown |= slack > slacks[index];
                    slacks[index] = slacks[index].max(slack);
                }
                Ok(None) if dispatch == Dispatch::FixedPriority => return false,
                Ok(None) => all = false,
                Err(Exhausted { .. }) => return false,
            }
        }
        if all || !grown {
            return all;
        }
    }
    false
}

fn response(
    vcpus: &[Candidate],
    index: usize,
    dispatch: Dispatch,
    processors: usize,
    slacks: &[Time],
    work: &mut Work,
) -> Result<Option<Time>, Exhausted> {
    let task = &vcpus[index].task;
    let limit = task.window();
    // The work due by the deadline does not depend on R.
    let interferers: Vec<(usize, Time)> = vcpus
        .iter()
        .enumerate()
        .filter_map(|(position, other)| match dispatch {
            Dispatch::EarliestDeadline => {
                (position != index).then(|| (position, due(&other.task, limit, slacks[position])))
            }
            Dispatch::FixedPriority => (position < index).then_some((position, Time::MAX)),
        })
        .collect();
    let mut response = task.demand();
    loop {
        work.spend(vcpus.len(), response)?;
        let cut = response - task.demand() + 1;
        let interference: Amount = interferers
            .iter()
            .map(|&(position, due)| {
                let work = executed(&vcpus[position].task, response, slacks[position]);
                Amount::from(work.min(due).min(cut))
            })
            .sum();
        let delay = Time::try_from(interference / processors as Amount).unwrap_or(Time::MAX);
        let next = task.demand().saturating_add(delay);
        if next > limit {
            return Ok(None);
        }
        if next <= response {
            return Ok(Some(response));
        }
        response = next;
    }
}

/// Work in any window of length `window`.
const fn executed(task: &Task, window: Time, slack: Time) -> Time {
    packed(task, window + task.deadline() - task.demand() - slack)
}

/// Work due within a window that ends with a deadline.
fn due(task: &Task, window: Time, slack: Time) -> Time {
    let reach = window + task.jitter() - task.deadline();
    let jobs = if reach < 0 {
        0
    } else {
        reach / task.period() + 1
    };
    jobs * task.demand() + (window - jobs * task.period() - slack).clamp(0, task.demand())
}
