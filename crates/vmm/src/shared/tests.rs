//! The device as a front end and a guest's driver have it: the real protocol over a real socket, memory and
//! doorbells as they come, requests laid by hand.

use nix::cmsg_space;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{ControlMessageOwned, MsgFlags, recvmsg};
use proptest::prelude::*;
use std::fs::File;
use std::io::{IoSliceMut, Read, Write};
use std::mem::offset_of;
use std::net::UdpSocket;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, RawFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};
use std::thread::JoinHandle;
use std::time::Duration;
use steadyvm_sockets::Memory;
use steadyvm_sockets::abi::{EventRing, Request, Response, Shared as Head, op, ready, shared};
use vm_memory::{Bytes, FileOffset, GuestAddress};
use vmm_sys_util::eventfd::EventFd;
use zerocopy::{FromBytes, IntoBytes};

use super::memory::{Layout, allocate};
use super::peer::introduce;
use super::server::Server;
use crate::output::{Messages, Pipe};
use crate::vcpu::{End, Ending};

const CHANNELS: u16 = 2;
/// Where this driver keeps things in a channel's area.
const ANSWER: u64 = 16 << 10;
const RING: u64 = 64 << 10;
const RING_ENTRIES: u64 = 16;
/// How long servers here poll. Requests are met by polls even where other tests have the CPUs.
const POLL: Duration = Duration::from_secs(1);
/// `VRING_USED_F_NO_NOTIFY` of `linux/virtio_ring.h`.
const NO_NOTIFY: u16 = 1;
/// More than any of this takes.
const PATIENCE: PollTimeout = PollTimeout::MAX;

fn server() -> (Server, File) {
    let limits = steadyvm_sockets::Limits {
        sockets: 8,
        ..Default::default()
    };
    let layout = Layout::new(CHANNELS, &limits);
    let (memory, file) = allocate(layout).unwrap();
    let bell = EventFd::new(libc::EFD_NONBLOCK).unwrap();
    let messages = Messages(Pipe::new(&bell).unwrap());
    (Server::new(limits, layout, memory, messages).unwrap(), file)
}

/// One message of the protocol, with its descriptor.
fn hear(front: &UnixStream) -> (i64, Option<File>) {
    let mut bytes = [0; 8];
    let mut space = cmsg_space!([RawFd; 1]);
    let mut data = [IoSliceMut::new(&mut bytes)];
    let flags = MsgFlags::MSG_CMSG_CLOEXEC;
    let got = recvmsg::<()>(front.as_raw_fd(), &mut data, Some(&mut space), flags).unwrap();
    let mut descriptors = Vec::new();
    for control in got.cmsgs().unwrap() {
        if let ControlMessageOwned::ScmRights(rights) = control {
            descriptors.extend(rights);
        }
    }
    assert_eq!(got.bytes, 8);
    assert!(descriptors.len() <= 1);
    // SAFETY: the kernel has just made the descriptor for this process, and nobody else has it.
    let file = descriptors.pop().map(|fd| unsafe { File::from_raw_fd(fd) });
    (i64::from_le_bytes(bytes), file)
}

/// A front end with its guest, and the server's threads.
struct Guest {
    front: Option<UnixStream>,
    memory: Memory,
    head: Head,
    kicks: Vec<File>,
    calls: Vec<File>,
    asked: u32,
    made: [u32; CHANNELS as usize],
    /// Requests for which the server was not rung, as it asked.
    not_rung: u32,
    ending: Arc<Ending>,
    threads: Vec<JoinHandle<()>>,
}

impl Guest {
    fn connect() -> Self {
        Self::of_polls(POLL)
    }

