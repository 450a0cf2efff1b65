//! The parser of the BPF program, called from here: for tests and for whoever wants to know what
//! it makes of a packet.

use crate::shared::Protocol;

/// What a frame is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// TCP or UDP to a port.
    Port(Protocol, u16),
    /// A protocol without a process: ARP, ICMP and all that is not looked into.
    Kernel,
    /// Part of a datagram: only its first part has a port, and all must stay in order.
    Fragment,
    /// Lengths that contradict each other, headers cut short, or too much nesting.
    Malformed,
}

/// `struct demux_packet` of bpf/parse.h.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Packet {
    kind: u8,
    protocol: u8,
    port: u16,
    ethertype: u16,
    tag: u16,
    is_tagged: u8,
    zero: u8,
}

/// What stands before IP in a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Link {
    /// The EtherType behind all tags.
    pub ethertype: u16,
    /// The outermost tag's priority code point, drop indicator and VLAN, as they stand there; none without a tag.
    pub tag: Option<u16>,
}

// What may be passed: `read` below, the only caller.
unsafe extern "C" {
    fn steadyvm_demux_parse(data: *const u8, length: usize, packet: *mut Packet);
}

/// What a frame is for, its Ethernet header first.
pub fn parse(frame: &[u8]) -> Kind {
    let packet = read(frame);
    match (packet.kind, Protocol::of_number(packet.protocol)) {
        (0, Some(protocol)) => Kind::Port(protocol, packet.port),
        (1, _) => Kind::Kernel,
        (2, _) => Kind::Fragment,
        _ => Kind::Malformed,
    }
}

/// What stands before IP in a frame; none if it is cut short there.
pub fn link(frame: &[u8]) -> Option<Link> {
    let packet = read(frame);
    (packet.ethertype != 0).then_some(Link {
        ethertype: packet.ethertype,
        tag: (packet.is_tagged != 0).then_some(packet.tag),
    })
}

fn read(frame: &[u8]) -> Packet {
    let mut packet = Packet::default();
    // SAFETY: the function reads at most `length` bytes from `data`, a live slice of that
    // length, and writes one `Packet`, whose layout is that of `struct demux_packet`.
    unsafe { steadyvm_demux_parse(frame.as_ptr(), frame.len(), &raw mut packet) };
    packet
}

const _: () = assert!(size_of::<Packet>() == 10);
