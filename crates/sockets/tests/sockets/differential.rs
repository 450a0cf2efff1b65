//! The same operations, once through the device and once as plain system calls, each in a namespace
//! of its own: every result must be the same.
//!
//! What arrives by loopback is made certain, not waited for: all of it passes through one CPU's
//! queue in order, so a marker that has come back, as many times as a handshake has packets, says
//! that everything before it has arrived. What is closed ends at once: no other test starts a child
//! meanwhile. The room for what is received holds the same bytes before in both worlds: what is not
//! written must be the same, too.

use std::net::UdpSocket;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::unistd::Pid;
use proptest::prelude::*;
use steadyvm_sockets::abi::{op, ready};

use crate::guest::{CANARY, Call, Guest, Vcpu, enter_namespace, name, no_child_starts, patient};

const ADDRESSES: [&str; 8] = [
    "127.0.0.1:4001",
    "127.0.0.1:4002",
    "0.0.0.0:4001",
    "127.0.0.1:0",
    "[::1]:4001",
    "[::]:4002",
    "[::ffff:127.0.0.1]:4001",
    "192.0.2.1:4001",
];

const OPTIONS: [(i32, i32); 17] = [
    (libc::SOL_SOCKET, libc::SO_REUSEADDR),
    (libc::SOL_SOCKET, libc::SO_REUSEPORT),
    (libc::SOL_SOCKET, libc::SO_ERROR),
    (libc::SOL_SOCKET, libc::SO_TYPE),
    (libc::SOL_SOCKET, libc::SO_RCVBUF),
    (libc::SOL_SOCKET, libc::SO_BROADCAST),
    (libc::SOL_SOCKET, libc::SO_ACCEPTCONN),
    (libc::SOL_SOCKET, libc::SO_RCVLOWAT),
    (libc::IPPROTO_IP, libc::IP_TTL),
    (libc::IPPROTO_IP, libc::IP_TOS),
    (libc::IPPROTO_IP, libc::IP_PKTINFO),
    (libc::IPPROTO_IP, libc::IP_RECVTTL),
    (libc::IPPROTO_IPV6, libc::IPV6_V6ONLY),
    (libc::IPPROTO_IPV6, libc::IPV6_UNICAST_HOPS),
    (libc::IPPROTO_TCP, libc::TCP_KEEPCNT),
    (libc::IPPROTO_TCP, libc::TCP_DEFER_ACCEPT),
    (libc::IPPROTO_UDP, libc::UDP_CORK),
];

const RECEIVE_FLAGS: [i32; 5] = [
    0,
    libc::MSG_PEEK,
    libc::MSG_TRUNC,
    libc::MSG_WAITALL,
    libc::MSG_OOB,
];

