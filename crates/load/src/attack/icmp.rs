//! ICMP echo requests in the shortest frames: the receiver answers each.

use std::io;

use etherparse::PacketBuilder;

use super::ends::{Ends, HOPS};
use super::udp_small::PAYLOAD;

/// Tells its replies from others'.
const IDENTIFIER: u16 = 0x5754;

pub(super) fn write(ends: &Ends, number: u64, frame: &mut Vec<u8>) -> io::Result<()> {
    let packet = PacketBuilder::ethernet2(ends.source, ends.destination)
        .ipv4(ends.from.octets(), ends.address()?.octets(), HOPS)
        .icmpv4_echo_request(IDENTIFIER, number as u16);
    // An echo request's header is as long as UDP's.
    packet
        .write_to_vec(frame, &PAYLOAD)
        .map_err(io::Error::other)
}
