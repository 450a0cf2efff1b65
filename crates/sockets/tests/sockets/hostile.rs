//! A guest that breaks every rule gets an error number or a broken queue, and writes nowhere else.

use std::fs::File;
use std::sync::Mutex;
use std::thread;
use std::time::Duration;

use nix::sched::{CloneFlags, setns};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use steadyvm_sockets::Limits;
use steadyvm_sockets::abi::{Request, op};
use vm_memory::{Bytes, GuestAddress};
use zerocopy::IntoBytes;

use crate::guest::{Call, Guest, QUEUE_SIZE, RING_ENTRIES, Vcpu, alone, message, patient};

const NEXT: u16 = 1;
const WRITE: u16 = 2;
const INDIRECT: u16 = 4;

/// An error number in an answer's place, or none where nothing was written.
fn answered(vcpu: &mut Vcpu, place: u64) -> Option<i32> {
    let (before, ..) = vcpu.used();
    vcpu.memory
        .write_slice(&[0xff; 32], GuestAddress(place))
        .unwrap();
    vcpu.ring(0);
    let (after, head, written) = vcpu.used();
    assert_eq!((after, head), (before.wrapping_add(1), 0), "given back");
    let error: i32 = vcpu.memory.read_obj(GuestAddress(place)).unwrap();
    assert_eq!(written != 0, error != -1);
    (written != 0).then_some(error)
}

fn request(op: u16) -> Request {
    Request {
        op: op.into(),
        ..Request::default()
    }
}

type Descriptor = (u64, u32, u16, u16);

// A table of cases.
#[allow(clippy::too_many_lines)]
#[test]
fn broken_chains_are_answered_or_given_back_empty() {
    let mut vcpu = alone();
    let memory_end = 0x80_0000;
    let (input, output) = (vcpu.base + 0x1_0000, vcpu.base + 0x2_0000);
    vcpu.memory
        .write_slice(request(op::HARVEST).as_bytes(), GuestAddress(input))
        .unwrap();
    let cases: &[(&str, &[Descriptor], Option<i32>)] = &[
        (
            "a good one",
            &[(input, 64, NEXT, 1), (output, 32, WRITE, 0)],
            Some(0),
        ),
        (
            "nothing readable",
            &[(output, 32, WRITE, 0)],
            Some(libc::EPROTO),
        ),
        ("nothing writable", &[(input, 64, 0, 0)], None),
        (
            "too short a request",
            &[(input, 63, NEXT, 1), (output, 32, WRITE, 0)],
            Some(libc::EPROTO),
        ),
        (
            "too long a request",
            &[(input, 65, NEXT, 1), (output, 32, WRITE, 0)],
            Some(libc::EPROTO),
        ),
        (
            "too short an answer",
            &[(input, 64, NEXT, 1), (output, 31, WRITE, 0)],
            None,
        ),
        (
            "too long an answer",
            &[(input, 64, NEXT, 1), (output, 33, WRITE, 0)],
            Some(libc::EPROTO),
        ),
        (
            "readable after writable",
            &[
                (input, 32, NEXT, 1),
                (output, 32, WRITE | NEXT, 2),
                (input, 32, 0, 0),
            ],
            Some(libc::EPROTO),
        ),
        (
            "a loop",
            &[(input, 64, NEXT, 1), (output, 32, WRITE | NEXT, 1)],
            Some(libc::EPROTO),
        ),
        (
            "a link beyond the table",
            &[(input, 64, NEXT, 1), (output, 32, WRITE | NEXT, 999)],
            Some(libc::EPROTO),
        ),
        (
            "outside of memory",
            &[(memory_end, 64, NEXT, 1), (output, 32, WRITE, 0)],
            None,
        ),
        (
            "across the end",
            &[(memory_end - 1, 64, NEXT, 1), (output, 32, WRITE, 0)],
            None,
        ),
        (
            "around the end of the world",
            &[(u64::MAX - 3, 64, NEXT, 1), (output, 32, WRITE, 0)],
            None,
        ),
        (
            "more than 4 GiB",
            &[(input, u32::MAX, NEXT, 1), (output, 32, WRITE, 0)],
            None,
        ),
        (
            "an answer outside",
            &[(input, 64, NEXT, 1), (memory_end, 32, WRITE, 0)],
            None,
        ),
        (
            "an empty piece",
            &[
                (input, 0, NEXT, 1),
                (input, 64, NEXT, 2),
                (output, 32, WRITE, 0),
            ],
            Some(0),
        ),
        (
            "an odd indirect table",
            &[(input, 64, NEXT, 1), (output, 17, INDIRECT, 0)],
            None,
        ),
        (
            "an indirect table outside",
            &[(input, 64, NEXT, 1), (memory_end, 32, INDIRECT, 0)],
            None,
        ),
    ];
    for (what, chain, expected) in cases {
        for (index, (address, len, flags, next)) in chain.iter().enumerate() {
            vcpu.descriptor(index as u16, *address, *len, *flags, *next);
        }
        assert_eq!(answered(&mut vcpu, output), *expected, "{what}");
    }
}

