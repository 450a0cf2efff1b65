//! First segments (SYN) of TCP connections, each from another port.
//!
//! Segments and no connections that stay open: they cost the sender nothing, and the listener a request each, an answer, and its
//! repetitions. From the interface's own address the sender's kernel refuses each answer (RST) and the request goes; from an
//! address that nobody has it stays until the listener gives up, or sends cookies.

use std::io;

use etherparse::{PacketBuilder, TcpOptionElement};

use super::ends::{Ends, HOPS, changing_port, pad};

const WINDOW: u16 = 64_240;
const MOST_SEGMENT: u16 = 1460;

pub(super) fn write(ends: &Ends, number: u64, frame: &mut Vec<u8>) -> io::Result<()> {
    // A connection that comes again by the same port is another one.
    let sequence = (number as u32).wrapping_mul(0x9e37_79b9);
    let packet = PacketBuilder::ethernet2(ends.source, ends.destination)
        .ipv4(ends.from.octets(), ends.address()?.octets(), HOPS)
        .tcp(changing_port(number), ends.port, sequence, WINDOW)
        .syn()
        .options(&[TcpOptionElement::MaximumSegmentSize(MOST_SEGMENT)])
        .map_err(io::Error::other)?;
    packet.write_to_vec(frame, &[]).map_err(io::Error::other)?;
    pad(frame);
    Ok(())
}
