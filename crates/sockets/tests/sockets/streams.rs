//! TCP, both ways.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};

use nix::sys::signal::{SigHandler, Signal, signal};
use steadyvm_sockets::abi::ready;

use crate::guest::{NOBODY, Vcpu, alone};

/// A guest's listener and its address.
pub fn listening(vcpu: &mut Vcpu) -> (u64, String) {
    let listener = vcpu.stream();
    vcpu.bind(listener, "127.0.0.1:0").unwrap();
    vcpu.listen(listener, 16).unwrap();
    let address = vcpu.local(listener).unwrap();
    (listener, address.to_string())
}

/// A connection that a guest accepted, and the peer's side.
pub fn connection(vcpu: &mut Vcpu) -> (u64, TcpStream) {
    let (listener, address) = listening(vcpu);
    let peer = TcpStream::connect(address).unwrap();
    vcpu.idle_until(listener, ready::IN);
    let (accepted, _) = vcpu.accept(listener).unwrap();
    vcpu.close(listener).unwrap();
    (accepted, peer)
}

#[test]
fn a_server_in_the_guest_knows_both_real_addresses() {
    let mut vcpu = alone();
    let (listener, address) = listening(&mut vcpu);
    assert_ne!(
        vcpu.local(listener).unwrap().port(),
        0,
        "bind(0) shows the port"
    );
    assert_eq!(
        vcpu.accept(listener),
        Err(libc::EAGAIN),
        "nobody has connected"
    );

    let mut peer = TcpStream::connect(&address).unwrap();
    vcpu.idle_until(listener, ready::IN);
    let (accepted, from) = vcpu.accept(listener).unwrap();
    assert_eq!(from, peer.local_addr().unwrap());
    assert_eq!(vcpu.peer(accepted), Ok(from));
    assert_eq!(vcpu.local(accepted), Ok(peer.peer_addr().unwrap()));
    assert_eq!(vcpu.accept(listener), Err(libc::EAGAIN));

    assert_eq!(vcpu.receive(accepted, 10, 0), Err(libc::EAGAIN));
    peer.write_all(b"request").unwrap();
    vcpu.idle_until(accepted, ready::IN);
    assert_eq!(vcpu.receive(accepted, 100, 0).unwrap().data, b"request");
    assert_eq!(vcpu.send(accepted, b"response", 0), Ok(8));
    let mut response = [0; 8];
    peer.read_exact(&mut response).unwrap();
    assert_eq!(&response, b"response");

    peer.shutdown(Shutdown::Write).unwrap();
    let ready = vcpu.idle_until(accepted, ready::RDHUP);
    assert_ne!(ready & ready::IN, 0, "the end of the stream can be read");
    assert_eq!(vcpu.receive(accepted, 100, 0).unwrap().value, 0);
}

#[test]
fn a_client_in_the_guest_connects_without_blocking() {
    let mut vcpu = alone();
    for (family, at) in [(libc::AF_INET, "127.0.0.1:0"), (libc::AF_INET6, "[::1]:0")] {
        let listener = TcpListener::bind(at).unwrap();
        let address = listener.local_addr().unwrap();
        let client = vcpu
            .socket(family, libc::SOCK_STREAM, libc::IPPROTO_TCP)
            .unwrap();
        assert_eq!(vcpu.peer(client), Err(libc::ENOTCONN));
        assert_eq!(
            vcpu.connect(client, &address.to_string()),
            Err(libc::EINPROGRESS)
        );
        vcpu.idle_until(client, ready::OUT);
        assert_eq!(
            vcpu.get_int(client, libc::SOL_SOCKET, libc::SO_ERROR),
            Ok(0)
        );
        assert_eq!(
            vcpu.connect(client, &address.to_string()).err(),
            None,
            "as connect(2) after it is done"
        );
        assert_eq!(
            vcpu.connect(client, &address.to_string()),
            Err(libc::EISCONN)
        );
        assert_eq!(vcpu.peer(client), Ok(address));
        let (peer, from) = listener.accept().unwrap();
        assert_eq!(vcpu.local(client), Ok(from));
        drop(peer);
        vcpu.idle_until(client, ready::RDHUP);
    }
}

#[test]
fn a_refused_connection_is_told_by_so_error_once() {
    let mut vcpu = alone();
    let client = vcpu.stream();
    assert_eq!(vcpu.connect(client, NOBODY), Err(libc::EINPROGRESS));
    let ready = vcpu.idle_until(client, ready::ERR);
    assert_ne!(ready & ready::HUP, 0);
    let error = |vcpu: &mut Vcpu| vcpu.get_int(client, libc::SOL_SOCKET, libc::SO_ERROR);
    assert_eq!(error(&mut vcpu), Ok(libc::ECONNREFUSED));
    assert_eq!(error(&mut vcpu), Ok(0));
}

