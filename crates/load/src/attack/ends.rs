//! Whom frames come from, and whom they are for.

use std::fmt;
use std::io;
use std::net::Ipv4Addr;
use std::str::FromStr;
use std::time::{Duration, Instant};

use etherparse::{ArpEthIpv4Packet, ArpOperation, ArpPacket, EtherType, PacketBuilder};
use nix::ifaddrs::getifaddrs;

use super::{AttackError, LEAST_BYTES};
use crate::layer2::PacketSocket;

pub(super) const EVERYBODY: [u8; 6] = [0xff; 6];
/// Local Experimental `EtherType` 1 (IEEE 802): no program takes such frames for its own.
pub(super) const EXPERIMENTAL: EtherType = EtherType(0x88b5);

/// How often an address is asked for, and how long each time.
const ASKED: u32 = 3;
const ANSWERED_WITHIN: Duration = Duration::from_millis(500);

/// Whom an attack is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum To {
    /// Who has this address.
    Address(Ipv4Addr),
    /// Who has this hardware address.
    Hardware([u8; 6]),
}

impl FromStr for To {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let hardware = || {
            let mut bytes = [0; 6];
            let mut words = text.split(':');
            for byte in &mut bytes {
                let word = words.next().filter(|it| it.len() == 2)?;
                *byte = u8::from_str_radix(word, 16).ok()?;
            }
            words.next().is_none().then_some(Self::Hardware(bytes))
        };
        let address = text.parse().ok().map(Self::Address);
        address.or_else(hardware).ok_or_else(|| {
            "write an IPv4 address, such as 10.0.0.3, or a hardware address, such as 52:54:00:78:00:01"
                .to_owned()
        })
    }
}

impl fmt::Display for To {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Address(address) => write!(formatter, "{address}"),
            Self::Hardware(bytes) => {
                let words = bytes.map(|byte| format!("{byte:02x}"));
                formatter.write_str(&words.join(":"))
            }
        }
    }
}

/// What the caller says of both ends.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Aim {
    /// Whom it is for.
    pub to: Option<To>,
    /// The hardware address of who has [`Aim::to`]'s address; asked for by ARP if `None`.
    pub hardware: Option<[u8; 6]>,
    /// The address that packets come from; the interface's own if `None`.
    pub from: Option<Ipv4Addr>,
    /// The port of UDP and TCP.
    pub port: u16,
    /// Bytes of the longest frames, without their checksum.
    pub bytes: usize,
}

/// Both ends of each frame.
#[derive(Debug, Clone, Copy)]
pub(super) struct Ends {
    pub source: [u8; 6],
    pub destination: [u8; 6],
    pub from: Ipv4Addr,
    /// None where the destination is a hardware address alone.
    pub to: Option<Ipv4Addr>,
    pub port: u16,
    pub bytes: usize,
}

impl Ends {
    /// Those of a broadcast.
    pub fn of_everybody(
        socket: &PacketSocket,
        interface: &str,
        aim: &Aim,
    ) -> Result<Self, AttackError> {
        Ok(Self {
            source: socket.address,
            destination: EVERYBODY,
            from: from(interface, aim)?,
            to: Some(Ipv4Addr::BROADCAST),
            port: aim.port,
            bytes: aim.bytes,
        })
    }

    /// Those of frames to one machine's address.
    pub fn of_address(
        socket: &PacketSocket,
        interface: &str,
        aim: &Aim,
    ) -> Result<Self, AttackError> {
        let to = one_machine(aim)?;
        let all = Self::of_everybody(socket, interface, aim)?;
        let destination = match aim.hardware {
            Some(hardware) => hardware,
            None => asked(socket, interface, all.from, to)?,
        };
        Ok(Self {
            destination,
            to: Some(to),
            ..all
        })
    }

    /// Whom packets are for.
    ///
    /// # Errors
    /// There is no address.
    pub fn address(&self) -> io::Result<Ipv4Addr> {
        self.to
            .ok_or_else(|| io::Error::other("the packets have no address"))
    }
}

/// The address of one machine that the caller names.
pub(super) fn one_machine(aim: &Aim) -> Result<Ipv4Addr, AttackError> {
    let to = aim.to.ok_or(AttackError::NoTarget)?;
    let To::Address(address) = to else {
        return Err(AttackError::NotAnAddress(to));
    };
    if address.is_multicast() || address.is_broadcast() || address.is_unspecified() {
        return Err(AttackError::NotOneMachine(to));
    }
    Ok(address)
}

