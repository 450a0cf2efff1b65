//! The workload: sporadic and periodic tasks with constrained deadlines.
//!
//! Model: a task releases a job at least every `period` (T; a periodic task is the worst case of a
//! sporadic one). A job becomes known to the scheduler at most `jitter` (J) after its release, needs at
//! most `execution` (C) of one processor, may suspend itself for at most `suspension` (S) in all, and
//! must finish within `deadline` (D) of its release. Preconditions: 0 < C, C + S + J <= D <= T.
//!
//! Self-suspension. As its own delay, a job's suspension counts as execution (C + S). Under fixed
//! priorities on one processor, a suspending task of higher priority interferes like one with jitter
//! D - C. Under EDF and on several processors suspension counts as execution everywhere: for EDF,
//! "suspension as jitter" is not safe. Source: Chen et al., "Many suspensions, many problems", Real-Time
//! Systems 55 (2019).
//!
//! Interrupts. A job may begin with `interrupt` (W) of work that its VCPU does before every task: a packet's
//! interrupt, softirq, the guest's scheduler. W is part of C; what a test counts besides is that work of jobs which
//! the task under test would not wait for otherwise (a lower priority, a later deadline): at most
//! ceil((t + J) / T) W in a window t (Jeffay and Stone, RTSS 1993). If the VCPU only waits for some of W, instead of
//! working, that is no worse. Under fixed priorities let t be a window that all of W makes long enough, and x_j <= W_j
//! what task j is delayed: t - max x_j is one where j has jitter J_j + x_j and W_j - x_j of work, as its jobs are no
//! more than in t, each of them takes x_j less, and a supply gives at most max x_j less. Demand bounds: the same.
//!
//! Execution-time factor: C is multiplied by a fraction and rounded up before anything else.

use crate::{
    error::{Error, not_negative, positive},
    ratio::Fraction,
    time::{Amount, Divisor, MAX_TIME, Time, div_ceil_wide},
};

/// A sporadic task. Times in one unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Task {
    execution: Time,
    deadline: Time,
    period: Divisor,
    jitter: Time,
    suspension: Time,
    interrupt: Time,
}

impl Task {
    /// A task with worst-case execution time `execution`, relative deadline `deadline` and minimum
    /// inter-release time `period`.
    ///
    /// # Errors
    /// A time that is zero, negative or beyond [`MAX_TIME`], C > D, or D > T.
    pub fn new(execution: Time, deadline: Time, period: Time) -> Result<Self, Error> {
        let task = Self {
            execution: positive("the execution time c", execution)?,
            deadline: positive("the deadline d", deadline)?,
            period: Divisor::new(positive("the period t", period)?),
            jitter: 0,
            suspension: 0,
            interrupt: 0,
        };
        if deadline > period {
            return Err(Error::Exceeds {
                what: "the deadline d",
                value: deadline,
                limit_name: "the period t",
                limit: period,
                advice: "the analysis covers constrained deadlines; set d <= t",
            });
        }
        task.checked()
    }

    /// A task whose deadline is its period.
    ///
    /// # Errors
    /// As [`Task::new`].
    pub fn implicit(execution: Time, period: Time) -> Result<Self, Error> {
        Self::new(execution, period, period)
    }

    /// The same task with release jitter.
    ///
    /// # Errors
    /// Negative jitter, or C + S + J > D.
    pub fn with_jitter(self, jitter: Time) -> Result<Self, Error> {
        Self {
            jitter: not_negative("the release jitter", jitter)?,
            ..self
        }
        .checked()
    }

    /// The same task with self-suspension.
    ///
    /// # Errors
    /// Negative suspension, or C + S + J > D.
    pub fn with_suspension(self, suspension: Time) -> Result<Self, Error> {
        Self {
            suspension: not_negative("the self-suspension", suspension)?,
            ..self
        }
        .checked()
    }

    /// The same task, each job of which begins with so much more work that runs before every task of its VCPU.
    ///
    /// # Errors
    /// Negative work, or C + S + J > D.
    pub fn with_interrupt(self, interrupt: Time) -> Result<Self, Error> {
        let more = not_negative("the guest's wake-up", interrupt)?;
        Self {
            interrupt: self.interrupt + more,
            execution: self.execution + more,
            ..self
        }
        .checked()
    }

    /// The same task with its execution time multiplied by `factor` and rounded up.
    ///
    /// # Errors
    /// A factor that is not positive, or an execution time that no longer fits the deadline.
    pub fn with_execution_factor(self, factor: Fraction) -> Result<Self, Error> {
        if factor.numerator <= 0 || factor.denominator <= 0 {
            return Err(Error::NotPositive {
                what: "the execution-time factor",
                value: 0,
            });
        }
        let scaled = i128::from(self.execution)
            .checked_mul(factor.numerator)
            .map(|product| crate::time::div_ceil_wide(product, factor.denominator))
            .and_then(|scaled| Time::try_from(scaled).ok())
            .unwrap_or(Time::MAX);
        let execution = positive("the execution time c with its factor", scaled)?;
        Self { execution, ..self }.checked()
    }

