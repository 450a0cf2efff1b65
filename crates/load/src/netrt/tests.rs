//! Client against server and against misbehaving peers, on loopback.

use super::wire::{Header, make_reply};
use super::*;
use nix::sys::socket::{setsockopt, sockopt::RcvBuf};
use std::net::UdpSocket;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

/// Far above any scheduling delay of a busy machine: a reply sent at once is never late.
const TIMEOUT: Duration = Duration::from_secs(3);

fn quick(requests: u64) -> ClientOptions {
    ClientOptions {
        seed: 11,
        intervals: Intervals {
            shortest: Duration::from_micros(100),
            longest: Duration::from_millis(1),
        },
        warmup: 10,
        end: End::Requests(requests),
        timeout: TIMEOUT,
        ..ClientOptions::default()
    }
}

/// A peer's socket and a client's, connected to it.
fn pair() -> (UdpSocket, UdpSocket) {
    let peer = UdpSocket::bind("127.0.0.1:0").unwrap();
    let client = UdpSocket::bind("127.0.0.1:0").unwrap();
    client.connect(peer.local_addr().unwrap()).unwrap();
    // Room for all datagrams of a test, should either end get no CPU for as long as it lasts.
    for socket in [&peer, &client] {
        setsockopt(socket, RcvBuf, &(1 << 20)).unwrap();
    }
    (peer, client)
}

fn run_quietly(socket: &UdpSocket, options: &ClientOptions) -> ClientRun {
    run(socket, options, &AtomicBool::new(false), &mut |_| {}).unwrap()
}

/// Runs `behave` for each request until the client is done; it gets the peer's socket, the request
/// as received, the reply it should get, and the client's address.
fn against(
    options: &ClientOptions,
    mut behave: impl FnMut(&UdpSocket, Header, &[u8], std::net::SocketAddr) + Send,
) -> ClientRun {
    let (peer, client) = pair();
    let end = UdpSocket::bind("127.0.0.1:0").unwrap();
    let peer_address = peer.local_addr().unwrap();
    thread::scope(|scope| {
        scope.spawn(move || {
            let mut datagram = vec![0; MAXIMUM_PAYLOAD_BYTES];
            loop {
                let (length, from) = peer.recv_from(&mut datagram).unwrap();
                let Some(request) = Header::read_request(&datagram[..length]) else {
                    return;
                };
                make_reply(&mut datagram[..length]);
                behave(&peer, request, &datagram[..length], from);
            }
        });
        let result = run(&client, options, &AtomicBool::new(false), &mut |_| {});
        end.send_to(b"end", peer_address).unwrap();
        result.unwrap()
    })
}

#[test]
fn server_and_client_measure_every_request() {
    let (server, client) = pair();
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let server = scope.spawn(|| serve(&server, &stop).unwrap());
        let mut told = Vec::new();
        let measured = run(
            &client,
            &quick(300),
            &AtomicBool::new(false),
            &mut |progress| {
                told.push(progress);
            },
        );
        stop.store(true, Ordering::Relaxed);
        let measured = measured.unwrap();

        assert_eq!(measured.ended_by, EndedBy::Done);
        assert_eq!(measured.samples.len(), 300);
        assert_eq!(measured.counters.answered, 300);
        assert_eq!(measured.counters.lost + measured.counters.undecided, 0);
        assert_eq!(measured.counters.warmup_answered, 10);
        let sequences: Vec<u64> = measured
            .samples
            .iter()
            .map(|sample| sample.sequence)
            .collect();
        assert_eq!(sequences, (10..310).collect::<Vec<_>>());
        assert!(measured.samples.iter().all(|sample| sample.rtt_ns > 0));
        assert!(measured.samples.is_sorted_by_key(|sample| sample.sent_ns));
        // The kernel does stamp on loopback; a stray sample may have had to fall back.
        assert!(
            measured.counters.timed_by_kernel >= 290,
            "{:?}",
            measured.counters
        );
        assert!(!told.is_empty() && told.is_sorted_by_key(|progress| progress.elapsed_ns));
        let server = server.join().unwrap();
        assert_eq!((server.answered, server.malformed), (310, 0));
    });
}

#[test]
fn the_server_ignores_and_counts_what_is_no_request() {
    let (server, client) = pair();
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let server = scope.spawn(|| serve(&server, &stop).unwrap());
        let mut reply = [0; HEADER_BYTES];
        Header {
            run: 1,
            sequence: 1,
            sent_ns: 1,
        }
        .write_request(&mut reply);
        make_reply(&mut reply);
        for garbage in [&b""[..], b"x", &[0xff; 2_000], &reply, &reply[..31]] {
            client.send(garbage).unwrap();
        }
        // Answered after the garbage, by the same thread: then the garbage has been read.
        let measured = run(&client, &quick(20), &AtomicBool::new(false), &mut |_| {});
        stop.store(true, Ordering::Relaxed);
        assert_eq!(measured.unwrap().counters.answered, 20);
        let server = server.join().unwrap();
        assert_eq!((server.answered, server.malformed), (30, 5));
    });
}

