//! The threads that do a VM's receive work: all that runs on the host for its packets, from the card's interrupt to the
//! guest's memory.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use super::nic;
use super::owner::{ROOT, users};
use super::processes::Processes;
use super::vm::Vm;
use crate::settings::{Machine, ThreadId};

/// What a thread does for a VM's packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ReceiveKind {
    /// It handles interrupts. A card without NAPI threads is polled there, too.
    Irq,
    /// It polls a card.
    Napi,
    /// It copies between the host and the guest.
    Vhost,
    /// It serves outsourced sockets.
    Sockets,
}

impl ReceiveKind {
    /// In one word.
    pub fn word(self) -> &'static str {
        match self {
            Self::Irq => "irq",
            Self::Napi => "napi",
            Self::Vhost => "vhost",
            Self::Sockets => "sockets",
        }
    }
}

/// A thread that does a VM's receive work.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ReceiveThread {
    /// What it does.
    pub kind: ReceiveKind,
    /// The thread.
    pub thread: ThreadId,
}

/// The threads that do a VM's receive work, in the order that a packet meets them. `own_cards` are network devices whose
/// packets are this VM's alone.
pub fn receive_threads(
    machine: &Machine,
    processes: &Processes<'_>,
    vm: &Vm,
    own_cards: &[String],
) -> Vec<ReceiveThread> {
    let mut found = Vec::new();
    let mut add = |kind, threads: Vec<ThreadId>| {
        let threads = threads.into_iter();
        found.extend(threads.map(|thread| ReceiveThread { kind, thread }));
    };
    add(ReceiveKind::Irq, vm.vfio_threads.clone());
    for card in own_cards {
        // One that went has no threads.
        if let Ok(card) = nic(machine, processes.threads(), card) {
            add(ReceiveKind::Irq, card.irq_threads);
            add(ReceiveKind::Napi, card.napi_threads);
        }
    }
    add(ReceiveKind::Vhost, vm.vhost_workers.clone());
    add(
        ReceiveKind::Sockets,
        socket_servers(machine, processes, vm.pid),
    );
    // Devices may share an interrupt.
    let mut known = BTreeSet::new();
    found.retain(|it| known.insert(it.thread.tid));
    found
}

/// The threads of `steadyvm sockets serve` that serve a VM: it shares memory with the monitor, which nobody can without
/// being given it. Names only tell which processes to look at.
fn socket_servers(machine: &Machine, processes: &Processes<'_>, pid: u32) -> Vec<ThreadId> {
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
    let of_monitor = users(machine, pid);
    let mut servers = socket_servers(machine, processes, pid);
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
