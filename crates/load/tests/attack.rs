//! Attacks between two network namespaces of the test's own: what arrives is what is claimed, and does what is claimed. Needs root.

#![allow(clippy::unwrap_used)] // a test's helper fails by panicking, as the test itself does

use std::collections::BTreeSet;
use std::fs;
use std::net::{Ipv4Addr, TcpListener, UdpSocket};
use std::num::NonZeroU32;
use std::process::{Command, id};
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::{Receiver, Sender as Channel, channel};
use std::thread;
use std::time::{Duration, Instant};

use etherparse::{
    ArpOperation, EtherType, Icmpv4Type, Ipv4Header, NetHeaders, PacketHeaders, TransportHeader,
};
use nix::sched::{CloneFlags, unshare};
use nix::unistd::gettid;
use steadyvm_load::attack::{Aim, AttackError, Attacked, Frames, Pace, Sender, To};
use steadyvm_load::layer2::PacketSocket;

/// Nothing here takes that long.
const PATIENCE: Duration = Duration::from_secs(20);
const ATTACKER: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 1);
const VICTIM: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 2);
const PORT: u16 = 7700;
const COUNT: usize = 50;
/// `ETH_P_ALL`: what comes and what goes.
const EVERYTHING: u16 = 3;
/// Where a TCP segment's flags are in a frame without options of IPv4.
const TCP_FLAGS: usize = 14 + 20 + 13;
const SYN: u8 = 2;

/// `ip WORDS`, in the namespace of the calling thread.
fn ip(words: &str) {
    let done = Command::new("ip").args(words.split(' ')).output().unwrap();
    let said = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success(), "ip {words}: {said}");
}

/// The other machine: `relay`, with a UDP service and a TCP service.
struct Victim {
    ears: PacketSocket,
    _listener: TcpListener,
    service: UdpSocket,
    questions: Channel<()>,
    counters: Receiver<String>,
}

impl Victim {
    /// A counter of /proc/net/snmp, such as `Ip ReasmReqds`.
    fn counter(&self, group: &str, name: &str) -> u64 {
        self.questions.send(()).unwrap();
        let text = self.counters.recv().unwrap();
        let mut lines = text
            .lines()
            .filter(|line| line.starts_with(&format!("{group}: ")));
        let titles = lines.next().unwrap().split(' ');
        let mut counted = titles.zip(lines.next().unwrap().split(' '));
        let (_, value) = counted.find(|(it, _)| *it == name).unwrap();
        value.parse().unwrap()
    }

    /// Waits until a counter has gone up by so much.
    fn await_counter(&self, group: &str, name: &str, before: u64, more: usize) {
        let begun = Instant::now();
        while self.counter(group, name) < before + more as u64 {
            assert!(begun.elapsed() < PATIENCE, "{group} {name}");
            thread::sleep(Duration::from_millis(5));
        }
    }

    /// So many frames, in the order of their coming, that a machine sent and that `is_it` takes.
    fn frames_of(
        &self,
        source: [u8; 6],
        count: usize,
        is_it: impl Fn(&[u8]) -> bool,
    ) -> Vec<Vec<u8>> {
        let begun = Instant::now();
        let (mut found, mut buffer) = (Vec::new(), [0; 2048]);
        while found.len() < count {
            assert!(
                begun.elapsed() < PATIENCE,
                "{} of {count} came",
                found.len()
            );
            self.ears.wait(Duration::from_millis(100)).unwrap();
            while let Some(length) = self.ears.receive(&mut buffer).unwrap() {
                let frame = &buffer[..length];
                if frame[6..12] == source && is_it(frame) {
                    found.push(frame.to_vec());
                }
            }
        }
        found
    }
}