#[test]
fn one_dual_stack_listener_takes_both_families() {
    let mut vcpu = alone();
    let listener = vcpu.socket(libc::AF_INET6, libc::SOCK_STREAM, 0).unwrap();
    vcpu.set_int(listener, libc::IPPROTO_IPV6, libc::IPV6_V6ONLY, 0)
        .unwrap();
    vcpu.bind(listener, "[::]:0").unwrap();
    vcpu.listen(listener, 2).unwrap();
    let port = vcpu.local(listener).unwrap().port();
    for (host, seen) in [("127.0.0.1", "::ffff:127.0.0.1"), ("[::1]", "::1")] {
        let peer = TcpStream::connect(format!("{host}:{port}")).unwrap();
        vcpu.idle_until(listener, ready::IN);
        let (_, from) = vcpu.accept(listener).unwrap();
        assert_eq!(from.ip().to_string(), seen);
        assert_eq!(from.port(), peer.local_addr().unwrap().port());
    }
}

#[test]
fn a_full_stream_says_eagain_and_is_writable_again_when_the_peer_reads() {
    let mut vcpu = alone();
    let (stream, mut peer) = connection(&mut vcpu);
    let block: Vec<u8> = (0..60_000_u32).map(|byte| (byte % 251) as u8).collect();
    let mut sent = Vec::new();
    let unwritable = loop {
        match vcpu.send(stream, &block, 0) {
            Ok(count) => sent.extend(&block[..count as usize]),
            Err(error) => break error,
        }
    };
    assert_eq!(unwritable, libc::EAGAIN);
    assert_eq!(vcpu.poll(stream) & ready::OUT, 0);
    assert!(vcpu.ioctl_int(stream, libc::TIOCOUTQ).unwrap() > 0);

    let expected = sent.len();
    let reader = std::thread::spawn(move || {
        let mut bytes = vec![0; expected];
        peer.read_exact(&mut bytes).unwrap();
        (bytes, peer)
    });
    vcpu.idle_until(stream, ready::OUT);
    let (received, _peer) = reader.join().unwrap();
    assert!(received == sent, "bytes arrive once, in order");
}

const TOTAL: usize = 2_000_000;

#[test]
fn both_directions_run_at_once_from_two_vcpus() {
    use crate::guest::{Guest, patient};
    let guest = Guest::new(patient(), 2);
    let (mut sender, mut receiver) = (guest.vcpu(0), guest.vcpu(1));
    sender.set_up();
    receiver.set_up();
    let (stream, peer) = connection(&mut sender);
    // Its events go to one channel: the sender asks, the receiver idles.
    sender.steer(stream, 1).unwrap();
    let pattern = |index: usize| (index * 31 % 253) as u8;

    let mut read_half = peer.try_clone().unwrap();
    let mut write_half = peer;
    let peer_reads = std::thread::spawn(move || {
        let mut bytes = vec![0; TOTAL];
        read_half.read_exact(&mut bytes).unwrap();
        bytes
    });
    let peer_writes = std::thread::spawn(move || {
        let bytes: Vec<u8> = (0..TOTAL).map(pattern).collect();
        write_half.write_all(&bytes).unwrap();
        write_half
    });
    let guest_reads = std::thread::spawn(move || {
        let mut bytes = Vec::new();
        while bytes.len() < TOTAL {
            match receiver.receive(stream, 50_000, 0) {
                Ok(reply) => bytes.extend(reply.data),
                Err(error) => {
                    assert_eq!(error, libc::EAGAIN);
                    receiver.wait(None).unwrap();
                    receiver.events();
                }
            }
        }
        bytes
    });
    let bytes: Vec<u8> = (0..TOTAL).map(pattern).collect();
    let mut sent = 0;
    while sent < TOTAL {
        match sender.send(stream, &bytes[sent..(sent + 50_000).min(TOTAL)], 0) {
            Ok(count) => sent += count as usize,
            Err(error) => {
                assert_eq!(error, libc::EAGAIN);
                std::thread::yield_now();
            }
        }
    }
    assert!(peer_reads.join().unwrap() == bytes);
    assert!(guest_reads.join().unwrap() == bytes);
    drop(peer_writes.join().unwrap());
}

#[test]
fn peeking_leaves_and_waitall_takes_what_is_there() {
    let mut vcpu = alone();
    let (stream, mut peer) = connection(&mut vcpu);
    peer.write_all(b"abcdef").unwrap();
    vcpu.idle_until(stream, ready::IN);
    assert_eq!(
        vcpu.receive(stream, 3, libc::MSG_PEEK).unwrap().data,
        b"abc"
    );
    assert_eq!(vcpu.ioctl_int(stream, libc::FIONREAD), Ok(6));
    // The guest owns waiting for all: the host gives what it has.
    assert_eq!(
        vcpu.receive(stream, 100, libc::MSG_WAITALL).unwrap().data,
        b"abcdef"
    );
    // TCP discards with MSG_TRUNC and counts.
    peer.write_all(b"gone").unwrap();
    vcpu.idle_until(stream, ready::IN);
    assert_eq!(vcpu.receive(stream, 100, libc::MSG_TRUNC).unwrap().value, 4);
    assert_eq!(vcpu.receive(stream, 100, 0), Err(libc::EAGAIN));
}

