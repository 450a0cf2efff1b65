//! UDP: names, control messages, flags, the error queue, multicast.

use std::net::UdpSocket;
use std::time::SystemTime;

use steadyvm_sockets::abi::ready;

use crate::guest::{NOBODY, Vcpu, alone, ip, message, messages};

const IP: i32 = libc::IPPROTO_IP;
const IPV6: i32 = libc::IPPROTO_IPV6;
const SOCKET: i32 = libc::SOL_SOCKET;

/// A guest's bound socket and its address.
fn bound(vcpu: &mut Vcpu, family: i32, at: &str) -> (u64, String) {
    let socket = vcpu
        .socket(family, libc::SOCK_DGRAM, libc::IPPROTO_UDP)
        .unwrap();
    vcpu.bind(socket, at).unwrap();
    let address = vcpu.local(socket).unwrap();
    assert_ne!(address.port(), 0);
    (socket, address.to_string())
}

#[test]
fn a_server_in_the_guest_answers_the_real_sender() {
    let mut vcpu = alone();
    for (family, at) in [(libc::AF_INET, "127.0.0.1:0"), (libc::AF_INET6, "[::1]:0")] {
        let (server, address) = bound(&mut vcpu, family, at);
        assert_eq!(vcpu.receive(server, 10, 0), Err(libc::EAGAIN));
        let client = UdpSocket::bind(at).unwrap();
        client.send_to(b"request", &address).unwrap();
        vcpu.idle_until(server, ready::IN);
        let request = vcpu.receive(server, 100, 0).unwrap();
        assert_eq!(request.data, b"request");
        assert_eq!(request.address(), client.local_addr().unwrap());
        let back = request.address().to_string();
        assert_eq!(vcpu.send_to(server, b"response", &back), Ok(8));
        let mut response = [0; 20];
        let (len, from) = client.recv_from(&mut response).unwrap();
        assert_eq!(
            (&response[..len], from.to_string()),
            (&b"response"[..], address)
        );
    }
}

#[test]
fn one_dual_stack_socket_serves_both_families() {
    let mut vcpu = alone();
    let (server, address) = bound(&mut vcpu, libc::AF_INET6, "[::]:0");
    let port = address.rsplit(':').next().unwrap().to_owned();
    for (from, to, seen) in [
        ("127.0.0.1:0", "127.0.0.1", "::ffff:127.0.0.1"),
        ("[::1]:0", "[::1]", "::1"),
    ] {
        let client = UdpSocket::bind(from).unwrap();
        client.send_to(b"x", format!("{to}:{port}")).unwrap();
        vcpu.idle_until(server, ready::IN);
        assert_eq!(
            vcpu.receive(server, 1, 0)
                .unwrap()
                .address()
                .ip()
                .to_string(),
            seen
        );
    }
}

#[test]
fn a_connected_socket_hears_its_peer_only_and_can_be_let_go() {
    let mut vcpu = alone();
    let (socket, address) = bound(&mut vcpu, libc::AF_INET, "127.0.0.1:0");
    let peer = UdpSocket::bind("127.0.0.1:0").unwrap();
    let stranger = UdpSocket::bind("127.0.0.1:0").unwrap();
    assert_eq!(vcpu.send(socket, b"x", 0), Err(libc::EDESTADDRREQ));
    vcpu.connect(socket, &peer.local_addr().unwrap().to_string())
        .unwrap();
    assert_eq!(vcpu.peer(socket), Ok(peer.local_addr().unwrap()));
    stranger.send_to(b"not this", &address).unwrap();
    peer.send_to(b"this", &address).unwrap();
    vcpu.idle_until(socket, ready::IN);
    assert_eq!(vcpu.receive(socket, 10, 0).unwrap().data, b"this");
    assert_eq!(vcpu.receive(socket, 10, 0), Err(libc::EAGAIN));
    assert_eq!(vcpu.send(socket, b"answer", 0), Ok(6));
    let mut answer = [0; 6];
    assert_eq!(peer.recv(&mut answer).unwrap(), 6);
    // connect to AF_UNSPEC, as connect(2) has it.
    let call = crate::guest::Call {
        op: steadyvm_sockets::abi::op::CONNECT,
        handle: socket,
        name: &[0; 16],
        ..Default::default()
    };
    assert_eq!(vcpu.call(&call).error, 0);
    assert_eq!(vcpu.peer(socket), Err(libc::ENOTCONN));
    // A connect that is refused leaves nothing behind.
    assert_eq!(vcpu.connect(socket, "[::1]:5"), Err(libc::EAFNOSUPPORT));
    assert_eq!(vcpu.peer(socket), Err(libc::ENOTCONN));
}

