//! UDP packets in frames of 64 bytes with their checksum, the shortest there are, each from another port.
//!
//! The port spreads them over a card's queues and makes each a flow of its own for whoever follows flows.

use std::io;

use super::ends::{Ends, changing_port, udp};

/// Fills a frame of 60 bytes behind the headers of Ethernet, IPv4 and UDP.
pub(super) const PAYLOAD: [u8; 18] = [0; 18];

pub(super) fn write(ends: &Ends, number: u64, frame: &mut Vec<u8>) -> io::Result<()> {
    udp(ends, changing_port(number), &PAYLOAD, frame)
}