/// The address that packets come from: all zero where the interface has none, as a machine's that asks for one.
fn from(interface: &str, aim: &Aim) -> io::Result<Ipv4Addr> {
    if let Some(from) = aim.from {
        return Ok(from);
    }
    let mut all = getifaddrs()?.filter(|it| it.interface_name == interface);
    let own = all.find_map(|it| {
        it.address?
            .as_sockaddr_in()
            .map(nix::sys::socket::SockaddrIn::ip)
    });
    Ok(own.unwrap_or(Ipv4Addr::UNSPECIFIED))
}

/// Who has an address, by ARP (RFC 826). One without an address of its own probes (RFC 5227).
fn asked(
    socket: &PacketSocket,
    interface: &str,
    from: Ipv4Addr,
    to: Ipv4Addr,
) -> Result<[u8; 6], AttackError> {
    let ears = PacketSocket::hearing(interface, EtherType::ARP.0)?;
    let mut question = Vec::new();
    who_has(socket.address, from, to, &mut question)?;
    let mut buffer = [0; 2048];
    for _ in 0..ASKED {
        socket.send(&question)?;
        let begun = Instant::now();
        while let Some(left) = ANSWERED_WITHIN.checked_sub(begun.elapsed()) {
            ears.wait(left)?;
            while let Some(length) = ears.receive(&mut buffer)? {
                if let Some(answer) = answer(&buffer[..length.min(buffer.len())], to) {
                    return Ok(answer);
                }
            }
        }
    }
    Err(AttackError::NoAnswer(to))
}

/// The hardware address that an ARP reply gives for an address.
fn answer(frame: &[u8], of: Ipv4Addr) -> Option<[u8; 6]> {
    let packet = ArpPacket::from_slice(frame.get(14..)?).ok()?;
    let packet = packet.try_eth_ipv4().ok()?;
    let is_it = packet.operation == ArpOperation::REPLY && packet.sender_ipv4_addr() == of;
    is_it.then_some(packet.sender_mac)
}

/// Writes an ARP request to everybody.
pub(super) fn who_has(
    source: [u8; 6],
    from: Ipv4Addr,
    to: Ipv4Addr,
    frame: &mut Vec<u8>,
) -> io::Result<()> {
    let question = ArpEthIpv4Packet {
        operation: ArpOperation::REQUEST,
        sender_mac: source,
        sender_ipv4: from.octets(),
        target_mac: [0; 6],
        target_ipv4: to.octets(),
    };
    let packet = PacketBuilder::ethernet2(source, EVERYBODY).arp(question.into());
    packet.write_to_vec(frame).map_err(io::Error::other)?;
    pad(frame);
    Ok(())
}

/// Writes a UDP packet.
pub(super) fn udp(
    ends: &Ends,
    source_port: u16,
    payload: &[u8],
    frame: &mut Vec<u8>,
) -> io::Result<()> {
    let packet = PacketBuilder::ethernet2(ends.source, ends.destination)
        .ipv4(ends.from.octets(), ends.address()?.octets(), HOPS)
        .udp(source_port, ends.port);
    packet
        .write_to_vec(frame, payload)
        .map_err(io::Error::other)
}

/// What RFC 1700 has packets begin with.
pub(super) const HOPS: u8 = 64;

/// Makes a frame as long as Ethernet's shortest: a card would, and devices without one are given the same.
pub(super) fn pad(frame: &mut Vec<u8>) {
    if frame.len() < LEAST_BYTES {
        frame.resize(LEAST_BYTES, 0);
    }
}

/// A port that is no well-known one, another for each of 64,512 packets.
pub(super) fn changing_port(number: u64) -> u16 {
    1024 + (number % 64_512) as u16
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn addresses_are_read_and_what_is_none_is_refused_with_what_to_write() {
        for text in ["10.0.0.3", "52:54:00:78:00:01", "ff:ff:ff:ff:ff:ff"] {
            let read: To = text.parse().unwrap();
            assert_eq!(read.to_string(), text);
        }
        for text in [
            "",
            "10.0.0",
            "52:54:00:78:00",
            "52:54:00:78:00:01:02",
            "5254:00:78:00:1:2",
            "host",
        ] {
            let error = text.parse::<To>().unwrap_err();
            assert!(error.contains("10.0.0.3"), "{text}: {error}");
        }
    }

    #[test]
    fn ports_change_and_are_never_well_known() {
        let ports: std::collections::BTreeSet<u16> = (0..64_512).map(changing_port).collect();
        assert_eq!((ports.len(), ports.first()), (64_512, Some(&1024)));
    }

    proptest! {
        #[test]
        fn no_bytes_of_an_answer_panic(frame in prop::collection::vec(any::<u8>(), 0..80)) {
            let _ = answer(&frame, Ipv4Addr::LOCALHOST);
        }

        #[test]
        fn no_text_panics(text in "[0-9a-f:.é]{0,20}") {
            let _ = text.parse::<To>();
        }
    }
}