    fn of_polls(poll: Duration) -> Self {
        let (server, file) = server();
        let (ours, front) = UnixStream::pair().unwrap();
        introduce(&ours, file.as_raw_fd(), &server.kicks, &server.calls).unwrap();
        let ending = Arc::new(Ending::new().unwrap());
        let server = Arc::new(server);
        let ours = Arc::new(ours);
        let threads = (0..CHANNELS).map(|index| {
            let epoll = server.watch(index, &ending, &*ours).unwrap();
            let (server, ending, ours) =
                (Arc::clone(&server), Arc::clone(&ending), Arc::clone(&ours));
            std::thread::spawn(move || {
                server.run(index, &epoll, &ending, poll);
                drop(ours);
            })
        });
        let threads = threads.collect();

        assert_eq!(hear(&front).0, 0, "the version");
        assert_eq!(hear(&front).0, 1, "the guest's number");
        let (message, memory) = hear(&front);
        assert_eq!(message, -1, "the memory");
        let memory = memory.unwrap();
        let size = memory.metadata().unwrap().len() as usize;
        let range = (GuestAddress(0), size, Some(FileOffset::new(memory, 0)));
        let memory = Memory::from_ranges_with_files([range]).unwrap();
        let events = |peer: i64| -> Vec<File> {
            let one = |_| {
                let (message, event) = hear(&front);
                assert_eq!(message, peer);
                event.unwrap()
            };
            (0..=CHANNELS).map(one).collect()
        };
        let (kicks, calls) = (events(0), events(1));
        let mut head = [0; size_of::<Head>()];
        memory.read_slice(&mut head, GuestAddress(0)).unwrap();
        let head = Head::read_from_bytes(&head).unwrap();
        assert_eq!(head.magic.get(), shared::MAGIC);
        assert_eq!(head.channels.get(), u32::from(CHANNELS));
        let mut guest = Self {
            front: Some(front),
            memory,
            head,
            kicks,
            calls,
            asked: 0,
            made: [0; CHANNELS as usize],
            not_rung: 0,
            ending,
            threads,
        };
        guest.begin();
        guest
    }

    fn ring(&mut self, vector: usize) {
        self.kicks[vector].write_all(&1_u64.to_ne_bytes()).unwrap();
    }

    fn load(&self, place: u64) -> u32 {
        let place = GuestAddress(place);
        self.memory.load(place, Ordering::Acquire).unwrap()
    }

    /// Takes all events of a channel's ring, as a guest does that is done with them.
    fn take_all_events(&self, channel: u16) {
        let ring = self.area(channel) + RING;
        let all = self.load(ring + offset_of!(EventRing, produced) as u64);
        let consumed = GuestAddress(ring + offset_of!(EventRing, consumed) as u64);
        self.memory.store(all, consumed, Ordering::SeqCst).unwrap();
    }

    /// As the module does it: the answer is waited for without giving up the CPU, but for this machine's sake.
    fn wait_for(&self, place: u64, value: u32) {
        while self.load(place) != value {
            std::thread::yield_now();
        }
    }

    /// Asks for a new beginning.
    fn begin(&mut self) {
        for channel in 0..CHANNELS {
            let zeros = [0; shared::DRIVERS as usize];
            let area = GuestAddress(self.area(channel));
            self.memory.write_slice(&zeros, area).unwrap();
        }
        self.asked += 1;
        let place = GuestAddress(offset_of!(Head, asked) as u64);
        self.memory
            .store(self.asked, place, Ordering::Release)
            .unwrap();
        self.ring(0);
        self.wait_for(offset_of!(Head, done) as u64, self.asked);
        self.made = [0; CHANNELS as usize];
        for channel in 0..CHANNELS {
            let ring = self.area(channel) + RING;
            let answer = self.ask(channel, op::EVENT_RING, 0, [ring, RING_ENTRIES, 0], &[], 0);
            assert_eq!(answer.0.error.get(), 0);
        }
    }

    fn area(&self, channel: u16) -> u64 {
        u64::from(self.head.first_channel.get())
            + u64::from(channel) * u64::from(self.head.channel_size.get())
    }

