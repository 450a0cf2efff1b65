//! Fixed priorities on one VCPU: response times on a supply.
//!
//! Model: sporadic tasks ([`crate::task`]) under preemptive fixed priorities on a supply of parallelism
//! 1; the slice is in priority order, highest first. Preconditions: C + S + J <= D <= T.
//!
//! Formula: R_i = J_i + w_i with w_i the least w such that
//! C_i + S_i + sum over higher priorities of ceil((w + J_j) / T_j) C_j <= sbf(w);
//! schedulable iff every R_i <= D_i. Interrupts of lower priorities ([`crate::task`]) are added as they arrive,
//! ceil((w + J_j) / T_j) W_j. w is found by iterating w <- sbf^-1(demand at w). A suspending
//! task of higher priority counts with C_j alone and jitter D_j - C_j.
//!
//! Complexity: O(n) an iteration, at most one iteration a release of a higher priority before the
//! deadline. Exact without suspension. Sources: Shin and Lee, RTSS 2003; Davis and Burns, RTSS 2005;
//! Chen et al. 2019 (suspension).

use crate::{
    ratio::Interval,
    supply::Supply,
    task::Task,
    time::{Amount, Time},
    verdict::{Verdict, Violation},
    work::{Exhausted, STEPS_SHARE, Work},
    workload::{interference_jitter, jobs_released},
};

/// Decides whether `tasks`, highest priority first, meet their deadlines on `supply`.
pub fn test(tasks: &[Task], supply: &impl Supply, work: &mut Work) -> Verdict {
    load_bounds(tasks)
        .into_iter()
        .enumerate()
        .filter(|&(index, bound)| bound > supply.supply(tasks[index].window()))
        .map(|(index, _)| test_task(tasks, index, supply, work))
        .find(|verdict| !verdict.is_schedulable())
        .unwrap_or(Verdict::Schedulable)
}

/// For each task an upper bound of its load at its deadline, by the line
/// ceil((w + J) / T) C <= U w + U J + C: where the supply reaches it, the task needs no iteration.
pub(crate) fn load_bounds(tasks: &[Task]) -> Vec<Amount> {
    let mut utilization = Interval::default();
    let mut constant: Amount = 0;
    tasks
        .iter()
        .enumerate()
        .map(|(index, task)| {
            let interference = utilization.ceil_times(task.window().into()) + constant;
            utilization = utilization.plus(task.execution_share());
            constant += Amount::from(task.execution() + interference_jitter(task));
            let lower = lower_interrupts(&tasks[index + 1..], task.window());
            interference + lower + Amount::from(task.demand())
        })
        .collect()
}

/// Interrupts of tasks of lower priority.
fn lower_interrupts(lower: &[Task], window: Time) -> Amount {
    let interrupting = lower.iter().filter(|task| task.interrupt() > 0);
    interrupting
        .map(|task| Amount::from(jobs_released(task, window + task.jitter()) * task.interrupt()))
        .sum()
}

/// Decides whether the task at `index` meets its deadline below those before it.
pub fn test_task(tasks: &[Task], index: usize, supply: &impl Supply, work: &mut Work) -> Verdict {
    let window = tasks[index].window();
    // Most tasks that finish in time are finished at their deadline, too.
    if work.spend(index / STEPS_SHARE + 1, window).is_ok()
        && load(tasks, index, window) <= supply.supply(window)
    {
        return Verdict::Schedulable;
    }
    match busy_window(tasks, index, supply, window, work) {
        Ok(Some(_)) => Verdict::Schedulable,
        Ok(None) => Verdict::Unschedulable(Violation {
            index,
            at: window,
            demand: load(tasks, index, window),
            supply: supply.supply(window),
        }),
        Err(exhausted) => exhausted.into(),
    }
}

/// The worst-case response time, from the release, of the task at `index`; `None` beyond `limit`
/// (a whole number of units from the arrival).
///
/// # Errors
/// `Verdict::Undecided` when the work is spent.
pub fn response_time(
    tasks: &[Task],
    index: usize,
    supply: &impl Supply,
    limit: Time,
    work: &mut Work,
) -> Result<Option<Time>, Verdict> {
    let window = busy_window(tasks, index, supply, limit, work)?;
    Ok(window.map(|window| window + tasks[index].jitter()))
}

/// What has to be executed in a window for the task to finish in it.
fn load(tasks: &[Task], index: usize, window: Time) -> Amount {
    let interference: Amount = tasks[..index]
        .iter()
        .map(|other| {
            let jobs = jobs_released(other, window + interference_jitter(other));
            Amount::from(jobs * other.execution())
        })
        .sum();
    let lower = lower_interrupts(&tasks[index + 1..], window);
    interference + lower + Amount::from(tasks[index].demand())
}

/// The least window, up to `limit`, that supplies its own load.
fn busy_window(
    tasks: &[Task],
    index: usize,
    supply: &impl Supply,
    limit: Time,
    work: &mut Work,
) -> Result<Option<Time>, Exhausted> {
    let mut window = 1;
    loop {
        work.spend(index / STEPS_SHARE + 1, window)?;
        match supply.window_for(load(tasks, index, window)) {
            Some(next) if next > limit => return Ok(None),
            Some(next) if next > window => window = next,
            Some(_) => return Ok(Some(window)),
            None => return Ok(None),
        }
    }
}
