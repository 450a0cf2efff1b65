//! Figure 2.4: what the scheduling quantum costs, on one CPU.
//!
//! An RT VCPU is granted one quantum in every two. Beside it, below it, another one with two in every four wants all it
//! can get: whenever the first has work, each quantum ends with a switch. Its task has jobs of a share of 100 ms each.

use crate::testbed::mechanism::{Granted, Policy};
use steadyvm_load::job::{Ran, Task};

/// The CPU of both.
const CPU: u32 = 1;
/// The task's period, which is its deadline, in microseconds.
const TASK_PERIOD_US: u64 = 100_000;
/// What the RT VCPU is granted, per cent of the CPU.
pub const GRANTED_PERCENT: f64 = 50.0;

/// When the scheduler looks at budgets, and the budget of the RT VCPU: one quantum in every two.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Quantum {
    /// At multiples of so many microseconds; 0: at exact times.
    pub us: u64,
    /// The budget in every two of it, in microseconds.
    pub budget_us: u64,
}

impl Quantum {
    /// In the order shown. The longest is the tick of the lab's kernels.
    pub const ALL: [Self; 6] = [
        Self::of(250),
        Self::of(500),
        Self::of(1000),
        Self::of(2000),
        Self::of(4000),
        Self {
            us: 0,
            budget_us: 1000,
        },
    ];

    const fn of(us: u64) -> Self {
        Self { us, budget_us: us }
    }

    /// Its name in tables.
    pub fn title(self) -> String {
        let ms = |us: u64| us as f64 / 1e3;
        if self.us == 0 {
            format!(
                "exact, {} of {} ms",
                ms(self.budget_us),
                ms(2 * self.budget_us)
            )
        } else {
            format!("{} ms", ms(self.us))
        }
    }

    /// Both VCPUs: the RT one's thread, and that below it.
    pub fn granted(self, rt: u32, below: u32) -> [Granted<'static>; 2] {
        let granted = |name, tid, budget_us| Granted {
            name,
            tid,
            budget_us,
            period_us: 2 * budget_us,
        };
        // Of one priority, the first by name goes first.
        [
            granted("a-rt", rt, self.budget_us),
            granted("b-below", below, 2 * self.budget_us),
        ]
    }

    /// How they are scheduled.
    pub fn policy(self) -> Policy {
        Policy {
            scheduler: "gfp",
            quantum_us: self.us,
            cpu: Some(CPU),
        }
    }
}

/// What the RT VCPU's task asks for, per cent of the CPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Asked {
    /// Less than what is granted: are deadlines met?
    Percent(u64),
    /// All of the CPU: how much work is done?
    All,
}

impl Asked {
    /// In the order of measuring: where the dissertation's curves begin, and all.
    pub const ALL: [Self; 5] = [
        Self::Percent(30),
        Self::Percent(40),
        Self::Percent(44),
        Self::Percent(48),
        Self::All,
    ];

    /// The share, where it is less than all.
    pub fn percent(self) -> Option<u64> {
        match self {
            Self::Percent(percent) => Some(percent),
            Self::All => None,
        }
    }

    /// The jobs of a window. Those of [`Asked::All`] take about so long at what is granted. `units_per_ms`: of work.
    pub fn task(self, window_s: u64, units_per_ms: f64) -> Task {
        let jobs = window_s * 1_000_000 / TASK_PERIOD_US;
        let (percent, jobs) = match self {
            Self::Percent(percent) => (percent, jobs),
            Self::All => (100, jobs / 2),
        };
        let execution_ms = (TASK_PERIOD_US * percent / 100) as f64 / 1e3;
        Task {
            period_us: TASK_PERIOD_US,
            work: (execution_ms * units_per_ms).round().max(1.0) as u64,
            jobs,
            backlog: true,
        }
    }
}

/// The work of jobs that ask for all, per cent of what the CPU does in the time they took; `None` without jobs.
pub fn work_percent(ran: &Ran) -> Option<f64> {
    let passed_ns = ran.done.last()?.finished_ns as f64;
    let asked_ns = (ran.done.len() as u64 * TASK_PERIOD_US * 1000) as f64;
    (passed_ns > 0.0).then(|| asked_ns / passed_ns * 100.0)
}

/// How many jobs were done after their deadline, of how many.
pub fn misses(ran: &Ran) -> (u64, u64) {
    let late = |job: &&steadyvm_load::job::Done| job.response_ns() > TASK_PERIOD_US * 1000;
    let misses = ran.done.iter().filter(late).count();
    (misses as u64, ran.done.len() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use steadyvm_load::job::Done;

    #[test]
    fn half_of_the_cpu_is_granted_and_the_rest_is_taken() {
        for quantum in Quantum::ALL {
            let [rt, below] = quantum.granted(1, 2);
            for it in [rt, below] {
                let share = it.budget_us as f64 / it.period_us as f64 * 100.0;
                assert!((share - GRANTED_PERCENT).abs() < 1e-9);
            }
            assert!(rt.name < below.name && below.budget_us == 2 * rt.budget_us);
            assert_eq!(quantum.policy().quantum_us, quantum.us);
        }
        let titles: Vec<String> = Quantum::ALL.iter().map(|it| it.title()).collect();
        assert_eq!(
            titles,
            [
                "0.25 ms",
                "0.5 ms",
                "1 ms",
                "2 ms",
                "4 ms",
                "exact, 1 of 2 ms"
            ]
        );
    }

    #[test]
    fn a_task_asks_for_its_share_and_all_is_done_in_about_the_window() {
        let task = Asked::Percent(30).task(4, 100.0);
        assert_eq!((task.work, task.jobs), (3000, 40));
        let task = Asked::All.task(4, 100.0);
        assert_eq!((task.work, task.jobs), (10_000, 20));
        assert!(task.backlog);
    }

    #[test]
    fn work_is_of_the_time_that_it_took() {
        let ran = |ms: &[u64]| Ran {
            done: (0..)
                .zip(ms)
                .map(|(number, ms)| Done {
                    released_ns: number * 100_000_000,
                    finished_ns: ms * 1_000_000,
                })
                .collect(),
            waited_ns: 0,
        };
        // Two jobs of 100 ms in 500.
        let ran_all = ran(&[250, 500]);
        assert!((work_percent(&ran_all).unwrap() - 40.0).abs() < 1e-9);
        assert_eq!(work_percent(&ran(&[])), None);
        // The second was released at 100.
        assert_eq!(misses(&ran(&[101, 200])), (1, 2));
    }
}
