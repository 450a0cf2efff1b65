//! The BPF program's parser against an independent one (etherparse), on whole and on damaged
//! packets: a port is given only where the other parser finds the same one.

#![allow(clippy::unwrap_used)] // helpers of tests

mod reference;

use etherparse::{EtherType, IpNumber, Ipv6RawExtHeader, PacketBuilder, VlanId};
use proptest::prelude::*;
use steadyvm_demux::{Kind, Link, Protocol, link, parse};

#[derive(Debug, Clone)]
struct Shape {
    vlans: usize,
    ipv6: bool,
    extensions: usize,
    tcp: bool,
    port: u16,
    payload: Vec<u8>,
}

fn shape() -> impl Strategy<Value = Shape> {
    (
        0_usize..3,
        any::<bool>(),
        0_usize..4,
        any::<bool>(),
        any::<u16>(),
        prop::collection::vec(any::<u8>(), 0..64),
    )
        .prop_map(|(vlans, ipv6, extensions, tcp, port, payload)| Shape {
            vlans,
            ipv6,
            extensions,
            tcp,
            port,
            payload,
        })
}

/// The frame, built by etherparse; extension headers are put in by hand.
fn build(shape: &Shape) -> Vec<u8> {
    let ethernet = PacketBuilder::ethernet2([2; 6], [4; 6]);
    let vlan = VlanId::try_new(7).unwrap();
    let mut frame = Vec::new();
    macro_rules! finish {
        ($link:expr) => {{
            let link = $link;
            match (shape.ipv6, shape.tcp) {
                (false, false) => link
                    .ipv4([10, 0, 0, 1], [10, 0, 0, 2], 64)
                    .udp(9, shape.port)
                    .write(&mut frame, &shape.payload),
                (false, true) => link
                    .ipv4([10, 0, 0, 1], [10, 0, 0, 2], 64)
                    .tcp(9, shape.port, 1, 100)
                    .write(&mut frame, &shape.payload),
                (true, false) => link
                    .ipv6([1; 16], [2; 16], 64)
                    .udp(9, shape.port)
                    .write(&mut frame, &shape.payload),
                (true, true) => link
                    .ipv6([1; 16], [2; 16], 64)
                    .tcp(9, shape.port, 1, 100)
                    .write(&mut frame, &shape.payload),
            }
            .unwrap();
        }};
    }
    match shape.vlans {
        0 => finish!(ethernet),
        1 => finish!(ethernet.single_vlan(vlan)),
        _ => finish!(ethernet.double_vlan(vlan, vlan)),
    }
    if shape.ipv6 {
        insert_extensions(&mut frame, 14 + 4 * shape.vlans, shape.extensions);
    }
    frame
}

/// Destination options, each of another length, between the IPv6 header and the transport's.
fn insert_extensions(frame: &mut Vec<u8>, ip: usize, count: usize) {
    for number in 0..count {
        let next = frame[ip + 6];
        let padding = vec![0; 6 + 8 * number];
        let header =
            Ipv6RawExtHeader::new_raw(IpNumber(next), &padding).expect("a multiple of eight");
        let bytes = header.to_bytes();
        frame.splice(ip + 40..ip + 40, bytes.iter().copied());
        frame[ip + 6] = 60;
        let length = u16::from_be_bytes([frame[ip + 4], frame[ip + 5]]) + bytes.len() as u16;
        frame[ip + 4..ip + 6].copy_from_slice(&length.to_be_bytes());
    }
}