#[test]
fn indirect_tables_work_and_do_not_nest() {
    let mut vcpu = alone();
    let (input, output, table) = (
        vcpu.base + 0x1_0000,
        vcpu.base + 0x2_0000,
        vcpu.base + 0x3_0000,
    );
    vcpu.memory
        .write_slice(request(op::HARVEST).as_bytes(), GuestAddress(input))
        .unwrap();
    let entry = |vcpu: &Vcpu, index: u64, address: u64, len: u32, flags: u16, next: u16| {
        let mut bytes = address.to_le_bytes().to_vec();
        bytes.extend(len.to_le_bytes());
        bytes.extend(flags.to_le_bytes());
        bytes.extend(next.to_le_bytes());
        vcpu.memory
            .write_slice(&bytes, GuestAddress(table + index * 16))
            .unwrap();
    };
    entry(&vcpu, 0, input, 64, NEXT, 1);
    entry(&vcpu, 1, output, 32, WRITE, 0);
    vcpu.descriptor(0, table, 32, INDIRECT, 0);
    assert_eq!(answered(&mut vcpu, output), Some(0));
    entry(&vcpu, 1, table, 32, INDIRECT, 0);
    assert_eq!(answered(&mut vcpu, output), None);
    // 65,535 entries that go round and round, up to the limit.
    for index in 0..2000 {
        entry(&vcpu, index, input, 1, NEXT, index as u16 + 1);
    }
    entry(&vcpu, 2000, output, 32, WRITE, 0);
    vcpu.descriptor(0, table, 65_535 * 16, INDIRECT, 0);
    assert_eq!(
        answered(&mut vcpu, output),
        None,
        "the answer's place lies beyond the limit"
    );
}

#[test]
fn broken_rings_are_told_to_the_transport() {
    let mut vcpu = alone();
    // More available than there are entries.
    let index = GuestAddress(vcpu.base + 0x4000 + 2);
    vcpu.memory.write_obj(40_000_u16, index).unwrap();
    assert!(vcpu.channel.serve(&vcpu.memory).is_err());
    // A head beyond the table.
    let mut vcpu = alone();
    let slot = GuestAddress(vcpu.base + 0x4000 + 4 + 2 * 2);
    vcpu.memory.write_obj(9999_u16, slot).unwrap();
    let index = GuestAddress(vcpu.base + 0x4000 + 2);
    vcpu.memory.write_obj(3_u16, index).unwrap();
    let error = vcpu.channel.serve(&vcpu.memory).unwrap_err().to_string();
    assert!(error.contains("queue"), "{error}");
}

#[test]
fn lengths_that_lie_are_refused() {
    let mut vcpu = alone();
    let socket = vcpu.datagram();
    for (field, value, error) in [
        (16, 1_u32, libc::EPROTO),
        (16, 129, libc::EMSGSIZE),
        (16, u32::MAX, libc::EMSGSIZE),
        (20, 4097, libc::EMSGSIZE),
        (24, 1, libc::EPROTO),
        (24, u32::MAX, libc::EMSGSIZE),
        (28, 1, libc::EPROTO),
        (28, u32::MAX, libc::EMSGSIZE),
        (32, 4096, libc::EPROTO),
        (36, u32::MAX, libc::EMSGSIZE),
        (36, 1 << 20, libc::EPROTO),
        // Reserved fields.
        (0, 0x0001_000f, libc::EPROTO),
        (4, 1, libc::EPROTO),
    ] {
        let mut request = request(op::POLL);
        request.handle = socket.into();
        let bytes = request.as_mut_bytes();
        bytes[field..field + 4].copy_from_slice(&value.to_le_bytes());
        let reply = vcpu.exchange(request.as_bytes(), [0; 3]);
        assert_eq!(reply.error, error, "{field} {value:#x}");
    }
}

#[test]
fn arguments_that_are_no_ints_are_refused() {
    let mut vcpu = alone();
    let stream = vcpu.stream();
    let wide = 1_u64 << 32;
    let call = |op, arguments| Call {
        op,
        handle: stream,
        arguments,
        ..Call::default()
    };
    for (op, arguments) in [
        (op::LISTEN, [wide, 0, 0]),
        (op::SHUTDOWN, [wide, 0, 0]),
        (op::SETSOCKOPT, [wide | 1, 2, 0]),
        (op::GETSOCKOPT, [1, wide | 3, 0]),
        (op::SOCKET, [wide | 2, 1, 0]),
        (op::SEND, [wide, 0, 0]),
        (op::STEER, [wide, 0, 0]),
        (op::WAKE, [wide, 0, 0]),
    ] {
        assert_eq!(vcpu.call(&call(op, arguments)).error, libc::EINVAL, "{op}");
    }
    for op in [0, 22, u16::MAX] {
        assert_eq!(vcpu.call(&call(op, [0; 3])).error, libc::EOPNOTSUPP, "{op}");
    }
}

