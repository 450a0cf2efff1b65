//! The attacks: by whom, and whom they are for.

use std::fmt;
use std::net::Ipv4Addr;
use steadyvm_lab::emulator::SCRATCH;
use steadyvm_lab::host::{BULK, RT};
use steadyvm_lab::laboratory::guest;
use steadyvm_lab::{Error, Result};
use steadyvm_load::attack::{Aim, Frames, To, USUAL_MOST_BYTES};
use steadyvm_load::netstream;

/// Frames per second from outside: for a host whose cards are emulated, a flood. More may stop it altogether.
pub(super) const FRAMES_PER_S: u32 = 5_000;
/// A group that nobody of the lab has joined.
const GROUP: Ipv4Addr = Ipv4Addr::new(239, 1, 1, 1);
/// Last byte of the victims' addresses.
const VICTIM_ADDRESS: u8 = 3;
/// Last bytes of the attacking VMs'.
pub(super) const ATTACKER_ADDRESS: u8 = 5;
pub(super) const OUTSOURCED_ADDRESS: u8 = 6;
/// Its card.
const INTERFACE: &str = "eth0";

/// Whom frames from outside are for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum For {
    RealTime,
    Ordinary,
    Group,
    Everybody,
}

/// Who attacks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum By {
    /// Somebody outside, by frames.
    Outside(Frames),
    /// The third VM, by a command.
    Neighbour,
    /// The fourth VM, whose sockets are outsourced, by a command.
    Outsourced,
}

/// An attack.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Attack {
    pub by: By,
    for_whom: For,
    /// Of the command: the attack's name, and what it has instead of an interface.
    words: (&'static str, &'static [&'static str]),
    name: &'static str,
}

/// A condition: an attack, or none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Cell(pub Option<Attack>);

const fn outside(name: &'static str, frames: Frames, for_whom: For) -> Cell {
    Cell(Some(Attack {
        by: By::Outside(frames),
        for_whom,
        words: ("", &[]),
        name,
    }))
}

const fn neighbour(name: &'static str, word: &'static str, more: &'static [&'static str]) -> Cell {
    Cell(Some(Attack {
        by: By::Neighbour,
        for_whom: For::RealTime,
        words: (word, more),
        name,
    }))
}

const fn outsourced(name: &'static str, word: &'static str) -> Cell {
    Cell(Some(Attack {
        by: By::Outsourced,
        for_whom: For::RealTime,
        words: (word, &[]),
        name,
    }))
}

/// What every attack is held against.
pub(super) const WITHOUT: Cell = Cell(None);

/// The conditions, in the order of measuring. A stream flows in each.
pub(super) const CELLS: [Cell; 18] = [
    WITHOUT,
    outside(
        "udp-small to the ordinary VM",
        Frames::UdpSmall,
        For::Ordinary,
    ),
    outside(
        "udp-small to the real-time VM",
        Frames::UdpSmall,
        For::RealTime,
    ),
    outside("multicast", Frames::Multicast, For::Group),
    outside("broadcast", Frames::Broadcast, For::Everybody),
    outside(
        "fragments to the ordinary VM",
        Frames::Fragments,
        For::Ordinary,
    ),
    outside(
        "tcp-connect to the ordinary VM",
        Frames::TcpConnect,
        For::Ordinary,
    ),
    outside("arp for the ordinary VM", Frames::Arp, For::Ordinary),
    outside("icmp to the ordinary VM", Frames::Icmp, For::Ordinary),
    neighbour(
        "neighbour: udp-small to the real-time VM",
        "udp-small",
        &[INTERFACE],
    ),
    neighbour("neighbour: transmit", "transmit", &[INTERFACE]),
    neighbour("neighbour: doorbells", "doorbells", &[INTERFACE]),
    neighbour("neighbour: compute", "compute", &[]),
    neighbour("neighbour: timers", "timers", &[]),
    neighbour("neighbour: interrupts", "interrupts", &[]),
    neighbour(
        "neighbour: console",
        "console",
        &["--terminal", "/dev/console"],
    ),
    neighbour("neighbour: disk", "disk", &["--device", SCRATCH]),
    outsourced("neighbour: sockets to the real-time VM", "sockets"),
];

