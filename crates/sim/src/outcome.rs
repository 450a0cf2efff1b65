//! What a simulation found.

use serde::Serialize;

/// Of one task.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct TaskOutcome {
    /// Jobs finished.
    pub jobs: u64,
    /// Of these, finished after their deadline.
    pub misses: u64,
    /// Jobs not finished although their deadline is before the end, or dropped at it.
    pub unfinished_misses: u64,
    /// The longest time from release to finish, ns.
    pub longest_response_ns: u64,
    /// The sum of all, ns.
    pub total_response_ns: u64,
}

impl TaskOutcome {
    pub(crate) fn add(&mut self, response_ns: u64, missed: bool) {
        self.jobs += 1;
        self.misses += u64::from(missed);
        self.longest_response_ns = self.longest_response_ns.max(response_ns);
        self.total_response_ns += response_ns;
    }

    /// Jobs late, finished or not.
    pub const fn late(&self) -> u64 {
        self.misses + self.unfinished_misses
    }

    /// Jobs finished, and those that should be.
    pub const fn due(&self) -> u64 {
        self.jobs + self.unfinished_misses
    }
}

/// Of one VCPU.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct VcpuOutcome {
    /// Time it ran, ns.
    pub supplied_ns: u64,
    /// Times it began to run.
    pub dispatches: u64,
    /// Times another took its CPU while it had work and budget.
    pub preemptions: u64,
    /// Times it began to run on another CPU than before.
    pub migrations: u64,
}

/// Of a whole system.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Outcome {
    /// Simulated time, ns.
    pub duration_ns: u64,
    /// Events handled: releases, replenishments, ends of jobs, budgets and slices.
    pub events: u64,
    /// In the order given, over all guests.
    pub tasks: Vec<TaskOutcome>,
    /// In the order given, over all guests.
    pub vcpus: Vec<VcpuOutcome>,
}

impl Outcome {
    /// Late jobs of all tasks.
    pub fn late(&self) -> u64 {
        self.tasks.iter().map(TaskOutcome::late).sum()
    }

    /// Jobs of all tasks that finished or should have.
    pub fn due(&self) -> u64 {
        self.tasks.iter().map(TaskOutcome::due).sum()
    }
}
