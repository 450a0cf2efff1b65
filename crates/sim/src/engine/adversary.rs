//! A VCPU of whose guest nothing is known: it wakes and sleeps when that may harm others, or itself.
//!
//! Bad moments are drawn: at once; the last moment at which a constant-bandwidth server keeps its deadline; so late that
//! the budget just fits before it is due, or its period's end (a deferrable server then runs twice in a row); a period's
//! beginning; another VM's release, or just before it. It stops when its budget is used up, one nanosecond or an eighth
//! before that, or anywhere.
//!
//! Where switches cost time it wakes once in a period: so often the plan counts for a VM of which it knows no tasks.

use rand::Rng;

use super::{Engine, NONE};
use crate::{observe::Observer, system::Overheads};

impl<O: Observer> Engine<'_, O> {
    /// Its VCPU wakes now: how much work there is.
    pub(super) fn begin_adversary(&mut self, number: u32) {
        let vcpu = self.tasks[number as usize].vcpu;
        self.bring_up(vcpu);
        let server = &self.vcpus[vcpu as usize].server;
        let budget = server.parameters().budget_ns();
        let left = match server.remaining_ns(self.now) {
            0 => budget,
            left => left,
        };
        let work = match self.random.random_range(0..6) {
            0 => left,
            1 => left - 1,
            2 => left - left / 8,
            3 => 2 * budget,
            4 => 1,
            _ => self.random.random_range(1..=budget),
        };
        self.set_work(number, work.max(1));
    }

    /// Its VCPU has gone to sleep: when it wakes.
    pub(super) fn next_wake_up(&mut self, number: u32) -> u64 {
        let vcpu = self.tasks[number as usize].vcpu;
        self.bring_up(vcpu);
        let now = self.now;
        let release = self.some_release();
        let server = &self.vcpus[vcpu as usize].server;
        let parameters = server.parameters();
        let (budget, period) = (parameters.budget_ns(), parameters.period_ns());
        let left = server.remaining_ns(now);
        let (due, begins) = server.instants(&self.host);
        let fluid = u128::from(left) * u128::from(parameters.deadline_ns()) / u128::from(budget);
        let at = match self.random.random_range(0..8) {
            0 => now,
            1 => due.saturating_sub(u64::try_from(fluid).unwrap_or(left)),
            2 => due.saturating_sub(left),
            3 => begins.saturating_sub(budget),
            4 => begins,
            5 => release,
            6 => release.saturating_sub(self.random.random_range(1..=budget)),
            _ => now + self.random.random_range(0..=2 * period),
        };
        let least = if self.overheads == Overheads::default() {
            now
        } else {
            // Its last wake-up is not kept; a period after its sleep is later than one after that.
            now + period
        };
        // Far instants are of servers that have no such thing as a next one.
        at.clamp(least, least + 4 * period)
    }

    fn bring_up(&mut self, vcpu: u32) {
        let holds = self.vcpus[vcpu as usize].holds;
        if holds != NONE {
            self.settle(holds);
        }
        self.vcpus[vcpu as usize].server.advance(self.now);
    }

    /// The next release of any task that is no adversary.
    fn some_release(&mut self) -> u64 {
        let number = self.random.random_range(0..self.tasks.len());
        if self.tasks[number].is_adversary {
            self.now
        } else {
            self.tasks[number].next_release()
        }
    }
}