#[test]
fn two_sockets_share_a_port_with_reuseport_and_not_without() {
    let mut vcpu = alone();
    let (_, taken) = bound(&mut vcpu, libc::AF_INET, "127.0.0.1:0");
    let other = vcpu.datagram();
    assert_eq!(vcpu.bind(other, &taken), Err(libc::EADDRINUSE));

    let one = vcpu.datagram();
    vcpu.set_int(one, SOCKET, libc::SO_REUSEPORT, 1).unwrap();
    vcpu.bind(one, "127.0.0.1:0").unwrap();
    let address = vcpu.local(one).unwrap().to_string();
    let two = vcpu.datagram();
    assert_eq!(vcpu.bind(two, &address), Err(libc::EADDRINUSE));
    vcpu.set_int(two, SOCKET, libc::SO_REUSEPORT, 1).unwrap();
    vcpu.bind(two, &address).unwrap();
    let clients: Vec<_> = (0..32)
        .map(|_| UdpSocket::bind("127.0.0.1:0").unwrap())
        .collect();
    for client in &clients {
        client.send_to(b"x", &address).unwrap();
    }
    let mut heard = 0;
    while heard < clients.len() {
        for socket in [one, two] {
            while vcpu.receive(socket, 1, 0).is_ok() {
                heard += 1;
            }
        }
        if heard < clients.len() {
            vcpu.wait(None).unwrap();
            vcpu.events();
        }
    }
}

#[test]
fn a_datagram_that_is_cut_says_so() {
    let mut vcpu = alone();
    let (socket, address) = bound(&mut vcpu, libc::AF_INET, "127.0.0.1:0");
    let peer = UdpSocket::bind("127.0.0.1:0").unwrap();
    for _ in 0..3 {
        peer.send_to(b"0123456789", &address).unwrap();
    }
    vcpu.idle_until(socket, ready::IN);
    let peeked = vcpu
        .receive(socket, 4, libc::MSG_PEEK | libc::MSG_TRUNC)
        .unwrap();
    assert_eq!((peeked.value, peeked.data.as_slice()), (10, &b"0123"[..]));
    assert_eq!(peeked.flags & libc::MSG_TRUNC, libc::MSG_TRUNC);
    let cut = vcpu.receive(socket, 4, 0).unwrap();
    assert_eq!(
        (cut.value, cut.flags & libc::MSG_TRUNC),
        (4, libc::MSG_TRUNC)
    );
    let counted = vcpu.receive(socket, 0, libc::MSG_TRUNC).unwrap();
    assert_eq!((counted.value, counted.data.len()), (10, 0));
    vcpu.idle_until(socket, ready::IN);
    assert_eq!(vcpu.ioctl_int(socket, libc::FIONREAD), Ok(10));
    // Empty datagrams are datagrams.
    vcpu.receive(socket, 10, 0).unwrap();
    peer.send_to(b"", &address).unwrap();
    vcpu.idle_until(socket, ready::IN);
    let empty = vcpu.receive(socket, 10, 0).unwrap();
    assert_eq!(
        (empty.value, empty.address()),
        (0, peer.local_addr().unwrap())
    );
}

#[test]
fn large_datagrams_cross_scattered_pages_unchanged() {
    let mut vcpu = alone();
    let (socket, address) = bound(&mut vcpu, libc::AF_INET, "127.0.0.1:0");
    let bytes: Vec<u8> = (0..65_507_u32)
        .map(|byte| (byte * 13 % 241) as u8)
        .collect();
    assert_eq!(vcpu.send_to(socket, &bytes, &address), Ok(65_507));
    vcpu.idle_until(socket, ready::IN);
    assert!(vcpu.receive(socket, 70_000, 0).unwrap().data == bytes);
    let larger = vec![0; 65_508];
    assert_eq!(vcpu.send_to(socket, &larger, &address), Err(libc::EMSGSIZE));
}

