//! The common part of the global tests: does the interference in some extended window leave a task
//! too little?
//!
//! Model: tasks scheduled globally on a supply of parallelism m' > 1. Take the first job, of task k,
//! that misses its deadline, and extend its window to the left by A_k >= 0, as far as all that is
//! supplied executes work the job has to wait for. At that start fewer than m' tasks have an
//! unfinished job.
//!
//! Formula: no miss if for every k and every A_k, with t = A_k + D_k - J_k:
//! sum Î_i + sum of the m' - 1 largest (Ī_i - Î_i) + m' C_k <= sbf(t), where Î, Ī are the work of
//! task i without and with carry-in, cut at t - C_k for i != k.
//! At equality the cut can hide a miss (two tasks C = 3, D = 4 on one processor pass the published
//! form), so where both sides are equal the condition must also hold with the cut at t - C_k + 1 and
//! m' (C_k - 1), strictly: that is the same condition for a job one unit short of finishing.
//!
//! Where to look: both sides never decrease. t walks down from the instant where the supply's line has
//! overtaken the demand's; a condition that holds at t holds down to the shortest x with sbf(x) >= its
//! left side, and between two corners of either side, which are straight there.
//!
//! Complexity: O(n) a step, at most one step a corner for each of n tasks (pseudo-polynomial).
//! Sources: Baruah, RTSS 2007; Shin, Easwaran and Lee, ECRTS 2008 (Theorem 1); the tie: tests/exhaustive.rs.

use crate::{
    ratio::Interval,
    supply::Supply,
    task::Task,
    time::{Amount, MAX_INSTANT, Time},
    verdict::{Bound, Stop, Verdict, Violation},
    work::Work,
    workload::CarryIn,
};

/// How one task delays the task under test in a window.
pub(super) trait Interference {
    /// The exact test, for a supply of parallelism 1.
    fn test_on_one(&self, tasks: &[Task], supply: &impl Supply, work: &mut Work) -> Verdict;

    /// The tasks that can delay the task at `index`, and their positions.
    fn interferers<'a>(&self, tasks: &'a [Task], index: usize) -> &'a [Task];

    /// Work of `other` in a window of length `window`.
    fn work(&self, other: &Task, window: Time) -> CarryIn;

    /// Work of the task's own earlier jobs, before `ahead` = A_k is considered.
    fn own_work(&self, task: &Task, window: Time) -> CarryIn;

    /// The last instant below `below` where `work(other)` changes its slope.
    fn previous_corner(&self, other: &Task, below: Time) -> Time;

    /// What `work(other)` is above whole jobs at the least.
    fn constant(&self, _other: &Task) -> Time {
        0
    }

    /// A bound of `work(other).with - U window` over all windows.
    fn lead(&self, other: &Task) -> Time;
}

/// Decides the condition for every task.
pub(super) fn test(
    rule: &impl Interference,
    tasks: &[Task],
    supply: &impl Supply,
    work: &mut Work,
) -> Verdict {
    if supply.parallelism() <= 1 {
        return rule.test_on_one(tasks, supply, work);
    }
    let mut scratch = Vec::with_capacity(tasks.len());
    let mut load = Load::default();
    (0..tasks.len())
        .try_for_each(|index| {
            load.extend_to(rule, rule.interferers(tasks, index));
            Window {
                rule,
                tasks,
                supply,
                index,
            }
            .check(&load, &mut scratch, work)
        })
        .into()
}

/// Sums over the first interferers, from which every horizon follows.
#[derive(Default)]
struct Load {
    counted: usize,
    utilization: Interval,
    lead: Amount,
}

impl Load {
    /// Interferers of later tasks start with those of earlier ones.
    fn extend_to(&mut self, rule: &impl Interference, interferers: &[Task]) {
        for task in &interferers[self.counted..] {
            self.utilization = self.utilization.plus(task.utilization());
            self.lead += Amount::from(rule.lead(task));
        }
        self.counted = interferers.len();
    }
}

struct Window<'a, R, S> {
    rule: &'a R,
    tasks: &'a [Task],
    supply: &'a S,
    index: usize,
}

