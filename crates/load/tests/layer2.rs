//! Sampled Values and GOOSE over a pair of devices in a network namespace of the test's own. Needs root.

#![allow(clippy::unwrap_used)] // a test's helper fails by panicking, as the test itself does

use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use nix::sched::{CloneFlags, unshare};
use steadyvm_load::layer2::{
    Frame, Limits, Mark, PacketSocket, Protocol, Publication, SampledValues, Tag, TallyReport,
    marked, publish, stream_name, subscribe,
};

/// Nothing here takes that long.
const PATIENCE: Duration = Duration::from_secs(60);
const SAMPLED_VALUES: Publication = Publication::SampledValues { per_second: 4000 };

/// `ip WORDS`, in the namespace of the calling thread.
fn ip(words: &str) {
    let done = Command::new("ip").args(words.split(' ')).output().unwrap();
    let said = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success(), "ip {words}: {said}");
}

/// Works in a thread with a network namespace of its own, where `merging` is joined to `relay`.
fn in_namespace(work: impl FnOnce() + Send) {
    thread::scope(|scope| {
        let inside = scope.spawn(|| {
            unshare(CloneFlags::CLONE_NEWNET).unwrap();
            ip("link add merging type veth peer name relay");
            ip("link set merging up");
            ip("link set relay up");
            work();
        });
        inside.join().unwrap();
    });
}

fn addresses(protocol: Protocol) -> Vec<[u8; 6]> {
    (1..=8).map(|stream| protocol.destination(stream)).collect()
}

/// What `relay` has got of so many frames of ours that `send` sends, and the frames.
fn received(protocol: Protocol, frames: u64, send: impl FnOnce()) -> (TallyReport, Vec<Vec<u8>>) {
    let socket = PacketSocket::receiving("relay", protocol, addresses(protocol)).unwrap();
    send();
    let limits = Limits {
        duration: PATIENCE,
        frames: Some(frames),
    };
    let mut kept = Vec::new();
    let mut keep = |_, frame: &[u8]| {
        kept.push(frame.to_vec());
        Ok(())
    };
    let tally = subscribe(&socket, &limits, &AtomicBool::new(false), &mut keep).unwrap();
    (tally.report(), kept)
}

#[test]
fn every_sample_of_every_stream_comes_in_order_with_its_time() {
    in_namespace(|| {
        let sender = PacketSocket::sending("merging").unwrap();
        let protocol = Protocol::SampledValues;
        let mut published = None;
        let (report, frames) = received(protocol, 8 * 1000, || {
            let duration = Duration::from_millis(250);
            let never = AtomicBool::new(false);
            let sent = publish(&sender, &SAMPLED_VALUES, 8, None, duration, &never);
            published = Some(sent.unwrap());
        });
        let published = published.unwrap();
        assert_eq!((published.sent, published.refused), (8000, 0));
        assert_eq!((report.foreign, report.malformed), (0, 0));
        let names: Vec<&str> = report.streams.iter().map(|it| it.name.as_str()).collect();
        let expected: Vec<String> = (1..=8).map(stream_name).collect();
        assert_eq!(names, expected);
        for stream in &report.streams {
            let counts = (
                stream.received,
                stream.lost,
                stream.duplicates,
                stream.out_of_order,
            );
            assert_eq!(counts, (1000, 0, 0, 0), "{stream:?}");
            assert_eq!(stream.clock_behind, 0);
            let latency = stream.latency.as_ref().unwrap();
            assert!(latency.p50_us > 0.0 && latency.p50_us <= latency.longest_us);
            assert!(stream.longest_gap_us > 0.0);
        }
        let last = Frame::parse(&frames[7999]).unwrap();
        assert_eq!(last.source, sender.address);
        assert_eq!((last.app_id, last.destination[3]), (0x4008, 4));
        let sample = SampledValues::parse(last.unit, |_| false).unwrap();
        assert_eq!((sample.id, sample.sample), ("steadyvm08", 999));
    });
}

