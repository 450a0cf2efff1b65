//! The shortest frames to a group: UDP where the group is an IPv4 address, an experimental `EtherType` where it is a hardware
//! address. A bridge that does not know who subscribes sends them to all its ports.

use std::io;

use etherparse::Ethernet2Header;

use super::ends::{Aim, EVERYBODY, EXPERIMENTAL, Ends, To, pad};
use super::{AttackError, udp_small};

/// Those of frames to a group.
pub(super) fn ends(everybody: Ends, aim: &Aim) -> Result<Ends, AttackError> {
    let group = aim.to.ok_or(AttackError::NoTarget)?;
    let (destination, to) = match group {
        To::Address(address) if address.is_multicast() => {
            // RFC 1112, 6.4: the low 23 bits.
            let [_, high, middle, low] = address.octets();
            ([0x01, 0x00, 0x5e, high & 0x7f, middle, low], Some(address))
        }
        To::Hardware(hardware) if hardware[0] & 1 == 1 && hardware != EVERYBODY => (hardware, None),
        _ => return Err(AttackError::NotMulticast(group)),
    };
    Ok(Ends {
        destination: aim.hardware.unwrap_or(destination),
        to,
        ..everybody
    })
}

pub(super) fn write(ends: &Ends, number: u64, frame: &mut Vec<u8>) -> io::Result<()> {
    if ends.to.is_some() {
        return udp_small::write(ends, number, frame);
    }
    experimental(ends, frame);
    pad(frame);
    Ok(())
}

/// The header of a frame that is no packet.
pub(super) fn experimental(ends: &Ends, frame: &mut Vec<u8>) {
    let header = Ethernet2Header {
        source: ends.source,
        destination: ends.destination,
        ether_type: EXPERIMENTAL,
    };
    frame.extend_from_slice(&header.to_bytes());
}