/// Works in a namespace where `merging` is joined to the victim's `relay`.
fn beside_victim(work: impl FnOnce(&Victim) + Send) {
    thread::scope(|scope| {
        let (tell_thread, told_thread) = channel();
        let (tell_moved, moved) = channel();
        let (give, given) = channel();
        scope.spawn(move || {
            unshare(CloneFlags::CLONE_NEWNET).unwrap();
            tell_thread.send(gettid()).unwrap();
            moved.recv().unwrap();
            ip("link set lo up");
            ip(&format!("address add {VICTIM}/24 dev relay"));
            ip("link set relay up");
            let (questions, asked) = channel();
            let (answer, counters) = channel();
            let service = UdpSocket::bind((VICTIM, PORT)).unwrap();
            service.set_read_timeout(Some(PATIENCE)).unwrap();
            give.send(Victim {
                ears: PacketSocket::hearing("relay", EVERYTHING).unwrap(),
                _listener: TcpListener::bind((VICTIM, PORT)).unwrap(),
                service,
                questions,
                counters,
            })
            .unwrap();
            for () in asked {
                let text = fs::read_to_string("/proc/thread-self/net/snmp").unwrap();
                answer.send(text).unwrap();
            }
        });
        let attacker = scope.spawn(move || {
            unshare(CloneFlags::CLONE_NEWNET).unwrap();
            ip("link add merging type veth peer name relay");
            let thread = told_thread.recv().unwrap();
            ip(&format!(
                "link set relay netns /proc/{}/task/{thread}/ns/net",
                id()
            ));
            ip(&format!("address add {ATTACKER}/24 dev merging"));
            ip("link set merging up");
            tell_moved.send(()).unwrap();
            let victim: Victim = given.recv().unwrap();
            work(&victim);
        });
        attacker.join().unwrap();
    });
}

fn aim(to: To) -> Aim {
    Aim {
        to: Some(to),
        port: PORT,
        bytes: 1514,
        ..Aim::default()
    }
}

/// [`COUNT`] attempts in 50 ms.
fn attack(frames: Frames, aim: &Aim) -> Result<Attacked, AttackError> {
    let stop = AtomicBool::new(false);
    let pace = Pace {
        per_second: NonZeroU32::new(1000),
        duration: Duration::from_millis(COUNT as u64),
        stop: &stop,
    };
    Sender::open("merging", frames, aim)?.run(&pace)
}

fn own_address() -> [u8; 6] {
    PacketSocket::sending("merging").unwrap().address
}

/// What arrives of an attack, all of it sent.
fn arrived(victim: &Victim, frames: Frames, aim: &Aim) -> Vec<Vec<u8>> {
    let attacked = attack(frames, aim).unwrap();
    let counts = (attacked.attempted, attacked.sent, attacked.refused);
    assert_eq!(counts, (COUNT as u64, COUNT as u64, 0));
    // The kernels of both ask and answer by ARP, and find neighbours by IPv6.
    let is_arp = frames == Frames::Arp;
    victim.frames_of(own_address(), COUNT, |frame| {
        !is_of(frame, EtherType::IPV6) && is_of(frame, EtherType::ARP) == is_arp
    })
}

fn is_of(frame: &[u8], ether_type: EtherType) -> bool {
    frame[12..14] == ether_type.0.to_be_bytes()
}

/// A packet's parts, whose checksums hold.
fn packet(frame: &[u8]) -> (Ipv4Header, Option<TransportHeader>, Vec<u8>) {
    let headers = PacketHeaders::from_ethernet_slice(frame).unwrap();
    let Some(NetHeaders::Ipv4(header, _)) = headers.net else {
        panic!("no IPv4: {frame:?}");
    };
    assert_eq!(header.header_checksum, header.calc_header_checksum());
    assert_eq!(header.source, ATTACKER.octets());
    let payload = headers.payload.slice().to_vec();
    let (given, calculated) = match &headers.transport {
        Some(TransportHeader::Udp(it)) => (
            it.checksum,
            it.calc_checksum_ipv4(&header, &payload).unwrap(),
        ),
        Some(TransportHeader::Tcp(it)) => (
            it.checksum,
            it.calc_checksum_ipv4(&header, &payload).unwrap(),
        ),
        Some(TransportHeader::Icmpv4(it)) => (it.checksum, it.icmp_type.calc_checksum(&payload)),
        _ => (0, 0),
    };
    assert_eq!(given, calculated);
    (header, headers.transport, payload)
}

fn destination(frame: &[u8]) -> [u8; 6] {
    frame[..6].try_into().unwrap()
}

#[test]
fn small_packets_are_the_shortest_and_come_to_who_has_the_address() {
    beside_victim(|victim| {
        let frames = arrived(victim, Frames::UdpSmall, &aim(To::Address(VICTIM)));
        let own = victim.ears.address;
        let mut ports = BTreeSet::new();
        for frame in frames {
            assert_eq!((frame.len(), destination(&frame)), (60, own));
            let (header, transport, payload) = packet(&frame);
            let udp = transport.unwrap().udp().unwrap();
            assert_eq!(
                (header.destination, udp.destination_port),
                (VICTIM.octets(), PORT)
            );
            assert_eq!(payload.len(), 18);
            ports.insert(udp.source_port);
        }
        assert_eq!(ports.len(), COUNT);
        let mut buffer = [0; 100];
        for _ in 0..COUNT {
            let (length, sender) = victim.service.recv_from(&mut buffer).unwrap();
            assert_eq!((length, sender.ip()), (18, ATTACKER.into()));
        }
    });
}

