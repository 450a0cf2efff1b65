use super::*;
use crate::devices::transport::QueueSetup;
use crate::layout;
use proptest::prelude::*;
use std::os::unix::net::UnixStream;
use vm_memory::{Bytes, GuestAddress};

const ENTRIES: u16 = 16;
const WRITABLE: u16 = 2;
/// The queues' numbers.
const RECEIVE: usize = 0;
const SEND: usize = 1;
const TELL: usize = 2;
const HEAR: usize = 3;
/// Where a queue has its descriptors, rings and data, from its first page on.
const AVAILABLE: u64 = 0x1000;
const USED: u64 = 0x2000;
const DATA: u64 = 0x3000;

fn page(queue: usize) -> u64 {
    0x10_0000 * (queue as u64 + 1)
}

/// A guest's memory with the four queues, and the peer's end of the socket.
struct Rig {
    memory: Memory,
    channel: Registers,
    peer: UnixStream,
}

impl Rig {
    fn new(features: u64) -> Self {
        let memory = layout::allocate(8 << 20).unwrap();
        let event = || EventFd::new(libc::EFD_NONBLOCK).unwrap();
        let interrupt = Interrupt::alone();
        let (here, peer) = UnixStream::pair().unwrap();
        peer.set_nonblocking(true).unwrap();
        let channel = Channel::new("a.port", here, memory.clone(), interrupt, event()).unwrap();
        let channel = Registers(Arc::new(channel));
        let setup = |queue| QueueSetup {
            size: ENTRIES,
            descriptors: page(queue),
            available: page(queue) + AVAILABLE,
            used: page(queue) + USED,
            ready: true,
        };
        let queues = (0..QUEUES).map(setup).collect();
        let activation = Activation { features, queues };
        channel.activate(&activation).unwrap();
        Self {
            memory,
            channel,
            peer,
        }
    }

    /// With the port open at both ends.
    fn open() -> Self {
        let rig = Self::new(1 << MULTIPORT);
        rig.control(PORT_OPEN, 1);
        rig
    }

    fn put(&self, bytes: &[u8], at: u64) {
        self.memory.write_slice(bytes, GuestAddress(at)).unwrap();
    }

    /// Makes a buffer available, without ringing.
    fn offer(&self, queue: usize, address: u64, len: u32, flags: u16) {
        let index: u16 = self.read(page(queue) + AVAILABLE + 2);
        let slot = index % ENTRIES;
        let at = page(queue) + u64::from(slot) * 16;
        self.put(&address.to_le_bytes(), at);
        self.put(&len.to_le_bytes(), at + 8);
        self.put(&flags.to_le_bytes(), at + 12);
        let entry = page(queue) + AVAILABLE + 4 + u64::from(slot) * 2;
        self.put(&slot.to_le_bytes(), entry);
        self.put(&(index + 1).to_le_bytes(), page(queue) + AVAILABLE + 2);
    }

    fn read<T: vm_memory::ByteValued>(&self, at: u64) -> T {
        self.memory.read_obj(GuestAddress(at)).unwrap()
    }

    /// How many buffers of a queue have been used.
    fn used(&self, queue: usize) -> u16 {
        self.read(page(queue) + USED + 2)
    }

    /// The data of the newest used buffer of a queue whose buffers all lie at the same place.
    fn newest(&self, queue: usize) -> Vec<u8> {
        let slot = u64::from((self.used(queue) - 1) % ENTRIES);
        let len: u32 = self.read(page(queue) + USED + 4 + slot * 8 + 4);
        let mut data = vec![0; len as usize];
        let at = GuestAddress(page(queue) + DATA);
        self.memory.read_slice(&mut data, at).unwrap();
        data
    }

    /// The guest's port writes.
    fn guest_writes(&self, data: &[u8]) {
        let at = page(SEND) + DATA;
        self.put(data, at);
        self.offer(SEND, at, data.len() as u32, 0);
    }

    /// A control message of the guest, served.
    fn control(&self, event: u16, value: u16) -> Wanted {
        let at = page(HEAR) + DATA;
        self.put(&[0; 4], at);
        self.put(&event.to_le_bytes(), at + 4);
        self.put(&value.to_le_bytes(), at + 6);
        self.offer(HEAR, at, CONTROL as u32, 0);
        self.serve()
    }

    /// The next control message to the guest: what, its value, its name.
    fn told(&self) -> (u16, u16, Vec<u8>) {
        self.offer(TELL, page(TELL) + DATA, 100, WRITABLE);
        self.serve();
        let message = self.newest(TELL);
        let word = |at: usize| u16::from_le_bytes([message[at], message[at + 1]]);
        (word(4), word(6), message[CONTROL..].to_vec())
    }

    fn serve(&self) -> Wanted {
        self.channel.notify(0).unwrap();
        self.channel.0.serve().0
    }

    fn peer_reads(&self) -> Vec<u8> {
        let mut all = Vec::new();
        let mut buffer = [0; 4096];
        while let Ok(count @ 1..) = (&self.peer).read(&mut buffer) {
            all.extend_from_slice(&buffer[..count]);
        }
        all
    }
}

