//! A virtual function of a card that the host keeps for one VM.

use std::io;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::calls::{Joint, Pair};
use crate::address::{Address, format_address, parse_address};
use crate::error::HostError;
use crate::settings::device::is_up;
use crate::settings::{Device, Entries, Machine, SettingKind};

/// Drivers of functions look for their link every two seconds (`igbvf`), and a loaded host takes longer.
const LINK_PATIENCE: Duration = Duration::from_secs(4);
/// A driver whose question to the card got no answer asks again after ten seconds (`igbvf_has_link`), or when it goes up anew.
const LINK_ATTEMPTS: u32 = 4;

/// A card filters for no address of a function's.
const NO_ADDRESS: Address = [0; 6];

/// A virtual function: the card puts one VM's packets into its queue, and they go to the VM's tap.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OwnFunction {
    /// The card.
    #[serde(flatten)]
    pub card: Device,
    /// The number of the function, from 0.
    pub number: u32,
}

/// Whose a function is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Owner {
    /// Nobody's.
    Free {
        /// The address that the card filters for it; zeros without one, or if it is the device's own.
        address: Address,
        /// That of its device.
        #[serde(default)]
        device_address: Address,
        /// Whether its device is up.
        is_up: bool,
    },
    /// A VM's.
    Vm {
        /// The VM's tap.
        tap: Device,
        /// The VM's address.
        address: Address,
    },
    /// Something between: an interrupted change, or the tap went.
    Partly,
}

/// What is seen of a function.
struct Seen {
    /// The address that the card filters for it.
    address: Address,
    device_address: Address,
    is_up: bool,
    index: u32,
}

impl Seen {
    /// The address that somebody else gave it.
    fn filtered(&self) -> Address {
        if self.address == self.device_address {
            NO_ADDRESS
        } else {
            self.address
        }
    }
}

impl OwnFunction {
    /// The function's network device.
    ///
    /// # Errors
    /// `ENODEV`: the function is not there, or no driver of this host has it.
    pub fn device(&self, machine: &Machine) -> io::Result<String> {
        let card = self.card.current_name(machine)?;
        let directory = format!("/sys/class/net/{card}/device/virtfn{}/net", self.number);
        let devices = machine.tree.list(&directory).unwrap_or_default();
        let device = devices.into_iter().next();
        device.ok_or_else(|| io::Error::from_raw_os_error(libc::ENODEV))
    }

    /// The name under which its programs are pinned: cards may be renamed.
    fn name(&self) -> String {
        match self.card.index {
            Some(index) => format!("{index}-{}", self.number),
            None => format!("{}-{}", self.card.name, self.number),
        }
    }

    fn index_of(machine: &Machine, device: &str) -> io::Result<u32> {
        let found = Device::find(machine, device).index;
        found.ok_or_else(|| io::Error::from_raw_os_error(libc::ENODEV))
    }

    /// Programs whose function or card went are steadyvm's all the same: they would send the VM's packets nowhere.
    fn look(&self, machine: &Machine) -> io::Result<Owner> {
        let joint = machine.redirects.joint(&self.name())?;
        let seen = self.see(machine);
        Ok(match (joint, seen) {
            (Joint::Absent, seen) => {
                let seen = seen?;
                Owner::Free {
                    address: seen.filtered(),
                    device_address: seen.device_address,
                    is_up: seen.is_up,
                }
            }
            (Joint::Whole(pair), Ok(seen))
                if seen.is_up && pair.address == seen.address && pair.function == seen.index =>
            {
                let names = machine.tree.list("/sys/class/net")?;
                let taps = names.iter().map(|name| Device::find(machine, name));
                let mut taps = taps.filter(|device| device.index == Some(pair.tap));
                match taps.next() {
                    Some(tap) => Owner::Vm {
                        tap,
                        address: pair.address,
                    },
                    None => Owner::Partly,
                }
            }
            (Joint::Whole(_) | Joint::Broken, _) => Owner::Partly,
        })
    }

    fn see(&self, machine: &Machine) -> io::Result<Seen> {
        let card = self.card.current_name(machine)?;
        let device = self.device(machine)?;
        let own = machine
            .tree
            .read(&format!("/sys/class/net/{device}/address"));
        Ok(Seen {
            address: machine.links.function_address(&card, self.number)?,
            device_address: parse_address(own?.trim()).unwrap_or_default(),
            is_up: is_up(machine, &device),
            index: Self::index_of(machine, &device)?,
        })
    }

    /// In an order that loses nothing: the VM's packets have a way to the tap before the card sends them there, and the card
    /// knows the VM's address before the VM sends by the function, since it drops what other senders send.
    fn join(&self, machine: &Machine, tap: &Device, address: Address) -> io::Result<()> {
        let device = self.device(machine)?;
        let card = self.card.current_name(machine)?;
        let pair = Pair {
            function: Self::index_of(machine, &device)?,
            tap: Self::index_of(machine, &tap.current_name(machine)?)?,
            address,
        };
        let (links, redirects) = (&machine.links, &machine.redirects);
        let name = self.name();
        redirects.remove(&name)?;
        // A function has a link only where the card and its driver agree on an address (`igb_vf_reset_msg`).
        let seen = self.see(machine)?;
        if seen.address == NO_ADDRESS {
            links.set_function_address(&card, self.number, seen.device_address)?;
        }
        Self::find_link(machine, &device, &card)?;
        redirects.receive(&name, &pair)?;
        links.set_function_address(&card, self.number, address)?;
        // They agree on this one, too. A driver that does not let go of its own is told by the card.
        let _ = links.set_device_address(&device, address);
        redirects.send(&name, &pair)
    }

