//! T1 and the budgets of its VMs: the paper's, in a slower host.

use steadyvm_load::end_to_end::Task;

/// How many times longer than the paper's all times are.
const SCALE: u64 = 10;
/// The paper's T1: a job each 10 ms, of three stages of 2 ms.
const PAPER_PERIOD_US: u64 = 10_000;
const PAPER_STAGE_US: u64 = 2_000;
/// The paper's VMs of T1 have 60 % of a CPU each.
const SHARE_PERCENT: u64 = 60;

/// From one release to the next, and T1's deadline, in microseconds.
pub const PERIOD_US: u64 = SCALE * PAPER_PERIOD_US;
/// What each stage computes for, in microseconds.
pub const STAGE_US: u64 = SCALE * PAPER_STAGE_US;
/// What each VM is granted in every [`PERIOD_US`], in microseconds.
pub const BUDGET_US: u64 = PERIOD_US * SHARE_PERCENT / 100;
/// Without an answer for so long, what is under way is lost, in microseconds.
const TIMEOUT_US: u64 = 100 * PERIOD_US;

/// So many jobs, each stage of so many units of work.
pub fn task(jobs: u64, work: u64, run: u64) -> Task {
    Task {
        period_us: PERIOD_US,
        work,
        jobs,
        timeout_us: TIMEOUT_US,
        run,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_times_have_the_papers_proportions() {
        assert_eq!(PERIOD_US * PAPER_STAGE_US, STAGE_US * PAPER_PERIOD_US);
        assert_eq!(BUDGET_US * 100, SHARE_PERCENT * PERIOD_US);
        let task = task(3, 5, 7);
        assert_eq!((task.jobs, task.work, task.run), (3, 5, 7));
    }

    #[test]
    fn t1_fits_into_its_deadline_and_its_budgets_into_two_cpus() {
        // Its first VM has two stages; two fifths of the deadline are left for packets.
        const { assert!(2 * STAGE_US < BUDGET_US) };
        const { assert!(3 * STAGE_US < PERIOD_US) };
        // SCHED_DEADLINE takes 90 % of each CPU, and no task can be in two places.
        const { assert!(BUDGET_US * 10 < PERIOD_US * 9) };
    }
}