fn never_misread(frame: &[u8]) -> Result<(), TestCaseError> {
    reference::misreading(frame).map_or(Ok(()), |how| Err(TestCaseError::fail(how)))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 4000, ..ProptestConfig::default() })]

    #[test]
    fn every_port_is_found(shape in shape()) {
        let frame = build(&shape);
        let protocol = if shape.tcp { Protocol::Tcp } else { Protocol::Udp };
        prop_assert_eq!(reference::port(&frame), Some((protocol, shape.port)));
        prop_assert_eq!(parse(&frame), Kind::Port(protocol, shape.port));
    }

    #[test]
    fn what_is_cut_short_has_no_port(shape in shape(), at in any::<prop::sample::Index>()) {
        let mut frame = build(&shape);
        frame.truncate(at.index(frame.len()));
        prop_assert_eq!(parse(&frame), Kind::Malformed);
    }

    #[test]
    fn padding_behind_the_packet_is_not_looked_at(
        shape in shape(), padding in prop::collection::vec(any::<u8>(), 0..40),
    ) {
        let mut frame = build(&shape);
        let whole = parse(&frame);
        frame.extend(padding);
        prop_assert_eq!(parse(&frame), whole);
    }

    /// Beside frames that are put together by hand: tags of both kinds, up to what the parser looks through.
    #[test]
    fn the_ethertype_behind_all_tags_and_the_outermost_tag_are_found(
        tags in prop::collection::vec((any::<bool>(), any::<u16>()), 0..=4),
        ethertype in 0x0600_u16..,
        cut in 0_usize..40,
    ) {
        prop_assume!(ethertype != 0x8100 && ethertype != 0x88a8);
        let mut frame = vec![2; 12];
        for (is_outer, tag) in &tags {
            let kind: u16 = if *is_outer { 0x88a8 } else { 0x8100 };
            frame.extend(kind.to_be_bytes());
            frame.extend(tag.to_be_bytes());
        }
        frame.extend(ethertype.to_be_bytes());
        let expected = Link { ethertype, tag: tags.first().map(|(_, tag)| *tag) };
        prop_assert_eq!(link(&frame), Some(expected));
        let cut = frame.len() - 1 - cut % frame.len();
        prop_assert_eq!(link(&frame[..cut]), None);
    }

    #[test]
    fn damaged_packets_are_never_misread(
        shape in shape(),
        damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..6),
    ) {
        let mut frame = build(&shape);
        for (at, value) in damage {
            // Headers, above all.
            let at = at.index(frame.len().min(90));
            frame[at] = value;
        }
        never_misread(&frame)?;
    }

    #[test]
    fn any_bytes_are_never_misread(
        mut frame in prop::collection::vec(any::<u8>(), 0..120), kind in 0..4_u8,
    ) {
        // Random types and versions alone would hardly ever reach the inner headers.
        if frame.len() > 24 {
            match kind {
                0 => { frame[12] = 8; frame[13] = 0; frame[14] = 0x45; frame[16] = 0; frame[23] = 17; }
                1 => { frame[12] = 0x86; frame[13] = 0xdd; frame[14] = 0x60; frame[18] = 0; frame[20] = 60; }
                2 => { frame[12] = 0x81; frame[13] = 0; frame[16] = 8; frame[17] = 0; frame[18] = 0x45; }
                _ => {}
            }
        }
        never_misread(&frame)?;
    }
}

/// etherparse reads tags of kind 0x9100 as well; a fragment behind one is the kernel's all the same.
#[test]
fn what_follows_a_tag_that_the_kernel_does_not_read_is_the_kernels() {
    let mut frame = ipv4(17, 0x0100, &UDP);
    let own = frame.clone();
    frame.splice(12..12, [0x91, 0, 0, 7]);
    assert_eq!(parse(&frame), Kind::Kernel);
    never_misread(&frame).unwrap();
    frame.splice(12..12, [0x88, 0xa8, 0, 7]);
    assert_eq!(parse(&frame), Kind::Kernel);
    never_misread(&frame).unwrap();
    // Without the tag it is a fragment, and told as one.
    assert_ne!(parse(&own), Kind::Kernel);
}

