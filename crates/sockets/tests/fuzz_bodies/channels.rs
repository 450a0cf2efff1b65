//! Two VCPUs of one guest, each in a thread and with a channel of its own, on the same sockets.

use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

use steadyvm_sockets::abi::op;

use super::guest::{Call, Guest, Vcpu, name};
use super::{LIMITS, NAMES, Source};

/// No request here sleeps: who needs longer has a deadlock.
const PATIENCE: Duration = Duration::from_secs(60);
/// Rounds of both, between which everything is compared.
const ROUNDS: usize = 4;

/// One request on sockets that the other thread uses too.
fn one_request(vcpu: &mut Vcpu, source: &mut Source, handles: &mut Vec<u64>) {
    let kind = source.byte() % 24;
    let chosen = usize::from(source.byte());
    let handle = handles.get(chosen % (handles.len() + 1)).copied();
    let handle = handle.unwrap_or_else(|| source.word() & 0xff_0000_00ff);
    let mut call = Call {
        // Tables and rings are set up once: the other thread reads them.
        op: match u16::from(kind) {
            op::STATE_TABLE | op::EVENT_RING => op::SOCKET,
            other => other,
        },
        handle,
        arguments: [source.byte(), source.byte(), source.byte()].map(u64::from),
        name_room: 128,
        data_room: usize::from(source.byte()),
        ..Call::default()
    };
    let to = name(NAMES[usize::from(source.byte()) % NAMES.len()]);
    let len = usize::from(source.byte());
    match call.op {
        op::SOCKET => {
            let stream = call.arguments[0].is_multiple_of(2);
            let kind = if stream {
                libc::SOCK_STREAM
            } else {
                libc::SOCK_DGRAM
            };
            call.arguments = [libc::AF_INET as u64, kind as u64, 0];
        }
        op::BIND | op::CONNECT => call.name = &to,
        op::SEND => call.data = source.bytes(len),
        op::STEER | op::WAKE => call.arguments[0] %= 3,
        _ => {}
    }
    let reply = vcpu.call(&call);
    assert!(
        (0..4096).contains(&reply.error),
        "error number {}",
        reply.error
    );
    if reply.error == 0 && matches!(call.op, op::SOCKET | op::ACCEPT) {
        handles.push(reply.value);
    }
}

/// A VCPU's turn: its requests and its events. What it knows of sockets is given on.
fn turn(vcpu: &mut Vcpu, bytes: &[u8], mut handles: Vec<u64>) -> Vec<u64> {
    let mut source = Source(bytes);
    for _ in 0..16 {
        if source.is_empty() {
            break;
        }
        one_request(vcpu, &mut source, &mut handles);
        vcpu.events();
    }
    handles
}

/// Closes everything in one thread: each socket is closed once, and nothing is left of the limits.
fn nothing_is_lost(vcpu: &mut Vcpu, handles: &[u64]) {
    for handle in handles {
        if vcpu.close(*handle).is_ok() {
            assert_eq!(
                vcpu.close(*handle),
                Err(libc::EBADF),
                "a handle is closed once"
            );
        }
    }
    let opened: Vec<u64> = (0..LIMITS.sockets)
        .map(|_| {
            let made = vcpu.socket(libc::AF_INET, libc::SOCK_DGRAM, 0);
            made.expect("all sockets are free again")
        })
        .collect();
    let beyond = vcpu.socket(libc::AF_INET, libc::SOCK_DGRAM, 0);
    assert_eq!(beyond, Err(libc::ENOBUFS), "the limit holds");
    let mut all = [&opened, handles].concat();
    all.sort_unstable();
    assert!(
        all.windows(2).all(|two| two[0] != two[1]),
        "a handle is given once"
    );
}

/// Runs both threads on the two halves of the bytes, in rounds.
pub fn channels(bytes: &[u8]) {
    // What is started here is in the namespace of this thread.
    super::namespace();
    let (told, done) = channel();
    let bytes = bytes.to_vec();
    // The watch is outside: a deadlock in there would keep it too.
    let worker = std::thread::spawn(move || {
        run(&bytes);
        let _ = told.send(());
    });
    match done.recv_timeout(PATIENCE) {
        Ok(()) | Err(RecvTimeoutError::Disconnected) => {}
        Err(RecvTimeoutError::Timeout) => panic!("the two threads wait for each other"),
    }
    if let Err(why) = worker.join() {
        std::panic::resume_unwind(why);
    }
}

fn run(bytes: &[u8]) {
    let guest = Guest::here(LIMITS, 2);
    let (mut one, mut two) = (guest.vcpu(0), guest.vcpu(1));
    one.set_up();
    two.set_up();
    let mut known: Vec<u64> = Vec::new();
    for round in bytes.chunks(bytes.len().div_ceil(ROUNDS).max(1)) {
        let (first, second) = round.split_at(round.len() / 2);
        let [own, other] = std::thread::scope(|scope| {
            let other = scope.spawn(|| turn(&mut two, second, known.clone()));
            let own = turn(&mut one, first, known.clone());
            [own, other.join().expect("the other thread does not panic")]
        });
        let new = [&own[known.len()..], &other[known.len()..]].concat();
        known.extend(new);
    }
    nothing_is_lost(&mut one, &known);
    guest.device.reset(&guest.memory);
}
