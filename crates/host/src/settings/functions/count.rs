//! How many virtual functions a card has.

use std::io;

use serde::{Deserialize, Serialize};

use crate::error::HostError;
use crate::settings::device::is_up;
use crate::settings::{Device, Entries, Machine, SettingKind};

/// The number of a card's virtual functions (`sriov_numvfs`). The kernel goes from none to some and back, never from some to
/// others. The card restarts, and is without a link for a second or two.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Functions {
    /// The card.
    #[serde(flatten)]
    pub card: Device,
}

impl Functions {
    /// How many the card can have; none if it can have none.
    pub fn most(&self, machine: &Machine) -> Option<u32> {
        let card = self.card.current_name(machine).ok()?;
        let path = format!("/sys/class/net/{card}/device/sriov_totalvfs");
        let most = machine.tree.read(&path).ok()?.trim().parse().ok();
        most.filter(|most| *most > 0)
    }

    fn path(&self, machine: &Machine) -> io::Result<String> {
        let card = self.card.current_name(machine)?;
        Ok(format!("/sys/class/net/{card}/device/sriov_numvfs"))
    }
}

impl SettingKind for Functions {
    type Value = u32;

    /// A driver may stop and start its card, and the functions' devices are new.
    const REPLACES_THREADS: bool = true;

    fn subject(&self) -> String {
        format!("virtual functions of {}", self.card.name)
    }

    fn text(&self, value: &u32) -> String {
        match value {
            0 => "none".to_owned(),
            count => count.to_string(),
        }
    }

    fn is_same_setting(&self, other: &Self) -> bool {
        self.card.is(&other.card)
    }

    fn read(&self, machine: &Machine) -> Result<u32, HostError> {
        let path = self
            .path(machine)
            .map_err(|cause| HostError::io("read", self.subject(), cause))?;
        let text = machine.must_read(&path)?;
        text.trim().parse().map_err(|_| HostError::Malformed {
            path,
            problem: "it is no number".into(),
        })
    }

    fn write(&self, machine: &Machine, _from: &u32, to: &u32) -> io::Result<()> {
        machine.tree.write(&self.path(machine)?, &to.to_string())
    }

    /// Functions that somebody uses stay: by passthrough, in another network namespace, or with a device that is up. steadyvm's
    /// own are down by then: they are given back first.
    fn is_postponed(&self, machine: &Machine) -> Option<String> {
        let card = self.card.current_name(machine).ok()?;
        let directory = format!("/sys/class/net/{card}/device");
        for entry in machine.tree.list(&directory).ok()? {
            let Some(number) = entry.strip_prefix("virtfn") else {
                continue;
            };
            let function = format!("{directory}/{entry}");
            let devices = machine.tree.list(&format!("{function}/net"));
            let is_used = match devices.unwrap_or_default().first() {
                Some(device) => is_up(machine, device),
                None => machine.tree.exists(&format!("{function}/driver")),
            };
            if is_used {
                return Some(format!("somebody uses function {number} of {card}"));
            }
        }
        None
    }

    fn hint(&self, _machine: &Machine, _to: &u32, errno: i32) -> Option<&'static str> {
        matches!(errno, libc::ENOMEM | libc::ENOSPC | libc::EBUSY).then_some(
            "; the machine has no room for functions of this card (SR-IOV in the firmware's settings, `pci=assign-busses`), or \
             something uses those that it has",
        )
    }

    fn snapshot(machine: &Machine, entries: &mut Entries) -> Result<(), HostError> {
        for card in machine.tree.list("/sys/class/net").unwrap_or_default() {
            let path = format!("/sys/class/net/{card}/device/sriov_numvfs");
            if let Ok(text) = machine.tree.read(&path) {
                entries.insert(card, text.trim().to_owned());
            }
        }
        Ok(())
    }

    #[cfg(any(test, feature = "fake"))]
    fn example(host: &crate::settings::fake::FakeHost) -> crate::settings::ChangeOf<Self> {
        host.card_with_functions("card1", 95, 0);
        crate::settings::ChangeOf {
            setting: Self {
                card: Device::find(&host.machine(), "card1"),
            },
            old: 0,
            new: 2,
        }
    }
}