    fn ask(
        &mut self,
        channel: u16,
        op: u16,
        handle: u64,
        argument: [u64; 3],
        data: &[u8],
        room: u32,
    ) -> (Response, Vec<u8>) {
        self.ask_with_name(channel, op, handle, argument, &[], data, room)
    }

    #[allow(clippy::too_many_arguments)] // those of a request
    fn ask_with_name(
        &mut self,
        channel: u16,
        op: u16,
        handle: u64,
        argument: [u64; 3],
        name: &[u8],
        data: &[u8],
        room: u32,
    ) -> (Response, Vec<u8>) {
        let request = Request {
            op: op.into(),
            handle: handle.into(),
            name_len: (name.len() as u32).into(),
            data_len: (data.len() as u32).into(),
            data_room: room.into(),
            argument: argument.map(Into::into),
            ..Request::default()
        };
        let bytes = [request.as_bytes(), name, data].concat();
        let area = self.area(channel);
        let message = area + u64::from(shared::DRIVERS);
        let answer = area + ANSWER;
        let answer_len = size_of::<Response>() as u32 + room;
        let put = |bytes: &[u8], place: u64| {
            self.memory.write_slice(bytes, GuestAddress(place)).unwrap();
        };
        put(&bytes, message);
        let descriptor = |address: u64, len: u32, flags: u16, next: u16| {
            let mut bytes = address.to_le_bytes().to_vec();
            bytes.extend(len.to_le_bytes());
            bytes.extend(flags.to_le_bytes());
            bytes.extend(next.to_le_bytes());
            bytes
        };
        put(
            &descriptor(message, bytes.len() as u32, 1, 1),
            area + u64::from(shared::DESCRIPTORS),
        );
        put(
            &descriptor(answer, answer_len, 2, 0),
            area + u64::from(shared::DESCRIPTORS) + 16,
        );
        let made = &mut self.made[usize::from(channel)];
        let available = area + u64::from(shared::AVAILABLE);
        let slot = u64::from(*made % shared::QUEUE);
        self.memory
            .write_slice(&[0, 0], GuestAddress(available + 4 + 2 * slot))
            .unwrap();
        *made += 1;
        let made = *made;
        self.memory
            .store(made as u16, GuestAddress(available + 2), Ordering::Release)
            .unwrap();
        // As virt_mb() in the module.
        fence(Ordering::SeqCst);
        let flags = GuestAddress(area + u64::from(shared::USED));
        let flags: u16 = self.memory.load(flags, Ordering::Relaxed).unwrap();
        if flags & NO_NOTIFY == 0 {
            self.ring(usize::from(channel) + 1);
        } else {
            self.not_rung += 1;
        }
        self.wait_for(area + u64::from(shared::SERVED), made);
        let mut bytes = vec![0; answer_len as usize];
        self.memory
            .read_slice(&mut bytes, GuestAddress(answer))
            .unwrap();
        let (response, data) = Response::read_from_prefix(&bytes).unwrap();
        let len = response.data_len.get() as usize;
        (response, data[..len].to_vec())
    }

    /// A UDP socket of the guest on the loopback interface, and its port.
    fn datagram_socket(&mut self, channel: u16) -> (u64, u16) {
        let kind = [libc::AF_INET as u64, libc::SOCK_DGRAM as u64, 0];
        let (made, _) = self.ask(channel, op::SOCKET, 0, kind, &[], 0);
        assert_eq!(made.error.get(), 0);
        let handle = made.value.get();
        let name = loopback(0);
        let (bound, _) = self.ask_with_name(channel, op::BIND, handle, [0; 3], &name, &[], 0);
        assert_eq!(bound.error.get(), 0);
        let port = self.port_of(channel, handle);
        (handle, port)
    }