#[test]
fn groups_and_everybody_get_frames_to_their_addresses() {
    beside_victim(|victim| {
        let group = To::Address(Ipv4Addr::new(239, 129, 2, 3));
        for frame in arrived(victim, Frames::Multicast, &aim(group)) {
            assert_eq!(destination(&frame), [0x01, 0x00, 0x5e, 0x01, 0x02, 0x03]);
            assert_eq!(
                (frame.len(), packet(&frame).0.destination),
                (60, [239, 129, 2, 3])
            );
        }
        let goose = [0x01, 0x0c, 0xcd, 0x01, 0x00, 0x01];
        for frame in arrived(victim, Frames::Multicast, &aim(To::Hardware(goose))) {
            assert_eq!((frame.len(), destination(&frame)), (60, goose));
            assert_eq!(frame[12..14], [0x88, 0xb5]);
        }
        let everybody = Aim {
            to: None,
            ..aim(group)
        };
        for frame in arrived(victim, Frames::Broadcast, &everybody) {
            assert_eq!((frame.len(), destination(&frame)), (60, [0xff; 6]));
            assert_eq!(packet(&frame).0.destination, [255; 4]);
        }
    });
}

#[test]
fn fragments_are_first_ones_and_never_become_whole() {
    beside_victim(|victim| {
        let before = victim.counter("Ip", "ReasmReqds");
        let hardware = Some(victim.ears.address);
        let to_victim = Aim {
            hardware,
            ..aim(To::Address(VICTIM))
        };
        let mut identifications = BTreeSet::new();
        for frame in arrived(victim, Frames::Fragments, &to_victim) {
            let (header, transport, _) = packet(&frame);
            assert!(header.more_fragments && transport.is_none());
            assert_eq!((header.fragment_offset.value(), header.total_len), (0, 44));
            identifications.insert(header.identification);
        }
        assert_eq!(identifications.len(), COUNT);
        victim.await_counter("Ip", "ReasmReqds", before, COUNT);
        assert_eq!(victim.counter("Ip", "ReasmOKs"), 0);
    });
}

#[test]
fn connections_are_asked_for_and_answered_each_by_another_port() {
    beside_victim(|victim| {
        let attacked = attack(Frames::TcpConnect, &aim(To::Address(VICTIM))).unwrap();
        assert_eq!(attacked.sent, COUNT as u64);
        // This kernel refuses the answers (RST): those frames are not meant.
        let is_request = |frame: &[u8]| is_of(frame, EtherType::IPV4) && frame[TCP_FLAGS] == SYN;
        let mut ports = BTreeSet::new();
        for frame in victim.frames_of(own_address(), COUNT, is_request) {
            let (header, transport, payload) = packet(&frame);
            let tcp = transport.unwrap().tcp().unwrap();
            assert_eq!(
                (header.destination, tcp.destination_port),
                (VICTIM.octets(), PORT)
            );
            assert!(tcp.syn && !tcp.ack && payload.is_empty());
            ports.insert(tcp.source_port);
        }
        assert_eq!(ports.len(), COUNT);
        victim.await_counter("Tcp", "InSegs", 0, COUNT);
        // Each request has an answer, and no connection comes of it.
        victim.await_counter("Tcp", "OutSegs", 0, COUNT);
        assert_eq!(victim.counter("Tcp", "PassiveOpens"), 0);
    });
}

#[test]
fn arp_requests_have_another_sender_each_and_ask_for_the_address() {
    beside_victim(|victim| {
        let mut senders = BTreeSet::new();
        for frame in arrived(victim, Frames::Arp, &aim(To::Address(VICTIM))) {
            assert_eq!((frame.len(), destination(&frame)), (60, [0xff; 6]));
            let headers = PacketHeaders::from_ethernet_slice(&frame).unwrap();
            let Some(NetHeaders::Arp(arp)) = headers.net else {
                panic!("no ARP: {frame:?}");
            };
            let arp = arp.try_eth_ipv4().unwrap();
            assert_eq!(arp.operation, ArpOperation::REQUEST);
            assert_eq!(
                (arp.sender_mac, arp.target_ipv4),
                (own_address(), VICTIM.octets())
            );
            assert_eq!(arp.sender_ipv4[..2], [198, 18]);
            senders.insert(arp.sender_ipv4);
        }
        assert_eq!(senders.len(), COUNT);
    });
}