/// An operation on the socket in a slot.
#[derive(Clone, Debug)]
enum Step {
    Open {
        six: bool,
        stream: bool,
    },
    Bind(&'static str),
    Connect(&'static str),
    Listen(i32),
    Accept,
    Send {
        len: usize,
        to: &'static str,
        urgent: bool,
    },
    Receive {
        room: usize,
        flags: i32,
    },
    Shutdown(i32),
    Close,
    LocalName,
    PeerName,
    Set {
        option: (i32, i32),
        value: Vec<u8>,
    },
    Get {
        option: (i32, i32),
        room: usize,
    },
    Readable,
    Poll,
}

const SLOTS: usize = 4;

fn address() -> impl Strategy<Value = &'static str> {
    prop::sample::select(&ADDRESSES[..])
}

fn step() -> impl Strategy<Value = Step> {
    let option = || prop::sample::select(&OPTIONS[..]);
    let value = prop_oneof![
        8 => (0_i32..300).prop_map(|value| value.to_ne_bytes().to_vec()),
        1 => any::<i32>().prop_map(|value| value.to_ne_bytes().to_vec()),
        1 => prop::collection::vec(any::<u8>(), 0..9),
    ];
    prop_oneof![
        3 => any::<(bool, bool)>().prop_map(|(six, stream)| Step::Open { six, stream }),
        4 => address().prop_map(Step::Bind),
        4 => address().prop_map(Step::Connect),
        3 => (-1..8).prop_map(Step::Listen),
        4 => Just(Step::Accept),
        6 => (0_usize..3000, prop_oneof![1 => Just(""), 1 => address()], prop::bool::weighted(0.1))
            .prop_map(|(len, to, urgent)| Step::Send { len, to, urgent }),
        6 => (0_usize..4000, prop::sample::select(&RECEIVE_FLAGS[..]))
            .prop_map(|(room, flags)| Step::Receive { room, flags }),
        1 => (-1..4).prop_map(Step::Shutdown),
        1 => Just(Step::Close),
        1 => Just(Step::LocalName),
        1 => Just(Step::PeerName),
        2 => (option(), value).prop_map(|(option, value)| Step::Set { option, value }),
        2 => (option(), 0_usize..9).prop_map(|(option, room)| Step::Get { option, room }),
        1 => Just(Step::Readable),
        1 => Just(Step::Poll),
    ]
}

/// What both worlds must agree on.
#[derive(Debug, Default, PartialEq, Eq)]
struct Seen {
    error: i32,
    value: u64,
    name: Vec<u8>,
    data: Vec<u8>,
    control: Vec<u8>,
    flags: i32,
    ready: u32,
}

/// A port that the kernel chose is another in each world: which it was is left out.
fn without_chosen_port(mut name: Vec<u8>) -> Vec<u8> {
    if name.len() >= 4 && u16::from_be_bytes([name[2], name[3]]) >= 32_768 {
        name[2..4].fill(0xff);
    }
    name
}

/// Someone who can do a step. A socket is any number.
trait World {
    fn open(&mut self, family: i32, kind: i32) -> u64;
    fn carry_out(&mut self, socket: u64, step: &Step) -> (Seen, Option<u64>);
}

impl World for Vcpu {
    fn open(&mut self, family: i32, kind: i32) -> u64 {
        self.socket(family, kind, 0).unwrap()
    }

    fn carry_out(&mut self, socket: u64, step: &Step) -> (Seen, Option<u64>) {
        let to;
        let bytes;
        let mut call = Call {
            handle: socket,
            ..Call::default()
        };
        match step {
            Step::Open { .. } => unreachable!("not on a socket"),
            Step::Bind(at) => (call.op, to) = (op::BIND, name(at)),
            Step::Connect(at) => (call.op, to) = (op::CONNECT, name(at)),
            Step::Send { to: at, .. } => (call.op, to) = (op::SEND, name(at)),
            _ => to = Vec::new(),
        }
        call.name = &to;
        match step {
            Step::Open { .. } | Step::Bind(_) | Step::Connect(_) => {}
            Step::Listen(backlog) => (call.op, call.arguments[0]) = (op::LISTEN, *backlog as u64),
            Step::Accept => (call.op, call.name_room) = (op::ACCEPT, 128),
            Step::Send { len, urgent, .. } => {
                bytes = pattern(*len);
                call.data = &bytes;
                call.arguments[0] = if *urgent { libc::MSG_OOB as u64 } else { 0 };
            }
            Step::Receive { room, flags } => {
                (call.op, call.arguments[0]) = (op::RECEIVE, *flags as u64);
                (call.name_room, call.control_room, call.data_room) = (128, 128, *room);
            }
            Step::Shutdown(how) => (call.op, call.arguments[0]) = (op::SHUTDOWN, *how as u64),
            Step::Close => call.op = op::CLOSE,
            Step::LocalName => (call.op, call.name_room) = (op::GETSOCKNAME, 128),
            Step::PeerName => (call.op, call.name_room) = (op::GETPEERNAME, 128),
            Step::Set {
                option: (level, option),
                value,
            } => {
                (call.op, call.data) = (op::SETSOCKOPT, value);
                (call.arguments[0], call.arguments[1]) = (*level as u64, *option as u64);
            }
            Step::Get {
                option: (level, option),
                room,
            } => {
                (call.op, call.data_room) = (op::GETSOCKOPT, *room);
                (call.arguments[0], call.arguments[1]) = (*level as u64, *option as u64);
            }
            Step::Readable => {
                (call.op, call.arguments[0]) = (op::IOCTL, libc::FIONREAD);
                (call.data, call.data_room) = (&[0; 4], 4);
            }
            Step::Poll => call.op = op::POLL,
        }
        let reply = self.call(&call);
        let accepted = (matches!(step, Step::Accept) && reply.error == 0).then_some(reply.value);
        let seen = Seen {
            error: reply.error,
            value: if accepted.is_some() { 0 } else { reply.value },
            name: without_chosen_port(reply.name),
            data: reply.data,
            control: reply.control,
            flags: reply.flags,
            ready: reply.ready,
        };
        (seen, accepted)
    }
}

/// Plain system calls on descriptors.
#[derive(Default)]
struct Direct(Vec<Option<OwnedFd>>);

fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|byte| (byte * 7 % 251) as u8).collect()
}