impl<R: Interference, S: Supply> Window<'_, R, S> {
    fn check(&self, load: &Load, scratch: &mut Vec<Time>, work: &mut Work) -> Result<(), Verdict> {
        let task = &self.tasks[self.index];
        let shortest = task.window();
        // The shortest window fails most often and explains best.
        self.demand_met(shortest, scratch, work)?;
        let mut at = self.horizon(load, shortest, work)?;
        while at >= shortest {
            let demand = self.demand_met(at, scratch, work)?;
            let reached = self.supply.window_for(demand).unwrap_or(at).min(at);
            // Everything in (reached, at] holds; everything in (corner, at) does if corner does.
            at = if reached < at { reached } else { at - 1 }.min(self.previous_corner(at));
        }
        Ok(())
    }

    /// The demand at `at`, if the condition holds there.
    fn demand_met(
        &self,
        at: Time,
        scratch: &mut Vec<Time>,
        work: &mut Work,
    ) -> Result<Amount, Verdict> {
        work.spend(2 * self.tasks.len(), at)?;
        let supply = self.supply.supply(at);
        let mut demand = self.demand(at, 0, scratch);
        if demand == supply {
            // The same condition with the cut one later, and all of C_k.
            let later = self.demand(at, 1, scratch) + self.supply.parallelism() as Amount;
            demand = if later > supply + self.supply.parallelism() as Amount - 1 {
                later
            } else {
                demand
            };
        }
        if demand > supply {
            return Err(Verdict::Unschedulable(Violation {
                index: self.index,
                at,
                demand,
                supply,
            }));
        }
        Ok(demand)
    }

    /// The condition's left side for a job that is `short` units short of finishing.
    fn demand(&self, at: Time, short: Time, scratch: &mut Vec<Time>) -> Amount {
        let task = &self.tasks[self.index];
        let parallelism = self.supply.parallelism();
        let done = task.demand() - short;
        let cut = at - done;
        let ahead = at - task.window();
        let others = self.rule.interferers(self.tasks, self.index);
        scratch.clear();
        let mut sum = Amount::from(done) * parallelism as Amount;
        for (position, other) in others.iter().enumerate() {
            let (CarryIn { without, with }, cut) = if position == self.index {
                (self.rule.own_work(other, at), ahead)
            } else {
                (self.rule.work(other, at), cut)
            };
            let without = without.min(cut);
            sum += Amount::from(without);
            scratch.push(with.min(cut) - without);
        }
        let carried = scratch.len().min(parallelism - 1);
        if carried > 0 {
            scratch.select_nth_unstable_by(carried - 1, |a, b| b.cmp(a));
        }
        sum + scratch[..carried]
            .iter()
            .map(|&extra| Amount::from(extra))
            .sum::<Amount>()
    }

    fn previous_corner(&self, at: Time) -> Time {
        let task = &self.tasks[self.index];
        let others = self.rule.interferers(self.tasks, self.index);
        others
            .iter()
            .map(|other| {
                self.rule
                    .previous_corner(other, at)
                    .max(self.previous_cut(other, at))
            })
            .max()
            .unwrap_or(0)
            .max(self.supply.previous_corner(at))
            .max(task.window())
    }

    /// The last instant below `at` where a cut starts or ceases to bind: where `other`'s work stands
    /// at j C and the cut crosses it.
    fn previous_cut(&self, other: &Task, at: Time) -> Time {
        let task = &self.tasks[self.index];
        let constant = self.rule.constant(other);
        let level = (self.rule.work(other, at).with - constant) / other.demand();
        // Work stands at level C at most until `at`; lower levels end at earlier corners.
        [level, level - 1, level + 1]
            .into_iter()
            .flat_map(|jobs| {
                let height = jobs * other.demand() + constant;
                [
                    height + task.demand(),
                    height - task.demand() + task.window(),
                ]
            })
            .filter(|&cut| cut < at)
            .max()
            .unwrap_or(0)
    }

    /// Beyond the horizon the condition holds for certain.
    fn horizon(&self, load: &Load, shortest: Time, work: &mut Work) -> Result<Time, Verdict> {
        let task = &self.tasks[self.index];
        let parallelism = self.supply.parallelism() as Amount;
        let line = self.supply.lower_line();
        let behind =
            load.lead + line.whole_offset() + parallelism * Amount::from(task.demand()) + 1;
        match load.utilization.catch_up(line.rate, behind) {
            Some(bound) => match Time::try_from(bound) {
                Ok(bound) if bound <= MAX_INSTANT => Ok(bound),
                _ => Err(Verdict::Undecided(Stop::horizon())),
            },
            // Demand grows at least as fast as supply: some window fails, the first one for a start.
            None => Err(self.first_failure(shortest, work)),
        }
    }

    /// A failing window where demand outgrows supply.
    fn first_failure(&self, shortest: Time, work: &mut Work) -> Verdict {
        let mut scratch = Vec::with_capacity(self.tasks.len());
        let mut at = shortest;
        while at <= MAX_INSTANT / 2 && work.spend(2 * self.tasks.len(), at).is_ok() {
            let (demand, supply) = (self.demand(at, 0, &mut scratch), self.supply.supply(at));
            if demand > supply {
                return Verdict::Unschedulable(Violation {
                    index: self.index,
                    at,
                    demand,
                    supply,
                });
            }
            at += 1 + at / 64;
        }
        Verdict::Undecided(Stop {
            bound: if at > MAX_INSTANT / 2 {
                Bound::Horizon
            } else {
                Bound::Work
            },
            at,
        })
    }
}