#[test]
fn drops_duplicates_reorders_and_garbage_are_counted_exactly() {
    let mut held: Option<Vec<u8>> = None;
    let measured = against(&quick(200), |peer, request, reply, client| {
        let answer = |bytes: &[u8]| {
            peer.send_to(bytes, client).unwrap();
        };
        match request.sequence % 20 {
            1 => {}                                  // dropped: 10 of 200
            3 => (0..3).for_each(|_| answer(reply)), // 2 duplicates each: 20
            // Two requests answered backwards: 10 overtaken.
            5 => held = Some(reply.to_vec()),
            6 => {
                answer(reply);
                answer(&held.take().unwrap());
            }
            8 => {
                let mut wrong_sequence = reply.to_vec();
                wrong_sequence[16..24].copy_from_slice(&u64::MAX.to_be_bytes());
                let mut wrong_magic = reply.to_vec();
                wrong_magic[0] = b'X';
                let mut too_long = reply.to_vec();
                too_long.push(0);
                let mut request_itself = reply.to_vec();
                request_itself[5] = 0;
                answer(b"");
                answer(b"garbage");
                answer(&reply[..reply.len() - 1]);
                for wrong in [wrong_sequence, wrong_magic, too_long, request_itself] {
                    answer(&wrong);
                }
                answer(reply);
            }
            10 => {
                let mut other_run = reply.to_vec();
                other_run[8] ^= 1;
                answer(&other_run);
                answer(reply);
            }
            _ => answer(reply),
        }
    });

    // Sequences 10 to 209 are counted; garbage and foreign replies are counted in the warm-up
    // too: sequence 8 of it gives 7 more.
    let counters = measured.counters;
    assert_eq!(counters.requests, 200);
    assert_eq!(counters.answered, 190);
    assert_eq!(counters.lost, 10);
    assert_eq!(counters.undecided, 0);
    assert_eq!(counters.late, 0);
    assert_eq!(counters.duplicates, 20);
    assert_eq!(counters.reordered, 10);
    assert_eq!(counters.malformed, 7 * 11);
    assert_eq!(counters.foreign, 10);
    assert_eq!(
        (counters.warmup_requests, counters.warmup_answered),
        (10, 9)
    );
    assert_eq!(measured.samples.len(), 190);
    assert!(
        measured
            .samples
            .iter()
            .all(|sample| sample.sequence % 20 != 1)
    );
}

#[test]
fn a_reply_after_the_timeout_is_late_and_its_request_lost() {
    let timeout = Duration::from_millis(700);
    let options = ClientOptions {
        // One second of requests, so that the held reply is released while the run lasts.
        intervals: Intervals {
            shortest: Duration::from_millis(9),
            longest: Duration::from_millis(10),
        },
        timeout,
        ..quick(130)
    };
    let mut held: Option<(u64, Vec<u8>)> = None;
    let measured = against(&options, |peer, request, reply, client| {
        if request.sequence == 15 {
            held = Some((request.sent_ns, reply.to_vec()));
            return;
        }
        // The client's own clock, in the requests, says when the held one is late: no sleep here.
        let timeout_ns = timeout.as_nanos() as u64;
        if let Some((_, late)) =
            held.take_if(|(sent_ns, _)| request.sent_ns > *sent_ns + timeout_ns)
        {
            peer.send_to(&late, client).unwrap();
        }
        peer.send_to(reply, client).unwrap();
    });
    let counters = measured.counters;
    assert_eq!(
        (counters.answered, counters.lost, counters.late),
        (129, 1, 1)
    );
    assert_eq!((counters.reordered, counters.duplicates), (0, 0));
}

#[test]
fn a_slow_reply_does_not_delay_later_requests() {
    // Nothing is answered before the last request has come: a closed loop would never get there.
    let mut held = Vec::new();
    let options = quick(50);
    let measured = against(&options, |peer, request, reply, client| {
        held.push(reply.to_vec());
        if request.sequence == 59 {
            for reply in &held {
                peer.send_to(reply, client).unwrap();
            }
        }
    });
    assert_eq!(
        (measured.counters.answered, measured.counters.lost),
        (50, 0)
    );
}