impl fmt::Display for Cell {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(self.0.map_or("no attack", |it| it.name))
    }
}

impl Attack {
    /// Both ends of frames from outside, where the networks of both VMs are behind one card.
    pub fn aim(&self) -> Result<Aim> {
        let (network, victim) = match self.for_whom {
            For::RealTime => (RT, guest("rt", 1, 1)),
            _ => (BULK, guest("bulk", 2, 1)),
        };
        let (to, hardware) = match self.for_whom {
            For::Everybody => (None, None),
            For::Group => (Some(To::Address(GROUP)), None),
            For::RealTime | For::Ordinary => {
                let card = victim.cards.first().and_then(|card| card.mac.parse().ok());
                let Some(To::Hardware(hardware)) = card else {
                    return Err(Error::machine("aim an attack", "its victim has no card"));
                };
                let address = To::Address(network.address(VICTIM_ADDRESS));
                // Known, since a host that is flooded may not answer.
                (
                    Some(address),
                    (self.by != By::Outside(Frames::Arp)).then_some(hardware),
                )
            }
        };
        Ok(Aim {
            to,
            hardware,
            from: Some(network.outside()),
            port: netstream::DEFAULT_PORT,
            bytes: USUAL_MOST_BYTES,
        })
    }

    /// The attacking VM's command, for so many seconds at most.
    pub fn command(&self, seconds: u64) -> Vec<String> {
        let (word, more) = self.words;
        let mut words = ["steadyvm-lab", "load", "attack", word]
            .map(str::to_owned)
            .to_vec();
        words.extend(more.iter().map(ToString::to_string));
        let to = match word {
            "udp-small" | "sockets" => Some(RT.address(VICTIM_ADDRESS)),
            "transmit" => Some(RT.outside()),
            _ => None,
        };
        if let Some(to) = to {
            words.extend(["--to".to_owned(), to.to_string()]);
        }
        words.extend([
            "--seconds".to_owned(),
            seconds.to_string(),
            "--json".to_owned(),
        ]);
        words
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn every_attack_has_a_name_of_its_own_and_none_comes_first() {
        let names: BTreeSet<String> = CELLS.iter().map(ToString::to_string).collect();
        assert_eq!(names.len(), CELLS.len());
        assert_eq!(CELLS[0], WITHOUT);
        assert!(CELLS[1..].iter().all(|it| it.0.is_some()));
    }

    #[test]
    fn frames_from_outside_are_for_who_is_named() {
        let aim = |frames, for_whom| outside("", frames, for_whom).0.unwrap().aim().unwrap();
        let ordinary = aim(Frames::Fragments, For::Ordinary);
        assert_eq!(ordinary.to, Some(To::Address(BULK.address(VICTIM_ADDRESS))));
        assert_eq!(ordinary.from, Some(BULK.outside()));
        assert_eq!(ordinary.hardware, Some([0x52, 0x54, 0, 0x78, 0, 2]));
        let real_time = aim(Frames::UdpSmall, For::RealTime);
        assert_eq!(real_time.hardware, Some([0x52, 0x54, 0, 0x78, 0, 1]));
        assert_eq!(real_time.from, Some(RT.outside()));
        assert_eq!(aim(Frames::Arp, For::Ordinary).hardware, None);
        assert_eq!(aim(Frames::Broadcast, For::Everybody).to, None);
    }

    #[test]
    fn the_neighbours_commands_name_an_end() {
        let commands = CELLS
            .iter()
            .filter_map(|it| it.0)
            .filter(|it| !matches!(it.by, By::Outside(_)));
        for command in commands.map(|it| it.command(9).join(" ")) {
            assert!(command.ends_with(" --seconds 9 --json"), "{command}");
            let has_end = ["udp-small", "transmit", "sockets"].map(|it| command.contains(it));
            assert_eq!(command.contains(" --to 10."), has_end.contains(&true));
        }
    }
}
