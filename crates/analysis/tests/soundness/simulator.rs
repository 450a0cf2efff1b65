//! An independent checker: slot by slot, it executes explicit schedules on explicit supplies. It shares
//! no formula with the library.

/// A task of the simulation: execution, deadline, and the slots of its releases.
#[derive(Clone, Debug)]
pub struct Simulated {
    pub execution: i64,
    pub deadline: i64,
    pub releases: Vec<i64>,
}

/// Who runs first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Policy {
    EarliestDeadline,
    /// Shorter relative deadline first, then the order of the slice.
    DeadlineMonotonic,
}

struct Job {
    task: usize,
    due: i64,
    left: i64,
}

/// Runs jobs on `supply[slot]` processors in each slot; true if every job due within the supply ends in
/// time.
pub fn meets_deadlines(tasks: &[Simulated], policy: Policy, supply: &[usize]) -> bool {
    let mut jobs: Vec<Job> = Vec::new();
    let mut next = vec![0; tasks.len()];
    for (slot, &processors) in (0_i64..).zip(supply) {
        if jobs.iter().any(|job| job.due <= slot) {
            return false;
        }
        let mut arrived = false;
        for (index, task) in tasks.iter().enumerate() {
            while task
                .releases
                .get(next[index])
                .is_some_and(|&release| release <= slot)
            {
                next[index] += 1;
                arrived = true;
                jobs.push(Job {
                    task: index,
                    due: slot + task.deadline,
                    left: task.execution,
                });
            }
        }
        if arrived {
            jobs.sort_unstable_by_key(|job| match policy {
                Policy::EarliestDeadline => (job.due, job.task),
                Policy::DeadlineMonotonic => (tasks[job.task].deadline, job.task),
            });
        }
        for job in jobs.iter_mut().take(processors) {
            job.left -= 1;
        }
        jobs.retain(|job| job.left > 0);
    }
    jobs.iter().all(|job| job.due > supply.len() as i64)
}

/// Releases as early as allowed, from slot `first` on.
pub fn synchronous(period: i64, first: i64, slots: i64) -> Vec<i64> {
    let step = usize::try_from(period).unwrap_or(usize::MAX);
    (first..slots).step_by(step).collect()
}

/// The worst pattern of one VCPU: its budget at once in the first period, then always at the end.
/// A task released at slot `budget` meets the longest blackout.
pub fn late_supply(period: i64, budget: i64, slots: i64) -> Vec<usize> {
    (0..slots)
        .map(|slot| {
            let offset = slot % period;
            let gives = if slot < period {
                offset < budget
            } else {
                offset >= period - budget
            };
            usize::from(gives)
        })
        .collect()
}