#[test]
fn a_dead_server_loses_every_request_and_ends() {
    let (peer, client) = pair();
    drop(peer);
    let options = ClientOptions {
        timeout: Duration::from_millis(50),
        ..quick(40)
    };
    let measured = run_quietly(&client, &options);
    assert_eq!(
        (measured.counters.answered, measured.counters.lost),
        (0, 40)
    );
    assert!(measured.counters.refusals > 0);
    assert_eq!(measured.ended_by, EndedBy::Done);
}

#[test]
fn the_limit_ends_a_run_that_gets_no_samples() {
    let (peer, client) = pair();
    let options = ClientOptions {
        end: End::Samples(1),
        limit: Some(Duration::from_millis(50)),
        timeout: Duration::from_millis(20),
        ..quick(1)
    };
    let measured = run_quietly(&client, &options);
    assert_eq!(measured.ended_by, EndedBy::Limit);
    assert!(measured.samples.is_empty());
    assert!(measured.counters.lost > 0);
    drop(peer);
}

#[test]
fn samples_and_time_end_a_run_too() {
    let by_samples = ClientOptions {
        end: End::Samples(30),
        ..quick(1)
    };
    let reply_at_once = |peer: &UdpSocket, _: Header, reply: &[u8], client| {
        peer.send_to(reply, client).unwrap();
    };
    let measured = against(&by_samples, reply_at_once);
    assert!(measured.samples.len() >= 30);
    assert_eq!(measured.counters.lost, 0);

    let by_time = ClientOptions {
        end: End::After(Duration::from_millis(30)),
        ..quick(1)
    };
    let measured = against(&by_time, reply_at_once);
    // 30 ms of intervals of 0.1 to 1 ms.
    assert!(
        (30..=300).contains(&measured.counters.requests),
        "{:?}",
        measured.counters
    );
    assert_eq!(measured.counters.lost, 0);
}

#[test]
fn the_stop_flag_ends_a_run_at_once() {
    let (peer, client) = pair();
    let stop = AtomicBool::new(false);
    let options = ClientOptions {
        end: End::Requests(u64::MAX),
        ..quick(1)
    };
    // No reply ever comes: a run that waited for them would need the timeout.
    let measured = run(&client, &options, &stop, &mut |progress| {
        stop.store(progress.requests > 0, Ordering::Relaxed);
    })
    .unwrap();
    assert_eq!(measured.ended_by, EndedBy::Stopped);
    assert!(measured.duration_ns < TIMEOUT.as_nanos() as u64);
    assert!(measured.counters.undecided > 0);
    assert_eq!((measured.counters.lost, measured.counters.answered), (0, 0));
    drop(peer);
}

#[test]
fn impossible_options_and_sockets_are_refused_with_a_reason() {
    let (_peer, client) = pair();
    let reason = |options: ClientOptions| {
        let error = run(&client, &options, &AtomicBool::new(false), &mut |_| {}).unwrap_err();
        assert!(matches!(error, ClientError::Options(_)), "{error}");
        error.to_string()
    };
    assert!(
        reason(ClientOptions {
            payload_bytes: 31,
            ..quick(1)
        })
        .contains("32")
    );
    assert!(
        reason(ClientOptions {
            payload_bytes: usize::MAX,
            ..quick(1)
        })
        .contains("65507")
    );
    assert!(reason(quick(0)).contains("at least one"));
    assert!(
        reason(ClientOptions {
            timeout: Duration::ZERO,
            ..quick(1)
        })
        .contains("timeout")
    );
    let swapped = Intervals {
        shortest: Duration::from_secs(2),
        longest: Duration::from_secs(1),
    };
    assert!(
        reason(ClientOptions {
            intervals: swapped,
            ..quick(1)
        })
        .contains("swap")
    );
    let zero = Intervals {
        shortest: Duration::ZERO,
        longest: Duration::ZERO,
    };
    assert!(
        reason(ClientOptions {
            intervals: zero,
            ..quick(1)
        })
        .contains("flood")
    );

    let unconnected = UdpSocket::bind("127.0.0.1:0").unwrap();
    let error = run(
        &unconnected,
        &quick(1),
        &AtomicBool::new(false),
        &mut |_| {},
    )
    .unwrap_err();
    assert!(matches!(error, ClientError::NotConnected(_)), "{error}");
}

#[test]
fn the_largest_payload_makes_the_round_trip() {
    // One at a time: a few of them fill a socket's buffer.
    let options = ClientOptions {
        payload_bytes: MAXIMUM_PAYLOAD_BYTES,
        warmup: 0,
        ..quick(1)
    };
    let measured = against(&options, |peer, _, reply, client| {
        assert_eq!(reply.len(), MAXIMUM_PAYLOAD_BYTES);
        peer.send_to(reply, client).unwrap();
    });
    assert_eq!((measured.counters.answered, measured.counters.lost), (1, 0));
}