#[test]
fn packet_information_ttl_and_tos_come_and_go() {
    let mut vcpu = alone();
    let (socket, address) = bound(&mut vcpu, libc::AF_INET, "0.0.0.0:0");
    let port = address.rsplit(':').next().unwrap();
    for option in [libc::IP_PKTINFO, libc::IP_RECVTTL, libc::IP_RECVTOS] {
        vcpu.set_int(socket, IP, option, 1).unwrap();
    }
    // From 127.0.0.9, with a TTL and a TOS of its own.
    let mut information = 0_i32.to_ne_bytes().to_vec();
    information.extend([127, 0, 0, 9, 0, 0, 0, 0]);
    let control = [
        message(IP, libc::IP_PKTINFO, &information),
        message(IP, libc::IP_TTL, &33_i32.to_ne_bytes()),
        message(IP, libc::IP_TOS, &[0x10]),
    ]
    .concat();
    let to = format!("127.0.0.5:{port}");
    assert_eq!(vcpu.send_message(socket, b"x", &control, &to), Ok(1));
    vcpu.idle_until(socket, ready::IN);
    let reply = vcpu.receive(socket, 1, 0).unwrap();
    assert_eq!(reply.address().ip().to_string(), "127.0.0.9");
    let found = messages(&reply.control);
    let of = |kind| {
        &found
            .iter()
            .find(|(level, k, _)| (*level, *k) == (IP, kind))
            .unwrap()
            .2
    };
    assert_eq!(of(libc::IP_PKTINFO)[..4], 1_i32.to_ne_bytes(), "loopback");
    assert_eq!(
        of(libc::IP_PKTINFO)[8..12],
        [127, 0, 0, 5],
        "where it was sent to"
    );
    assert_eq!(of(libc::IP_TTL)[..], 33_i32.to_ne_bytes());
    assert_eq!(of(libc::IP_TOS)[..], [0x10]);
    assert_eq!(reply.flags & libc::MSG_CTRUNC, 0);
}

#[test]
fn hop_limit_and_traffic_class_come_and_go() {
    let mut vcpu = alone();
    let (socket, address) = bound(&mut vcpu, libc::AF_INET6, "[::1]:0");
    for option in [
        libc::IPV6_RECVPKTINFO,
        libc::IPV6_RECVHOPLIMIT,
        libc::IPV6_RECVTCLASS,
    ] {
        vcpu.set_int(socket, IPV6, option, 1).unwrap();
    }
    let control = [
        message(IPV6, libc::IPV6_HOPLIMIT, &44_i32.to_ne_bytes()),
        message(IPV6, libc::IPV6_TCLASS, &0x20_i32.to_ne_bytes()),
    ]
    .concat();
    vcpu.send_message(socket, b"x", &control, &address).unwrap();
    vcpu.idle_until(socket, ready::IN);
    let found = messages(&vcpu.receive(socket, 1, 0).unwrap().control);
    let of = |kind| {
        &found
            .iter()
            .find(|(level, k, _)| (*level, *k) == (IPV6, kind))
            .unwrap()
            .2
    };
    assert_eq!(of(libc::IPV6_HOPLIMIT)[..], 44_i32.to_ne_bytes());
    assert_eq!(of(libc::IPV6_TCLASS)[..], 0x20_i32.to_ne_bytes());
    assert_eq!(
        of(libc::IPV6_PKTINFO)[..16],
        std::net::Ipv6Addr::LOCALHOST.octets()
    );
}