fn ipv4(protocol: u8, flags_and_offset: u16, l4: &[u8]) -> Vec<u8> {
    let mut frame = vec![0; 12];
    frame.extend([8, 0, 0x45, 0]);
    frame.extend((20 + l4.len() as u16).to_be_bytes());
    frame.extend([0, 0]);
    frame.extend(flags_and_offset.to_be_bytes());
    frame.extend([64, protocol, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
    frame.extend(l4);
    frame
}

const UDP: [u8; 8] = [0, 9, 0, 7, 0, 8, 0, 0];

#[test]
fn protocols_without_a_process_are_the_kernels() {
    let ethernet = |kind: EtherType| {
        let mut frame = vec![0; 12];
        frame.extend(kind.0.to_be_bytes());
        frame.extend([0; 46]);
        frame
    };
    assert_eq!(parse(&ethernet(EtherType::ARP)), Kind::Kernel);
    assert_eq!(
        parse(&ethernet(EtherType(0x0026))),
        Kind::Kernel,
        "802.3 with a length"
    );
    assert_eq!(parse(&ipv4(1, 0, &[8, 0, 0, 0])), Kind::Kernel);
    assert_eq!(parse(&ipv4(17, 0, &UDP)), Kind::Port(Protocol::Udp, 7));
}

#[test]
fn every_part_of_a_datagram_is_a_fragment() {
    assert_eq!(parse(&ipv4(17, 0x2000, &UDP)), Kind::Fragment, "the first");
    assert_eq!(parse(&ipv4(17, 0x0010, &UDP)), Kind::Fragment, "the last");
    assert_eq!(
        parse(&ipv4(17, 0x4000, &UDP)),
        Kind::Port(Protocol::Udp, 7),
        "don't fragment"
    );
}

#[test]
fn nesting_that_is_not_looked_through_is_malformed() {
    let mut frame = ipv4(17, 0, &UDP);
    for tags in 1..=6 {
        frame.splice(12..12, [0x81, 0, 0, 7]);
        let expected = if tags <= 4 {
            Kind::Port(Protocol::Udp, 7)
        } else {
            Kind::Malformed
        };
        assert_eq!(parse(&frame), expected, "{tags} tags");
    }
}

#[test]
fn an_authentication_header_without_its_fixed_part_is_malformed() {
    let with = |header: &[u8]| {
        let mut frame = vec![0; 12];
        frame.extend([
            0x86,
            0xdd,
            0x60,
            0,
            0,
            0,
            0,
            (header.len() + UDP.len()) as u8,
            51,
            64,
        ]);
        frame.extend([1; 32]);
        frame.extend(header);
        frame.extend(UDP);
        frame
    };
    assert_eq!(parse(&with(&[17, 0, 0, 0, 0, 0, 0, 0])), Kind::Malformed);
    let whole = with(&[17, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]);
    assert_eq!(parse(&whole), Kind::Port(Protocol::Udp, 7));
}

#[test]
fn lengths_that_contradict_each_other_are_malformed() {
    for (at, value, what) in [
        (14, 0x44, "an IP header of 16 bytes"),
        (14, 0x46, "an IP header that leaves no room for UDP's"),
        (17, 19, "an IP length below its header's"),
        (17, 60, "an IP length beyond the frame"),
        (39, 7, "a UDP length below its header's"),
        (39, 9, "a UDP length beyond IP's"),
        (14, 0x65, "another version than the type says"),
    ] {
        let mut frame = ipv4(17, 0, &UDP);
        frame[at] = value;
        assert_eq!(parse(&frame), Kind::Malformed, "{what}");
    }
    let mut tcp = [0; 20];
    tcp[3] = 7;
    tcp[12] = 0x50;
    assert_eq!(parse(&ipv4(6, 0, &tcp)), Kind::Port(Protocol::Tcp, 7));
    for offset in [0x40, 0x60] {
        tcp[12] = offset;
        assert_eq!(parse(&ipv4(6, 0, &tcp)), Kind::Malformed);
    }
}
