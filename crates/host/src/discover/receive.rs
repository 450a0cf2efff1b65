//! The threads that do a VM's receive work: all that runs on the host for its packets, from the card's interrupt to the
//! guest's memory.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use super::nic;
use super::processes::Processes;
use super::socket_servers::socket_servers;
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