    /// By a datagram to a socket of the host: who it came from.
    fn port_of(&mut self, channel: u16, handle: u64) -> u16 {
        let host = UdpSocket::bind("127.0.0.1:0").unwrap();
        let name = loopback(host.local_addr().unwrap().port());
        let (sent, _) = self.ask_with_name(channel, op::SEND, handle, [0; 3], &name, b"hello", 0);
        assert_eq!((sent.error.get(), sent.value.get()), (0, 5));
        let mut bytes = [0; 16];
        let (len, from) = host.recv_from(&mut bytes).unwrap();
        assert_eq!(&bytes[..len], b"hello");
        from.port()
    }

    fn wait_for_interrupt(&self, vector: usize) {
        let mut call = [PollFd::new(self.calls[vector].as_fd(), PollFlags::POLLIN)];
        assert_eq!(poll(&mut call, PATIENCE).unwrap(), 1);
    }
}

impl Drop for Guest {
    /// All threads end when the front end goes.
    fn drop(&mut self) {
        drop(self.front.take());
        for thread in self.threads.drain(..) {
            let ended = thread.join();
            assert!(ended.is_ok() || std::thread::panicking());
        }
        assert!(matches!(self.ending.how(), Some(End::Asked(_))));
    }
}

fn loopback(port: u16) -> Vec<u8> {
    let mut name = (libc::AF_INET as u16).to_le_bytes().to_vec();
    name.extend(port.to_be_bytes());
    name.extend([127, 0, 0, 1]);
    name.extend([0; 8]);
    name
}

#[test]
fn a_datagram_comes_with_an_interrupt_of_its_channel_and_is_received() {
    let mut guest = Guest::connect();
    for channel in 0..CHANNELS {
        let (handle, port) = guest.datagram_socket(channel);
        let before = guest.load(guest.area(channel) + RING);
        let host = UdpSocket::bind("127.0.0.1:0").unwrap();
        host.send_to(b"ping", ("127.0.0.1", port)).unwrap();
        guest.wait_for_interrupt(usize::from(channel) + 1);
        // The ring was filled before: no request asked for it.
        let produced = offset_of!(EventRing, produced) as u64;
        assert!(guest.load(guest.area(channel) + RING + produced) > before);
        let (received, data) = guest.ask(channel, op::RECEIVE, handle, [0; 3], &[], 100);
        assert_eq!((received.error.get(), data.as_slice()), (0, &b"ping"[..]));
        assert_eq!(received.ready.get() & ready::IN, 0);
    }
}

#[test]
fn the_idle_call_does_not_hold_the_channel() {
    let mut guest = Guest::connect();
    let forever = [u64::MAX, 0, 0];
    let (waited, _) = guest.ask(0, op::WAIT, 0, forever, &[], 0);
    assert_eq!(waited.error.get(), 0);
}

#[test]
fn a_guest_that_asks_often_need_not_ring() {
    let mut guest = Guest::connect();
    let mut asked = 0;
    while guest.not_rung < 500 && asked < 5_000 {
        let (answer, _) = guest.ask(0, op::HARVEST, 0, [0; 3], &[], 0);
        assert_eq!(answer.error.get(), 0);
        asked += 1;
    }
    assert!(guest.not_rung >= 500, "{} of {asked}", guest.not_rung);
}

/// Requests at all distances around the end of a poll. One that is lost would be waited for without an end.
#[test]
fn no_request_is_lost_between_a_poll_and_the_sleep_after_it() {
    let mut guest = Guest::of_polls(Duration::from_micros(20));
    for asked in 0..20_000 {
        let (answer, _) = guest.ask(0, op::HARVEST, 0, [0; 3], &[], 0);
        assert_eq!(answer.error.get(), 0);
        for _ in 0..(asked % 64) * 50 {
            std::hint::spin_loop();
        }
    }
}

