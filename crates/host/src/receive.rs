//! What receiving for each VM costs the host: the CPU time of the threads that do its receive work. Reads only.
//!
//! A thread counts for a VM if all that it does is for this VM: its vhost workers, the threads of its virtual function or of
//! a card that no other VM has, the server of its sockets. Polls of a shared card are no thread's of one VM; they are told,
//! and not in the figures.
//!
//! Where a card's XDP program tells packets apart, the time of the card's polls is split by packets. A packet's cost is taken
//! as equal: a VM with packets that cost more than others is charged too little. In these polls a packet is looked up and handed
//! over, whatever its length, so the error is that of a frame's length and of drops, which cost less.
//!
//! The kernel counts from the begin of a thread on. Threads of cards end and begin again, with a card's queues or `threaded`
//! NAPI: so figures are kept by thread and added up by the reader, and what a thread used before it ended is no longer there.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::address::parse_address;
use crate::discover::{
    Processes, ReceiveKind, ReceiveThread, Vm, all_vms, find_vm, nic, receive_threads,
};
use crate::error::HostError;
use crate::profile::Profile;
use crate::settings::links::taps;
use crate::settings::{Counted, Device, Machine, Received, ThreadId, XdpAddress};
use crate::ways::{PacketWay, Way};

/// The threads that do a VM's receive work.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReceiveEntity {
    /// The threads.
    pub threads: Vec<ReceiveThread>,
    /// Cards by which the VM's packets come and whose interrupts and polls serve others, too.
    pub shared_cards: Vec<String>,
    /// Of a shared card that tells the VM's packets apart.
    pub sorted: Option<SortedCard>,
}

/// A card whose XDP program tells a VM's packets apart.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SortedCard {
    /// The card.
    pub card: String,
    address: XdpAddress,
    /// The threads that poll it.
    threads: Vec<ThreadId>,
}

/// What a card's program has counted of a VM, and what the card's polls have cost so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CardCounts {
    counted: Counted,
    /// None where no thread polls the card: it is polled by whatever an interrupt meets.
    polled_ns: Option<u64>,
}

impl CardCounts {
    /// Packets to the VM.
    pub fn packets(&self) -> Received {
        self.counted.vm
    }

    /// CPU time of the card's polls since an earlier look, by the VM's share of the packets since then; none without a
    /// packet, and where no thread polls the card.
    pub fn polls_since_ns(&self, before: &Self) -> Option<u64> {
        let since = |now: u64, before: u64| u128::from(now.saturating_sub(before));
        let all = since(self.counted.all, before.counted.all);
        let own = since(self.counted.vm.packets, before.counted.vm.packets).min(all);
        let polled_ns = since(self.polled_ns?, before.polled_ns?);
        u64::try_from((polled_ns * own).checked_div(all)?).ok()
    }
}

impl SortedCard {
    fn of(machine: &Machine, processes: &Processes<'_>, way: &Way) -> Option<Self> {
        let Way::XdpProgram {
            card,
            address,
            in_force: true,
        } = way
        else {
            return None;
        };
        let found = nic(machine, processes.threads(), card).ok()?;
        let address = XdpAddress {
            card: Device::find(machine, card),
            address: parse_address(address)?,
        };
        let threads = [found.irq_threads, found.napi_threads].concat();
        Some(Self {
            card: card.clone(),
            address,
            threads,
        })
    }

    /// What was counted so far; none if the card or its program went.
    pub fn counts(&self, machine: &Machine) -> Option<CardCounts> {
        let times = self.threads.iter();
        let times: Vec<u64> = times.filter_map(|it| machine.cpu_time_ns(it)).collect();
        Some(CardCounts {
            counted: self.address.counted(machine)?,
            polled_ns: (!times.is_empty()).then(|| times.iter().sum()),
        })
    }
}

impl ReceiveEntity {
    /// Of a running VM, whose packets go this way, as far as that is known.
    pub fn of(
        machine: &Machine,
        processes: &Processes<'_>,
        vm: &Vm,
        way: Option<&PacketWay>,
    ) -> Self {
        let cards = way.map_or_else(Cards::default, |it| Cards::of(machine, &it.way, vm.pid));
        Self {
            threads: receive_threads(machine, processes, vm, &cards.own),
            shared_cards: cards.shared,
            sorted: way.and_then(|it| SortedCard::of(machine, processes, &it.way)),
        }
    }
}

/// CPU time of a VM's receive work.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReceiveWork {
    /// The VM, by its name in the file.
    pub vm: String,
    /// Of all its threads since each began, in nanoseconds.
    pub cpu_ns: u64,
    /// Thread by thread.
    pub threads: Vec<ReceiveTime>,
    /// Cards by which its packets come and whose interrupts and polls serve others, too: they are not in the figures.
    pub shared_cards: Vec<String>,
    /// What a shared card's program has counted of its packets; null where none does.
    pub card_packets: Option<CardPackets>,
}