#[test]
fn places_outside_of_memory_take_no_tables() {
    let mut vcpu = alone();
    let end = 0x80_0000_u64;
    assert_eq!(vcpu.state_table(end), Err(libc::EFAULT));
    assert_eq!(
        vcpu.state_table(end - 8),
        Err(libc::EFAULT),
        "all of it must be memory"
    );
    assert_eq!(vcpu.state_table(u64::MAX - 7), Err(libc::EFAULT));
    assert_eq!(vcpu.state_table(4), Err(libc::EINVAL));
    for (address, entries, error) in [
        (end, 64, libc::EFAULT),
        (end - 128, 1, libc::EFAULT),
        (u64::MAX - 7, 64, libc::EFAULT),
        (4, 64, libc::EINVAL),
        (0x8000, 0, libc::EINVAL),
        (0x8000, 63, libc::EINVAL),
        (0x8000, 1 << 21, libc::EINVAL),
        (0x8000, 1 << 32 | 64, libc::EINVAL),
    ] {
        assert_eq!(
            vcpu.event_ring(address, entries),
            Err(error),
            "{address:#x} {entries}"
        );
    }
    // A table that is given up is written no more.
    vcpu.state_table(u64::MAX).unwrap();
    let socket = vcpu.datagram();
    assert_eq!(vcpu.state(socket), (0, 0));
    vcpu.event_ring(u64::MAX, 0).unwrap();
    assert_eq!(vcpu.harvest(), Err(libc::EINVAL));
}

#[test]
fn a_guest_that_lies_about_its_ring_harms_itself_only() {
    let mut vcpu = alone();
    let socket = vcpu.datagram();
    vcpu.harvest().unwrap();
    vcpu.set_consumed(12345);
    assert_eq!(vcpu.harvest(), Err(libc::EPROTO));
    assert_eq!(vcpu.wait(None), Err(libc::EPROTO), "and does not sleep");
    assert_eq!(vcpu.poll(socket), 4);
    vcpu.event_ring(vcpu.base + 0x6000, u64::from(RING_ENTRIES))
        .unwrap();
    assert_eq!(vcpu.harvest(), Ok(0));
}

#[test]
fn descriptors_of_the_host_are_never_passed() {
    let mut vcpu = alone();
    let socket = vcpu.datagram();
    for (level, kind) in [
        (libc::SOL_SOCKET, libc::SCM_RIGHTS),
        (libc::SOL_SOCKET, libc::SCM_CREDENTIALS),
    ] {
        let control = message(level, kind, &0_i32.to_ne_bytes());
        let sent = vcpu.send_message(socket, b"x", &control, "127.0.0.1:9");
        assert_eq!(sent, Err(libc::EINVAL));
    }
}

#[test]
fn a_long_queue_is_served_in_parts() {
    let limits = Limits {
        operations: QUEUE_SIZE,
        ..patient()
    };
    let mut vcpu = Guest::new(limits, 1).vcpu(0);
    vcpu.set_up();
    let (input, output) = (vcpu.base + 0x1_0000, vcpu.base + 0x2_0000);
    vcpu.memory
        .write_slice(request(op::HARVEST).as_bytes(), GuestAddress(input))
        .unwrap();
    vcpu.descriptor(0, input, 64, NEXT, 1);
    vcpu.descriptor(1, output, 32, WRITE, 0);
    // As many as the limit: the device cannot know whether there are more.
    let (before, ..) = vcpu.used();
    for slot in 0..64_u64 {
        let place = GuestAddress(vcpu.base + 0x4000 + 4 + slot * 2);
        vcpu.memory.write_obj(0_u16, place).unwrap();
    }
    let index: u16 = vcpu
        .memory
        .read_obj(GuestAddress(vcpu.base + 0x4000 + 2))
        .unwrap();
    vcpu.memory
        .write_obj(index.wrapping_add(64), GuestAddress(vcpu.base + 0x4000 + 2))
        .unwrap();
    let served = vcpu.channel.serve(&vcpu.memory).unwrap();
    assert_eq!((served.requests, served.more), (64, true));
    assert_eq!(vcpu.used().0, before.wrapping_add(64));
    let served = vcpu.channel.serve(&vcpu.memory).unwrap();
    assert_eq!((served.requests, served.more), (0, false));
}

