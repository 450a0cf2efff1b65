//! The threads that serve a VM's outsourced sockets.

use super::owner::{ROOT, users};
use super::processes::Processes;
use crate::settings::{Machine, ThreadId};

/// The threads of `steadyvm sockets serve` that serve a VM: it shares memory with the monitor, which nobody can without
/// being given it. Names only tell which processes to look at.
pub(super) fn socket_servers(
    machine: &Machine,
    processes: &Processes<'_>,
    pid: u32,
) -> Vec<ThreadId> {
    let memories = |pid| {
        let files = processes.files(machine, pid).unwrap_or_default();
        files.socket_memories
    };
    let own = memories(pid);
    if own.is_empty() {
        return Vec::new();
    }
    let mut found = Vec::new();
    for (other, process) in processes.iter().filter(|(other, _)| *other != pid) {
        let threads = process.threads.iter().map(|thread| &thread.id);
        let serving: Vec<ThreadId> = threads.filter(|it| serves(&it.comm)).cloned().collect();
        if !serving.is_empty() && !memories(other).is_disjoint(&own) {
            found.extend(serving);
        }
    }
    found
}

/// Those of them that may have the rank of the VM's class: of a process that is root's alone, or of the monitor's users. Whoever is
/// given the VM's memory may name threads as he likes; he gets none of another user's ranks by that.
pub(super) fn trusted_socket_servers(
    machine: &Machine,
    processes: &Processes<'_>,
    pid: u32,
) -> Vec<ThreadId> {
    let mut servers = socket_servers(machine, processes, pid);
    if servers.is_empty() {
        return servers;
    }
    let of_monitor = users(machine, pid);
    servers.retain(|server| {
        let of_server = users(machine, server.pid);
        let is_roots = of_server.iter().all(|user| *user == ROOT);
        !of_server.is_empty() && (is_roots || of_server == of_monitor)
    });
    servers
}

/// `sockets0/NAME`, a thread per channel.
fn serves(comm: &str) -> bool {
    let role = comm.split_once('/').map(|(role, _)| role);
    role.and_then(|role| role.strip_prefix("sockets"))
        .is_some_and(|channel| channel.parse::<u16>().is_ok())
}
