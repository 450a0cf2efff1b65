//! A VCPU's server: the policy's, or the kernel's `SCHED_DEADLINE`.
//!
//! What the engine asks of a server it asks here, so that both are played by the same events. A VCPU without a budget is
//! the policy's in either case: it only shares what is left.

pub mod linux;

use steadyvm_sched_policy::{
    CpuSet, Host, Kind, NEVER, Parameters, ParametersError, Server as Policy, at_quantum,
};

use crate::system::KeptBy;
use linux::Entity;

/// The kernel's clock when a simulation begins: its entities have had their reservations for long, and slept.
const KERNEL_STARTS: u64 = 1 << 40;

/// The policy's clock when a simulation begins whose periods begin anywhere: longer than any period.
const POLICY_STARTS: u64 = 1 << 33;

/// When periods begin.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Phase {
    /// The policy's clock when the simulation begins, a multiple of the quantum.
    clock: u64,
    /// When the first period does that begins in the simulation.
    begins: u64,
}

impl Phase {
    /// A period begins at `begins`, and the one before it began before the simulation did.
    ///
    /// Why not simply later: a server that has its budget before its first period has a period that is longer than it should
    /// be, and may overrun its budget to the next look of the host. One with nearly all of a CPU never pays that back.
    pub fn at(begins: u64, quantum_ns: u64) -> Self {
        Self {
            clock: POLICY_STARTS.next_multiple_of(quantum_ns.max(1)),
            begins,
        }
    }

    fn of(self, parameters: &Parameters) -> u64 {
        let under_way = if self.begins > 0 {
            parameters.period_ns()
        } else {
            0
        };
        self.clock + self.begins - under_way
    }
}

/// A server of the policy, and its clock when the simulation begins.
#[derive(Debug, Clone)]
pub(crate) struct Kept {
    server: Policy,
    clock: u64,
}

/// One server.
#[derive(Debug, Clone)]
pub(crate) enum Server {
    /// `policy/*.h`.
    Policy(Box<Kept>),
    /// `kernel/sched/deadline.c`.
    Linux(Box<Linux>),
}

/// A `SCHED_DEADLINE` entity and what the engine wants to know beside it.
#[derive(Debug, Clone)]
pub(crate) struct Linux {
    parameters: Parameters,
    entity: Entity,
    cpus: CpuSet,
    supplied_ns: u64,
}

impl Server {
    /// One without work. `phase`: of the periods that the policy counts.
    pub fn new(
        parameters: &Parameters,
        cpus: &CpuSet,
        kept_by: KeptBy,
        phase: Phase,
    ) -> Result<Self, ParametersError> {
        if kept_by == KeptBy::Policy || !parameters.is_rt() {
            let server = Policy::new(parameters, cpus, phase.of(parameters))?;
            let clock = phase.clock;
            return Ok(Self::Policy(Box::new(Kept { server, clock })));
        }
        Ok(Self::Linux(Box::new(Linux {
            entity: Entity::new(
                parameters.budget_ns(),
                parameters.deadline_ns(),
                parameters.period_ns(),
                KERNEL_STARTS / 2,
            ),
            parameters: *parameters,
            cpus: *cpus,
            supplied_ns: 0,
        })))
    }

    pub fn parameters(&self) -> &Parameters {
        match self {
            Self::Policy(kept) => kept.server.parameters(),
            Self::Linux(server) => &server.parameters,
        }
    }

    /// Whether an idle server holds its CPU.
    pub fn idles(&self) -> bool {
        match self {
            Self::Policy(kept) => kept.server.parameters().kind().idles(),
            Self::Linux(_) => false,
        }
    }

    pub fn wake(&mut self, now: u64, least_virtual_runtime_ns: u64) {
        match self {
            Self::Policy(kept) => kept.server.wake(kept.clock + now, least_virtual_runtime_ns),
            Self::Linux(server) => server.entity.wake(KERNEL_STARTS + now),
        }
    }

    pub fn block(&mut self, now: u64) {
        match self {
            Self::Policy(kept) => kept.server.block(kept.clock + now),
            Self::Linux(server) => server.entity.block(KERNEL_STARTS + now),
        }
    }

    pub fn advance(&mut self, now: u64) {
        match self {
            Self::Policy(kept) => kept.server.advance(kept.clock + now),
            Self::Linux(server) => server.entity.advance(KERNEL_STARTS + now),
        }
    }

    pub fn account(&mut self, ran: u64, now: u64) {
        match self {
            Self::Policy(kept) => kept.server.account(ran, kept.clock + now),
            Self::Linux(server) => {
                server.supplied_ns += ran;
                server.entity.update_curr(ran, KERNEL_STARTS + now);
            }
        }
    }

