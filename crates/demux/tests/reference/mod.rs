//! What an independent parser (etherparse) makes of a frame, and where ours contradicts it.

use etherparse::{NetSlice, SlicedPacket, TransportSlice};
use steadyvm_demux::{Kind, Protocol, parse};

/// The port that etherparse, strict about every length, finds in a frame.
pub fn port(frame: &[u8]) -> Option<(Protocol, u16)> {
    let packet = SlicedPacket::from_ethernet(frame).ok()?;
    if packet.is_ip_payload_fragmented() {
        return None;
    }
    match packet.transport? {
        TransportSlice::Udp(udp) => Some((Protocol::Udp, udp.destination_port())),
        TransportSlice::Tcp(tcp) => Some((Protocol::Tcp, tcp.destination_port())),
        _ => None,
    }
}

/// Whether a tag is one that etherparse reads and the kernel does not (0x9100: net/core/skbuff.c,
/// `eth_type_vlan()`): what follows it is nobody's IP packet.
fn has_foreign_tag(frame: &[u8]) -> bool {
    let kind = |at: usize| frame.get(at..at + 2).map(|kind| [kind[0], kind[1]]);
    let mut at = 12;
    while matches!(kind(at), Some([0x81, 0] | [0x88, 0xa8])) {
        at += 4;
    }
    kind(at) == Some([0x91, 0])
}

fn is_fragment(frame: &[u8]) -> bool {
    !has_foreign_tag(frame)
        && SlicedPacket::from_ethernet(frame).is_ok_and(|packet| match packet.net {
            Some(NetSlice::Ipv4(ip)) => ip.header().is_fragmenting_payload(),
            Some(NetSlice::Ipv6(ip)) => ip.is_payload_fragmented(),
            _ => false,
        })
}

/// How the BPF program's parser misreads a frame: a port that is not there, or a part of a
/// datagram taken for a whole one. None if it does not.
pub fn misreading(frame: &[u8]) -> Option<String> {
    let ours = parse(frame);
    if let Kind::Port(protocol, number) = ours {
        let theirs = port(frame);
        if theirs != Some((protocol, number)) {
            return Some(format!("{ours:?}, but {theirs:?}: {frame:02x?}"));
        }
    }
    let whole = matches!(ours, Kind::Port(..) | Kind::Kernel);
    (whole && is_fragment(frame)).then(|| format!("{ours:?}, but a fragment: {frame:02x?}"))
}
