//! The state table (level), the event ring (edges), and the idle call.

use std::io::Write;
use std::net::UdpSocket;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use steadyvm_sockets::abi::{WAIT_RECEIVED, ready};

use crate::guest::{Guest, NOBODY, RING_ENTRIES, alone, patient};
use crate::streams::{connection, listening};

#[test]
fn the_state_table_follows_every_operation() {
    let mut vcpu = alone();
    let socket = vcpu.datagram();
    let generation = (socket >> 32) as u32;
    assert_ne!(generation, 0);
    assert_eq!(vcpu.state(socket), (generation, ready::OUT));
    vcpu.bind(socket, "127.0.0.1:0").unwrap();
    let address = vcpu.local(socket).unwrap();
    let peer = UdpSocket::bind("127.0.0.1:0").unwrap();
    for round in 0..2 {
        peer.send_to(&[round], address).unwrap();
        vcpu.idle_until(socket, ready::IN);
        assert_eq!(vcpu.state(socket), (generation, ready::IN | ready::OUT));
    }
    // The first leaves one behind, the second does not.
    assert_eq!(
        vcpu.receive(socket, 1, 0).unwrap().ready,
        ready::IN | ready::OUT
    );
    assert_eq!(vcpu.receive(socket, 1, 0).unwrap().ready, ready::OUT);
    assert_eq!(vcpu.state(socket), (generation, ready::OUT));
    vcpu.close(socket).unwrap();
    assert_eq!(vcpu.state(socket), (0, 0));
}

#[test]
fn every_arrival_is_one_event_and_silence_is_none() {
    let mut vcpu = alone();
    let (stream, mut peer) = connection(&mut vcpu);
    vcpu.events();
    for _ in 0..3 {
        peer.write_all(b"x").unwrap();
        vcpu.wait(None).unwrap();
        // Nothing was read in between: a level would be silent, an edge is not.
        let events = vcpu.events();
        assert_eq!(events.len(), 1, "{events:?}");
        assert_eq!(events[0].0, stream);
        assert_ne!(events[0].1 & ready::IN, 0);
        assert_eq!(vcpu.harvest(), Ok(0), "told once");
    }
    assert_eq!(
        vcpu.state(stream).1 & ready::IN,
        ready::IN,
        "the level stays"
    );
}

/// Who blocks leaves the receive to the wait: all of one datagram, or nothing of it.
#[test]
fn a_wait_receives_what_fits_for_who_blocks() {
    let mut vcpu = alone();
    let socket = vcpu.datagram();
    vcpu.bind(socket, "127.0.0.1:0").unwrap();
    let address = vcpu.local(socket).unwrap();
    let peer = UdpSocket::bind("127.0.0.1:0").unwrap();
    vcpu.events();
    for (sent, room) in [
        (0, 0),
        (0, 9),
        (1, 1),
        (9, 8),
        (9, 9),
        (1500, 1499),
        (1500, 1500),
    ] {
        let data: Vec<u8> = (0..sent).map(|at| at as u8).collect();
        peer.send_to(&data, address).unwrap();
        let reply = vcpu.wait_to_receive(socket, room, 0).unwrap();
        assert_eq!(
            reply.value & !WAIT_RECEIVED,
            1,
            "the arrival is an event as well"
        );
        assert_eq!(vcpu.events().len(), 1);
        if data.len() <= room {
            assert_eq!(reply.value & WAIT_RECEIVED, WAIT_RECEIVED);
            assert_eq!((&reply.data, reply.ready), (&data, ready::OUT));
            assert_eq!(reply.address(), peer.local_addr().unwrap());
        } else {
            assert_eq!((reply.value, &reply.data), (1, &vec![]));
            assert_eq!(vcpu.receive(socket, 2000, 0).unwrap().data, data);
        }
        assert_eq!(vcpu.state(socket).1, ready::OUT, "nothing is left");
    }
}