    /// Of an idle holder; a `SCHED_DEADLINE` entity never is one.
    pub fn account_lent(&mut self, ran: u64, now: u64) {
        if let Self::Policy(kept) = self {
            kept.server.account_lent(ran, kept.clock + now);
        }
    }

    /// On the CPU of an idle server of `holder` kind.
    pub fn account_borrowed(&mut self, holder: Kind, ran: u64, now: u64) {
        match self {
            Self::Policy(kept) => kept.server.account_borrowed(holder, ran, kept.clock + now),
            Self::Linux(_) => self.account(ran, now),
        }
    }

    pub fn may_borrow_from(&self, holder: Kind, now: u64) -> bool {
        match self {
            Self::Policy(kept) => kept.server.may_borrow_from(holder, kept.clock + now),
            Self::Linux(_) => false,
        }
    }

    pub fn remaining_ns(&self, now: u64) -> u64 {
        match self {
            Self::Policy(kept) => kept.server.remaining_ns(kept.clock + now),
            Self::Linux(server) => server.entity.remaining_ns(),
        }
    }

    pub fn claims(&self, now: u64) -> bool {
        match self {
            Self::Policy(kept) => kept.server.claims(kept.clock + now),
            Self::Linux(server) => server.entity.is_queued(),
        }
    }

    pub fn key(&self, host: &Host) -> u64 {
        match self {
            Self::Policy(kept) => kept.server.key(host),
            Self::Linux(server) => server.entity.deadline_ns(),
        }
    }

    /// When it next changes by itself, as its keeper sees it; [`NEVER`] if it does not.
    ///
    /// The policy looks at its quantum. The kernel's timer for replenishment is exact, and the end of a budget is seen
    /// at the tick where `HRTICK_DL` is off.
    pub fn next_event(&self, now: u64, holds: bool, quantum_ns: u64) -> u64 {
        let seen = |time| {
            if time >= NEVER {
                NEVER
            } else {
                at_quantum(time, quantum_ns)
            }
        };
        match self {
            Self::Policy(kept) => match seen(kept.server.next_event(kept.clock + now, holds)) {
                NEVER => NEVER,
                time => time.saturating_sub(kept.clock),
            },
            Self::Linux(server) if !server.entity.is_ready() => NEVER,
            Self::Linux(server) => match server.entity.timer_ns() {
                Some(timer) => timer - KERNEL_STARTS,
                None if holds => seen(now + server.entity.remaining_ns()),
                None => NEVER,
            },
        }
    }

    pub fn home(&self) -> u32 {
        match self {
            Self::Policy(kept) => kept.server.home(),
            Self::Linux(server) => {
                let has = |cpu: &u32| server.cpus.contains(*cpu);
                (0..steadyvm_sched_policy::MAX_CPUS)
                    .find(has)
                    .unwrap_or(steadyvm_sched_policy::MAX_CPUS)
            }
        }
    }

    pub fn is_ready(&self) -> bool {
        match self {
            Self::Policy(kept) => kept.server.is_ready(),
            Self::Linux(server) => server.entity.is_ready(),
        }
    }

    pub fn supplied_ns(&self) -> u64 {
        match self {
            Self::Policy(kept) => kept.server.supplied_ns(),
            Self::Linux(server) => server.supplied_ns,
        }
    }

    pub fn virtual_runtime_ns(&self) -> u64 {
        match self {
            Self::Policy(kept) => kept.server.virtual_runtime_ns(),
            Self::Linux(_) => 0,
        }
    }

    pub fn cpus(&self) -> &CpuSet {
        match self {
            Self::Policy(kept) => kept.server.cpus(),
            Self::Linux(server) => &server.cpus,
        }
    }

    /// When its current budget is due, and when its period ends, as far as it has such instants: what an adversary
    /// looks at.
    pub fn instants(&self, host: &Host) -> (u64, u64) {
        let period = self.parameters().period_ns();
        match self {
            Self::Policy(kept) => {
                let due = match kept.server.parameters().kind() {
                    Kind::Deferrable | Kind::Periodic | Kind::Polling => {
                        kept.server.next_event(0, false).min(NEVER)
                    }
                    _ => kept.server.key(&Host::new(
                        steadyvm_sched_policy::Order::EarliestDeadline,
                        host.is_partitioned(),
                        0,
                    )),
                };
                let due = due.saturating_sub(kept.clock);
                (due, due.saturating_add(period))
            }
            Self::Linux(server) => {
                let due = server.entity.deadline_ns().saturating_sub(KERNEL_STARTS);
                (due, due + period - server.parameters.deadline_ns())
            }
        }
    }
}
