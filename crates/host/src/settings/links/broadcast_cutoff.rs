//! Who hands multicast frames to the macvlans and macvtaps of a card: the context that received them, or a normal work queue.

use std::io;

use serde::{Deserialize, Serialize};

use super::macvtaps::above;
use crate::error::HostError;
use crate::settings::{Device, Entries, Machine, SettingKind};

/// The cutoff that lets no frame wait: whatever its address, it is handed on where it was received.
pub const NOTHING_QUEUED: i32 = -1;

/// The cutoff of broadcast queueing (`bclim` of ip-link(8)) of the macvlans and macvtaps of a card. The kernel keeps it for as long
/// as the card has one of them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BroadcastCutoff {
    /// The card below them.
    #[serde(flatten)]
    pub card: Device,
}

impl BroadcastCutoff {
    /// A macvlan or macvtap of the card, through which the kernel is asked, and what it says. `ENODEV` without one.
    fn ask(&self, machine: &Machine) -> io::Result<(String, i32)> {
        let card = self.card.current_name(machine)?;
        of_card(machine, &card)
    }
}

/// The same of a card by its name.
pub(crate) fn of_card(machine: &Machine, card: &str) -> io::Result<(String, i32)> {
    let mut above = above(machine, card).into_iter();
    let found = above.find_map(|name| {
        let cutoff = machine.links.broadcast_cutoff(&name).ok()?;
        Some((name, cutoff))
    });
    found.ok_or_else(|| io::Error::from_raw_os_error(libc::ENODEV))
}

impl SettingKind for BroadcastCutoff {
    type Value = i32;

    fn subject(&self) -> String {
        format!("multicast cutoff of macvtaps on {}", self.card.name)
    }

    fn text(&self, value: &i32) -> String {
        value.to_string()
    }

    fn is_same_setting(&self, other: &Self) -> bool {
        self.card.is(&other.card)
    }

    fn read(&self, machine: &Machine) -> Result<i32, HostError> {
        self.ask(machine)
            .map(|(_, cutoff)| cutoff)
            .map_err(|cause| HostError::io("read", self.subject(), cause))
    }

    fn write(&self, machine: &Machine, _from: &i32, to: &i32) -> io::Result<()> {
        let (name, _) = self.ask(machine)?;
        machine.links.set_broadcast_cutoff(&name, *to)
    }

    fn snapshot(machine: &Machine, entries: &mut Entries) -> Result<(), HostError> {
        for card in machine.tree.list("/sys/class/net").unwrap_or_default() {
            if let Ok((_, cutoff)) = of_card(machine, &card) {
                entries.insert(card, cutoff.to_string());
            }
        }
        Ok(())
    }

    #[cfg(any(test, feature = "fake"))]
    fn example(host: &crate::settings::fake::FakeHost) -> crate::settings::ChangeOf<Self> {
        host.file("/sys/class/net/example5/ifindex", "82\n");
        host.macvtap("example6", 83, "example5");
        crate::settings::ChangeOf {
            setting: Self {
                card: Device::find(&host.machine(), "example5"),
            },
            old: 1,
            new: NOTHING_QUEUED,
        }
    }
}
