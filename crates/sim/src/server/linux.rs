//! One `SCHED_DEADLINE` entity: a hard constant-bandwidth server as the kernel has it, constrained deadlines included.
//!
//! A function here has the name and the rule of its counterpart in `kernel/sched/deadline.c` (6.12.117; 6.18 has the same
//! rules). What is left out belongs to the fair server, to GRUB and to priority inheritance. Shifts are the kernel's: 2^10
//! ns in the wake-up rule, 2^-20 in a density. The timer is applied when somebody next looks, at the instant for which it
//! was set.
//!
//! What a reader may not expect, for D < T: an entity that uses its runtime up is *throttled*, also if it sleeps. The
//! timer then gives it a whole runtime and the deadline T + D while it sleeps ([`Entity::dl_task_timer`]). A wake-up
//! between T and T + D finds more runtime than its density allows to that deadline, and it is cut
//! ([`Entity::update_dl_revised_wakeup`]): the next request has less than Q.

/// `DL_SCALE`.
const SCALE: u32 = 10;
/// `BW_SHIFT`.
const BANDWIDTH_SHIFT: u32 = 20;

/// `struct sched_dl_entity` of a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Entity {
    dl_runtime: u64,
    dl_deadline: u64,
    dl_period: u64,
    dl_density: u64,
    runtime: i64,
    deadline: u64,
    dl_throttled: bool,
    /// `dl_timer`, if it is set.
    dl_timer: Option<u64>,
    /// `task_on_rq_queued`.
    ready: bool,
}

impl Entity {
    /// A task that has got this reservation at `now` and sleeps.
    pub fn new(runtime_ns: u64, deadline_ns: u64, period_ns: u64, now: u64) -> Self {
        Self {
            dl_runtime: runtime_ns,
            dl_deadline: deadline_ns,
            dl_period: period_ns,
            // to_ratio
            dl_density: (runtime_ns << BANDWIDTH_SHIFT) / deadline_ns.max(1),
            runtime: runtime_ns as i64,
            deadline: now + deadline_ns,
            dl_throttled: false,
            dl_timer: None,
            ready: false,
        }
    }

    /// `enqueue_task_dl` with `ENQUEUE_WAKEUP`.
    pub fn wake(&mut self, now: u64) {
        self.advance(now);
        if self.ready {
            return;
        }
        self.ready = true;
        self.enqueue_dl_entity(now, false);
        self.found_without_runtime(now);
    }

    /// `dequeue_task_dl` with `DEQUEUE_SLEEP`; what it ran is to be accounted first.
    pub fn block(&mut self, now: u64) {
        self.advance(now);
        self.ready = false;
    }

    /// The timer, if it was due by `now`.
    pub fn advance(&mut self, now: u64) {
        if let Some(timer) = self.dl_timer.filter(|&timer| timer <= now) {
            self.dl_timer = None;
            self.dl_task_timer(timer);
            self.found_without_runtime(timer);
        }
    }

    /// `update_curr_dl_se`: it ran for `delta` up to `now`.
    pub fn update_curr(&mut self, delta: u64, now: u64) {
        self.runtime -= delta as i64;
        // dl_runtime_exceeded
        if self.runtime <= 0 && delta > 0 {
            self.throttle(now);
        }
    }

    fn throttle(&mut self, now: u64) {
        self.dl_throttled = true;
        if !self.start_dl_timer(now) {
            self.enqueue_dl_entity(now, true);
        }
    }

    /// A wake-up at its deadline leaves no runtime: the kernel finds that out as it first accounts for what it ran.
    fn found_without_runtime(&mut self, now: u64) {
        if self.ready && !self.dl_throttled && self.runtime <= 0 {
            self.throttle(now);
        }
    }

    /// With `replenish`, `ENQUEUE_REPLENISH`, else a wake-up.
    fn enqueue_dl_entity(&mut self, now: u64, replenish: bool) {
        if !self.dl_throttled && !self.dl_is_implicit() {
            self.dl_check_constrained_dl(now);
        }
        if replenish {
            self.replenish_dl_entity(now);
        } else if !self.dl_throttled {
            self.update_dl_entity(now);
        }
    }

