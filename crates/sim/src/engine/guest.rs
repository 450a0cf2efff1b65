//! Inside a guest: which VCPUs have work, and which task runs on each VCPU that runs.

use steadyvm_sched_policy::KEY_IDLE;

use super::{Engine, NONE};
use crate::observe::Observer;

impl<O: Observer> Engine<'_, O> {
    /// A task without jobs has got one.
    pub(super) fn task_is_ready(&mut self, task: u32) {
        let (guest, vcpu) = (
            self.tasks[task as usize].guest,
            self.tasks[task as usize].vcpu,
        );
        self.mark_guest(guest);
        self.any_dirty = true;
        if vcpu != NONE {
            let own = &mut self.vcpus[vcpu as usize];
            own.ready_tasks += 1;
            if own.ready_tasks == 1 {
                self.wake(vcpu);
            } else {
                self.choose_again(task);
            }
            return;
        }
        let state = &mut self.guests[guest as usize];
        state.ready_tasks += 1;
        if self.play.stays_awake {
            if state.ready_tasks == 1 {
                self.all(guest, Self::wake);
            }
            return;
        }
        if state.ready_vcpus < state.ready_tasks.min(state.vcpus.1 - state.vcpus.0) {
            self.advance_idle(guest);
            let state = &self.guests[guest as usize];
            let idle = |vcpu: &u32| !self.vcpus[*vcpu as usize].server.is_ready();
            let (first, end) = state.vcpus;
            // One that has budget left rather than one that has none.
            let chosen = (first..end)
                .filter(idle)
                .min_by_key(|&vcpu| self.vcpus[vcpu as usize].server.remaining_ns(self.now) == 0);
            if let Some(vcpu) = chosen {
                self.guests[guest as usize].ready_vcpus += 1;
                self.wake(vcpu);
            }
        }
    }

    /// A task has finished its last job.
    pub(super) fn task_is_idle(&mut self, task: u32) {
        let (guest, vcpu) = (
            self.tasks[task as usize].guest,
            self.tasks[task as usize].vcpu,
        );
        self.mark_guest(guest);
        self.any_dirty = true;
        if vcpu != NONE {
            let own = &mut self.vcpus[vcpu as usize];
            own.ready_tasks -= 1;
            if own.ready_tasks == 0 {
                self.block(vcpu);
            } else {
                self.choose_again(task);
            }
            return;
        }
        let state = &mut self.guests[guest as usize];
        state.ready_tasks -= 1;
        if self.play.stays_awake {
            if state.ready_tasks == 0 {
                self.all(guest, Self::block);
            }
            return;
        }
        if state.ready_vcpus <= state.ready_tasks {
            return;
        }
        let (first, end) = state.vcpus;
        // One that cannot run rather than one that does.
        let chosen = (first..end)
            .filter(|&vcpu| self.vcpus[vcpu as usize].server.is_ready())
            .min_by_key(|&vcpu| {
                let state = &self.vcpus[vcpu as usize];
                (state.runs != NONE, state.key != KEY_IDLE)
            });
        if let Some(vcpu) = chosen {
            self.guests[guest as usize].ready_vcpus -= 1;
            self.block(vcpu);
        }
    }

    fn all(&mut self, guest: u32, change: impl Fn(&mut Self, u32)) {
        let (first, end) = self.guests[guest as usize].vcpus;
        for vcpu in first..end {
            change(self, vcpu);
        }
    }

    /// The CPU that runs the VCPU of `task` looks at its tasks again.
    pub(super) fn choose_again(&mut self, task: u32) {
        let state = &self.tasks[task as usize];
        let cpu = match state.vcpu {
            NONE => state.cpu,
            vcpu => self.vcpus[vcpu as usize].runs,
        };
        if cpu != NONE {
            self.settle(cpu);
        }
    }

    /// Nothing wakes an idle server at its replenishment: before its budget is looked at, it is brought up to now.
    fn advance_idle(&mut self, guest: u32) {
        let (first, end) = self.guests[guest as usize].vcpus;
        for vcpu in &mut self.vcpus[first as usize..end as usize] {
            if !vcpu.server.is_ready() && vcpu.holds == NONE {
                vcpu.server.advance(self.now);
            }
        }
    }

    /// In global guests, work moves from a VCPU that has no budget to one that has.
    pub(super) fn rebalance(&mut self, guest: u32) {
        let state = &self.guests[guest as usize];
        if !state.global || state.ready_vcpus == 0 {
            return;
        }
        let (first, end) = state.vcpus;
        self.advance_idle(guest);
        loop {
            let has_budget =
                |vcpu: u32| self.vcpus[vcpu as usize].server.remaining_ns(self.now) > 0;
            let is_ready = |vcpu: u32| self.vcpus[vcpu as usize].server.is_ready();
            let from =
                (first..end).find(|&vcpu| is_ready(vcpu) && self.is_rt(vcpu) && !has_budget(vcpu));
            let to = (first..end).find(|&vcpu| !is_ready(vcpu) && has_budget(vcpu));
            let (Some(from), Some(to)) = (from, to) else {
                return;
            };
            self.block(from);
            self.wake(to);
        }
    }

    /// Chooses the task of the VCPU that runs on `cpu`, of a guest that is not global.
    pub(super) fn dispatch_own(&mut self, cpu: u32) {
        let runner = self.cpus[cpu as usize].runner;
        let (first, end) = self.vcpus[runner as usize].tasks;
        let mut best = NONE;
        let mut best_key = KEY_IDLE;
        for task in first..end {
            let key = self.tasks[task as usize].key;
            if key < best_key {
                (best, best_key) = (task, key);
            }
        }
        self.put_task(cpu, best);
    }

    /// Chooses the tasks of a global guest: with r of its VCPUs running, its r first jobs.
    pub(super) fn dispatch_global(&mut self, guest: u32) {
        let (first, end) = self.guests[guest as usize].vcpus;
        let (first_task, end_task) = self.guests[guest as usize].tasks;
        let running = |vcpu: u32, engine: &Self| {
            let state = &engine.vcpus[vcpu as usize];
            state.runs != NONE
        };
        let count = (first..end).filter(|&vcpu| running(vcpu, self)).count();
        // The key of the last job that runs; of equal keys the lower number is first.
        let mut last = None;
        for _ in 0..count {
            let next = (first_task..end_task)
                .map(|task| (self.tasks[task as usize].key, task))
                .filter(|&entry| entry.0 != KEY_IDLE && last.is_none_or(|last| entry > last))
                .min();
            if next.is_none() {
                break;
            }
            last = next;
        }
        let chosen =
            |key: u64, task: u32| key != KEY_IDLE && last.is_some_and(|last| (key, task) <= last);
        for vcpu in first..end {
            let cpu = self.vcpus[vcpu as usize].runs;
            if cpu == NONE {
                continue;
            }
            let task = self.cpus[cpu as usize].task;
            if task != NONE && !chosen(self.tasks[task as usize].key, task) {
                self.put_task(cpu, NONE);
            }
        }
        let mut next = first_task;
        for vcpu in first..end {
            let cpu = self.vcpus[vcpu as usize].runs;
            if cpu == NONE || self.cpus[cpu as usize].task != NONE {
                continue;
            }
            while next < end_task {
                let state = &self.tasks[next as usize];
                if state.cpu == NONE && chosen(state.key, next) {
                    break;
                }
                next += 1;
            }
            if next < end_task {
                self.put_task(cpu, next);
            }
        }
    }

    /// `task` (or none) runs on `cpu` from now on.
    pub(super) fn put_task(&mut self, cpu: u32, task: u32) {
        let before = self.cpus[cpu as usize].task;
        if before == task {
            return;
        }
        self.settle(cpu);
        if before != NONE {
            self.tasks[before as usize].cpu = NONE;
        }
        self.cpus[cpu as usize].task = task;
        if task != NONE {
            self.tasks[task as usize].cpu = cpu;
        }
    }
}