#[test]
fn receive_timestamps_are_the_hosts_clock() {
    let mut vcpu = alone();
    let (socket, address) = bound(&mut vcpu, libc::AF_INET, "127.0.0.1:0");
    let now = || {
        SystemTime::now()
            .duration_since(SystemTime::UNIX_EPOCH)
            .unwrap()
            .as_nanos()
    };
    vcpu.set_int(socket, SOCKET, libc::SO_TIMESTAMPNS, 1)
        .unwrap();
    // The stamping of packets is switched on by a kernel worker: packets until then are stamped
    // when they are read, which is between the two as well.
    let before = now();
    vcpu.send_to(socket, b"x", &address).unwrap();
    vcpu.idle_until(socket, ready::IN);
    let found = messages(&vcpu.receive(socket, 1, 0).unwrap().control);
    let after = now();
    assert_eq!((found[0].0, found[0].1), (SOCKET, libc::SCM_TIMESTAMPNS));
    let part = |at| {
        u128::from(u64::from_ne_bytes(
            found[0].2[at..at + 8].try_into().unwrap(),
        ))
    };
    let stamp = part(0) * 1_000_000_000 + part(8);
    assert!(
        (before..=after).contains(&stamp),
        "{before} {stamp} {after}"
    );

    vcpu.set_int(socket, SOCKET, libc::SO_TIMESTAMPNS, 0)
        .unwrap();
    vcpu.set_int(socket, SOCKET, libc::SO_TIMESTAMP, 1).unwrap();
    vcpu.send_to(socket, b"x", &address).unwrap();
    vcpu.idle_until(socket, ready::IN);
    let found = messages(&vcpu.receive(socket, 1, 0).unwrap().control);
    assert_eq!(
        (found[0].0, found[0].1, found[0].2.len()),
        (SOCKET, libc::SCM_TIMESTAMP, 16)
    );
}

#[test]
fn transmit_timestamps_come_by_the_error_queue() {
    let mut vcpu = alone();
    let (socket, address) = bound(&mut vcpu, libc::AF_INET, "127.0.0.1:0");
    // SOF_TIMESTAMPING_TX_SOFTWARE, _SOFTWARE, _OPT_TSONLY
    vcpu.set_int(
        socket,
        SOCKET,
        libc::SO_TIMESTAMPING,
        1 << 1 | 1 << 4 | 1 << 11,
    )
    .unwrap();
    vcpu.send_to(socket, b"x", &address).unwrap();
    vcpu.idle_until(socket, ready::ERR);
    let found = messages(
        &vcpu
            .receive(socket, 100, libc::MSG_ERRQUEUE)
            .unwrap()
            .control,
    );
    assert!(
        found
            .iter()
            .any(|(level, kind, _)| (*level, *kind) == (SOCKET, libc::SCM_TIMESTAMPING))
    );
}

#[test]
fn the_error_queue_says_what_was_refused_and_by_whom() {
    let mut vcpu = alone();
    // A port that was free a moment ago in a namespace of our own.
    let socket = vcpu.datagram();
    vcpu.set_int(socket, IP, libc::IP_RECVERR, 1).unwrap();
    vcpu.connect(socket, NOBODY).unwrap();
    vcpu.send(socket, b"lost", 0).unwrap();
    let ready = vcpu.idle_until(socket, ready::ERR);
    assert_ne!(ready & ready::ERR, 0);
    let reply = vcpu.receive(socket, 100, libc::MSG_ERRQUEUE).unwrap();
    assert_eq!(reply.data, b"lost");
    assert_eq!(reply.address().to_string(), NOBODY);
    assert_eq!(reply.flags & libc::MSG_ERRQUEUE, libc::MSG_ERRQUEUE);
    let found = messages(&reply.control);
    let (level, kind, error) = &found[0];
    assert_eq!((*level, *kind), (IP, libc::IP_RECVERR));
    assert_eq!(error[..4], libc::ECONNREFUSED.to_ne_bytes());
    assert_eq!(
        crate::guest::address(&error[16..]).ip().to_string(),
        "127.0.0.1",
        "the offender"
    );
    assert_eq!(
        vcpu.receive(socket, 1, libc::MSG_ERRQUEUE),
        Err(libc::EAGAIN)
    );
}

#[test]
fn control_messages_that_do_not_fit_are_said_to_be_cut() {
    let mut vcpu = alone();
    let (socket, address) = bound(&mut vcpu, libc::AF_INET, "127.0.0.1:0");
    vcpu.set_int(socket, IP, libc::IP_PKTINFO, 1).unwrap();
    vcpu.send_to(socket, b"x", &address).unwrap();
    vcpu.idle_until(socket, ready::IN);
    let call = crate::guest::Call {
        op: steadyvm_sockets::abi::op::RECEIVE,
        handle: socket,
        data_room: 1,
        ..Default::default()
    };
    let reply = vcpu.call(&call).result().unwrap();
    assert_eq!(reply.flags & libc::MSG_CTRUNC, libc::MSG_CTRUNC);
    assert_eq!(
        (reply.data.as_slice(), reply.name_len),
        (&b"x"[..], 16),
        "the name had no room"
    );
}