/// Packets to a VM that a card's program has counted since it looks for the VM's address.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CardPackets {
    /// The card.
    pub card: String,
    /// Packets, their bytes, and how many of them were dropped, since they were over the VM's budget.
    #[serde(flatten)]
    pub received: Received,
}

/// CPU time of a thread.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReceiveTime {
    /// What it does.
    pub kind: ReceiveKind,
    /// The thread.
    pub tid: u32,
    /// Its name.
    pub thread: String,
    /// CPU time since it began, in nanoseconds.
    pub cpu_ns: u64,
}

impl ReceiveWork {
    fn of(machine: &Machine, vm: &str, entity: ReceiveEntity) -> Self {
        let time = |it: ReceiveThread| {
            Some(ReceiveTime {
                kind: it.kind,
                tid: it.thread.tid,
                cpu_ns: machine.cpu_time_ns(&it.thread)?,
                thread: it.thread.comm,
            })
        };
        let card_packets = entity.sorted.and_then(|sorted| {
            let received = sorted.counts(machine)?.packets();
            let card = sorted.card;
            Some(CardPackets { card, received })
        });
        let threads: Vec<ReceiveTime> = entity.threads.into_iter().filter_map(time).collect();
        Self {
            vm: vm.to_owned(),
            cpu_ns: threads.iter().map(|thread| thread.cpu_ns).sum(),
            threads,
            shared_cards: entity.shared_cards,
            card_packets,
        }
    }

    /// CPU time by what threads do.
    pub fn by_kind(&self) -> BTreeMap<ReceiveKind, u64> {
        let mut times = BTreeMap::new();
        for thread in &self.threads {
            *times.entry(thread.kind).or_default() += thread.cpu_ns;
        }
        times
    }
}

/// What receiving costs for each VM that runs: of a profile, or without one of this host. VMs that cannot be found are left
/// out; what plans them says why.
///
/// # Errors
/// A part of procfs that cannot be read.
pub fn receive_work(
    machine: &Machine,
    profile: Option<&Profile>,
    ways: &[PacketWay],
) -> Result<Vec<ReceiveWork>, HostError> {
    let threads = machine.all_threads()?;
    let processes = Processes::of(&threads);
    let vms = running(machine, &processes, profile);
    let work = |(name, vm): &(String, Vm)| {
        let way = ways.iter().find(|way| way.vm == *name);
        let entity = ReceiveEntity::of(machine, &processes, vm, way);
        ReceiveWork::of(machine, name, entity)
    };
    Ok(vms.iter().map(work).collect())
}

/// The VMs that run, by name: those of a profile, or without one all of this host.
pub(crate) fn running(
    machine: &Machine,
    processes: &Processes<'_>,
    profile: Option<&Profile>,
) -> Vec<(String, Vm)> {
    let Some(profile) = profile else {
        return all_vms(machine, processes);
    };
    let found = profile.vms.iter().filter_map(|vm| {
        let ignored = &mut Vec::new();
        let found = find_vm(machine, processes, &vm.selector(), &vm.users, ignored);
        Some((vm.name.clone(), found.ok()??))
    });
    found.collect()
}

/// The cards by which a VM's packets come.
#[derive(Default)]
struct Cards {
    /// Whose packets are the VM's alone.
    own: Vec<String>,
    /// Those of others, too.
    shared: Vec<String>,
}

impl Cards {
    fn of(machine: &Machine, way: &Way, pid: u32) -> Self {
        let shared = |card: &String| Self {
            shared: vec![card.clone()],
            ..Self::default()
        };
        match way {
            Way::VirtualFunction {
                device: Some(device),
                in_force: true,
                ..
            } => Self {
                own: vec![device.clone()],
                ..Self::default()
            },
            Way::VirtualFunction { card, .. }
            | Way::FunctionsFirst { card, .. }
            | Way::XdpProgram { card, .. }
            | Way::ProgramFirst { card } => shared(card),
            Way::OwnCard { cards } => {
                let is_own = |card: &String| has_no_other_vm(machine, card, pid);
                let (own, shared) = cards.iter().cloned().partition(is_own);
                Self { own, shared }
            }
            Way::SharedRing { cards } => Self {
                shared: cards.clone(),
                ..Self::default()
            },
            Way::UserSpace | Way::NoCard | Way::NotRunning => Self::default(),
        }
    }
}

/// Whether the bridge that a card is in has no ports but cards and taps of this VM. What the host itself receives by such a
/// card counts for the VM.
fn has_no_other_vm(machine: &Machine, card: &str, pid: u32) -> bool {
    let (own, _) = taps(machine, pid);
    let ports = format!("/sys/class/net/{card}/master/brif");
    let Ok(ports) = machine.tree.list(&ports) else {
        return false;
    };
    let is_card = |port: &String| {
        let device = format!("/sys/class/net/{port}/device");
        machine.tree.exists(&device)
    };
    ports.iter().all(|port| is_card(port) || own.contains(port))
}
