//! The simulation: a clock, timers, and the policy's decision on every CPU.
//!
//! Events are job releases, what servers do by themselves (replenishments), and what happens on a CPU (a job ends, a
//! budget ends, a slice ends). All events of one instant are handled, then every CPU that they concern decides anew, by
//! the rule of `policy/order.h`. What runs is accounted when it stops, or when something asks: [`Engine::settle`].
//! Nothing is allocated per event, except where a backlog of late jobs grows beyond any before.
//!
//! Guests: a VCPU has work while a task of its own has a job; in a guest with global queues of n jobs and k VCPUs,
//! min(n, k) VCPUs have work, and the n first jobs run on whichever of them run: what the theory of multiprocessor
//! interfaces assumes (`guest.rs`).

mod adversary;
mod guest;
mod host;
mod jobs;

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use steadyvm_sched_policy::{CpuSet, KEY_IDLE, NEVER as POLICY_NEVER};

use crate::{
    observe::{Observer, Stretch},
    outcome::{Outcome, TaskOutcome, VcpuOutcome},
    server::{Phase, Server},
    system::{GuestOrder, Late, Overheads, Play, System, SystemError},
    timers::{NEVER, Timers},
};

/// No VCPU, task or CPU.
const NONE: u32 = u32::MAX;

/// A non-RT VCPU runs so long before another may, ns.
const SLICE_NS: u64 = 1_000_000;

struct Cpu {
    /// The VCPU whose turn it is.
    holder: u32,
    /// The VCPU that runs: the holder, a borrower, or none.
    runner: u32,
    /// The task that runs.
    task: u32,
    /// Up to when everything is accounted.
    since: u64,
    /// What decisions and switches still cost before the task goes on.
    overhead: u64,
    /// When a non-RT runner's slice ends.
    slice_end: u64,
    /// It is among [`Engine::touched`].
    touched: bool,
}

struct Vcpu {
    server: Server,
    guest: u32,
    /// [`KEY_IDLE`] unless the server claims a CPU.
    key: u64,
    /// The CPU it holds.
    holds: u32,
    /// The CPU it runs on, as holder or borrower.
    runs: u32,
    last_cpu: u32,
    /// Its only CPU, if it has but one.
    domain: u32,
    /// May run everywhere.
    everywhere: bool,
    /// Its budget is its period: it is never switched, and starts at no cost.
    whole: bool,
    /// First and one past last of its tasks, if its guest is not global.
    tasks: (u32, u32),
    /// Of its own tasks: how many have a job.
    ready_tasks: u32,
    outcome: VcpuOutcome,
}

struct Guest {
    order: GuestOrder,
    vcpus: (u32, u32),
    tasks: (u32, u32),
    /// Any VCPU runs any task.
    global: bool,
    ready_tasks: u32,
    ready_vcpus: u32,
    /// It is among [`Engine::dirty_guests`].
    dirty: bool,
}

/// A simulation under way.
pub struct Engine<'a, O> {
    host: steadyvm_sched_policy::Host,
    overheads: Overheads,
    play: Play,
    now: u64,
    end: u64,
    cpus: Vec<Cpu>,
    vcpus: Vec<Vcpu>,
    /// The key of each VCPU that claims a CPU and holds none, else [`KEY_IDLE`]: what is looked through most often.
    waiting: Vec<u64>,
    guests: Vec<Guest>,
    tasks: Vec<jobs::TaskState>,
    /// Timers: tasks, then VCPUs, then CPUs, then tasks that suspend themselves, then deadlines where late jobs are dropped.
    /// Of one instant, the first in this order is handled first: a job that ends at its deadline is not late.
    timers: Timers,
    /// The VCPUs of each queue: one, or one per CPU.
    domains: Vec<Vec<u32>>,
    dirty_domains: Vec<bool>,
    /// Guests whose tasks or VCPUs have changed since the last decision.
    dirty_guests: Vec<u32>,
    /// CPUs that were settled since the last decision: nothing has changed on others, and their timers hold.
    touched: Vec<u32>,
    any_dirty: bool,
    /// Some server idles its budget away.
    lends: bool,
    random: ChaCha8Rng,
    events: u64,
    observer: &'a mut O,
}