    /// Until its driver has found the link a function loses all that it is given. Where the card has none, nothing is lost.
    fn find_link(machine: &Machine, device: &str, card: &str) -> io::Result<()> {
        let links = &machine.links;
        for attempt in 0..LINK_ATTEMPTS {
            if attempt > 0 {
                links.set_up(device, false)?;
            }
            links.set_up(device, true)?;
            if links.await_link(device, LINK_PATIENCE)?
                || !links.await_link(card, Duration::ZERO)?
            {
                return Ok(());
            }
        }
        Err(io::Error::from_raw_os_error(libc::ENOLINK))
    }

    /// The other way round, as far as the function is there.
    fn part(
        &self,
        machine: &Machine,
        (address, device_address): (Address, Address),
        is_up: bool,
    ) -> io::Result<()> {
        machine.redirects.send_no_more(&self.name())?;
        let card = self.card.current_name(machine);
        let here = card.ok().filter(|card| {
            let function = format!("/sys/class/net/{card}/device/virtfn{}", self.number);
            machine.tree.exists(&function)
        });
        if let Some(card) = here {
            machine
                .links
                .set_function_address(&card, self.number, address)?;
            if let Ok(device) = self.device(machine) {
                let _ = machine.links.set_device_address(&device, device_address);
            }
        }
        machine.redirects.remove(&self.name())?;
        match self.device(machine) {
            Ok(device) if !is_up => machine.links.set_up(&device, false),
            _ => Ok(()),
        }
    }
}

impl SettingKind for OwnFunction {
    type Value = Owner;

    /// Its device goes up, and its driver asks for interrupts then.
    const REPLACES_THREADS: bool = true;

    fn subject(&self) -> String {
        format!("function {} of {}", self.number, self.card.name)
    }

    fn text(&self, value: &Owner) -> String {
        match value {
            Owner::Free { .. } => "free".to_owned(),
            Owner::Vm { tap, address } => {
                format!("of {}, address {}", tap.name, format_address(*address))
            }
            Owner::Partly => "partly joined".to_owned(),
        }
    }

    fn is_same_setting(&self, other: &Self) -> bool {
        self.card.is(&other.card) && self.number == other.number
    }

    fn read(&self, machine: &Machine) -> Result<Owner, HostError> {
        self.look(machine)
            .map_err(|cause| HostError::io("read", self.subject(), cause))
    }

    fn write(&self, machine: &Machine, _from: &Owner, to: &Owner) -> io::Result<()> {
        match to {
            Owner::Vm { tap, address } => self.join(machine, tap, *address),
            Owner::Free {
                address,
                device_address,
                is_up,
            } => self.part(machine, (*address, *device_address), *is_up),
            // Nobody asks for it.
            Owner::Partly => Err(io::Error::from_raw_os_error(libc::EINVAL)),
        }
    }

    fn same(&self, one: &Owner, other: &Owner) -> bool {
        match (one, other) {
            (
                Owner::Vm { tap, address },
                Owner::Vm {
                    tap: other_tap,
                    address: other_address,
                },
            ) => tap.is(other_tap) && address == other_address,
            (one, other) => one == other,
        }
    }

    /// Also where the VM's tap went: the card must not take another host's packets of a VM that has migrated there. And where
    /// the function is up or has its first address, and nothing else is done or is left to undo.
    fn is_halfway(&self, old: &Owner, new: &Owner, found: &Owner) -> bool {
        let Owner::Free {
            address: now,
            device_address: device_now,
            ..
        } = found
        else {
            return *found == Owner::Partly;
        };
        let (
            Owner::Free {
                address,
                device_address,
                ..
            },
            Owner::Vm { address: of_vm, .. },
        ) = (old, new)
        else {
            return false;
        };
        let is_ours = [address, &NO_ADDRESS, of_vm].contains(&now)
            && [device_address, of_vm].contains(&device_now);
        is_ours && old != found
    }

    fn hint(&self, _machine: &Machine, _to: &Owner, errno: i32) -> Option<&'static str> {
        if errno == libc::ENOLINK {
            return Some(
                "; the card has a link, and the function's device has found none in four attempts: `dmesg` may say why",
            );
        }
        matches!(errno, libc::EOPNOTSUPP | libc::EINVAL).then_some(
            "; the card's driver does not let the host choose a function's address, or the kernel is older than 6.6: leave \
             `nic` out",
        )
    }

    fn snapshot(machine: &Machine, entries: &mut Entries) -> Result<(), HostError> {
        for card in machine.tree.list("/sys/class/net").unwrap_or_default() {
            let of_card = format!("/sys/class/net/{card}/device");
            for entry in machine.tree.list(&of_card).unwrap_or_default() {
                let number = entry.strip_prefix("virtfn").map(str::parse);
                let Some(Ok(number)) = number else { continue };
                let function = Self {
                    card: Device::find(machine, &card),
                    number,
                };
                if let Ok(owner) = function.look(machine) {
                    entries.insert(function.subject(), function.text(&owner));
                }
            }
        }
        Ok(())
    }

    #[cfg(any(test, feature = "fake"))]
    fn example(host: &crate::settings::fake::FakeHost) -> crate::settings::ChangeOf<Self> {
        host.card_with_functions("card0", 90, 1);
        host.file("/sys/class/net/example5/ifindex", "82\n");
        crate::settings::ChangeOf {
            setting: Self {
                card: Device::find(&host.machine(), "card0"),
                number: 0,
            },
            old: Owner::Free {
                address: NO_ADDRESS,
                device_address: [2, 0, 0, 1, 90, 0],
                is_up: false,
            },
            new: Owner::Vm {
                tap: Device::find(&host.machine(), "example5"),
                address: [2, 0, 0, 0, 0, 5],
            },
        }
    }
}