#[test]
fn a_datagram_that_comes_while_the_queue_is_looked_at_interrupts() {
    let mut guest = Guest::connect();
    let (handle, port) = guest.datagram_socket(0);
    let host = UdpSocket::bind("127.0.0.1:0").unwrap();
    for _ in 0..200 {
        // The server polls after these.
        for _ in 0..4 {
            guest.ask(0, op::HARVEST, 0, [0; 3], &[], 0);
        }
        host.send_to(b"ping", ("127.0.0.1", port)).unwrap();
        guest.wait_for_interrupt(1);
        let mut count = [0; 8];
        (&guest.calls[1]).read_exact(&mut count).unwrap();
        let (received, data) = guest.ask(0, op::RECEIVE, handle, [0; 3], &[], 100);
        assert_eq!((received.error.get(), data.as_slice()), (0, &b"ping"[..]));
        guest.take_all_events(0);
    }
}

/// A guest that is busy is told once, however much comes; when it has taken all, it is told again.
#[test]
fn a_guest_that_has_events_to_take_is_not_interrupted_for_more() {
    const MANY: u32 = 12;
    let mut guest = Guest::of_polls(Duration::ZERO);
    let (_, port) = guest.datagram_socket(0);
    let host = UdpSocket::bind("127.0.0.1:0").unwrap();
    let produced = guest.area(0) + RING + offset_of!(EventRing, produced) as u64;
    for round in 1..=3 {
        let before = guest.load(produced);
        guest.take_all_events(0);
        for sent in 1..=MANY {
            host.send_to(b"ping", ("127.0.0.1", port)).unwrap();
            guest.wait_for(produced, before + sent);
        }
        guest.wait_for_interrupt(1);
        let mut count = [0; 8];
        (&guest.calls[1]).read_exact(&mut count).unwrap();
        assert_eq!(u64::from_ne_bytes(count), 1, "round {round}");
    }
}

#[test]
fn a_new_beginning_closes_sockets_and_mends_a_broken_queue() {
    let mut guest = Guest::connect();
    let (handle, _) = guest.datagram_socket(0);
    guest.begin();
    let (answer, _) = guest.ask(0, op::POLL, handle, [0; 3], &[], 0);
    assert_eq!(answer.error.get() as i32, libc::EBADF);
    // More requests than the queue has entries.
    let index = guest.area(1) + u64::from(shared::AVAILABLE) + 2;
    guest
        .memory
        .store(0x4000_u16, GuestAddress(index), Ordering::Release)
        .unwrap();
    guest.ring(2);
    guest.begin();
    let (_, port) = guest.datagram_socket(1);
    assert_ne!(port, 0);
}

/// Says something where it may only listen: no byte of it is looked at.
#[test]
fn a_front_end_that_speaks_is_left() {
    let guest = Guest::connect();
    guest.front.as_ref().unwrap().write_all(b"x").unwrap();
    let mut end = [PollFd::new(
        crate::event::borrow(&guest.ending.event),
        PollFlags::POLLIN,
    )];
    assert_eq!(poll(&mut end, PATIENCE).unwrap(), 1);
}

proptest! {
    /// Whatever the guest writes wherever it can, and however it rings.
    #[test]
    fn no_memory_of_a_guest_panics(
        writes in prop::collection::vec((0_u32..3, any::<u16>(), any::<u64>(), any::<bool>()), 1..200),
    ) {
        let (server, _file) = server();
        let ending = Ending::new().unwrap();
        let memory = server.memory();
        for (channel, place, value, near) in writes {
            match channel {
                2 if near => server.begin_anew(),
                2 => memory.write_slice(&value.to_le_bytes(), GuestAddress(u64::from(place) % 4096)).unwrap(),
                channel => {
                    let area = 4096 + u64::from(channel) * (256 << 10);
                    // The queue and a request's head, with numbers that mean something there.
                    let place = if near { u64::from(place) % 768 } else { u64::from(place) };
                    let value = if near { (value % 0x400) | ((area + 512) * (value >> 63)) } else { value };
                    memory.write_slice(&value.to_le_bytes(), GuestAddress(area + place)).unwrap();
                    server.serve(channel as u16, &ending);
                }
            }
        }
    }
}
