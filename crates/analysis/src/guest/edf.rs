//! EDF on one VCPU.
//!
//! Model: sporadic tasks ([`crate::task`]) under preemptive EDF on a supply of parallelism 1.
//! Preconditions: none beyond the task model; suspension counts as execution.
//!
//! Formula: schedulable iff for all t > 0: sum dbf_i(t) <= sbf(t).
//! Where to look: no t beyond the instant L where the supply's line has overtaken the demand's line
//! U t + sum U_i (T_i + J_i - D_i). With U = 1 on a dedicated processor the lines are parallel; then L
//! is the end of the longest busy interval (a failure after it has a copy inside it), at most the
//! hyperperiod H (dbf(t + H) = dbf(t) + U H). Within L, t walks
//! down as in quick processor-demand analysis: if dbf(t) <= sbf(t), the next t to look at is the last
//! deadline before the shortest x with sbf(x) >= dbf(t), since up to t no demand exceeds dbf(t).
//!
//! Complexity: O(n) a step; at most one step a deadline up to L (pseudo-polynomial), few in practice.
//! Exact: yields a witness for every rejection.
//! Sources: Shin and Lee, RTSS 2003; Zhang and Burns, IEEE TC 2009 (QPA).

use std::cmp::Ordering;

use crate::{
    ratio::{Interval, compare_sum, gcd},
    supply::Supply,
    task::Task,
    time::{Amount, MAX_INSTANT, Time},
    verdict::{Bound, Stop, Verdict, Violation},
    work::Work,
    workload::{demand, previous_deadline, requests},
};

/// Decides whether `tasks` meet their deadlines under EDF on `supply` (of parallelism 1).
pub fn test(tasks: &[Task], supply: &impl Supply, work: &mut Work) -> Verdict {
    check(tasks, supply, 0, work).into()
}

/// The same, for windows of at least `shortest` only.
pub(crate) fn test_from(
    tasks: &[Task],
    supply: &impl Supply,
    shortest: Time,
    work: &mut Work,
) -> Verdict {
    check(tasks, supply, shortest, work).into()
}

fn check(
    tasks: &[Task],
    supply: &impl Supply,
    shortest: Time,
    work: &mut Work,
) -> Result<(), Verdict> {
    let Some(horizon) = horizon(tasks, supply, work)? else {
        return Err(overload(tasks, supply, shortest, work));
    };
    let mut window = last_deadline(tasks, horizon.saturating_add(1));
    while let Some(at) = window.filter(|&at| at >= shortest) {
        work.spend(2 * tasks.len(), at)?;
        let demand = total_demand(tasks, at);
        if demand > supply.supply(at) {
            return Err(violation(tasks, supply, at));
        }
        let reached = supply.window_for(demand).unwrap_or(at).min(at);
        window = last_deadline(tasks, reached);
    }
    Ok(())
}

fn total_demand(tasks: &[Task], window: Time) -> Amount {
    tasks
        .iter()
        .map(|task| Amount::from(demand(task, window)))
        .sum()
}

fn last_deadline(tasks: &[Task], below: Time) -> Option<Time> {
    tasks
        .iter()
        .filter_map(|task| previous_deadline(task, below))
        .max()
}