impl<'a, O: Observer> Engine<'a, O> {
    /// Prepares `system`, to run for `duration_ns`.
    ///
    /// # Errors
    /// What [`System::check`] finds.
    pub fn new(
        system: &System,
        seed: u64,
        duration_ns: u64,
        observer: &'a mut O,
    ) -> Result<Self, SystemError> {
        system.check()?;
        let mut engine = Self {
            host: system.host,
            overheads: system.overheads,
            play: system.play,
            now: 0,
            end: duration_ns,
            cpus: (0..system.cpus).map(|_| Cpu::new()).collect(),
            vcpus: Vec::new(),
            waiting: Vec::new(),
            guests: Vec::new(),
            tasks: Vec::new(),
            timers: Timers::new(0),
            domains: Vec::new(),
            dirty_domains: Vec::new(),
            dirty_guests: (0..system.guests.len() as u32).collect(),
            touched: (0..system.cpus).collect(),
            any_dirty: true,
            lends: false,
            random: ChaCha8Rng::seed_from_u64(seed),
            events: 0,
            observer,
        };
        for guest in &system.guests {
            engine.add_guest(guest, system.cpus);
        }
        engine.lends = (engine.vcpus.iter())
            .any(|vcpu| vcpu.server.parameters().is_rt() && vcpu.server.idles());
        let domains = if system.host.is_partitioned() {
            system.cpus
        } else {
            1
        };
        engine.domains = (0..domains)
            .map(|domain| {
                (0..engine.vcpus.len() as u32)
                    .filter(|&vcpu| domains == 1 || engine.vcpus[vcpu as usize].domain == domain)
                    .collect()
            })
            .collect();
        engine.dirty_domains = vec![true; engine.domains.len()];
        let per_task = if system.play.late == Late::Drop { 3 } else { 2 };
        engine.timers =
            Timers::new(per_task * engine.tasks.len() + engine.vcpus.len() + engine.cpus.len());
        engine.waiting = vec![KEY_IDLE; engine.vcpus.len()];
        engine.start();
        Ok(engine)
    }

    fn add_guest(&mut self, guest: &crate::system::Guest, cpus: u32) {
        let (first_vcpu, first_task) = (self.vcpus.len() as u32, self.tasks.len() as u32);
        let number = self.guests.len() as u32;
        let global = !guest.tasks.is_empty()
            && guest.vcpus.len() > 1
            && guest.tasks.iter().all(|task| task.vcpu.is_none());
        // Tasks of one VCPU stand together; the outcome puts them back in the order given.
        let mut order: Vec<usize> = (0..guest.tasks.len()).collect();
        order.sort_by_key(|&task| guest.tasks[task].vcpu.unwrap_or(0));
        for task in order {
            let settings = &guest.tasks[task];
            let vcpu = if global {
                NONE
            } else {
                first_vcpu + settings.vcpu.unwrap_or(0) as u32
            };
            let position = first_task + task as u32;
            self.tasks
                .push(jobs::TaskState::new(settings, number, vcpu, position));
        }
        if guest.tasks.is_empty() && self.play.adversary {
            for (position, settings) in (0..).zip(&guest.vcpus) {
                if settings.parameters.is_rt() {
                    let vcpu = first_vcpu + position;
                    let state = jobs::TaskState::adversary(&settings.parameters, number, vcpu);
                    self.tasks.push(state);
                }
            }
        }
        let usable = CpuSet::first(cpus);
        for settings in &guest.vcpus {
            let set: CpuSet = (0..cpus)
                .filter(|&cpu| settings.cpus.contains(cpu))
                .collect();
            let me = self.vcpus.len() as u32;
            let mine = |task: &jobs::TaskState| task.vcpu == me;
            let first = self.tasks.iter().position(mine).unwrap_or(0) as u32;
            let count = self.tasks.iter().filter(|task| mine(task)).count() as u32;
            // Parameters are valid by construction, so a server of them is.
            let parameters = &settings.parameters;
            let phase = self.phase(parameters.period_ns());
            let Ok(server) = Server::new(parameters, &set, self.play.kept_by, phase) else {
                continue;
            };
            self.vcpus.push(Vcpu {
                guest: number,
                key: KEY_IDLE,
                holds: NONE,
                runs: NONE,
                last_cpu: NONE,
                domain: server.home(),
                everywhere: set == usable,
                whole: parameters.is_rt() && parameters.budget_ns() == parameters.period_ns(),
                tasks: (first, first + count),
                ready_tasks: 0,
                outcome: VcpuOutcome::default(),
                server,
            });
        }
        self.guests.push(Guest {
            order: guest.order,
            vcpus: (first_vcpu, self.vcpus.len() as u32),
            tasks: (first_task, self.tasks.len() as u32),
            global,
            ready_tasks: 0,
            ready_vcpus: 0,
            dirty: true,
        });
    }

    /// When all servers have begun a whole period: the first one is cut, and has its whole budget all the same.
    fn settled(&self) -> u64 {
        let periods = |vcpu: &Vcpu| vcpu.server.parameters().period_ns();
        if self.play.random_phases {
            2 * self.vcpus.iter().map(periods).max().unwrap_or(0)
        } else {
            0
        }
    }

