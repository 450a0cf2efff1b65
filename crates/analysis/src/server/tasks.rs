//! Response times of tasks inside fixed-priority servers.
//!
//! Model: a server ([`super`]) executes sporadic tasks under preemptive fixed priorities, highest first.
//! A task is *bound* if its releases coincide with those of its (periodic) server, else *unbound*.
//! Preconditions: the server and all of higher priority keep their promises.
//!
//! Formula: with load L(w) = C_i + sum over higher priorities j of ceil((w + J_j) / T_j) C_j,
//! full periods g = ceil(L / C_S) - 1, and the higher-priority servers X:
//! w = L + g (T_S - C_S) + sum over X of ceil((max(0, w - g T_S) + J_X) / T_X) C_X; R_i = J_i + w.
//! J is the task's own jitter, plus for unbound tasks the longest the server can be away when the task
//! arrives: T_S - C_S where the capacity was used up as early as can be, T_S for a polling server, which
//! may just have discarded it. Suspension counts as execution.
//!
//! Complexity: pseudo-polynomial, O(n + servers) an iteration. Sufficient; exact for periodic servers
//! with unbound tasks. Source: Davis and Burns, RTSS 2005.

use super::{Server, ServerKind};
use crate::{
    task::Task,
    time::{Time, div_ceil},
    verdict::Verdict,
    work::Work,
    workload::jobs_released,
};

/// A task in a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ServedTask {
    /// The task.
    pub task: Task,
    /// Released together with its server. Counts only for periodic kinds.
    pub bound: bool,
}

impl ServedTask {
    fn jitter(&self, server: &Server) -> Time {
        let away = match server.kind() {
            kind if kind.can_bind() && self.bound => 0,
            ServerKind::Polling => server.period(),
            _ => server.period() - server.capacity(),
        };
        self.task.jitter() + away
    }
}

/// The worst-case response time, from the release, of `tasks[index]` in `servers[server]`; `None` if it
/// exceeds the task's deadline.
///
/// # Errors
/// `Verdict::Undecided` when the work is spent.
pub fn response_time(
    servers: &[Server],
    server: usize,
    tasks: &[ServedTask],
    index: usize,
    work: &mut Work,
) -> Result<Option<Time>, Verdict> {
    let (higher_servers, server) = (&servers[..server], &servers[server]);
    let (higher, task) = (&tasks[..index], &tasks[index]);
    let limit = task.task.deadline() - task.jitter(server);
    let mut window = task.task.demand();
    loop {
        work.spend(higher_servers.len() + higher.len() + 1, window)?;
        if window > limit {
            return Ok(None);
        }
        let load = task.task.demand()
            + higher
                .iter()
                .map(|other| {
                    jobs_released(&other.task, window + other.jitter(server)) * other.task.demand()
                })
                .sum::<Time>();
        let full_periods = div_ceil(load, server.capacity()) - 1;
        let last = (window - full_periods * server.period()).max(0);
        let interference: Time = higher_servers
            .iter()
            .map(|other| {
                div_ceil(last + other.interference_jitter(), other.period()) * other.capacity()
            })
            .sum();
        let next = load + full_periods * (server.period() - server.capacity()) + interference;
        if next <= window {
            return Ok(Some(window + task.jitter(server)));
        }
        window = next;
    }
}