/// The last instant that has to be looked at; `None` if demand outgrows supply for certain.
fn horizon(tasks: &[Task], supply: &impl Supply, work: &mut Work) -> Result<Option<Time>, Verdict> {
    let line = supply.lower_line();
    let utilizations = Interval::of(tasks.iter().map(Task::utilization));
    // sum U_i (T_i + J_i - D_i), rounded up task by task.
    let lead: Amount = tasks
        .iter()
        .map(|task| {
            let early = task.period() + task.jitter() - task.deadline();
            let scaled = Amount::from(early) * Amount::from(task.demand());
            crate::time::div_ceil_wide(scaled, task.period().into())
        })
        .sum();
    let behind = lead + line.whole_offset();
    if let Some(bound) = utilizations.catch_up(line.rate, behind) {
        return match Time::try_from(bound) {
            Ok(bound) if bound <= MAX_INSTANT => Ok(Some(bound)),
            _ => Err(Verdict::Undecided(Stop::horizon())),
        };
    }
    match compare_sum(tasks.iter().map(Task::utilization), line.rate) {
        Some(Ordering::Greater) => Ok(None),
        Some(Ordering::Equal) if line.offset > 0 => Ok(None),
        Some(Ordering::Equal) => {
            let limit = hyperperiod(tasks).unwrap_or(MAX_INSTANT);
            busy_interval(tasks, supply, limit, work).map(Some)
        }
        Some(Ordering::Less) => busy_interval(tasks, supply, MAX_INSTANT, work).map(Some),
        None => Err(Verdict::Undecided(Stop::precision())),
    }
}

/// The least common multiple of the periods, if it can be looked at.
fn hyperperiod(tasks: &[Task]) -> Option<Time> {
    tasks.iter().try_fold(1, |all: Time, task| {
        let common = gcd(all.into(), task.period().into());
        let factor = task.period() / Time::try_from(common).ok()?;
        all.checked_mul(factor).filter(|&all| all <= MAX_INSTANT)
    })
}

/// The longest busy interval, the least w > 0 with sum rbf_i(w) <= sbf(w), or `limit` if that is less.
pub(super) fn busy_interval(
    tasks: &[Task],
    supply: &impl Supply,
    limit: Time,
    work: &mut Work,
) -> Result<Time, Verdict> {
    let mut window = 1;
    loop {
        work.spend(tasks.len(), window)?;
        let requested: Amount = tasks
            .iter()
            .map(|task| Amount::from(requests(task, task.jitter(), window)))
            .sum();
        match supply.window_for(requested) {
            Some(next) if next >= limit => return Ok(limit),
            Some(next) if next > window => window = next,
            Some(_) => return Ok(window),
            None => return Err(Verdict::Undecided(Stop::horizon())),
        }
    }
}

/// A witness where demand outgrows supply in the long run: the first failing deadline if a short walk
/// finds it, else one far enough out.
fn overload(tasks: &[Task], supply: &impl Supply, shortest: Time, work: &mut Work) -> Verdict {
    const WALK: usize = 1_000;
    let mut window = tasks
        .iter()
        .map(Task::window)
        .min()
        .unwrap_or(0)
        .max(shortest);
    let mut stride = 1;
    for _ in 0..WALK {
        if work.spend(2 * tasks.len(), window).is_err() || window > MAX_INSTANT / 2 {
            break;
        }
        if total_demand(tasks, window) > supply.supply(window) {
            return violation(tasks, supply, window);
        }
        // The first deadlines one by one, then in growing strides: some far window must fail.
        let next = tasks
            .iter()
            .map(|task| match previous_deadline(task, window + 1) {
                Some(at) => at + task.period(),
                None => task.window(),
            })
            .min();
        stride += window / 1_000;
        window = next.unwrap_or(window).max(window + stride);
    }
    while window <= MAX_INSTANT / 2 && work.spend(2 * tasks.len(), window).is_ok() {
        window *= 2;
        if total_demand(tasks, window) > supply.supply(window) {
            return violation(tasks, supply, window);
        }
    }
    Verdict::Undecided(Stop {
        bound: if window > MAX_INSTANT / 2 {
            Bound::Horizon
        } else {
            Bound::Work
        },
        at: window,
    })
}

/// Names the task with a deadline at `at` (its last one not later).
fn violation(tasks: &[Task], supply: &impl Supply, at: Time) -> Verdict {
    let index = (0..tasks.len())
        .max_by_key(|&i| previous_deadline(&tasks[i], at + 1))
        .unwrap_or_default();
    Verdict::Unschedulable(Violation {
        index,
        at,
        demand: total_demand(tasks, at),
        supply: supply.supply(at),
    })
}
