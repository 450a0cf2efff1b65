//! A program on a card that sorts its packets by their destination: for cards without virtual functions.

#[cfg(any(test, feature = "fake"))]
use std::collections::BTreeMap;
use std::io;

use serde::{Deserialize, Serialize};

use super::calls::{Program, Received};
use crate::address::{Address, format_address};
use crate::error::HostError;
use crate::settings::{Device, Entries, Machine, SettingKind};

/// The XDP program of a card. It hands packets to a VM's address to the VM's tap, and all others to normal threads. The card
/// restarts when it comes or goes, and is without a link for a second or two.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct XdpProgram {
    /// The card.
    #[serde(flatten)]
    pub card: Device,
}

/// A VM's address among those that the program of a card looks for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct XdpAddress {
    /// The card.
    #[serde(flatten)]
    pub card: Device,
    /// The VM's address.
    pub address: Address,
}

/// Where packets to an address go.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Way {
    /// Through the host's network stack, as without the program.
    Ordinary,
    /// To a tap.
    Tap(Device),
    /// To a tap that went: they are lost.
    Nowhere,
}

/// The name under which a card's program is pinned: cards may be renamed.
pub(super) fn name_of(card: &Device) -> String {
    match card.index {
        Some(index) => format!("{index}-xdp"),
        None => format!("{}-xdp", card.name),
    }
}

/// What a card's program has counted since it is there.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Counted {
    /// Packets to one VM.
    pub vm: Received,
    /// All packets, the dropped ones, too.
    pub all: u64,
}

impl XdpAddress {
    /// What the program has counted of this address; none if it does not look for it, or is of an earlier version.
    pub(crate) fn counted(&self, machine: &Machine) -> Option<Counted> {
        let name = name_of(&self.card);
        // In this order all are more than a VM's, also while packets come.
        let received = machine.redirects.received(&name).ok()?;
        let counters = machine.redirects.counters(&name).ok()??;
        let discarded = received.values().map(|it| it.discarded);
        Some(Counted {
            vm: received.get(&self.address).copied()?,
            all: counters.to_tap + counters.passed + discarded.sum::<u64>(),
        })
    }
}

fn index_of(machine: &Machine, device: &Device) -> io::Result<u32> {
    let found = Device::find(machine, &device.current_name(machine)?).index;
    found.ok_or_else(|| io::Error::from_raw_os_error(libc::ENODEV))
}

impl SettingKind for XdpProgram {
    type Value = Program;

    /// A driver restarts its card for another program, and asks for its interrupts anew.
    const REPLACES_THREADS: bool = true;

    fn subject(&self) -> String {
        format!("XDP program of {}", self.card.name)
    }

    fn text(&self, value: &Program) -> String {
        match value {
            Program::Absent => "none",
            Program::Whole => "sorts by address",
            Program::Broken => "partly attached",
        }
        .to_owned()
    }

    fn is_same_setting(&self, other: &Self) -> bool {
        self.card.is(&other.card)
    }

    fn read(&self, machine: &Machine) -> Result<Program, HostError> {
        let found = machine.redirects.program(&name_of(&self.card));
        found.map_err(|cause| HostError::io("read", self.subject(), cause))
    }

    fn write(&self, machine: &Machine, _from: &Program, to: &Program) -> io::Result<()> {
        let name = name_of(&self.card);
        match to {
            Program::Absent => machine.redirects.remove(&name),
            Program::Whole => {
                machine.redirects.remove(&name)?;
                let online = machine.online().map_err(io::Error::other)?;
                let cpus: Vec<u32> = online.iter().map(|cpu| cpu as u32).collect();
                let card = index_of(machine, &self.card)?;
                machine.redirects.attach(&name, card, &cpus)
            }
            // Nobody asks for it.
            Program::Broken => Err(io::Error::from_raw_os_error(libc::EINVAL)),
        }
    }

    /// One whose card went, or whose attaching was interrupted, is steadyvm's all the same.
    fn is_halfway(&self, _old: &Program, _new: &Program, found: &Program) -> bool {
        *found == Program::Broken
    }