fn error() -> i32 {
    std::io::Error::last_os_error().raw_os_error().unwrap()
}

impl Direct {
    fn keep(&mut self, fd: i32) -> u64 {
        // SAFETY: the caller got it from the kernel just now.
        self.0.push(Some(unsafe { OwnedFd::from_raw_fd(fd) }));
        self.0.len() as u64 - 1
    }
}

impl World for Direct {
    fn open(&mut self, family: i32, kind: i32) -> u64 {
        // SAFETY: takes no pointers.
        let fd = unsafe { libc::socket(family, kind | libc::SOCK_NONBLOCK, 0) };
        assert!(fd >= 0);
        self.keep(fd)
    }

    // One arm a system call.
    #[allow(clippy::too_many_lines)]
    fn carry_out(&mut self, socket: u64, step: &Step) -> (Seen, Option<u64>) {
        let mut seen = Seen::default();
        let Some(fd) = self.0[socket as usize].as_ref().map(AsRawFd::as_raw_fd) else {
            seen.error = libc::EBADF;
            return (seen, None);
        };
        let mut room = [0_u8; 128];
        let mut len = 128_u32;
        let place: *mut libc::sockaddr = room.as_mut_ptr().cast();
        let len_place = &raw mut len;
        let mut data = vec![];
        let mut control = [0_u8; 128];
        // SAFETY: every pointer is to a live buffer and goes with its length.
        let result: i64 = unsafe {
            match step {
                Step::Open { .. } => unreachable!("not on a socket"),
                Step::Bind(at) => {
                    let at = name(at);
                    libc::bind(fd, at.as_ptr().cast(), at.len() as u32).into()
                }
                Step::Connect(at) => {
                    let at = name(at);
                    libc::connect(fd, at.as_ptr().cast(), at.len() as u32).into()
                }
                Step::Listen(backlog) => libc::listen(fd, *backlog).into(),
                Step::Accept => libc::accept4(fd, place, len_place, libc::SOCK_NONBLOCK).into(),
                Step::Send { len, to, urgent } => {
                    let (bytes, to) = (pattern(*len), name(to));
                    let flags = libc::MSG_NOSIGNAL | if *urgent { libc::MSG_OOB } else { 0 };
                    let place = if to.is_empty() {
                        std::ptr::null()
                    } else {
                        to.as_ptr()
                    };
                    let len = to.len() as u32;
                    libc::sendto(
                        fd,
                        bytes.as_ptr().cast(),
                        bytes.len(),
                        flags,
                        place.cast(),
                        len,
                    ) as i64
                }
                Step::Receive { room: most, flags } => {
                    data = vec![CANARY; *most];
                    let mut vector = libc::iovec {
                        iov_base: data.as_mut_ptr().cast(),
                        iov_len: data.len(),
                    };
                    let mut message: libc::msghdr = std::mem::zeroed();
                    (message.msg_name, message.msg_namelen) = (place.cast(), 128);
                    (message.msg_iov, message.msg_iovlen) = (&raw mut vector, 1);
                    message.msg_control = control.as_mut_ptr().cast();
                    message.msg_controllen = control.len() as _;
                    let count = libc::recvmsg(fd, &raw mut message, *flags) as i64;
                    if count >= 0 {
                        len = message.msg_namelen;
                        seen.flags = message.msg_flags;
                        seen.control = control[..message.msg_controllen as usize].to_vec();
                        data.truncate(count as usize);
                    }
                    count
                }
                Step::Shutdown(how) => libc::shutdown(fd, *how).into(),
                Step::Close => {
                    self.0[socket as usize] = None;
                    return (seen, None);
                }
                Step::LocalName => libc::getsockname(fd, place, len_place).into(),
                Step::PeerName => libc::getpeername(fd, place, len_place).into(),
                Step::Set {
                    option: (level, option),
                    value,
                } => {
                    let len = value.len() as u32;
                    libc::setsockopt(fd, *level, *option, value.as_ptr().cast(), len).into()
                }
                Step::Get {
                    option: (level, option),
                    room,
                } => {
                    data = vec![0; *room];
                    len = *room as u32;
                    let result =
                        libc::getsockopt(fd, *level, *option, data.as_mut_ptr().cast(), len_place);
                    data.truncate(len as usize);
                    if result == 0 { i64::from(len) } else { -1 }
                }
                Step::Readable => {
                    data = vec![0; 4];
                    let result = libc::ioctl(fd, libc::FIONREAD, data.as_mut_ptr());
                    if result == 0 { 4 } else { -1 }
                }
                Step::Poll => 0,
            }
        };
        let mut accepted = None;
        if result < 0 {
            seen.error = error();
        } else {
            seen.data = data;
            if matches!(step, Step::Accept) {
                accepted = Some(self.keep(result as i32));
            } else {
                seen.value = result as u64;
            }
            let named = matches!(
                step,
                Step::Accept | Step::Receive { .. } | Step::LocalName | Step::PeerName
            );
            if named {
                seen.name = without_chosen_port(room[..len as usize].to_vec());
            }
        }
        let asked = (ready::IN | ready::PRI | ready::OUT | ready::RDHUP) as i16;
        let mut poll = libc::pollfd {
            fd,
            events: asked,
            revents: 0,
        };
        // SAFETY: one live pollfd.
        assert!(unsafe { libc::poll(&raw mut poll, 1, 0) } >= 0);
        seen.ready = u32::from(poll.revents as u16);
        (seen, accepted)
    }
}

