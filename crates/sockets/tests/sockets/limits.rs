//! Limits of a VM, generations of handles, and the namespace.

use std::io::Read;
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use steadyvm_sockets::{Device, Limits};

use crate::guest::{Guest, enter_namespace, patient, start};
use crate::streams::listening;
use steadyvm_sockets::abi::ready;

#[test]
fn ten_thousand_sockets_against_the_limit_are_enobufs_and_the_next_works() {
    let limits = Limits {
        sockets: 50,
        ..patient()
    };
    let mut vcpu = Guest::new(limits, 1).vcpu(0);
    let mut open = Vec::new();
    let mut refused = 0;
    for _ in 0..10_000 {
        match vcpu.socket(libc::AF_INET, libc::SOCK_DGRAM, 0) {
            Ok(handle) => open.push(handle),
            Err(error) => {
                assert_eq!(error, libc::ENOBUFS);
                refused += 1;
            }
        }
    }
    assert_eq!((open.len(), refused), (50, 9_950));
    vcpu.close(open[7]).unwrap();
    let next = vcpu.datagram();
    assert_eq!(next as u32, open[7] as u32, "the slot is used again");
    assert_ne!(next, open[7], "under another handle");
    assert_eq!(
        vcpu.socket(libc::AF_INET, libc::SOCK_DGRAM, 0),
        Err(libc::ENOBUFS)
    );
}

#[test]
fn a_closed_handle_is_refused_for_ever() {
    let limits = Limits {
        sockets: 1,
        ..patient()
    };
    let mut vcpu = Guest::new(limits, 1).vcpu(0);
    let mut closed = Vec::new();
    for _ in 0..100 {
        let handle = vcpu.datagram();
        vcpu.bind(handle, "127.0.0.1:0").unwrap();
        for old in &closed {
            assert_eq!(vcpu.local(*old), Err(libc::EBADF));
            assert_eq!(vcpu.send(*old, b"x", 0), Err(libc::EBADF));
        }
        vcpu.close(handle).unwrap();
        assert_eq!(vcpu.close(handle), Err(libc::EBADF));
        closed.push(handle);
    }
    for handle in [0, 1, u64::MAX, 1 << 32 | 1, u64::from(u32::MAX)] {
        assert_eq!(vcpu.receive(handle, 1, 0), Err(libc::EBADF));
    }
}

#[test]
fn a_connection_beyond_the_limit_stays_in_the_backlog() {
    let limits = Limits {
        sockets: 2,
        ..patient()
    };
    let mut vcpu = Guest::new(limits, 1).vcpu(0);
    vcpu.set_up();
    let (listener, address) = listening(&mut vcpu);
    let other = vcpu.datagram();
    let peer = TcpStream::connect(address).unwrap();
    vcpu.idle_until(listener, ready::IN);
    assert_eq!(vcpu.accept(listener), Err(libc::ENOBUFS));
    vcpu.close(other).unwrap();
    let (_, from) = vcpu.accept(listener).unwrap();
    assert_eq!(from, peer.local_addr().unwrap());
}

#[test]
fn buffers_are_counted_and_given_back() {
    let limits = Limits {
        buffer_bytes: 1_000_000,
        ..patient()
    };
    let mut vcpu = Guest::new(limits, 1).vcpu(0);
    let one = vcpu.datagram();
    let size = |vcpu: &mut crate::guest::Vcpu, socket| {
        vcpu.get_int(socket, libc::SOL_SOCKET, libc::SO_RCVBUF)
            .unwrap()
    };
    let mut open = vec![one];
    while let Ok(socket) = vcpu.socket(libc::AF_INET, libc::SOCK_DGRAM, 0) {
        open.push(socket);
    }
    assert!((2..20).contains(&open.len()), "{}", open.len());
    let before = size(&mut vcpu, one);
    let more = vcpu.set_int(one, libc::SOL_SOCKET, libc::SO_RCVBUF, before);
    assert_eq!(more, Err(libc::ENOBUFS), "twice as much");
    assert_eq!(size(&mut vcpu, one), before, "as before");
    // Less for one is more for another.
    vcpu.set_int(one, libc::SOL_SOCKET, libc::SO_RCVBUF, 0)
        .unwrap();
    vcpu.set_int(one, libc::SOL_SOCKET, libc::SO_SNDBUF, 0)
        .unwrap();
    vcpu.datagram();
}

/// What a test asks about descriptors is about its process: runs `test` again, alone, in one of its
/// own with at most `descriptors`. True in that process, where the test is to be done.
fn in_a_process_of_its_own(test: &str, descriptors: u32) -> bool {
    const VARIABLE: &str = "STEADYVM_TEST_ALONE";
    if std::env::var_os(VARIABLE).is_some() {
        return true;
    }
    let mut command = Command::new("prlimit");
    command
        .arg(format!("--nofile={descriptors}:{descriptors}"))
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", test])
        .env(VARIABLE, "1")
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let run = start(&mut command)
        .and_then(Child::wait_with_output)
        .expect("this test uses prlimit (util-linux)");
    let said = String::from_utf8_lossy(&run.stdout);
    assert!(run.status.success() && said.contains("1 passed"), "{said}");
    false
}

