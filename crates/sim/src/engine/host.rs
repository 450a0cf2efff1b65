//! The host's decision: the rule of `policy/order.h` on every CPU whose queue has changed.

use steadyvm_sched_policy::{KEY_IDLE, KEY_NON_RT, Kind, at_quantum, preempts};

use super::{Engine, NONE, SLICE_NS};
use crate::{observe::Observer, timers::NEVER};

impl<O: Observer> Engine<'_, O> {
    /// Decides anew wherever something has changed, until nothing does.
    pub(super) fn decide(&mut self) {
        while self.any_dirty {
            self.any_dirty = false;
            // In order of their numbers, whatever came first: what comes of it is the same for one seed.
            self.dirty_guests.sort_unstable();
            for index in 0..self.dirty_guests.len() {
                self.rebalance(self.dirty_guests[index]);
            }
            for domain in 0..self.domains.len() {
                if self.dirty_domains[domain] {
                    self.dirty_domains[domain] = false;
                    self.choose_holders(domain);
                    self.choose_runners(domain);
                }
            }
            self.dispatch();
            self.any_dirty = self.dirty_domains.contains(&true);
        }
        while let Some(cpu) = self.touched.pop() {
            self.cpus[cpu as usize].touched = false;
            self.arm_cpu(cpu);
        }
    }

    fn cpus_of(&self, domain: usize) -> std::ops::Range<u32> {
        if self.domains.len() == 1 {
            0..self.cpus.len() as u32
        } else {
            domain as u32..domain as u32 + 1
        }
    }

    /// Rule 1 and 4: who holds each CPU.
    fn choose_holders(&mut self, domain: usize) {
        if self.domains.len() > 1 {
            self.end_hold(domain as u32);
        } else {
            // A holder's key changes, and a slice ends, where its CPU was settled.
            self.touched.sort_unstable();
            for index in 0..self.touched.len() {
                self.end_hold(self.touched[index]);
            }
        }
        let mut failed = (0, 0);
        while let Some(vcpu) = self.first_waiting(domain, failed) {
            match self.cpu_for(domain, vcpu) {
                Some(cpu) => self.put_on(cpu, vcpu),
                // Without masks, nobody behind it would find a CPU either.
                None if self.vcpus[vcpu as usize].everywhere || self.domains.len() > 1 => break,
                None => failed = (self.vcpus[vcpu as usize].key, vcpu + 1),
            }
        }
    }

    /// Takes the holder of `cpu` off it if it no longer claims it, or has had its slice.
    fn end_hold(&mut self, cpu: u32) {
        let holder = self.cpus[cpu as usize].holder;
        if holder == NONE {
            return;
        }
        let slice_is_over = !self.is_rt(holder) && self.cpus[cpu as usize].slice_end <= self.now;
        if self.vcpus[holder as usize].key == KEY_IDLE || slice_is_over {
            self.settle(cpu);
            self.take_off(cpu);
        }
    }

    /// The first VCPU that claims a CPU and holds none, from (key, number) `from` on.
    fn first_waiting(&self, domain: usize, from: (u64, u32)) -> Option<u32> {
        let mut best = (KEY_IDLE, NONE);
        for &vcpu in &self.domains[domain] {
            let key = self.waiting[vcpu as usize];
            if key < best.0 && (key, vcpu) >= from {
                best = (key, vcpu);
            }
        }
        (best.1 != NONE).then_some(best.1)
    }

    /// The CPU that `vcpu` gets: a free one, its last before others; else that of the last holder, if it comes before.
    fn cpu_for(&self, domain: usize, vcpu: u32) -> Option<u32> {
        let state = &self.vcpus[vcpu as usize];
        let mut worst = (0, NONE);
        for cpu in self.cpus_of(domain) {
            if !state.everywhere && !state.server.cpus().contains(cpu) {
                continue;
            }
            let holder = self.cpus[cpu as usize].holder;
            if holder == NONE {
                if cpu == state.last_cpu {
                    return Some(cpu);
                }
                if worst.0 < KEY_IDLE {
                    worst = (KEY_IDLE, cpu);
                }
            } else if worst.1 == NONE || self.vcpus[holder as usize].key > worst.0 {
                worst = (self.vcpus[holder as usize].key, cpu);
            }
        }
        (worst.1 != NONE && preempts(state.key, worst.0)).then_some(worst.1)
    }

    /// The holder of `cpu`, which is settled, holds it no longer.
    fn take_off(&mut self, cpu: u32) {
        let holder = self.cpus[cpu as usize].holder;
        self.set_runner(cpu, NONE);
        self.cpus[cpu as usize].holder = NONE;
        let state = &mut self.vcpus[holder as usize];
        state.holds = NONE;
        // Accounting has moved its key (virtual time, a sporadic server's first piece).
        if state.key != KEY_IDLE {
            state.key = if state.server.claims(self.now) {
                state.server.key(&self.host)
            } else {
                KEY_IDLE
            };
        }
        self.arm_vcpu(holder);
    }

    fn put_on(&mut self, cpu: u32, vcpu: u32) {
        self.settle(cpu);
        let holder = self.cpus[cpu as usize].holder;
        if holder != NONE {
            if self.cpus[cpu as usize].runner == holder {
                self.vcpus[holder as usize].outcome.preemptions += 1;
            }
            self.take_off(cpu);
        }
        // It may run elsewhere, on another's budget.
        let runs = self.vcpus[vcpu as usize].runs;
        if runs != NONE {
            self.set_runner(runs, NONE);
        }
        self.cpus[cpu as usize].holder = vcpu;
        self.vcpus[vcpu as usize].holds = cpu;
        self.arm_vcpu(vcpu);
    }

    /// Rules 2 and 3: who runs on each CPU of the domain.
    fn choose_runners(&mut self, domain: usize) {
        if !self.lends && self.domains.len() == 1 {
            // No holder idles, so that none runs for another: what runs elsewhere goes on.
            let mut index = 0;
            while index < self.touched.len() {
                let cpu = self.touched[index];
                debug_assert!(self.holder_has_work(cpu));
                self.set_runner(cpu, self.cpus[cpu as usize].holder);
                index += 1;
            }
            return;
        }
        let mut idles = false;
        for cpu in self.cpus_of(domain) {
            let holder = self.cpus[cpu as usize].holder;
            if holder == NONE {
                self.set_runner(cpu, NONE);
            } else if self.vcpus[holder as usize].server.is_ready() {
                self.set_runner(cpu, holder);
            } else if self.serve_sibling(holder) {
                // Its guest has work for it: a new decision follows.
                return;
            } else {
                idles = true;
            }
        }
        if !idles || !self.lends {
            return;
        }
        for cpu in self.cpus_of(domain) {
            let holder = self.cpus[cpu as usize].holder;
            if holder != NONE && !self.vcpus[holder as usize].server.is_ready() {
                let borrower = self.borrower(domain, cpu, holder);
                self.set_runner(cpu, borrower);
            }
        }
    }

    fn holder_has_work(&self, cpu: u32) -> bool {
        let holder = self.cpus[cpu as usize].holder;
        holder == NONE || self.vcpus[holder as usize].server.is_ready()
    }

    /// An idle VCPU of a global guest holds a CPU while a sibling with work waits for one: the work moves to it.
    fn serve_sibling(&mut self, holder: u32) -> bool {
        let guest = &self.guests[self.vcpus[holder as usize].guest as usize];
        if !guest.global {
            return false;
        }
        let waits = |vcpu: &u32| {
            let state = &self.vcpus[*vcpu as usize];
            state.server.is_ready() && state.holds == NONE
        };
        let (first, end) = guest.vcpus;
        let Some(sibling) = (first..end).find(waits) else {
            return false;
        };
        self.block(sibling);
        self.wake(holder);
        true
    }

    /// Rule 3: the first server that may run while `holder` idles.
    fn borrower(&self, domain: usize, cpu: u32, holder: u32) -> u32 {
        let holder = self.vcpus[holder as usize].server.parameters().kind();
        let mut best = (KEY_IDLE, NONE);
        for &vcpu in &self.domains[domain] {
            let state = &self.vcpus[vcpu as usize];
            let elsewhere = state.runs != NONE && state.runs != cpu;
            if state.holds != NONE || elsewhere || !state.server.may_borrow_from(holder, self.now) {
                continue;
            }
            let entry = (state.server.key(&self.host), vcpu);
            if entry < best && state.server.cpus().contains(cpu) {
                best = entry;
            }
        }
        best.1
    }

    fn set_runner(&mut self, cpu: u32, vcpu: u32) {
        let before = self.cpus[cpu as usize].runner;
        if before == vcpu {
            return;
        }
        self.settle(cpu);
        self.put_task(cpu, NONE);
        if before != NONE {
            self.vcpus[before as usize].runs = NONE;
            self.mark_guest(self.vcpus[before as usize].guest);
        }
        self.cpus[cpu as usize].runner = vcpu;
        if vcpu == NONE {
            return;
        }
        self.mark_guest(self.vcpus[vcpu as usize].guest);
        let overheads = self.overheads;
        let state = &mut self.vcpus[vcpu as usize];
        let migrates = state.last_cpu != cpu && state.last_cpu != NONE;
        state.runs = cpu;
        state.last_cpu = cpu;
        state.outcome.dispatches += 1;
        state.outcome.migrations += u64::from(migrates);
        let mut cost =
            overheads.decision_ns + overheads.context_switch_ns + overheads.cache_reload_ns;
        if migrates {
            cost += overheads.migration_ns;
        }
        let cost = if state.whole { 0 } else { cost };
        let own = &mut self.cpus[cpu as usize];
        own.overhead = cost;
        own.slice_end = self.now + SLICE_NS;
    }

    /// Tasks on the VCPUs that run.
    fn dispatch(&mut self) {
        self.dirty_guests.sort_unstable();
        for index in 0..self.dirty_guests.len() {
            let guest = self.dirty_guests[index];
            let state = &mut self.guests[guest as usize];
            state.dirty = false;
            if state.global {
                self.dispatch_global(guest);
                continue;
            }
            let (first, end) = state.vcpus;
            for vcpu in first..end {
                let cpu = self.vcpus[vcpu as usize].runs;
                if cpu != NONE {
                    self.dispatch_own(cpu);
                }
            }
        }
        self.dirty_guests.clear();
    }

    /// When the host next looks at a VCPU that uses its budget: at its next event, or, where its budget has ended since the
    /// last look and something else had it accounted, at the next multiple of the quantum.
    fn next_seen(&self, vcpu: u32) -> u64 {
        let next = self.next_of(vcpu, true);
        if self.vcpus[vcpu as usize].server.claims(self.now) {
            next
        } else {
            next.min(at_quantum(self.now, self.host.quantum_ns))
        }
    }

    /// Sets the timer of `cpu`, which is settled, to what ends first on it.
    fn arm_cpu(&mut self, cpu: u32) {
        // Who stays after its slice has another one.
        if self.cpus[cpu as usize].slice_end <= self.now {
            self.cpus[cpu as usize].slice_end = self.now + SLICE_NS;
        }
        let state = &self.cpus[cpu as usize];
        let mut next = NEVER;
        if state.holder != NONE {
            let holder = &self.vcpus[state.holder as usize].server;
            next = self.next_seen(state.holder);
            if state.runner != state.holder && state.runner != NONE {
                let runner = &self.vcpus[state.runner as usize];
                next = next.min(if holder.parameters().kind() == Kind::CapacityReclaiming {
                    self.next_of(state.runner, false)
                } else {
                    self.next_seen(state.runner)
                });
                if !runner.server.parameters().is_rt() {
                    next = next.min(state.slice_end);
                }
            }
            if self.vcpus[state.holder as usize].key >= KEY_NON_RT {
                next = next.min(state.slice_end);
            }
            if state.task != NONE {
                next = next.min(self.now + state.overhead + self.tasks[state.task as usize].left);
            }
        }
        let timer = self.tasks.len() + self.vcpus.len() + cpu as usize;
        self.timers.set(timer, next);
    }
}