#[test]
fn events_are_repeated_and_counted_by_the_flag() {
    in_namespace(|| {
        let sender = PacketSocket::sending("merging").unwrap();
        let ms = Duration::from_millis;
        let events = Publication::Goose {
            shortest: ms(1),
            longest: ms(8),
            events_apart: ms(20),
        };
        let stop = AtomicBool::new(false);
        thread::scope(|scope| {
            let publisher = scope.spawn(|| publish(&sender, &events, 2, None, PATIENCE, &stop));
            let (report, _) = received(Protocol::Goose, 40, || ());
            stop.store(true, Ordering::Relaxed);
            let sent = publisher.join().unwrap().unwrap();
            assert!(sent.sent >= 40 && sent.duration_s < PATIENCE.as_secs_f64());
            for stream in &report.streams {
                assert_eq!((stream.lost, stream.out_of_order), (0, 0), "{stream:?}");
            }
        });
    });
}

#[test]
fn what_is_lost_doubled_late_foreign_or_damaged_is_counted_exactly() {
    in_namespace(|| {
        let sender = PacketSocket::sending("merging").unwrap();
        let protocol = Protocol::SampledValues;
        let send = |id: &str, sequence: u64, damage: bool, tag: Option<Tag>| {
            let sample = SampledValues {
                id,
                sample: sequence as u16,
                revision: 1,
                synchronised: 0,
                mark: Some(Mark {
                    sequence,
                    sent_ns: 1,
                }),
            };
            let mut unit = sample.to_bytes();
            if damage {
                unit[1] = 0xff;
            }
            let frame = Frame {
                source: sender.address,
                destination: protocol.destination(1),
                tag,
                protocol,
                app_id: protocol.app_id(1),
                unit: &unit,
            };
            sender.send(&frame.to_bytes().unwrap()).unwrap();
        };
        let priority = Some(Tag {
            vlan: 0,
            priority: 4,
        });
        let (report, frames) = received(protocol, 6, || {
            send("steadyvm01", 0, false, None);
            send("steadyvm01", 2, false, priority);
            send("steadyvm01", 1, false, None);
            send("steadyvm01", 1, false, None);
            send("MU01", 3, false, None);
            send("steadyvm01", 4, true, None);
            send("steadyvm01", 9, false, None);
            send("steadyvm01", 10, false, None);
        });
        let stream = &report.streams[0];
        let counts = (
            stream.received,
            stream.lost,
            stream.duplicates,
            stream.out_of_order,
        );
        assert_eq!(counts, (5, 6, 1, 1));
        assert_eq!((report.foreign, report.malformed), (1, 1));
        assert_eq!(
            marked(&frames[1]).unwrap().unwrap().1.sequence,
            2,
            "with a tag"
        );
    });
}

#[test]
fn other_protocols_and_other_interfaces_are_not_heard_and_a_wrong_interface_is_refused() {
    in_namespace(|| {
        let error = PacketSocket::sending("absent").unwrap_err();
        assert_eq!(error.raw_os_error(), Some(nix::libc::ENODEV));
        ip("link add other type veth peer name far");
        ip("link set other up");
        ip("link set far up");
        let goose = PacketSocket::receiving("relay", Protocol::Goose, []).unwrap();
        let never = AtomicBool::new(false);
        let ms = Duration::from_millis(2);
        for interface in ["merging", "other"] {
            let sender = PacketSocket::sending(interface).unwrap();
            publish(&sender, &SAMPLED_VALUES, 1, None, ms, &never).unwrap();
        }
        let events = Publication::Goose {
            shortest: ms,
            longest: ms,
            events_apart: ms,
        };
        let other = PacketSocket::sending("other").unwrap();
        publish(&other, &events, 1, None, ms, &never).unwrap();
        // What was sent has come: a device of this kind hands a frame on before it answers the sender.
        let mut buffer = [0; 2048];
        let mine = PacketSocket::sending("merging").unwrap();
        publish(&mine, &events, 1, None, ms, &never).unwrap();
        goose.wait(PATIENCE).unwrap();
        let length = goose.receive(&mut buffer).unwrap().unwrap();
        let frame = Frame::parse(&buffer[..length]).unwrap();
        assert_eq!(
            (frame.protocol, frame.source),
            (Protocol::Goose, mine.address)
        );
        assert_eq!(goose.receive(&mut buffer).unwrap(), None);
    });
}
