//! Tasks: release and end of jobs.
//!
//! A job that is late goes on, and later ones of its task wait for it (soft real time, as in the dissertation), unless the
//! host's [`Play`](crate::Play) drops late jobs at their deadlines.

use std::collections::VecDeque;

use rand::Rng;
use steadyvm_sched_policy::{KEY_IDLE, Parameters};

use super::{Engine, GuestOrder, NONE};
use crate::{
    observe::{Job, Observer},
    outcome::TaskOutcome,
    system::{Late, Task},
    timers::NEVER,
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
    /// Of the present job, up to its end or its suspension, ns.
    pub left: u64,
    /// It suspends itself so long when `left` has run, ns, and then executes so long.
    suspends: (u64, u64),
    /// It stands for a VCPU whose guest is anything: it is never late.
    pub is_adversary: bool,
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
            suspends: (0, 0),
            is_adversary: false,
            releases: VecDeque::with_capacity(8),
            next_release: settings.offset_ns,
            outcome: TaskOutcome::default(),
        }
    }

    /// Whatever runs in a guest of which nothing is known but its VCPU.
    pub fn adversary(parameters: &Parameters, guest: u32, vcpu: u32) -> Self {
        let settings = Task {
            deadline_ns: 1 << 60,
            ..Task::periodic("", parameters.budget_ns(), parameters.period_ns())
        };
        Self {
            is_adversary: true,
            ..Self::new(&settings, guest, vcpu, NONE)
        }
    }

    pub fn run(&mut self, time: u64) {
        self.left = self.left.saturating_sub(time);
    }

    /// Its first release is so much later.
    pub const fn begins_later(&mut self, by: u64) {
        self.next_release += by;
    }

    /// The release that comes next.
    pub const fn next_release(&self) -> u64 {
        self.next_release
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
        self.outcome.unfinished_misses += late.count() as u64;
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
            longest => self.draw(0, longest),
        }
    }

    /// From `least` to `most`; an adversary likes the ends.
    pub(super) fn draw(&mut self, least: u64, most: u64) -> u64 {
        if self.play.adversary {
            match self.random.random_range(0..4) {
                0 => return least,
                1 | 2 => return most,
                _ => {}
            }
        }
        self.random.random_range(least..=most)
    }

    /// A job arrives.
    pub(super) fn release(&mut self, number: u32) {
        if self.tasks[number as usize].is_adversary {
            self.tasks[number as usize].releases.push_back(self.now);
            self.begin_adversary(number);
            self.task_is_ready(number);
            return;
        }
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
            self.draw(period_ns, u64::try_from(longest).unwrap_or(period_ns))
        };
        let task = &mut self.tasks[number as usize];
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
        let Task {
            execution_ns,
            execution_factor_percent,
            suspension_ns,
            ..
        } = self.tasks[number as usize].settings;
        let mut left = if execution_factor_percent == 100 {
            execution_ns
        } else {
            let least = u128::from(execution_ns) * u128::from(execution_factor_percent) / 100;
            let least = u64::try_from(least).unwrap_or(1).max(1);
            self.draw(least, execution_ns)
        };
        let mut suspends = (0, 0);
        if suspension_ns > 0 && left > 1 {
            let first = self.draw(1, left - 1);
            suspends = (self.draw(0, suspension_ns), left - first);
            left = first;
        }
        let task = &mut self.tasks[number as usize];
        (task.left, task.suspends) = (left, suspends);
        if self.play.late == Late::Drop {
            let release = task.releases.front().copied().unwrap_or(self.now);
            let deadline = release + task.settings.deadline_ns;
            let timer = self.first_deadline() + number as usize;
            self.timers.set(timer, deadline.max(self.now));
        }
        self.set_key(number);
    }

    /// The deadline of the present job of `number` has come, and it has not finished: what is left of it is not executed.
    pub(super) fn drop_late(&mut self, number: u32) {
        let task = &self.tasks[number as usize];
        let cpu = task.cpu;
        // Nothing has a key while it sleeps, and its VCPU has been told.
        let sleeps = task.key == KEY_IDLE;
        if cpu != NONE {
            self.settle(cpu);
        }
        let suspension = self.first_suspension() + number as usize;
        self.timers.set(suspension, NEVER);
        let task = &mut self.tasks[number as usize];
        task.releases.pop_front();
        task.outcome.unfinished_misses += 1;
        (task.left, task.suspends) = (0, (0, 0));
        task.key = KEY_IDLE;
        let goes_on = !task.releases.is_empty();
        if goes_on {
            self.begin(number);
        }
        match (sleeps, goes_on) {
            (true, true) => self.task_is_ready(number),
            (true, false) => {}
            (false, true) => {
                self.mark_guest(self.tasks[number as usize].guest);
                self.choose_again(number);
            }
            (false, false) => self.task_is_idle(number),
        }
    }

    /// Its present job is ready.
    fn set_key(&mut self, number: u32) {
        let task = &mut self.tasks[number as usize];
        let deadline_ns = task.settings.deadline_ns;
        let release = task.releases.front().copied().unwrap_or(self.now);
        task.key = match self.guests[task.guest as usize].order {
            GuestOrder::EarliestDeadline => release + deadline_ns,
            GuestOrder::DeadlineMonotonic => deadline_ns,
        };
    }

    /// What stands for an adversary has so much work.
    pub(super) fn set_work(&mut self, number: u32, work: u64) {
        self.tasks[number as usize].left = work;
        self.set_key(number);
    }

    /// What `number` has executed ends its job, or the part of it before it suspends itself.
    pub(super) fn finish(&mut self, number: u32) {
        let (asleep, rest) = self.tasks[number as usize].suspends;
        if rest == 0 {
            self.complete(number);
            return;
        }
        if asleep == 0 {
            let task = &mut self.tasks[number as usize];
            (task.left, task.suspends) = (rest, (0, 0));
            self.mark_guest(self.tasks[number as usize].guest);
            self.choose_again(number);
            return;
        }
        self.tasks[number as usize].key = KEY_IDLE;
        let timer = self.first_suspension() + number as usize;
        self.timers.set(timer, self.now + asleep);
        self.task_is_idle(number);
    }

    /// The suspension of `number` ends.
    pub(super) fn resume(&mut self, number: u32) {
        let task = &mut self.tasks[number as usize];
        task.left = task.suspends.1;
        task.suspends = (0, 0);
        self.set_key(number);
        self.task_is_ready(number);
    }

    /// The present job of `number` has finished.
    pub(super) fn complete(&mut self, number: u32) {
        let task = &mut self.tasks[number as usize];
        let Some(release) = task.releases.pop_front() else {
            return;
        };
        if task.is_adversary {
            task.key = KEY_IDLE;
            self.task_is_idle(number);
            let next = self.next_wake_up(number);
            self.timers.set(number as usize, next);
            return;
        }
        let deadline = release + task.settings.deadline_ns;
        if self.play.late == Late::Drop {
            let timer = self.first_deadline() + number as usize;
            self.timers.set(timer, NEVER);
        }
        let task = &mut self.tasks[number as usize];
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