fn open_descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

#[test]
fn a_guest_that_goes_amid_a_thousand_connections_leaves_nothing() {
    let name = "limits::a_guest_that_goes_amid_a_thousand_connections_leaves_nothing";
    if !in_a_process_of_its_own(name, 5_000) {
        return;
    }
    let before = open_descriptors();
    let limits = Limits {
        sockets: 1_001,
        ..patient()
    };
    let mut vcpu = Guest::new(limits, 1).vcpu(0);
    vcpu.set_up();
    let (listener, address) = listening(&mut vcpu);
    let mut peers = Vec::new();
    while peers.len() < 1_000 {
        peers.push(TcpStream::connect(&address).unwrap());
        vcpu.idle_until(listener, ready::IN);
        let (accepted, _) = vcpu.accept(listener).unwrap();
        assert_eq!(vcpu.send(accepted, b"x", 0), Ok(1));
        vcpu.events();
    }
    assert!(open_descriptors() >= before + 2_001);
    drop(vcpu);
    for mut peer in peers.drain(..) {
        let mut all = Vec::new();
        peer.read_to_end(&mut all).unwrap();
        assert_eq!(all, b"x");
    }
    assert_eq!(open_descriptors(), before);
}

#[test]
fn the_hosts_own_limit_of_descriptors_is_passed_on() {
    let name = "limits::the_hosts_own_limit_of_descriptors_is_passed_on";
    if !in_a_process_of_its_own(name, 40) {
        return;
    }
    let mut vcpu = Guest::new(patient(), 1).vcpu(0);
    let mut open = Vec::new();
    let error = loop {
        match vcpu.socket(libc::AF_INET, libc::SOCK_DGRAM, 0) {
            Ok(handle) => open.push(handle),
            Err(error) => break error,
        }
    };
    assert_eq!(error, libc::EMFILE);
    vcpu.close(open[0]).unwrap();
    vcpu.datagram();
}

#[test]
fn a_request_beyond_the_limit_of_bytes_is_emsgsize() {
    let limits = Limits {
        request_bytes: 10_000,
        ..patient()
    };
    let mut vcpu = Guest::new(limits, 1).vcpu(0);
    assert_eq!(vcpu.device.config(None).max_data.get(), 10_000);
    let socket = vcpu.datagram();
    assert_eq!(
        vcpu.send_to(socket, &[0; 10_000], "127.0.0.1:9"),
        Ok(10_000)
    );
    assert_eq!(
        vcpu.send_to(socket, &[0; 10_001], "127.0.0.1:9"),
        Err(libc::EMSGSIZE)
    );
    assert_eq!(vcpu.receive(socket, 10_001, 0), Err(libc::EMSGSIZE));
}

#[test]
fn a_thread_that_left_the_namespace_makes_no_sockets() {
    let guest = Guest::new(patient(), 1);
    let mut vcpu = guest.vcpu(0);
    vcpu.datagram();
    enter_namespace();
    assert_eq!(
        vcpu.socket(libc::AF_INET, libc::SOCK_DGRAM, 0),
        Err(libc::EPERM)
    );
}

#[test]
fn a_reset_closes_everything_and_ends_every_handle() {
    let guest = Guest::new(patient(), 1);
    let mut vcpu = guest.vcpu(0);
    vcpu.set_up();
    let (listener, address) = listening(&mut vcpu);
    let mut peer = TcpStream::connect(&address).unwrap();
    guest.device.reset(&guest.memory);
    vcpu.channel.reset();
    let mut vcpu = guest.vcpu(0);
    assert_eq!(vcpu.accept(listener), Err(libc::EBADF));
    assert!(peer.read(&mut [0]).is_err(), "reset: it was never accepted");
    assert!(TcpStream::connect(address).is_err());
    assert_eq!(vcpu.harvest(), Err(libc::EINVAL), "the ring is gone, too");
    vcpu.datagram();
}

#[test]
fn bad_limits_are_refused_with_the_reason() {
    enter_namespace();
    for (limits, channels, why) in [
        (Limits::default(), 0, "channel"),
        (
            Limits {
                sockets: 0,
                ..Limits::default()
            },
            1,
            "sockets",
        ),
        (
            Limits {
                operations: 100,
                ..Limits::default()
            },
            1,
            "power of two",
        ),
    ] {
        let error = Device::new(limits, channels).err().unwrap().to_string();
        assert!(error.contains(why), "{error}");
    }
}

