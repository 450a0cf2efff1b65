//! Tasks: release and end of jobs.
//!
//! A job that is late goes on, and later ones of its task wait for it (soft real time, as in the dissertation).

use std::collections::VecDeque;

use rand::Rng;
use steadyvm_sched_policy::KEY_IDLE;

use super::{Engine, GuestOrder, NONE};
use crate::{
    observe::{Job, Observer},
    outcome::TaskOutcome,
    system::Task,
};

pub(super) struct TaskState {
    settings: Task,
    pub guest: u32,
    /// Its only VCPU, or [`NONE`] in a global guest.
    pub vcpu: u32,
    /// Its number in the order given.
    pub position: u32,
    /// Its guest's order: less is first; [`KEY_IDLE`] without a job.
    pub key: u64,
    /// The CPU it runs on.
    pub cpu: u32,
    /// Of the present job, ns.
    pub left: u64,
    /// Releases of unfinished jobs, the present one first.
    releases: VecDeque<u64>,
    /// The release that its timer stands for (it arrives later with jitter).
    next_release: u64,
    outcome: TaskOutcome,
}

impl TaskState {
    pub fn new(settings: &Task, guest: u32, vcpu: u32, position: u32) -> Self {
        Self {
            settings: settings.clone(),
            guest,
            vcpu,
            position,
            key: KEY_IDLE,
            cpu: NONE,
            left: 0,
            releases: VecDeque::with_capacity(8),
            next_release: settings.offset_ns,
            outcome: TaskOutcome::default(),
        }
    }

    pub fn run(&mut self, time: u64) {
        self.left = self.left.saturating_sub(time);
    }

    pub fn is_done(&self) -> bool {
        self.left == 0 && self.key != KEY_IDLE
    }

    /// Unfinished jobs whose deadline is within the simulation are misses too.
    pub fn into_outcome(mut self, end: u64) -> TaskOutcome {
        let late = self
            .releases
            .iter()
            .filter(|&&release| release + self.settings.deadline_ns < end);
        self.outcome.unfinished_misses = late.count() as u64;
        self.outcome
    }
}

impl<O: Observer> Engine<'_, O> {
    /// When the first job of `task` arrives.
    pub(super) fn first_release(&mut self, task: usize) -> u64 {
        let jitter = self.jitter(task);
        self.tasks[task].settings.offset_ns + jitter
    }

    fn jitter(&mut self, task: usize) -> u64 {
        match self.tasks[task].settings.jitter_ns {
            0 => 0,
            longest => self.random.random_range(0..=longest),
        }
    }

    /// A job arrives.
    pub(super) fn release(&mut self, number: u32) {
        let jitter = self.jitter(number as usize);
        let task = &mut self.tasks[number as usize];
        task.releases.push_back(task.next_release);
        let Task {
            period_ns,
            longest_gap_percent,
            ..
        } = task.settings;
        let gap = if longest_gap_percent == 100 {
            period_ns
        } else {
            let longest = u128::from(period_ns) * u128::from(longest_gap_percent) / 100;
            self.random
                .random_range(period_ns..=u64::try_from(longest).unwrap_or(period_ns))
        };
        task.next_release += gap;
        // Arrivals of one task keep their order.
        let next = (task.next_release + jitter).max(self.now);
        self.timers.set(number as usize, next);
        if self.tasks[number as usize].releases.len() == 1 {
            self.begin(number);
            self.task_is_ready(number);
        }
    }

    /// The first unfinished job of `number` becomes the present one.
    fn begin(&mut self, number: u32) {
        let task = &mut self.tasks[number as usize];
        let Task {
            execution_ns,
            deadline_ns,
            execution_factor_percent,
            ..
        } = task.settings;
        task.left = if execution_factor_percent == 100 {
            execution_ns
        } else {
            let least = u128::from(execution_ns) * u128::from(execution_factor_percent) / 100;
            let least = u64::try_from(least).unwrap_or(1).max(1);
            self.random.random_range(least..=execution_ns)
        };
        let release = task.releases.front().copied().unwrap_or(self.now);
        task.key = match self.guests[task.guest as usize].order {
            GuestOrder::EarliestDeadline => release + deadline_ns,
            GuestOrder::DeadlineMonotonic => deadline_ns,
        };
    }

    /// The present job of `number` has finished.
    pub(super) fn complete(&mut self, number: u32) {
        let task = &mut self.tasks[number as usize];
        let Some(release) = task.releases.pop_front() else {
            return;
        };
        let deadline = release + task.settings.deadline_ns;
        task.outcome.add(self.now - release, self.now > deadline);
        let job = Job {
            task: task.position,
            release_ns: release,
            deadline_ns: deadline,
            finish_ns: self.now,
        };
        task.key = KEY_IDLE;
        let goes_on = !task.releases.is_empty();
        self.observer.job(&job);
        if goes_on {
            self.begin(number);
            self.mark_guest(self.tasks[number as usize].guest);
            self.choose_again(number);
        } else {
            self.task_is_idle(number);
        }
    }
}
