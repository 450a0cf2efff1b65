//! EDF on one VCPU.
//!
//! Model: sporadic tasks ([`crate::task`]) under preemptive EDF on a supply of parallelism 1.
//! Preconditions: none beyond the task model; suspension counts as execution.
//!
//! Formula: schedulable iff for all t > 0: sum dbf_i(t) <= sbf(t). Interrupts ([`crate::task`]) count from their
//! arrival on, at the deadlines: a window that ends at none has nothing due.
//! Where to look: no t beyond the instant L where the supply's line has overtaken the demand's line
//! U t + sum U_i (T_i + J_i - D_i), nor beyond a hyperperiod of tasks and supply. With U = 1 on a dedicated
//! processor the lines are parallel; then L is the end of the longest busy interval (a failure after it has
//! a copy inside it). Within L, t walks
//! down as in quick processor-demand analysis: if dbf(t) <= sbf(t), the next t to look at is the last
//! deadline before the shortest x with sbf(x) >= dbf(t), since up to t no demand exceeds dbf(t).
//!
//! Complexity: O(n) a step; at most one step a deadline up to L (pseudo-polynomial), few in practice.
//! Exact: yields a witness for every rejection.
//! Sources: Shin and Lee, RTSS 2003; Zhang and Burns, IEEE TC 2009 (QPA).

use std::{cmp::Ordering, ops::RangeInclusive};

use crate::{
    ratio::{Interval, compare_sum, gcd},
    supply::{Repeats, Supply},
    task::Task,
    time::{Amount, MAX_INSTANT, Time, div_ceil},
    verdict::{Bound, Stop, Verdict, Violation},
    work::{STEPS_SHARE, Work},
    workload::{demand, early_interrupts, jobs_due, previous_deadline, requests},
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
    walk(tasks, supply, shortest..=horizon, work)
}

/// Looks at the windows in a range, from the longest down.
pub(crate) fn walk(
    tasks: &[Task],
    supply: &impl Supply,
    windows: RangeInclusive<Time>,
    work: &mut Work,
) -> Result<(), Verdict> {
    let mut descent = Descent::new(tasks, *windows.end());
    let mut limit = *windows.end();
    loop {
        work.spend(tasks.len() / STEPS_SHARE + 4, limit)?;
        let at = descent.down_to(limit);
        if at < *windows.start() || at <= 0 {
            return Ok(());
        }
        let demand = descent.demand + descent.early_interrupts(at);
        if demand > supply.supply(at) {
            return Err(violation(tasks, supply, at));
        }
        let reached = supply.window_for(demand).unwrap_or(at);
        limit = reached.min(at) - 1;
    }
}

/// The demand in windows that only get shorter.
struct Descent {
    tasks: Vec<LastDeadline>,
    /// Of jobs that arrive and are due.
    demand: Amount,
    with_interrupts: Vec<Task>,
}

/// A task's last deadline in the window (none: not after 0).
struct LastDeadline {
    at: Time,
    period: Time,
    execution: Time,
}

impl Descent {
    fn new(tasks: &[Task], window: Time) -> Self {
        let last = |task: &Task| LastDeadline {
            at: previous_deadline(task, window + 1).unwrap_or(0),
            period: task.period(),
            execution: task.demand(),
        };
        let due = |task: &Task| Amount::from(jobs_due(task, window) * task.demand());
        let interrupting = tasks.iter().filter(|task| task.interrupt() > 0);
        Self {
            tasks: tasks.iter().map(last).collect(),
            demand: tasks.iter().map(due).sum(),
            with_interrupts: interrupting.copied().collect(),
        }
    }

    fn early_interrupts(&self, window: Time) -> Amount {
        let early = |task: &Task| Amount::from(early_interrupts(task, window));
        self.with_interrupts.iter().map(early).sum()
    }

    /// Shortens the window to `limit`; the last deadline in it, or what is not after 0.
    fn down_to(&mut self, limit: Time) -> Time {
        let mut latest = 0;
        for task in &mut self.tasks {
            let over = task.at - limit;
            // Mostly none or one: counted without a branch, which would be a coin toss.
            let jobs = if over > task.period {
                div_ceil(over, task.period)
            } else {
                Time::from(over > 0)
            };
            task.at -= jobs * task.period;
            self.demand -= Amount::from(jobs * task.execution);
            latest = latest.max(task.at);
        }
        latest
    }
}

fn total_demand(tasks: &[Task], window: Time) -> Amount {
    tasks
        .iter()
        .map(|task| Amount::from(demand(task, window)))
        .sum()
}

/// The last instant that has to be looked at; `None` if demand outgrows supply for certain.
pub(crate) fn horizon(
    tasks: &[Task],
    supply: &impl Supply,
    work: &mut Work,
) -> Result<Option<Time>, Verdict> {
    let line = supply.lower_line();
    let utilizations = Interval::of(tasks.iter().map(Task::utilization));
    // sum U_i (T_i + J_i - D_i), rounded up task by task; interrupts count from the arrival on.
    let lead: Amount = tasks
        .iter()
        .map(|task| {
            let early = task.period() + task.jitter() - task.deadline();
            let scaled = Amount::from(early) * Amount::from(task.demand())
                + Amount::from(task.deadline()) * Amount::from(task.interrupt());
            crate::time::div_ceil_wide(scaled, task.period().into())
        })
        .sum();
    let behind = lead + line.whole_offset();
    let repeats = common_period(tasks, supply);
    if let Some(bound) = utilizations.catch_up(line.rate, behind) {
        let bound = Time::try_from(bound).unwrap_or(Time::MAX);
        let bound = repeats.map_or(bound, |repeats| repeats.min(bound));
        return if bound <= MAX_INSTANT {
            Ok(Some(bound))
        } else {
            Err(Verdict::Undecided(Stop::horizon()))
        };
    }
    match compare_sum(tasks.iter().map(Task::utilization), line.rate) {
        Some(Ordering::Greater) => Ok(None),
        Some(Ordering::Equal) if line.offset > 0 => Ok(None),
        Some(_) => busy_interval(tasks, supply, repeats.unwrap_or(MAX_INSTANT), work).map(Some),
        None => Err(Verdict::Undecided(Stop::precision())),
    }
}

/// A window from which on demand and supply repeat what they did a hyperperiod before, as far as it can be
/// looked at: with H the least common multiple of the periods and the supply's, dbf(t + H) = dbf(t) + U H and
/// sbf(t + H) = sbf(t) + rate H >= sbf(t) + U H, so that a window beyond fails only if a shorter one does.
fn common_period(tasks: &[Task], supply: &impl Supply) -> Option<Time> {
    let Repeats { from, period } = supply.repeats();
    let hyperperiod = tasks.iter().try_fold(period, |all: Time, task| {
        let common = gcd(all.into(), task.period().into());
        let factor = task.period() / Time::try_from(common).ok()?;
        all.checked_mul(factor).filter(|&all| all <= MAX_INSTANT)
    })?;
    Some(from + hyperperiod)
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