/// Datagrams arrive, of all lengths, while one VCPU waits with little room and another receives: whoever
/// gets one gets all of it. Each says its own length.
#[test]
fn what_a_wait_receives_is_whole_while_others_receive_and_more_arrives() {
    const DATAGRAMS: usize = 60_000;
    let guest = Guest::new(patient(), 2);
    let (mut waiting, mut other) = (guest.vcpu(0), guest.vcpu(1));
    for vcpu in [&mut waiting, &mut other] {
        vcpu.set_up();
    }
    let socket = waiting.datagram();
    waiting.bind(socket, "127.0.0.1:0").unwrap();
    let address = waiting.local(socket).unwrap();
    waiting.events();
    let peer = UdpSocket::bind("127.0.0.1:0").unwrap();
    let (received, failed) = (AtomicUsize::new(0), AtomicBool::new(false));
    let check = |data: &[u8]| {
        let said = data.first().map_or(0, |length| usize::from(*length));
        if said != data.len() {
            failed.store(true, Ordering::SeqCst);
        }
        received.fetch_add(1, Ordering::SeqCst);
    };
    let is_over = || received.load(Ordering::SeqCst) == DATAGRAMS || failed.load(Ordering::SeqCst);
    thread::scope(|scope| {
        scope.spawn(|| {
            for number in 0..DATAGRAMS {
                let length = number * 7 % 256;
                let sent = peer.send_to(&vec![length as u8; length], address);
                if sent.is_err() {
                    // Nobody waits for it.
                    failed.store(true, Ordering::SeqCst);
                }
                // So few that none is dropped.
                while received.load(Ordering::SeqCst) + 8 < number && !is_over() {
                    thread::yield_now();
                }
            }
        });
        scope.spawn(|| {
            while !is_over() {
                match other.receive(socket, 256, 0) {
                    Ok(reply) => check(&reply.data),
                    Err(error) => assert_eq!(error, libc::EAGAIN),
                }
                thread::yield_now();
            }
        });
        while !is_over() {
            let reply = waiting.wait_to_receive(socket, 100, 0).unwrap();
            waiting.events();
            if reply.value & WAIT_RECEIVED != 0 {
                check(&reply.data);
            } else if let Ok(reply) = waiting.receive(socket, 256, 0) {
                check(&reply.data);
            }
        }
    });
    assert!(!failed.load(Ordering::SeqCst));
}

#[test]
fn a_wait_for_another_socket_receives_nothing_and_a_failure_is_told() {
    let mut vcpu = alone();
    let (waiting, other) = (vcpu.datagram(), vcpu.datagram());
    vcpu.bind(other, "127.0.0.1:0").unwrap();
    let address = vcpu.local(other).unwrap();
    vcpu.bind(waiting, "127.0.0.1:0").unwrap();
    let peer = UdpSocket::bind("127.0.0.1:0").unwrap();
    vcpu.events();
    peer.send_to(b"x", address).unwrap();
    let reply = vcpu.wait_to_receive(waiting, 9, 0).unwrap();
    assert_eq!((reply.value, reply.data), (1, vec![]));
    assert_eq!(vcpu.events()[0].0, other);
    // A refusal is what a receive would fail with.
    vcpu.connect(waiting, NOBODY).unwrap();
    vcpu.send_to(waiting, b"x", "").unwrap();
    // That the datagram has left is an event as well, and may come first.
    let reply = loop {
        let reply = vcpu.call_to_wait(waiting, 9, 0);
        vcpu.events();
        if reply.value & WAIT_RECEIVED != 0 {
            break reply;
        }
        assert_eq!(reply.error, 0);
    };
    assert_eq!(reply.error, libc::ECONNREFUSED);
    let again = vcpu.wait_to_receive(waiting, 9, 0).unwrap();
    assert_eq!(again.value & WAIT_RECEIVED, 0, "an error is told once");
    vcpu.events();
    // What the guest gets wrong.
    vcpu.close(waiting).unwrap();
    assert_eq!(vcpu.call_to_wait(waiting, 9, 0).error, libc::EBADF);
    let again = vcpu.call_to_wait(other, 9, libc::MSG_NOSIGNAL << 8);
    assert_eq!(
        (again.error, again.value),
        (0, 0),
        "nothing happened: nothing was tried"
    );
    let peer = UdpSocket::bind("127.0.0.1:0").unwrap();
    peer.send_to(b"x", address).unwrap();
    let bad = vcpu.call_to_wait(other, 9, i32::MIN);
    assert_eq!((bad.error, bad.value), (libc::EINVAL, 1 | WAIT_RECEIVED));
}