#[test]
fn the_guest_learns_of_its_port_and_of_the_peers_end() {
    let rig = Rig::new(1 << MULTIPORT);
    // However often it asks, nothing piles up.
    for _ in 0..5 {
        rig.control(DEVICE_READY, 1);
        rig.control(PORT_READY, 1);
    }
    assert_eq!(rig.told(), (PORT_ADD, 1, vec![]));
    assert_eq!(rig.told(), (PORT_NAME, 1, b"a.port".to_vec()));
    assert_eq!(rig.told(), (PORT_OPEN, 1, vec![]));
    let Rig { peer, .. } = &rig;
    peer.shutdown(std::net::Shutdown::Both).unwrap();
    rig.control(PORT_OPEN, 1);
    rig.offer(RECEIVE, page(RECEIVE) + DATA, 100, WRITABLE);
    assert_eq!(rig.serve(), Wanted::default());
    assert_eq!(rig.told(), (PORT_OPEN, 0, vec![]));
    // What it writes then goes nowhere and does not pile up either.
    rig.guest_writes(b"anybody?");
    assert_eq!(rig.serve(), Wanted::default());
    assert_eq!(rig.used(SEND), 1);
}

#[test]
fn bytes_go_both_ways_once_the_guest_has_the_port_open() {
    let rig = Rig::new(1 << MULTIPORT);
    (&rig.peer).write_all(b"too early?").unwrap();
    rig.offer(RECEIVE, page(RECEIVE) + DATA, 4, WRITABLE);
    assert_eq!((rig.serve(), rig.used(RECEIVE)), (Wanted::default(), 0));
    rig.control(PORT_OPEN, 1);
    assert_eq!(rig.newest(RECEIVE), b"too ");
    assert!(rig.channel.0.interrupt.line.read().is_ok());
    rig.offer(RECEIVE, page(RECEIVE) + DATA, 100, WRITABLE);
    rig.offer(RECEIVE, page(RECEIVE) + DATA, 100, WRITABLE);
    assert!(rig.serve().input, "one buffer is left");
    assert_eq!(rig.newest(RECEIVE), b"early?");
    rig.guest_writes(b"answer");
    rig.serve();
    assert_eq!(rig.peer_reads(), b"answer");
}

/// The guest's bytes wait in its own memory, and nothing of them is lost.
#[test]
fn a_peer_that_does_not_read_stops_the_guest_and_nobody_else() {
    let rig = Rig::open();
    let sent: Vec<u8> = (0..PIECE as u32 * 3).map(|n| (n % 251) as u8).collect();
    let at = page(SEND) + DATA;
    rig.put(&sent, at);
    let mut offered = 0;
    // Buffers of three pieces until one has to wait: a socket holds about 200 KiB.
    while offered == rig.used(SEND) {
        assert!(offered < ENTRIES, "nothing ever waits");
        rig.offer(SEND, at, sent.len() as u32, 0);
        offered += 1;
        for _ in 0..3 {
            rig.serve();
        }
    }
    assert!(rig.serve().output);
    // Meanwhile the other direction works.
    (&rig.peer).write_all(b"go on").unwrap();
    rig.offer(RECEIVE, page(RECEIVE) + DATA, 100, WRITABLE);
    rig.serve();
    assert_eq!(rig.newest(RECEIVE), b"go on");

    let mut received = Vec::new();
    loop {
        let piece = rig.peer_reads();
        let more = rig.serve().output;
        received.extend(piece);
        if !more {
            break;
        }
    }
    received.extend(rig.peer_reads());
    assert_eq!(rig.used(SEND), offered);
    assert!(received == sent.repeat(offered.into()));
}

#[test]
fn a_driver_that_knows_no_ports_has_an_open_console() {
    let rig = Rig::new(0);
    (&rig.peer).write_all(b"hello").unwrap();
    rig.offer(RECEIVE, page(RECEIVE) + DATA, 100, WRITABLE);
    rig.serve();
    assert_eq!(rig.newest(RECEIVE), b"hello");
}

proptest! {
    /// No buffer makes it panic, write outside the guest's memory, or stop serving after a reset.
    #[test]
    fn hostile_buffers_do_no_harm(
        buffers in prop::collection::vec(
            (0..QUEUES, prop_oneof![0_u64..0x60_0000, any::<u64>()], prop_oneof![0_u32..100, any::<u32>()],
             prop_oneof![Just(0), Just(WRITABLE), any::<u16>()]),
            1..20,
        ),
        message in any::<[u8; 16]>(),
    ) {
        let rig = Rig::open();
        (&rig.peer).write_all(b"some input").unwrap();
        rig.put(&message, page(HEAR) + DATA);
        for (queue, address, len, flags) in buffers {
            rig.offer(queue, address, len, flags);
            rig.offer(HEAR, page(HEAR) + DATA, 16, 0);
            rig.serve();
            prop_assert!(rig.channel.0.lock().owed.len() <= 3);
        }
        rig.channel.reset();
        prop_assert!(rig.channel.0.serve() == (Wanted::default(), false));
    }
}