/// A stream whose peer does not read, full of data that it has not taken, with its peer.
fn filled(vcpu: &mut crate::guest::Vcpu, listener: &std::net::TcpListener) -> (u64, TcpStream) {
    let socket = vcpu.stream();
    let address = listener.local_addr().unwrap().to_string();
    assert_eq!(vcpu.connect(socket, &address), Err(libc::EINPROGRESS));
    let (peer, _) = listener.accept().unwrap();
    let piece = vec![0; 64 << 10];
    let sent = loop {
        match vcpu.send(socket, &piece, 0) {
            Ok(_) => {}
            Err(error) => break error,
        }
    };
    assert_eq!(sent, libc::EAGAIN);
    (socket, peer)
}

/// A datagram socket, as soon as there is a slot: acknowledgements and resets of the loopback are
/// processed after the call that caused them has returned, and no event tells when.
fn datagram_when_a_slot_is_free(vcpu: &mut crate::guest::Vcpu) -> u64 {
    let began = Instant::now();
    loop {
        match vcpu.socket(libc::AF_INET, libc::SOCK_DGRAM, 0) {
            Err(libc::ENOBUFS) if began.elapsed() < Duration::from_secs(20) => {
                std::thread::yield_now();
            }
            made => return made.expect("a slot is free once the data has gone"),
        }
    }
}

#[test]
fn what_is_closed_stays_charged_until_its_data_has_gone() {
    let limits = Limits {
        sockets: 4,
        ..patient()
    };
    let mut vcpu = Guest::new(limits, 1).vcpu(0);
    vcpu.set_up();
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let mut peers = Vec::new();
    for _ in 0..4 {
        let (socket, peer) = filled(&mut vcpu, &listener);
        peers.push(peer);
        vcpu.close(socket).unwrap();
        assert_eq!(vcpu.local(socket), Err(libc::EBADF), "its handle has ended");
    }
    // Four closed sockets' data is with the kernel: no fifth.
    let refused = vcpu.socket(libc::AF_INET, libc::SOCK_STREAM, 0);
    assert_eq!(refused, Err(libc::ENOBUFS));
    // A peer that reads gets every byte and then the end, and the slot is free again.
    let mut first = peers.remove(0);
    let mut all = Vec::new();
    first.read_to_end(&mut all).unwrap();
    assert!(all.len() > 64 << 10, "{}", all.len());
    datagram_when_a_slot_is_free(&mut vcpu);
    // One that goes frees it, too.
    drop(peers.remove(0));
    datagram_when_a_slot_is_free(&mut vcpu);
    let refused = vcpu.socket(libc::AF_INET, libc::SOCK_STREAM, 0);
    assert_eq!(refused, Err(libc::ENOBUFS));
}

#[test]
fn a_low_water_mark_that_grows_the_buffer_is_charged() {
    let limits = Limits {
        buffer_bytes: 400_000,
        ..patient()
    };
    let mut vcpu = Guest::new(limits, 1).vcpu(0);
    let socket = vcpu.stream();
    let buffer = |vcpu: &mut crate::guest::Vcpu| {
        vcpu.get_int(socket, libc::SOL_SOCKET, libc::SO_RCVBUF)
            .unwrap()
    };
    let before = buffer(&mut vcpu);
    let more = vcpu.set_int(socket, libc::SOL_SOCKET, libc::SO_RCVLOWAT, 2 << 20);
    assert_eq!(more, Err(libc::ENOBUFS));
    assert_eq!(buffer(&mut vcpu), before);
    assert_eq!(
        vcpu.get_int(socket, libc::SOL_SOCKET, libc::SO_RCVLOWAT),
        Ok(1)
    );
    vcpu.set_int(socket, libc::SOL_SOCKET, libc::SO_RCVLOWAT, 1000)
        .unwrap();
}

#[test]
fn a_connection_beyond_the_bytes_stays_in_the_backlog() {
    let mut probe = Guest::new(patient(), 1).vcpu(0);
    let stream = probe.stream();
    let mut size = |option| {
        probe
            .get_int(stream, libc::SOL_SOCKET, option)
            .unwrap()
            .unsigned_abs()
    };
    let one = u64::from(size(libc::SO_SNDBUF) + size(libc::SO_RCVBUF));
    let limits = Limits {
        buffer_bytes: 2 * one + one / 2,
        ..patient()
    };
    let mut vcpu = Guest::new(limits, 1).vcpu(0);
    vcpu.set_up();
    let (listener, address) = listening(&mut vcpu);
    let other = vcpu.stream();
    let peer = TcpStream::connect(address).unwrap();
    vcpu.idle_until(listener, ready::IN);
    assert_eq!(vcpu.accept(listener), Err(libc::ENOBUFS));
    vcpu.close(other).unwrap();
    let (_, from) = vcpu.accept(listener).unwrap();
    assert_eq!(from, peer.local_addr().unwrap());
}

#[test]
fn an_event_ring_is_no_larger_than_the_sockets_need() {
    let mut vcpu = crate::guest::alone();
    let address = vcpu.base + 0x10_0000;
    vcpu.event_ring(address, 1024).unwrap();
    assert_eq!(vcpu.event_ring(address, 2048), Err(libc::EINVAL));
}
