//! A virtual function of a card that the host keeps for one VM.

use std::io;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::calls::{Joint, Pair};
use crate::address::{Address, format_address, parse_address};
use crate::error::HostError;
use crate::settings::device::is_up;
use crate::settings::{Device, Entries, Machine, SettingKind};

/// A driver looks for its link every two seconds (`igbvf_watchdog_task`). The VM receives nothing for so long.
const LINK_PATIENCE: Duration = Duration::from_secs(6);

/// A function whose driver and card have understood each other has its link at once.
const FIRST_LOOK: Duration = Duration::from_secs(3);

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
        /// The address that the card filters for it; zeros without one.
        address: Address,
        /// Whether it is the device's own, which a driver tells the card by itself.
        #[serde(default)]
        is_own: bool,
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
                let (address, is_up, _) = seen?;
                Owner::Free {
                    address,
                    is_own: self.is_own(machine, address),
                    is_up,
                }
            }
            (Joint::Whole(pair), Ok((address, true, function)))
                if pair.address == address && pair.function == function =>
            {
                let names = machine.tree.list("/sys/class/net")?;
                let taps = names.iter().map(|name| Device::find(machine, name));
                let mut taps = taps.filter(|device| device.index == Some(pair.tap));
                match taps.next() {
                    Some(tap) => Owner::Vm { tap, address },
                    None => Owner::Partly,
                }
            }
            (Joint::Whole(_) | Joint::Broken, _) => Owner::Partly,
        })
    }

    /// The address that the card filters for the function; whether its device is up, and the device's index.
    fn see(&self, machine: &Machine) -> io::Result<(Address, bool, u32)> {
        let card = self.card.current_name(machine)?;
        let device = self.device(machine)?;
        let address = machine.links.function_address(&card, self.number)?;
        let index = Self::index_of(machine, &device)?;
        Ok((address, is_up(machine, &device), index))
    }

    /// Whether an address is that of the function's device.
    fn is_own(&self, machine: &Machine, address: Address) -> bool {
        let own = self.device(machine).and_then(|device| {
            let path = format!("/sys/class/net/{device}/address");
            machine.tree.read(&path)
        });
        own.is_ok_and(|text| parse_address(text.trim()) == Some(address))
    }

    /// In an order that loses little: the VM's packets have a way to the tap before the card sends them there, and the card
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
        Self::switch_on(machine, &device, &card)?;
        redirects.receive(&name, &pair)?;
        // What is sent to a function without a link is lost. Where the card has none either, nothing comes.
        links.set_function_address(&card, self.number, address)?;
        let is_useless = !links.await_link(&device, LINK_PATIENCE)?
            && links.await_link(&card, Duration::ZERO)?;
        if is_useless {
            return Err(io::Error::from_raw_os_error(libc::ENOLINK));
        }
        redirects.send(&name, &pair)
    }

    /// Switches a device on, from two CPUs in turn until it has a link.
    ///
    /// igbvf waits for the card's answers with bottom halves off. With PREEMPT_RT before Linux 6.18 that holds a lock of its CPU,
    /// which the interrupt thread that has to answer needs if it is on the same CPU. Both wait for a second, igbvf gives up, and it
    /// asks again when its device is switched off (`igbvf_down` resets). Nobody knows from which CPU it was switched off before
    /// this, so that the first CPU has a second turn.
    fn switch_on(machine: &Machine, device: &str, card: &str) -> io::Result<()> {
        let links = &machine.links;
        let online = machine.online().map_err(io::Error::other)?;
        let turns = online.iter().take(2).chain(online.iter().take(1));
        for (turn, cpu) in turns.enumerate() {
            if turn > 0 {
                links.set_up_from(device, false, cpu)?;
            }
            links.set_up_from(device, true, cpu)?;
            if links.await_link(device, FIRST_LOOK)? || !links.await_link(card, Duration::ZERO)? {
                break;
            }
        }
        Ok(())
    }

    /// The other way round, as far as the function is there.
    fn part(&self, machine: &Machine, address: Address, is_up: bool) -> io::Result<()> {
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
            Owner::Free { address, is_up, .. } => self.part(machine, *address, *is_up),
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
            (
                Owner::Free {
                    address,
                    is_own,
                    is_up,
                },
                Owner::Free {
                    address: other,
                    is_own: other_is_own,
                    is_up: other_is_up,
                },
            ) => {
                // A driver tells the card its own address when its device goes up.
                let none = |address: &Address, is_own: &bool| *is_own || *address == NO_ADDRESS;
                let is_same =
                    address == other || (none(address, is_own) && none(other, other_is_own));
                is_same && is_up == other_is_up
            }
            (one, other) => one == other,
        }
    }

    /// Also where the VM's tap went: the card must not take another host's packets of a VM that has migrated there. And where
    /// the function's device is up, and nothing else is done or is left to undo.
    fn is_halfway(&self, old: &Owner, _new: &Owner, found: &Owner) -> bool {
        match (old, found) {
            (_, Owner::Partly) => true,
            (
                Owner::Free { address, .. },
                Owner::Free {
                    address: now,
                    is_own,
                    ..
                },
            ) => (address == now || *is_own) && !self.same(old, found),
            _ => false,
        }
    }

    fn hint(&self, _machine: &Machine, _to: &Owner, errno: i32) -> Option<&'static str> {
        if errno == libc::ENOLINK {
            return Some(
                "; the card has a link, and the function's device has found none within 6 s: `dmesg` may say why",
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
                is_own: false,
                is_up: false,
            },
            new: Owner::Vm {
                tap: Device::find(&host.machine(), "example5"),
                address: [2, 0, 0, 0, 0, 5],
            },
        }
    }
}