/// Runs the steps and says what was seen. The calling thread is in a namespace of its own.
fn run(world: &mut impl World, steps: &[(usize, Step)]) -> Vec<Option<Seen>> {
    let _ends = no_child_starts();
    let marker = UdpSocket::bind("127.0.0.1:0").unwrap();
    marker.connect(marker.local_addr().unwrap()).unwrap();
    let mut slots = [None; SLOTS];
    let mut seen = Vec::new();
    for (slot, step) in steps {
        seen.push(match (step, slots[*slot]) {
            (Step::Open { six, stream }, _) => {
                let family = if *six { libc::AF_INET6 } else { libc::AF_INET };
                let kind = if *stream {
                    libc::SOCK_STREAM
                } else {
                    libc::SOCK_DGRAM
                };
                let socket = world.open(family, kind);
                if let Some(before) = slots[*slot].replace(socket) {
                    world.carry_out(before, &Step::Close);
                }
                if *stream {
                    // What is sent is sent now, not when an acknowledgement's timer says so.
                    let option = (libc::IPPROTO_TCP, libc::TCP_NODELAY);
                    let value = 1_i32.to_ne_bytes().to_vec();
                    world.carry_out(socket, &Step::Set { option, value });
                }
                None
            }
            (_, None) => None,
            (step, Some(socket)) => {
                let (result, accepted) = world.carry_out(socket, step);
                if accepted.is_some() {
                    // The connection takes the next slot.
                    let next = (slot + 1) % SLOTS;
                    if let Some(before) = std::mem::replace(&mut slots[next], accepted) {
                        world.carry_out(before, &Step::Close);
                    }
                }
                Some(result)
            }
        });
        for _ in 0..6 {
            marker.send(b"m").unwrap();
            marker.recv(&mut [0]).unwrap();
        }
    }
    seen
}

fn on_one_cpu<T: Send + 'static>(act: impl FnOnce() -> T + Send + 'static) -> T {
    let inside = move || {
        let allowed = sched_getaffinity(Pid::from_raw(0)).unwrap();
        let first = (0..CpuSet::count())
            .find(|cpu| allowed.is_set(*cpu).unwrap())
            .unwrap();
        let mut one = CpuSet::new();
        one.set(first).unwrap();
        sched_setaffinity(Pid::from_raw(0), &one).unwrap();
        act()
    };
    std::thread::spawn(inside).join().unwrap()
}

