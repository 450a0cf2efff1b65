//! Fixed-priority servers and the tasks in them.
//!
//! Model: servers on one processor, preemptive, the slice in priority order, highest first. A server
//! gives its capacity (C_S) at most once in every period (T_S), by its kind's rules:
//! - periodic: capacity is used up whether or not there is work. PTPS, WCPS and CRPS (purely
//!   time-driven, work-conserving, capacity-reclaiming) are this server for the analysis: the latter two
//!   only give idle capacity away, never less than the first keeps;
//! - deferrable: unused capacity is kept until the period ends;
//! - polling: unused capacity is discarded as soon as there is no work;
//! - sporadic: what was used since the server had work and capacity comes back one period after that instant.
//!
//! Formula: w = C_S + sum over higher priorities X of ceil((w + J_X) / T_X) C_X; the server keeps its
//! promise iff w <= T_S. J_X = T_X - C_X for a deferrable server (two capacities back to back), else 0.
//!
//! Complexity: pseudo-polynomial, O(n) an iteration.
//! Sources: Davis and Burns, RTSS 2005; the dissertation's sections 2.4.1 and 2.6.

pub mod tasks;

use crate::{
    error::{Error, positive},
    guest::fixed_priority,
    supply::Dedicated,
    task::Task,
    time::Time,
    verdict::Verdict,
    work::Work,
};

/// How a server's capacity is used and replenished.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ServerKind {
    /// Purely time-driven periodic server (PTPS).
    Periodic,
    /// Work-conserving periodic server (WCPS).
    WorkConserving,
    /// Capacity-reclaiming periodic server (CRPS).
    CapacityReclaiming,
    /// Deferrable server.
    Deferrable,
    /// Polling server.
    Polling,
    /// Sporadic server.
    Sporadic,
}

impl ServerKind {
    /// Whether tasks can be bound to the server's release: only a periodic server is there then.
    pub const fn can_bind(self) -> bool {
        matches!(
            self,
            Self::Periodic | Self::WorkConserving | Self::CapacityReclaiming
        )
    }
}

/// A server. Times in one unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Server {
    capacity: Time,
    period: Time,
    kind: ServerKind,
}

impl Server {
    /// A server that gives `capacity` in every `period`.
    ///
    /// # Errors
    /// Times out of range, or a capacity above the period.
    pub fn new(capacity: Time, period: Time, kind: ServerKind) -> Result<Self, Error> {
        let capacity = positive("the server's capacity", capacity)?;
        let period = positive("the server's period", period)?;
        if capacity > period {
            return Err(Error::Exceeds {
                what: "the server's capacity",
                value: capacity,
                limit_name: "its period",
                limit: period,
                advice: "a server runs on one processor",
            });
        }
        Ok(Self {
            capacity,
            period,
            kind,
        })
    }

    /// C_S.
    pub const fn capacity(&self) -> Time {
        self.capacity
    }

    /// T_S.
    pub const fn period(&self) -> Time {
        self.period
    }

    /// The server's kind.
    pub const fn kind(&self) -> ServerKind {
        self.kind
    }

    /// J_X, by which the server can run late in one period and early in the next.
    pub const fn interference_jitter(&self) -> Time {
        match self.kind {
            ServerKind::Deferrable => self.period - self.capacity,
            _ => 0,
        }
    }

    const fn as_task(&self, jitter: Time) -> Task {
        Task::server(self.capacity, self.period, self.period, jitter)
    }
}

/// The server's worst-case response time w; `None` beyond `limit`.
///
/// A value above the server's period says that the server does not keep its promise.
///
/// # Errors
/// `Verdict::Undecided` when the work is spent.
pub fn response_time(
    servers: &[Server],
    index: usize,
    limit: Time,
    work: &mut Work,
) -> Result<Option<Time>, Verdict> {
    let mut tasks: Vec<Task> = servers[..index]
        .iter()
        .map(|server| server.as_task(server.interference_jitter()))
        .collect();
    tasks.push(servers[index].as_task(0));
    fixed_priority::response_time(&tasks, index, &Dedicated::new(1), limit, work)
}

/// Decides whether every server keeps its promise.
pub fn test(servers: &[Server], work: &mut Work) -> Verdict {
    for index in 0..servers.len() {
        let mut tasks: Vec<Task> = servers[..index]
            .iter()
            .map(|server| server.as_task(server.interference_jitter()))
            .collect();
        tasks.push(servers[index].as_task(0));
        let verdict = fixed_priority::test_task(&tasks, index, &Dedicated::new(1), work);
        if !verdict.is_schedulable() {
            return verdict;
        }
    }
    Verdict::Schedulable
}