#[test]
fn a_short_wait_ends_without_events() {
    let mut vcpu = alone();
    let socket = vcpu.datagram();
    vcpu.bind(socket, "127.0.0.1:0").unwrap();
    vcpu.harvest().unwrap();
    vcpu.events();
    assert_eq!(vcpu.wait(Some(Duration::from_micros(200))), Ok(0));
    assert_eq!(vcpu.wait(Some(Duration::ZERO)), Ok(0));
}

#[test]
fn a_doorbell_ends_a_wait_of_another_vcpu_before_and_during_it() {
    let guest = Guest::new(patient(), 2);
    let (mut asleep, mut other) = (guest.vcpu(0), guest.vcpu(1));
    asleep.set_up();
    // Before: it is not lost, not even when events are asked for in between.
    other.wake(0).unwrap();
    assert_eq!(asleep.harvest(), Ok(0));
    assert_eq!(asleep.wait(None), Ok(0));
    // During, or before again: the order of two threads is not ours to choose.
    let (began, begins) = mpsc::channel();
    let sleeper = thread::spawn(move || {
        began.send(()).unwrap();
        asleep.wait(None)
    });
    begins.recv().unwrap();
    guest.device.wake(0);
    assert_eq!(sleeper.join().unwrap(), Ok(0));
    assert_eq!(other.wake(2), Err(libc::EINVAL));
    guest.device.wake(2);
}

/// A datagram that has left is no news for who found room before it, and is for who did not.
#[test]
fn room_for_datagrams_is_an_event_after_there_was_none() {
    let mut vcpu = alone();
    let socket = vcpu.datagram();
    let peer = UdpSocket::bind("127.0.0.1:0").unwrap();
    let to = peer.local_addr().unwrap().to_string();
    vcpu.connect(socket, &to).unwrap();
    // The kernel's smallest: one larger datagram uses more than half of it.
    vcpu.set_int(socket, libc::SOL_SOCKET, libc::SO_SNDBUF, 0)
        .unwrap();
    for _ in 0..2 {
        while vcpu.harvest().unwrap() > 0 {
            vcpu.events();
        }
        vcpu.send(socket, b"it leaves at once", 0).unwrap();
        assert_eq!(vcpu.harvest(), Ok(0));

        // Kept, and charged, until more comes.
        vcpu.send(socket, &[0; 2000], libc::MSG_MORE).unwrap();
        assert_eq!(vcpu.state(socket).1 & ready::OUT, 0);
        assert_eq!(vcpu.harvest(), Ok(0));
        vcpu.send(socket, b"x", 0).unwrap();
        assert_ne!(vcpu.state(socket).1 & ready::OUT, 0);
        assert_eq!(vcpu.harvest(), Ok(1));
        let (told, what) = vcpu.events()[0];
        assert_eq!((told, what & ready::OUT), (socket, ready::OUT));
    }
}