    /// When a server's periods begin: half of them begin together.
    fn phase(&mut self, period: u64) -> Phase {
        if !self.play.random_phases {
            return Phase::default();
        }
        let begins = if self.random.random_bool(0.5) {
            self.random.random_range(0..period)
        } else {
            0
        };
        Phase::at(begins, self.host.quantum_ns)
    }

    /// First releases; VCPUs of guests without tasks have work from now on.
    fn start(&mut self) {
        for task in 0..self.tasks.len() {
            let first = if self.tasks[task].is_adversary {
                let vcpu = &self.vcpus[self.tasks[task].vcpu as usize];
                let period = vcpu.server.parameters().period_ns();
                self.random.random_range(0..=period)
            } else {
                self.first_release(task)
            };
            let settled = self.settled();
            let first = first + settled;
            self.tasks[task].begins_later(settled);
            self.timers.set(task, first);
        }
        for vcpu in 0..self.vcpus.len() as u32 {
            let guest = &self.guests[self.vcpus[vcpu as usize].guest as usize];
            if guest.tasks.0 == guest.tasks.1 {
                self.wake(vcpu);
            } else {
                self.refresh(vcpu);
            }
        }
    }

    /// Runs to the end.
    pub fn run(mut self) -> Outcome {
        self.decide();
        while self.step() {}
        self.now = self.end;
        for cpu in 0..self.cpus.len() as u32 {
            self.settle(cpu);
        }
        self.outcome()
    }

    /// Handles the next instant; false at the end.
    fn step(&mut self) -> bool {
        let (time, _) = self.timers.first();
        // What is due at the very end is still seen: a job may finish at its deadline.
        if time > self.end {
            return false;
        }
        self.now = time;
        loop {
            let (due, timer) = self.timers.first();
            if due > self.now {
                break;
            }
            self.events += 1;
            self.timers.set(timer, NEVER);
            if timer < self.tasks.len() {
                self.release(timer as u32);
            } else if timer < self.tasks.len() + self.vcpus.len() {
                self.replenish((timer - self.tasks.len()) as u32);
            } else if timer < self.first_suspension() {
                self.tick((timer - self.tasks.len() - self.vcpus.len()) as u32);
            } else if timer < self.first_deadline() {
                self.resume((timer - self.first_suspension()) as u32);
            } else {
                self.drop_late((timer - self.first_deadline()) as u32);
            }
        }
        self.decide();
        true
    }

    /// The timer of the first task's suspension.
    const fn first_suspension(&self) -> usize {
        self.tasks.len() + self.vcpus.len() + self.cpus.len()
    }

    /// The timer of the first task's deadline.
    const fn first_deadline(&self) -> usize {
        self.first_suspension() + self.tasks.len()
    }

    /// The time of a server's own event has come.
    fn replenish(&mut self, vcpu: u32) {
        let runs = self.vcpus[vcpu as usize].runs;
        if runs != NONE {
            self.settle(runs);
        }
        self.vcpus[vcpu as usize].server.advance(self.now);
        self.refresh(vcpu);
    }

    /// Something ends on `cpu`: a job, a budget, a slice.
    fn tick(&mut self, cpu: u32) {
        self.settle(cpu);
        let Cpu {
            holder,
            runner,
            task,
            slice_end,
            ..
        } = self.cpus[cpu as usize];
        for vcpu in [holder, runner] {
            if vcpu != NONE {
                self.vcpus[vcpu as usize].server.advance(self.now);
                self.refresh(vcpu);
            }
        }
        if task != NONE && self.tasks[task as usize].is_done() {
            self.finish(task);
        }
        if runner != NONE && slice_end <= self.now && !self.is_rt(runner) {
            self.cpus[cpu as usize].slice_end = 0;
            self.mark(runner);
        }
    }

    fn is_rt(&self, vcpu: u32) -> bool {
        self.vcpus[vcpu as usize].server.parameters().is_rt()
    }

    /// Accounts what ran on `cpu` up to now.
    fn settle(&mut self, cpu: u32) {
        let state = &mut self.cpus[cpu as usize];
        let (start, now) = (state.since, self.now);
        if !state.touched {
            state.touched = true;
            self.touched.push(cpu);
        }
        self.any_dirty = true;
        if start == now {
            return;
        }
        state.since = now;
        let ran = now - start;
        let (holder, runner, task) = (state.holder, state.runner, state.task);
        if holder == NONE {
            return;
        }
        let overhead = state.overhead.min(ran);
        state.overhead -= overhead;
        // Who has the CPU pays for what the host does there; its tasks get the rest.
        if task != NONE {
            self.tasks[task as usize].run(ran - overhead);
        }
        if holder == runner {
            self.vcpus[holder as usize].server.account(ran, now);
        } else {
            let server = &mut self.vcpus[holder as usize].server;
            let kind = server.parameters().kind();
            server.account_lent(ran, now);
            if runner != NONE {
                self.vcpus[runner as usize]
                    .server
                    .account_borrowed(kind, ran, now);
            }
        }
        self.observer.stretch(&Stretch {
            cpu,
            holder,
            runner: (runner != NONE).then_some(runner),
            task: (task != NONE && !self.tasks[task as usize].is_adversary)
                .then(|| self.tasks[task as usize].position),
            start_ns: start,
            end_ns: now,
        });
    }