#[test]
fn groups_are_joined_sent_to_and_left() {
    let mut vcpu = alone();
    let (socket, address) = bound(&mut vcpu, libc::AF_INET, "0.0.0.0:0");
    let port = address.rsplit(':').next().unwrap();
    let group = format!("239.1.2.3:{port}");
    let membership = [[239, 1, 2, 3], [127, 0, 0, 1]].concat();
    let loopback = [127, 0, 0, 1];
    vcpu.set(socket, IP, libc::IP_MULTICAST_IF, &loopback)
        .unwrap();
    vcpu.set_int(socket, IP, libc::IP_MULTICAST_TTL, 3).unwrap();
    assert_eq!(vcpu.get_int(socket, IP, libc::IP_MULTICAST_TTL), Ok(3));
    let leave = libc::IP_DROP_MEMBERSHIP;
    assert_eq!(
        vcpu.set(socket, IP, leave, &membership),
        Err(libc::EADDRNOTAVAIL)
    );
    vcpu.set(socket, IP, libc::IP_ADD_MEMBERSHIP, &membership)
        .unwrap();
    assert_eq!(
        vcpu.set(socket, IP, libc::IP_ADD_MEMBERSHIP, &membership),
        Err(libc::EADDRINUSE)
    );
    vcpu.send_to(socket, b"all", &group).unwrap();
    vcpu.idle_until(socket, ready::IN);
    assert_eq!(vcpu.receive(socket, 10, 0).unwrap().data, b"all");
    vcpu.set(socket, IP, leave, &membership).unwrap();

    // Loopback does not carry groups of IPv6: a pair of devices, the first of them number 10.
    ip("link add one index 10 type veth peer name other");
    ip("link set other up");
    ip("link set one up addrgenmode none");
    ip("address add fe80::1/64 dev one nodad");
    let (six, address) = bound(&mut vcpu, libc::AF_INET6, "[::]:0");
    let port = address.rsplit(':').next().unwrap();
    let index = 10_i32.to_ne_bytes();
    let mut join = vec![0xff, 0x12];
    join.extend([0; 13]);
    join.push(7);
    join.extend(index);
    vcpu.set(six, IPV6, libc::IPV6_ADD_MEMBERSHIP, &join)
        .unwrap();
    vcpu.set(six, IPV6, libc::IPV6_MULTICAST_IF, &index)
        .unwrap();
    vcpu.send_to(six, b"six", &format!("[ff12::7]:{port}"))
        .unwrap();
    vcpu.idle_until(six, ready::IN);
    assert_eq!(vcpu.receive(six, 10, 0).unwrap().data, b"six");
}

#[test]
fn broadcast_needs_its_option() {
    let mut vcpu = alone();
    let socket = vcpu.datagram();
    assert_eq!(
        vcpu.send_to(socket, b"x", "127.255.255.255:9"),
        Err(libc::EACCES)
    );
    vcpu.set_int(socket, SOCKET, libc::SO_BROADCAST, 1).unwrap();
    assert_eq!(vcpu.send_to(socket, b"x", "127.255.255.255:9"), Ok(1));
}

#[test]
fn segments_are_cut_by_the_host() {
    let mut vcpu = alone();
    let (socket, address) = bound(&mut vcpu, libc::AF_INET, "127.0.0.1:0");
    let control = message(
        libc::IPPROTO_UDP,
        libc::UDP_SEGMENT,
        &1000_u16.to_ne_bytes(),
    );
    assert_eq!(
        vcpu.send_message(socket, &[7; 2500], &control, &address),
        Ok(2500)
    );
    for expected in [1000, 1000, 500] {
        vcpu.idle_until(socket, ready::IN);
        assert_eq!(vcpu.receive(socket, 5000, 0).unwrap().value, expected);
    }
}