#[test]
fn urgent_data_is_ready_marked_and_read_apart() {
    const SIOCATMARK: u64 = 0x8905;
    let mut vcpu = alone();
    let (stream, mut peer) = connection(&mut vcpu);
    peer.write_all(b"before").unwrap();
    let urgent = rustix::net::send(&peer, b"!", rustix::net::SendFlags::OOB);
    assert_eq!(urgent, Ok(1));
    vcpu.idle_until(stream, ready::PRI);
    assert_eq!(vcpu.ioctl_int(stream, SIOCATMARK), Ok(0));
    assert_eq!(vcpu.receive(stream, 100, 0).unwrap().data, b"before");
    assert_eq!(vcpu.ioctl_int(stream, SIOCATMARK), Ok(1));
    assert_eq!(vcpu.receive(stream, 1, libc::MSG_OOB).unwrap().data, b"!");
}

#[test]
fn a_broken_stream_is_epipe_and_no_signal() {
    let mut vcpu = alone();
    let (stream, _peer) = connection(&mut vcpu);
    vcpu.shutdown(stream, libc::SHUT_WR).unwrap();
    // SAFETY: sets no handler. From here on SIGPIPE would end this process, tests and all.
    unsafe { signal(Signal::SIGPIPE, SigHandler::SigDfl) }.unwrap();
    assert_eq!(vcpu.send(stream, b"x", 0), Err(libc::EPIPE));
    assert_eq!(vcpu.shutdown(stream, 7), Err(libc::EINVAL));
}

#[test]
fn shutdown_and_close_are_seen_by_who_waits() {
    let mut vcpu = alone();
    let (stream, mut peer) = connection(&mut vcpu);
    vcpu.events();
    vcpu.shutdown(stream, libc::SHUT_RD).unwrap();
    let woken = vcpu.events();
    assert!(
        woken
            .iter()
            .any(|(handle, ready)| *handle == stream && ready & ready::RDHUP != 0),
        "own shutdown is an event: {woken:?}"
    );
    assert_eq!(vcpu.receive(stream, 1, 0).unwrap().value, 0);
    vcpu.close(stream).unwrap();
    let mut end = [0];
    assert_eq!(peer.read(&mut end).unwrap(), 0);
    assert_eq!(vcpu.state(stream), (0, 0));
}

#[test]
fn shutdown_of_a_listener_wakes_accept() {
    let mut vcpu = alone();
    let (listener, address) = listening(&mut vcpu);
    vcpu.events();
    vcpu.shutdown(listener, libc::SHUT_RD).unwrap();
    assert!(vcpu.events().iter().any(|(handle, _)| *handle == listener));
    assert_eq!(vcpu.accept(listener), Err(libc::EINVAL));
    assert!(TcpStream::connect(address).is_err());
}

/// close(2) itself would wait an hour here: the peer does not read.
#[test]
fn close_does_not_linger() {
    let mut vcpu = alone();
    let (stream, peer) = connection(&mut vcpu);
    let linger = [1_i32.to_ne_bytes(), 3600_i32.to_ne_bytes()].concat();
    vcpu.set(stream, libc::SOL_SOCKET, libc::SO_LINGER, &linger)
        .unwrap();
    assert_eq!(
        vcpu.get(stream, libc::SOL_SOCKET, libc::SO_LINGER, 8),
        Ok(linger)
    );
    let block = vec![0; 50_000];
    while vcpu.send(stream, &block, 0).is_ok() {}
    vcpu.close(stream).unwrap();
    drop(peer);
}

#[test]
fn a_linger_time_of_zero_resets() {
    let mut vcpu = alone();
    let (stream, mut peer) = connection(&mut vcpu);
    let linger = [1_i32.to_ne_bytes(), 0_i32.to_ne_bytes()].concat();
    vcpu.set(stream, libc::SOL_SOCKET, libc::SO_LINGER, &linger)
        .unwrap();
    vcpu.close(stream).unwrap();
    let error = peer.read(&mut [0]).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset);
}

#[test]
fn a_device_that_goes_takes_its_connections_along() {
    let mut vcpu = alone();
    let (_stream, mut peer) = connection(&mut vcpu);
    drop(vcpu);
    assert_eq!(peer.read(&mut [0]).unwrap(), 0);
}