    /// A VCPU gets work.
    fn wake(&mut self, vcpu: u32) {
        let least = if self.is_rt(vcpu) {
            0
        } else {
            self.least_virtual_runtime()
        };
        let state = &mut self.vcpus[vcpu as usize];
        let holds = state.holds;
        if holds != NONE {
            // It idled its budget away: that time is not its guest's.
            self.settle(holds);
        }
        let state = &mut self.vcpus[vcpu as usize];
        state.server.wake(self.now, least);
        self.refresh(vcpu);
    }

    /// A VCPU has no more work.
    fn block(&mut self, vcpu: u32) {
        let runs = self.vcpus[vcpu as usize].runs;
        if runs != NONE {
            self.settle(runs);
        }
        self.vcpus[vcpu as usize].server.block(self.now);
        self.refresh(vcpu);
    }

    fn least_virtual_runtime(&self) -> u64 {
        self.vcpus
            .iter()
            .filter(|vcpu| vcpu.server.is_ready() && !vcpu.server.parameters().is_rt())
            .map(|vcpu| vcpu.server.virtual_runtime_ns())
            .min()
            .unwrap_or(0)
    }

    /// Reads a server's claim and key again after a change. It is settled.
    fn refresh(&mut self, vcpu: u32) {
        let now = self.now;
        let state = &mut self.vcpus[vcpu as usize];
        state.key = if state.server.claims(now) {
            state.server.key(&self.host)
        } else {
            KEY_IDLE
        };
        let (guest, holds) = (state.guest, state.holds);
        debug_assert!(holds == NONE || self.cpus[holds as usize].touched);
        if self.guests[guest as usize].global {
            self.mark_guest(guest);
        }
        self.arm_vcpu(vcpu);
        self.mark(vcpu);
    }

    /// Sets the timer of a VCPU that holds no CPU, and its place among those that wait.
    fn arm_vcpu(&mut self, vcpu: u32) {
        let state = &self.vcpus[vcpu as usize];
        self.waiting[vcpu as usize] = if state.holds == NONE {
            state.key
        } else {
            KEY_IDLE
        };
        let next = if state.holds == NONE {
            self.next_of(vcpu, false)
        } else {
            NEVER
        };
        self.timers.set(self.tasks.len() + vcpu as usize, next);
    }

    /// When the next event of a server is seen.
    fn next_of(&self, vcpu: u32, holds: bool) -> u64 {
        let server = &self.vcpus[vcpu as usize].server;
        match server.next_event(self.now, holds, self.host.quantum_ns) {
            POLICY_NEVER => NEVER,
            time => time,
        }
    }

    /// A guest's tasks or VCPUs have changed.
    fn mark_guest(&mut self, guest: u32) {
        let state = &mut self.guests[guest as usize];
        if !state.dirty {
            state.dirty = true;
            self.dirty_guests.push(guest);
        }
    }

    /// The queue of `vcpu` has changed.
    fn mark(&mut self, vcpu: u32) {
        let domain = if self.dirty_domains.len() == 1 {
            0
        } else {
            self.vcpus[vcpu as usize].domain
        };
        self.dirty_domains[domain as usize] = true;
        self.any_dirty = true;
    }

    fn outcome(self) -> Outcome {
        let mut tasks: Vec<(u32, TaskOutcome)> = self
            .tasks
            .into_iter()
            .filter(|task| !task.is_adversary)
            .map(|task| (task.position, task.into_outcome(self.end)))
            .collect();
        tasks.sort_unstable_by_key(|&(position, _)| position);
        Outcome {
            duration_ns: self.end,
            events: self.events,
            tasks: tasks.into_iter().map(|(_, task)| task).collect(),
            vcpus: self
                .vcpus
                .into_iter()
                .map(|vcpu| VcpuOutcome {
                    supplied_ns: vcpu.server.supplied_ns(),
                    ..vcpu.outcome
                })
                .collect(),
        }
    }
}

impl Cpu {
    const fn new() -> Self {
        Self {
            holder: NONE,
            runner: NONE,
            task: NONE,
            since: 0,
            overhead: 0,
            slice_end: 0,
            touched: true,
        }
    }
}
