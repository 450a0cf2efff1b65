//! Worst-case response times under EDF on one VCPU.
//!
//! Model: as [`super::edf`]. Precondition: the tasks are schedulable on the supply (else `None`).
//!
//! Formula: for the job of task i that arrives a after the start of a busy interval,
//! L(a) = the least w with (1 + floor((a + J_i) / T_i)) C_i + sum over j != i of
//! min(ceil((w + J_j) / T_j), floor((a - J_i + D_i - D_j + J_j) / T_j) + 1) C_j <= sbf(w);
//! R_i = J_i + max over a of L(a) - a. Only a at which some deadline coincides matter, up to the longest
//! busy interval. Interrupts ([`crate::task`]) of jobs that are due later count as they arrive. Exact on a
//! dedicated processor, an upper bound on a periodic supply.
//!
//! Complexity: O(n) an iteration, one fixed point a candidate (pseudo-polynomial).
//! Source: Spuri, "Analysis of deadline scheduled real-time systems", INRIA 2772 (1996).

use super::edf::{self, busy_interval};
use crate::{
    supply::Supply,
    task::Task,
    time::{Amount, MAX_INSTANT, Time},
    verdict::{Stop, Verdict},
    work::Work,
    workload::jobs_released,
};

/// The worst-case response time, from the release, of the task at `index`.
///
/// # Errors
/// The verdict of the schedulability test if it is not `Schedulable`, or `Undecided`.
pub fn response_time(
    tasks: &[Task],
    index: usize,
    supply: &impl Supply,
    work: &mut Work,
) -> Result<Time, Verdict> {
    let verdict = edf::test(tasks, supply, work);
    if !verdict.is_schedulable() {
        return Err(verdict);
    }
    let task = &tasks[index];
    let busy = busy_interval(tasks, supply, MAX_INSTANT, work)?;
    let mut worst = task.demand();
    // a = k T_j - J_j + D_j - (D_i - J_i) >= 0, and its own arrivals.
    let coincide = |other: &Task| (other.window() - task.window(), other.period());
    let own = [(-task.jitter(), task.period())];
    for (first, period) in tasks.iter().map(coincide).chain(own) {
        let mut arrival = first.rem_euclid(period);
        if first > 0 {
            arrival = first;
        }
        while arrival < busy {
            let finish = completion(tasks, index, arrival, supply, work)?;
            worst = worst.max(finish - arrival);
            arrival += period;
        }
    }
    Ok(worst + task.jitter())
}

fn completion(
    tasks: &[Task],
    index: usize,
    arrival: Time,
    supply: &impl Supply,
    work: &mut Work,
) -> Result<Time, Verdict> {
    let task = &tasks[index];
    let due = arrival + task.window();
    let own = (arrival + task.jitter()) / task.period() + 1;
    let mut window = 1;
    loop {
        work.spend(tasks.len(), window)?;
        let load: Amount = (tasks.iter().enumerate())
            .map(|(position, other)| {
                let arrived = jobs_released(other, window + other.jitter());
                let slack = due - other.window();
                let urgent = match slack {
                    _ if position == index => own,
                    0.. => (other.periods_in(slack) + 1).min(arrived),
                    _ => 0,
                };
                let later = (arrived - urgent).max(0) * other.interrupt();
                Amount::from(urgent * other.demand() + later)
            })
            .sum();
        match supply.window_for(load) {
            Some(next) if next > window => window = next,
            Some(_) => return Ok(window),
            None => return Err(Verdict::Undecided(Stop::horizon())),
        }
    }
}
