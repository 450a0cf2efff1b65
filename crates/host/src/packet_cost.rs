//! What receiving one packet for a VM costs this host, from the accounts of the threads that do it. Reads only.
//!
//! The cost is CPU time over packets that the VM's taps have given to its guest, between two looks. A vhost worker carries
//! what the guest sends, too: answers are in the cost of what they answer. Where the kernel merges packets (GRO), a merged one
//! counts once.

use crate::discover::Processes;
use crate::error::HostError;
use crate::printable::printable;
use crate::profile::Profile;
use crate::receive::{CardCounts, ReceiveEntity, running};
use crate::settings::Machine;
use crate::settings::links::taps;
use crate::ways::PacketWay;

/// Fewer packets between two looks tell nothing of one.
const LEAST_PACKETS: u64 = 20;

/// Whose packets are looked at.
#[derive(Debug, Clone)]
pub struct PacketAccount {
    entity: ReceiveEntity,
    taps: Vec<String>,
}

/// What had been used and received at a moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PacketLook {
    cpu_ns: u64,
    packets: u64,
    card: Option<CardCounts>,
}

impl PacketAccount {
    /// That of a running VM, by its name in the profile in force.
    ///
    /// # Errors
    /// A VM that does not run or has no tap; one whose packets wait among those of others, so that no thread's time is theirs.
    pub fn of(
        machine: &Machine,
        vm: &str,
        profile: Option<&Profile>,
        ways: &[PacketWay],
    ) -> Result<Self, HostError> {
        let refuse = |what: &str, fix: &str| {
            let what = format!("VM \"{}\" {what}", printable(vm));
            let fix = fix.to_owned();
            Err(HostError::BadInput { what, fix })
        };
        let threads = machine.all_threads()?;
        let processes = Processes::of(&threads);
        let found = running(machine, &processes, profile);
        let Some((_, found)) = found.into_iter().find(|(name, _)| name == vm) else {
            return refuse("does not run", "name a VM of the file in force");
        };
        let way = ways.iter().find(|way| way.vm == vm);
        let entity = ReceiveEntity::of(machine, &processes, &found, way);
        if way.is_none() || (!entity.shared_cards.is_empty() && entity.sorted.is_none()) {
            return refuse(
                "has no way of its own on a card, so nobody's CPU time is that of its packets",
                "give its table `nic`, and apply",
            );
        }
        let (taps, _) = taps(machine, found.pid);
        if taps.is_empty() {
            return refuse("has no tap whose packets could be counted", "give it one");
        }
        Ok(Self { entity, taps })
    }

    /// What was used and received so far; none if a thread, a tap or a program went.
    pub fn look(&self, machine: &Machine) -> Option<PacketLook> {
        let times = self.entity.threads.iter();
        let times = times.map(|it| machine.cpu_time_ns(&it.thread));
        let packets = self.taps.iter().map(|tap| {
            let path = format!("/sys/class/net/{tap}/statistics/tx_packets");
            machine.tree.read(&path).ok()?.trim().parse::<u64>().ok()
        });
        let card = match &self.entity.sorted {
            Some(sorted) => Some(sorted.counts(machine)?),
            None => None,
        };
        Some(PacketLook {
            cpu_ns: times.sum::<Option<u64>>()?,
            packets: packets.sum::<Option<u64>>()?,
            card,
        })
    }
}

impl PacketLook {
    /// CPU time of one packet since an earlier look, rounded up; none where few came, or a count began anew.
    pub fn cost_since_ns(&self, before: &Self) -> Option<u64> {
        let packets = self.packets.checked_sub(before.packets)?;
        if packets < LEAST_PACKETS {
            return None;
        }
        let polls_ns = match (&self.card, &before.card) {
            (Some(now), Some(before)) => now.polls_since_ns(before)?,
            _ => 0,
        };
        let cpu_ns = self.cpu_ns.checked_sub(before.cpu_ns)?;
        Some(cpu_ns.checked_add(polls_ns)?.div_ceil(packets))
    }
}