/// The doorbell takes a place among what the host looks at, also where there is just one.
#[test]
fn a_rung_doorbell_hides_no_event() {
    let guest = Guest::new(patient(), 1);
    let mut vcpu = guest.vcpu(0);
    vcpu.set_up();
    let peer = UdpSocket::bind("127.0.0.1:0").unwrap();
    let addresses: Vec<_> = (0..RING_ENTRIES)
        .map(|_| {
            let socket = vcpu.datagram();
            vcpu.bind(socket, "127.0.0.1:0").unwrap();
            vcpu.local(socket).unwrap()
        })
        .collect();
    for already in [0, 1, 62, 63, 64, RING_ENTRIES - 1] {
        while vcpu.harvest().unwrap() > 0 {
            vcpu.events();
        }
        guest.device.wake(0);
        let (first, rest) = addresses.split_at(already as usize);
        for some in [first, rest] {
            for address in some {
                peer.send_to(b"x", address).unwrap();
            }
            let before = vcpu.harvest().unwrap();
            assert!(before >= some.len() as u64, "{before} of {}", some.len());
        }
        assert_eq!(vcpu.harvest(), Ok(RING_ENTRIES.into()));
        assert_eq!(vcpu.events().len(), RING_ENTRIES as usize);
        assert_eq!(vcpu.wait(None), Ok(0), "still rung");
    }
}

#[test]
fn a_ring_that_is_full_loses_nothing() {
    let mut vcpu = alone();
    let count = RING_ENTRIES as usize + 40;
    let peer = UdpSocket::bind("127.0.0.1:0").unwrap();
    let mut sockets = Vec::new();
    for _ in 0..count {
        let socket = vcpu.datagram();
        vcpu.bind(socket, "127.0.0.1:0").unwrap();
        let address = vcpu.local(socket).unwrap();
        peer.send_to(b"x", address).unwrap();
        sockets.push(socket);
    }
    let mut told = Vec::new();
    while sockets
        .iter()
        .any(|socket| !told.contains(&(*socket, ready::IN | ready::OUT)))
    {
        assert!(vcpu.wait(None).unwrap() <= u64::from(RING_ENTRIES));
        told.extend(vcpu.events());
    }
}

#[test]
fn a_steered_socket_tells_its_new_vcpu_only() {
    let guest = Guest::new(patient(), 2);
    let (mut old, mut new) = (guest.vcpu(0), guest.vcpu(1));
    old.set_up();
    new.set_up();
    let (stream, mut peer) = connection(&mut old);
    old.events();
    old.steer(stream, 1).unwrap();
    // What it is ready for already is an event there, so that nothing is lost on the way.
    new.wait(None).unwrap();
    assert_eq!(new.events(), [(stream, ready::OUT)]);
    peer.write_all(b"x").unwrap();
    new.idle_until(stream, ready::IN);
    assert_eq!(old.harvest(), Ok(0));
    assert_eq!(old.steer(stream, 2), Err(libc::EINVAL));
    // What it accepts stays with its VCPU, too.
    let (listener, address) = listening(&mut new);
    let _peer = std::net::TcpStream::connect(address).unwrap();
    new.idle_until(listener, ready::IN);
    let (accepted, _) = old.accept(listener).unwrap();
    new.idle_until(accepted, ready::OUT);
    new.harvest().unwrap();
    assert!(new.events().iter().any(|(handle, _)| *handle == accepted));
    assert_eq!(old.harvest(), Ok(0));
}

#[test]
fn a_closed_socket_is_told_no_more() {
    let mut vcpu = alone();
    let (stream, mut peer) = connection(&mut vcpu);
    vcpu.events();
    peer.write_all(b"x").unwrap();
    vcpu.close(stream).unwrap();
    vcpu.harvest().unwrap();
    assert!(vcpu.events().iter().all(|(handle, _)| *handle != stream));
}

#[test]
fn waiting_needs_a_ring() {
    let mut vcpu = Guest::new(patient(), 1).vcpu(0);
    assert_eq!(vcpu.wait(None), Err(libc::EINVAL));
    assert_eq!(vcpu.harvest(), Err(libc::EINVAL));
}