/// Four VCPUs at once, on the same sockets: what is published at the end is true, and what was closed
/// stays closed.
#[test]
fn vcpus_that_race_for_sockets_end_in_a_state_that_is_true() {
    const VCPUS: u16 = 4;
    const SOCKETS: usize = 8;
    let limits = Limits {
        sockets: 32,
        longest_wait: Duration::from_micros(50),
        ..patient()
    };
    let guest = Guest::new(limits, VCPUS);
    let mut vcpus: Vec<Vcpu> = (0..VCPUS).map(|index| guest.vcpu(index)).collect();
    vcpus.iter_mut().for_each(Vcpu::set_up);
    // Bound sockets that all send to; each VCPU also opens and closes some in their places.
    let open = |vcpu: &mut Vcpu| {
        let socket = vcpu.datagram();
        vcpu.bind(socket, "127.0.0.1:0").unwrap();
        (socket, vcpu.local(socket).unwrap().to_string())
    };
    let shared: Vec<_> = (0..SOCKETS)
        .map(|_| Mutex::new(open(&mut vcpus[0])))
        .collect();
    let closed = Mutex::new(Vec::new());
    thread::scope(|scope| {
        for (seed, vcpu) in vcpus.iter_mut().enumerate() {
            let (shared, closed) = (&shared, &closed);
            let namespace = File::open("/proc/thread-self/ns/net").unwrap();
            scope.spawn(move || {
                setns(namespace, CloneFlags::CLONE_NEWNET).unwrap();
                let mut random = ChaCha8Rng::seed_from_u64(seed as u64);
                for _ in 0..3_000 {
                    let place = &shared[random.random_range(0..SOCKETS)];
                    let (socket, address) = place.lock().unwrap().clone();
                    // The socket may be closed by another at any moment: EBADF is an answer.
                    match random.random_range(0..20) {
                        0 => {
                            let new = open(vcpu);
                            let (old, _) = std::mem::replace(&mut *place.lock().unwrap(), new);
                            assert!(vcpu.close(old).is_ok(), "closed by whom took it out");
                            closed.lock().unwrap().push(old);
                        }
                        1 | 2 => drop(vcpu.steer(socket, random.random_range(0..u64::from(VCPUS)))),
                        3..10 => drop(vcpu.send_to(socket, b"x", &address)),
                        10..17 => drop(vcpu.receive(socket, 1, 0)),
                        17 => drop(vcpu.wake(random.random_range(0..u64::from(VCPUS))).unwrap()),
                        _ => {
                            vcpu.wait(None).unwrap();
                            vcpu.events();
                        }
                    }
                }
            });
        }
    });
    let vcpu = &mut vcpus[0];
    for place in &shared {
        let (socket, _) = place.lock().unwrap().clone();
        let ready = vcpu.poll(socket);
        assert_eq!(vcpu.state(socket), ((socket >> 32) as u32, ready));
        while vcpu.receive(socket, 1, 0).is_ok() {}
        assert_eq!(vcpu.state(socket).1, 4, "writable, and empty now");
    }
    let closed = closed.into_inner().unwrap();
    assert!(closed.len() > 100, "the race was run: {}", closed.len());
    for socket in closed {
        assert_eq!(vcpu.local(socket), Err(libc::EBADF));
    }
}

/// The head of a request is read once: a guest that changes it meanwhile is not believed twice.
#[test]
fn a_request_that_changes_meanwhile_cannot_reach_beyond_its_parts() {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};
    let mut vcpu = alone();
    let socket = vcpu.datagram();
    let memory = vcpu.memory.clone();
    let place = GuestAddress(vcpu.base + 0x1_0000 + 16);
    let stop = Arc::new(AtomicBool::new(false));
    let liar = {
        let stop = Arc::clone(&stop);
        std::thread::spawn(move || {
            while !stop.load(Ordering::Relaxed) {
                for len in [u32::MAX, 128, 0] {
                    memory.write_obj(len, place).unwrap();
                }
            }
        })
    };
    let mut seen = std::collections::BTreeSet::new();
    for _ in 0..20_000 {
        let call = Call {
            op: op::BIND,
            handle: socket,
            name: &[0; 16],
            ..Call::default()
        };
        // `call` itself checks that nothing is written outside of the answer.
        seen.insert(vcpu.call(&call).error);
    }
    stop.store(true, Ordering::Relaxed);
    liar.join().unwrap();
    let possible = [
        0,
        libc::EINVAL,
        libc::EPROTO,
        libc::EMSGSIZE,
        libc::EAFNOSUPPORT,
    ];
    assert!(
        seen.iter().all(|error| possible.contains(error)),
        "{seen:?}"
    );
    assert_eq!(vcpu.poll(socket), 4);
}