#[test]
fn echo_requests_are_answered() {
    beside_victim(|victim| {
        let to_victim = Aim {
            hardware: Some(victim.ears.address),
            ..aim(To::Address(VICTIM))
        };
        for frame in arrived(victim, Frames::Icmp, &to_victim) {
            let (_, transport, payload) = packet(&frame);
            let Some(TransportHeader::Icmpv4(icmp)) = transport else {
                panic!("no ICMP: {frame:?}");
            };
            assert!(matches!(icmp.icmp_type, Icmpv4Type::EchoRequest(_)));
            assert_eq!((frame.len(), payload.len()), (60, 18));
        }
        victim.await_counter("Icmp", "OutEchoReps", 0, COUNT);
    });
}

#[test]
fn a_storm_has_the_longest_frames_and_one_that_is_too_long_is_refused() {
    beside_victim(|victim| {
        let to_victim = Aim {
            hardware: Some(victim.ears.address),
            ..aim(To::Address(VICTIM))
        };
        for frame in arrived(victim, Frames::Transmit, &to_victim) {
            let (header, _, payload) = packet(&frame);
            assert_eq!(
                (frame.len(), header.total_len, payload.len()),
                (1514, 1500, 1472)
            );
        }
        let hardware = aim(To::Hardware(victim.ears.address));
        for frame in arrived(victim, Frames::Transmit, &hardware) {
            assert_eq!((frame.len(), frame[12]), (1514, 0x88));
        }
        let long = Aim {
            bytes: 9014,
            ..hardware
        };
        let error = attack(Frames::Transmit, &long).unwrap_err();
        assert!(matches!(error, AttackError::TooLong(9014)), "{error}");
        for bytes in [0, 59, 65_001, usize::MAX] {
            let error = attack(Frames::Transmit, &Aim { bytes, ..hardware }).unwrap_err();
            assert!(matches!(error, AttackError::Bytes(_)), "{error}");
        }
    });
}

#[test]
fn doorbells_are_tiny_frames_to_the_sender_or_who_is_named() {
    beside_victim(|victim| {
        let nobody = Aim {
            to: None,
            ..aim(To::Address(VICTIM))
        };
        let own = own_address();
        for frame in arrived(victim, Frames::Doorbells, &nobody) {
            assert_eq!((frame.len(), destination(&frame)), (16, own));
        }
        let somebody = [2, 0, 0, 0, 0, 9];
        for frame in arrived(victim, Frames::Doorbells, &aim(To::Hardware(somebody))) {
            assert_eq!(destination(&frame), somebody);
        }
    });
}

#[test]
fn aims_that_make_no_sense_are_refused() {
    beside_victim(|_| {
        let group = To::Address(Ipv4Addr::new(239, 1, 1, 1));
        let machine = To::Hardware([2, 0, 0, 0, 0, 9]);
        let refused = |frames, to: Option<To>| {
            let aim = Aim { to, ..aim(group) };
            attack(frames, &aim).unwrap_err().to_string()
        };
        let unicast = [
            Frames::UdpSmall,
            Frames::Fragments,
            Frames::TcpConnect,
            Frames::Arp,
            Frames::Icmp,
        ];
        for frames in unicast {
            assert_eq!(refused(frames, None), "nobody is named");
            assert!(refused(frames, Some(group)).contains("not the address of one machine"));
            assert!(refused(frames, Some(machine)).contains("is a hardware address"));
        }
        assert_eq!(refused(Frames::Transmit, None), "nobody is named");
        for to in [machine, To::Address(VICTIM), To::Hardware([0xff; 6])] {
            assert!(refused(Frames::Multicast, Some(to)).contains("is no multicast address"));
        }
        let address = refused(Frames::Doorbells, Some(To::Address(VICTIM)));
        assert!(address.contains("is an IPv4 address"), "{address}");
        let absent = To::Address(Ipv4Addr::new(10, 77, 0, 99));
        let error = refused(Frames::UdpSmall, Some(absent));
        assert!(error.contains("answers for 10.77.0.99"), "{error}");
        let error = Sender::open("absent", Frames::Broadcast, &aim(group)).unwrap_err();
        assert!(
            matches!(&error, AttackError::Io(it) if it.raw_os_error() == Some(nix::libc::ENODEV))
        );
    });
}