fn both(steps: &[(usize, Step)]) -> (Vec<Option<Seen>>, Vec<Option<Seen>>) {
    let (ours, theirs) = (steps.to_vec(), steps.to_vec());
    let ours = on_one_cpu(move || {
        let mut vcpu = Guest::new(patient(), 1).vcpu(0);
        run(&mut vcpu, &ours)
    });
    let theirs = on_one_cpu(move || {
        enter_namespace();
        run(&mut Direct::default(), &theirs)
    });
    (ours, theirs)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 150, ..ProptestConfig::default() })]

    #[test]
    fn the_device_does_what_system_calls_do(
        steps in prop::collection::vec((0..SLOTS, step()), 1..60)
    ) {
        let (ours, theirs) = both(&steps);
        for (index, (ours, theirs)) in ours.iter().zip(&theirs).enumerate() {
            prop_assert_eq!(ours, theirs, "step {}: {:?}", index, &steps[index]);
        }
    }
}

/// That the comparison reaches what matters: connections, data, names, errors.
#[test]
fn a_conversation_is_the_same_in_both_worlds() {
    let steps = [
        (
            0,
            Step::Open {
                six: false,
                stream: true,
            },
        ),
        (0, Step::Bind("127.0.0.1:4001")),
        (0, Step::Listen(2)),
        (0, Step::Accept),
        (
            3,
            Step::Open {
                six: true,
                stream: true,
            },
        ),
        (3, Step::Connect("[::ffff:127.0.0.1]:4001")),
        (3, Step::Connect("[::ffff:127.0.0.1]:4001")),
        (0, Step::Accept),
        (1, Step::PeerName),
        (
            3,
            Step::Send {
                len: 2000,
                to: "",
                urgent: false,
            },
        ),
        (1, Step::Readable),
        (
            1,
            Step::Receive {
                room: 1500,
                flags: 0,
            },
        ),
        (
            1,
            Step::Receive {
                room: 1500,
                flags: libc::MSG_WAITALL,
            },
        ),
        (
            1,
            Step::Receive {
                room: 1500,
                flags: 0,
            },
        ),
        (1, Step::Close),
        (3, Step::Poll),
        (
            3,
            Step::Send {
                len: 1,
                to: "",
                urgent: false,
            },
        ),
        (
            3,
            Step::Send {
                len: 1,
                to: "",
                urgent: false,
            },
        ),
    ];
    let (ours, theirs) = both(&steps);
    assert_eq!(ours, theirs);
    let error = |index: usize| ours[index].as_ref().unwrap().error;
    assert_eq!(error(3), libc::EAGAIN);
    assert_eq!((error(5), error(6)), (libc::EINPROGRESS, 0));
    assert_eq!(ours[11].as_ref().unwrap().data, pattern(1500));
    assert_eq!(ours[12].as_ref().unwrap().data, pattern(2000)[1500..]);
    assert_eq!(
        (error(13), error(16), error(17)),
        (libc::EAGAIN, 0, libc::EPIPE)
    );
}

/// TCP counts what `MSG_TRUNC` receives, and writes none of it.
#[test]
fn what_a_stream_throws_away_is_written_in_neither_world() {
    let receive = |room, flags| (0, Step::Receive { room, flags });
    let steps = [
        (
            0,
            Step::Open {
                six: true,
                stream: true,
            },
        ),
        (0, Step::Bind("[::ffff:127.0.0.1]:4001")),
        // To itself.
        (0, Step::Connect("[::ffff:127.0.0.1]:4001")),
        (
            0,
            Step::Send {
                len: 9,
                to: "",
                urgent: false,
            },
        ),
        receive(4, libc::MSG_TRUNC),
        receive(9, 0),
    ];
    let (ours, theirs) = both(&steps);
    assert_eq!(ours, theirs);
    let data = |index: usize| &ours[index].as_ref().unwrap().data;
    assert_eq!(*data(4), [CANARY; 4]);
    assert_eq!(*data(5), pattern(9)[4..]);
}