    /// A wake-up between deadline and next period waits for the period.
    fn dl_check_constrained_dl(&mut self, now: u64) {
        if self.deadline < now && now < self.dl_next_period() && self.start_dl_timer(now) {
            self.dl_throttled = true;
            self.runtime = self.runtime.min(0);
        }
    }

    fn update_dl_entity(&mut self, now: u64) {
        if self.deadline < now || self.dl_entity_overflow(now) {
            if !self.dl_is_implicit() && self.deadline >= now {
                self.update_dl_revised_wakeup(now);
            } else {
                self.replenish_dl_new_period(now);
            }
        }
    }

    fn dl_entity_overflow(&self, now: u64) -> bool {
        let left = i128::from(self.dl_deadline >> SCALE) * i128::from(self.runtime >> SCALE);
        let right =
            i128::from((self.deadline - now) >> SCALE) * i128::from(self.dl_runtime >> SCALE);
        right < left
    }

    fn update_dl_revised_wakeup(&mut self, now: u64) {
        let laxity = u128::from(self.deadline - now);
        self.runtime = ((u128::from(self.dl_density) * laxity) >> BANDWIDTH_SHIFT) as i64;
    }

    fn replenish_dl_new_period(&mut self, now: u64) {
        self.deadline = now + self.dl_deadline;
        self.runtime = self.dl_runtime as i64;
    }

    fn replenish_dl_entity(&mut self, now: u64) {
        while self.runtime <= 0 {
            self.deadline += self.dl_period;
            self.runtime += self.dl_runtime as i64;
        }
        if self.deadline < now {
            self.replenish_dl_new_period(now);
        }
        self.dl_throttled = false;
        // An enqueued entity's timer is cancelled.
        self.dl_timer = None;
    }

    fn dl_task_timer(&mut self, now: u64) {
        if !self.dl_throttled {
            return;
        }
        // Asleep (`!task_on_rq_queued`): replenished all the same, and not enqueued.
        self.replenish_dl_entity(now);
    }

    /// Whether the timer could be set: not for what is past by a microsecond.
    fn start_dl_timer(&mut self, now: u64) -> bool {
        let at = self.dl_next_period();
        if at + 1_000 <= now {
            return false;
        }
        if self.dl_timer.is_none() {
            self.dl_timer = Some(at.max(now));
        }
        true
    }

    const fn dl_next_period(&self) -> u64 {
        self.deadline + self.dl_period - self.dl_deadline
    }

    const fn dl_is_implicit(&self) -> bool {
        self.dl_deadline == self.dl_period
    }

    /// It has work, and is not throttled.
    pub const fn is_queued(&self) -> bool {
        self.ready && !self.dl_throttled
    }

    /// It has work.
    pub const fn is_ready(&self) -> bool {
        self.ready
    }

    /// What it may run before it is throttled, ns.
    pub const fn remaining_ns(&self) -> u64 {
        if self.dl_throttled || self.runtime <= 0 {
            0
        } else {
            self.runtime as u64
        }
    }

    /// The absolute deadline, which orders entities.
    pub const fn deadline_ns(&self) -> u64 {
        self.deadline
    }

    /// When the timer fires, if it is set.
    pub const fn timer_ns(&self) -> Option<u64> {
        self.dl_timer
    }

    /// The same at a clock on which it is `now` - `by`; what is so long ago that it makes no difference is made alike.
    /// For who looks through all states.
    #[must_use]
    pub fn rebased(mut self, by: u64, now: u64) -> Self {
        // Asleep and past its next period it begins anew at the next wake-up, whatever is left.
        if !self.ready && !self.dl_throttled && self.dl_next_period() < now {
            self.runtime = self.dl_runtime as i64;
            self.deadline = now.saturating_sub(1 + self.dl_period - self.dl_deadline);
        }
        self.deadline = self.deadline.saturating_sub(by);
        self.dl_timer = self.dl_timer.map(|timer| timer.saturating_sub(by));
        self
    }
}
