//! First fragments of IPv4 packets whose other fragments never come.
//!
//! The receiver keeps each until `net.ipv4.ipfrag_time` (30 s), or until `ipfrag_high_thresh` is full and nobody's fragments
//! are taken any more; then it answers by ICMP (`net/ipv4/ip_fragment.c`, `ip_expire`).

use std::io;

use etherparse::{IpHeaders, IpNumber, Ipv4Header, PacketBuilder, UdpHeader};

use super::ends::{Ends, HOPS, changing_port, pad};

/// A fragment that others follow has a multiple of eight bytes.
const PAYLOAD_BYTES: usize = 24;
/// What the whole packet would have.
const UDP_BYTES: u16 = 1480;

pub(super) fn write(ends: &Ends, number: u64, frame: &mut Vec<u8>) -> io::Result<()> {
    let mut header = Ipv4Header::new(
        PAYLOAD_BYTES as u16,
        HOPS,
        IpNumber::UDP,
        ends.from.octets(),
        ends.address()?.octets(),
    )
    .map_err(io::Error::other)?;
    header.identification = number as u16;
    header.more_fragments = true;
    let udp = UdpHeader {
        source_port: changing_port(number),
        destination_port: ends.port,
        length: UDP_BYTES,
        checksum: 0,
    };
    let mut payload = [0; PAYLOAD_BYTES];
    payload[..UdpHeader::LEN].copy_from_slice(&udp.to_bytes());
    let packet = PacketBuilder::ethernet2(ends.source, ends.destination);
    packet
        .ip(IpHeaders::Ipv4(
            header,
            etherparse::Ipv4Extensions::default(),
        ))
        .write_to_vec(frame, IpNumber::UDP, &payload)
        .map_err(io::Error::other)?;
    pad(frame);
    Ok(())
}