    fn hint(&self, _machine: &Machine, _to: &Program, _errno: i32) -> Option<&'static str> {
        Some(
            "; another XDP program is on the card (`ip link show`), or its driver takes none as the card is set now (a large \
             MTU, LRO): end that, or leave `nic` out",
        )
    }

    fn snapshot(machine: &Machine, entries: &mut Entries) -> Result<(), HostError> {
        for card in machine.tree.list("/sys/class/net").unwrap_or_default() {
            let can = machine.links.redirects_by_xdp(&card).unwrap_or(false);
            let card = Device::find(machine, &card);
            let setting = Self { card };
            let found = setting.read(machine)?;
            if can || found != Program::Absent {
                entries.insert(setting.subject(), setting.text(&found));
            }
        }
        Ok(())
    }

    #[cfg(any(test, feature = "fake"))]
    fn example(host: &crate::settings::fake::FakeHost) -> crate::settings::ChangeOf<Self> {
        host.file("/sys/class/net/card2/ifindex", "96\n");
        host.edit(|state| state.with_xdp.insert("card2".into()));
        crate::settings::ChangeOf {
            setting: Self {
                card: Device::find(&host.machine(), "card2"),
            },
            old: Program::Absent,
            new: Program::Whole,
        }
    }
}

impl SettingKind for XdpAddress {
    type Value = Way;

    fn subject(&self) -> String {
        format!(
            "packets to {} on {}",
            format_address(self.address),
            self.card.name
        )
    }

    fn text(&self, value: &Way) -> String {
        match value {
            Way::Ordinary => "the ordinary way".to_owned(),
            Way::Tap(tap) => format!("to {}", tap.name),
            Way::Nowhere => "to a tap that went".to_owned(),
        }
    }

    fn is_same_setting(&self, other: &Self) -> bool {
        self.card.is(&other.card) && self.address == other.address
    }

    fn read(&self, machine: &Machine) -> Result<Way, HostError> {
        let served = machine.redirects.served(&name_of(&self.card));
        let served = served.map_err(|cause| HostError::io("read", self.subject(), cause))?;
        let Some(index) = served.get(&self.address) else {
            return Ok(Way::Ordinary);
        };
        let names = machine.tree.list("/sys/class/net").unwrap_or_default();
        let devices = names.iter().map(|name| Device::find(machine, name));
        let tap = devices.into_iter().find(|it| it.index == Some(*index));
        Ok(tap.map_or(Way::Nowhere, Way::Tap))
    }

    fn write(&self, machine: &Machine, _from: &Way, to: &Way) -> io::Result<()> {
        let name = name_of(&self.card);
        match to {
            Way::Ordinary => machine.redirects.forget(&name, self.address),
            Way::Tap(tap) => {
                let tap = index_of(machine, tap)?;
                machine.redirects.serve(&name, self.address, tap)
            }
            // Nobody asks for it.
            Way::Nowhere => Err(io::Error::from_raw_os_error(libc::EINVAL)),
        }
    }

    fn same(&self, one: &Way, other: &Way) -> bool {
        match (one, other) {
            (Way::Tap(one), Way::Tap(other)) => one.is(other),
            (one, other) => one == other,
        }
    }

    /// A VM that has migrated to another host is reached there only once this one does not take its packets.
    fn is_halfway(&self, _old: &Way, _new: &Way, found: &Way) -> bool {
        *found == Way::Nowhere
    }

    fn snapshot(machine: &Machine, entries: &mut Entries) -> Result<(), HostError> {
        for card in machine.tree.list("/sys/class/net").unwrap_or_default() {
            let card = Device::find(machine, &card);
            let name = name_of(&card);
            if machine.redirects.program(&name).ok() != Some(Program::Whole) {
                continue;
            }
            let served = machine.redirects.served(&name).unwrap_or_default();
            let all: Vec<String> = served.into_keys().map(format_address).collect();
            entries.insert(format!("packets on {}", card.name), all.join(", "));
        }
        Ok(())
    }

    #[cfg(any(test, feature = "fake"))]
    fn example(host: &crate::settings::fake::FakeHost) -> crate::settings::ChangeOf<Self> {
        host.file("/sys/class/net/card3/ifindex", "97\n");
        host.file("/sys/class/net/example6/ifindex", "83\n");
        host.edit(|state| state.programs.insert("97-xdp".into(), BTreeMap::new()));
        crate::settings::ChangeOf {
            setting: Self {
                card: Device::find(&host.machine(), "card3"),
                address: [2, 0, 0, 0, 0, 6],
            },
            old: Way::Ordinary,
            new: Way::Tap(Device::find(&host.machine(), "example6")),
        }
    }
}