    fn checked(self) -> Result<Self, Error> {
        // Each part is at most MAX_TIME = 2^53: the sum fits.
        let needed = self.execution + self.suspension + self.jitter;
        if needed <= self.deadline {
            return Ok(self);
        }
        let what = if needed == self.execution {
            "the execution time c"
        } else {
            "execution time + self-suspension + jitter"
        };
        Err(Error::Exceeds {
            what,
            value: needed,
            limit_name: "the deadline d",
            limit: self.deadline,
            advice: "such a job can never finish in time; shorten it or allow it more time",
        })
    }

    /// C, the worst-case execution time of a job.
    pub const fn execution(&self) -> Time {
        self.execution
    }

    /// D, relative to the release.
    pub const fn deadline(&self) -> Time {
        self.deadline
    }

    /// T, the minimum time between releases.
    pub const fn period(&self) -> Time {
        self.period.value()
    }

    /// `floor(length / T)` for `length >= 0`, without a division.
    pub(crate) const fn periods_in(&self, length: Time) -> Time {
        self.period.quotient(length)
    }

    /// J, the longest delay from release to arrival.
    pub const fn jitter(&self) -> Time {
        self.jitter
    }

    /// S, the longest self-suspension of a job.
    pub const fn suspension(&self) -> Time {
        self.suspension
    }

    /// W, the part of C that runs before every task of its VCPU.
    pub const fn interrupt(&self) -> Time {
        self.interrupt
    }

    /// C + S: execution with suspension counted as execution.
    pub const fn demand(&self) -> Time {
        self.execution + self.suspension
    }

    /// D - J: the time a job has from its latest arrival.
    pub const fn window(&self) -> Time {
        self.deadline - self.jitter
    }

    /// (C + S) / T.
    pub fn utilization(&self) -> Fraction {
        Fraction::new(self.demand().into(), self.period().into())
    }

    /// C / T, the share of a processor that the task takes in the long run: no processor while suspended.
    pub fn execution_share(&self) -> Fraction {
        Fraction::new(self.execution.into(), self.period().into())
    }

    /// (C + S) / (D - J).
    pub fn density(&self) -> Fraction {
        Fraction::new(self.demand().into(), self.window().into())
    }

    /// A VCPU or server as the host sees it. The caller guarantees `0 < c`, `c + j <= d <= t`.
    pub(crate) const fn server(
        execution: Time,
        deadline: Time,
        period: Time,
        jitter: Time,
    ) -> Self {
        debug_assert!(execution + jitter <= deadline);
        Self::late_server(execution, deadline, period, jitter)
    }

    /// A server as others on its processor see it: its jitter may exceed what its own deadline leaves.
    /// The caller guarantees `0 < c`, `c <= d <= t`, `0 <= j <= d`.
    pub(crate) const fn late_server(
        execution: Time,
        deadline: Time,
        period: Time,
        jitter: Time,
    ) -> Self {
        debug_assert!(execution > 0 && execution <= deadline && deadline <= period);
        debug_assert!(0 <= jitter && jitter <= deadline && period <= MAX_TIME);
        Self {
            execution,
            deadline,
            period: Divisor::new(period),
            jitter,
            suspension: 0,
            interrupt: 0,
        }
    }
}

/// How fixed priorities are given.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PriorityOrder {
    /// Shorter period, higher priority; ties in the order given.
    RateMonotonic,
    /// Shorter deadline, higher priority; ties in the order given.
    DeadlineMonotonic,
    /// The order given: the first task has the highest priority.
    Explicit,
}

impl PriorityOrder {
    /// Indices into `tasks`, highest priority first.
    pub fn order(&self, tasks: &[Task]) -> Vec<usize> {
        let mut order: Vec<usize> = (0..tasks.len()).collect();
        match self {
            Self::RateMonotonic => order.sort_by_key(|&i| tasks[i].period()),
            Self::DeadlineMonotonic => order.sort_by_key(|&i| tasks[i].deadline),
            Self::Explicit => {}
        }
        order
    }
}

/// `ceil(U length)` for the task's utilisation U and `length` of at most twice its period.
pub(crate) fn share(task: &Task, length: Time) -> Time {
    let scaled = Amount::from(task.demand()) * Amount::from(length);
    let share = div_ceil_wide(scaled, task.period().into());
    // At most 2 C.
    Time::try_from(share).unwrap_or(Time::MAX / 4)
}
