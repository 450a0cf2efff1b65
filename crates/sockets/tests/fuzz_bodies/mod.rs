//! What the fuzz targets do with their bytes: a guest that is free to write anything, anywhere, in
//! an unnamed network namespace without a way out. Nothing may panic, sleep or be written outside
//! of an answer's place.

use std::time::Duration;

use steadyvm_sockets::abi::{Request, WAIT_RECEIVED, op};
use steadyvm_sockets::{Channel, Device, Limits, Memory};
use virtio_queue::QueueT;
use vm_memory::{Bytes, GuestAddress};
use zerocopy::IntoBytes;

mod channels;
#[path = "../guest/mod.rs"]
mod guest;

pub use channels::channels;

use guest::{Call, Guest, QUEUE_SIZE, Vcpu, enter_namespace, message, name};

const LIMITS: Limits = Limits {
    priority: 6,
    sockets: 16,
    buffer_bytes: 1 << 24,
    request_bytes: 1 << 16,
    operations: 64,
    longest_wait: Duration::ZERO,
    poll: Duration::ZERO,
};

/// Each thread gets a namespace, once: most cases are shorter than the making of one.
fn namespace() {
    thread_local!(static ENTERED: () = enter_namespace());
    ENTERED.with(|()| ());
}

/// Takes values off the front; zeros when there is nothing left.
struct Source<'a>(&'a [u8]);

impl<'a> Source<'a> {
    fn bytes(&mut self, len: usize) -> &'a [u8] {
        let (now, later) = self.0.split_at(len.min(self.0.len()));
        self.0 = later;
        now
    }

    fn byte(&mut self) -> u8 {
        self.bytes(1).first().copied().unwrap_or(0)
    }

    fn word(&mut self) -> u64 {
        let mut word = [0; 8];
        let bytes = self.bytes(8);
        word[..bytes.len()].copy_from_slice(bytes);
        u64::from_le_bytes(word)
    }

    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// A queue anywhere, and memory full of anything.
pub fn ring(bytes: &[u8]) {
    namespace();
    let mut source = Source(bytes);
    let memory = Memory::from_ranges(&[
        (GuestAddress(0), 0x8000),
        // Two regions that touch, and a hole.
        (GuestAddress(0x8000), 0x8000),
        (GuestAddress(0x2_0000), 0x1000),
    ])
    .expect("fixed ranges");
    let device = Device::new(LIMITS, 1).expect("a device in a namespace");
    let mut channel = Channel::new(&device, 0).expect("channel 0");
    let queue = channel.queue();
    queue.set_size(1 << (source.byte() % 8));
    queue.set_desc_table_address(Some(source.word() as u32 & 0x3_fff0), Some(0));
    queue.set_avail_ring_address(Some(source.word() as u32 & 0x3_fffe), Some(0));
    queue.set_used_ring_address(Some(source.word() as u32 & 0x3_fffc), Some(0));
    queue.set_event_idx(source.byte() & 1 == 1);
    queue.set_ready(true);
    let rest = source.bytes(usize::MAX);
    let _ = memory.write(&rest[..rest.len().min(0x1_0000)], GuestAddress(0));
    for _ in 0..4 {
        if channel.serve(&memory).is_err() {
            channel.reset();
            break;
        }
    }
    device.reset(&memory);
}

/// A good queue, and any chain of descriptors over good and bad places.
pub fn chains(bytes: &[u8]) {
    namespace();
    let mut source = Source(bytes);
    let mut vcpu = Guest::here(LIMITS, 1).vcpu(0);
    let socket = vcpu.datagram();
    let places = [
        vcpu.base + 0x1_0000,
        vcpu.base + 0x2_0000,
        vcpu.base,
        vcpu.base + 0x4000,
        vcpu.base + 0x3f_fff0,
        0,
        u64::MAX - 8,
        1 << 32,
    ];
    for _ in 0..8 {
        let request = Request {
            op: u16::from(source.byte()).into(),
            handle: socket.into(),
            data_len: u32::from(source.byte()).into(),
            data_room: u32::from(source.byte()).into(),
            ..Request::default()
        };
        let _ = vcpu
            .memory
            .write_slice(request.as_bytes(), GuestAddress(places[0]));
        for index in 0..u16::from(source.byte() % 12) {
            let place = places[usize::from(source.byte()) % places.len()];
            let len = match source.byte() {
                0 => u32::MAX,
                1 => 64,
                2 => 32,
                len => u32::from(len),
            };
            let flags = u16::from(source.byte() & 7);
            let next = u16::from(source.byte()) % (QUEUE_SIZE + 4);
            vcpu.descriptor(
                index,
                place + u64::from(source.byte() & 3),
                len,
                flags,
                next,
            );
        }
        // The chain may lie over the rings and break them.
        if !vcpu.try_ring(u16::from(source.byte()) % QUEUE_SIZE) {
            return;
        }
        if source.is_empty() {
            return;
        }
    }
}

/// Any requests, well laid: every operation, on sockets that are open, closed or never were.
pub fn requests(bytes: &[u8]) {
    namespace();
    let mut source = Source(bytes);
    let guest = Guest::here(LIMITS, 2);
    let mut vcpu = guest.vcpu(0);
    vcpu.set_up();
    let mut handles = Vec::new();
    for _ in 0..64 {
        if source.is_empty() {
            break;
        }
        one_request(&mut vcpu, &mut source, &mut handles);
    }
    vcpu.events();
}

const NAMES: [&str; 6] = [
    "127.0.0.1:0",
    "127.0.0.1:4001",
    "0.0.0.0:4002",
    "[::1]:4001",
    "[::]:4002",
    "224.0.0.1:4001",
];

fn one_request(vcpu: &mut Vcpu, source: &mut Source, handles: &mut Vec<u64>) {
    let op = u16::from(source.byte() % 24);
    let chosen = source.byte();
    let handle = match handles.get(usize::from(chosen) % (handles.len() + 1)) {
        Some(handle) if chosen < 240 => *handle,
        _ => source.word(),
    };
    let mut arguments = [source.byte(), source.byte(), source.byte()].map(u64::from);
    if arguments[2] > 200 {
        arguments[usize::from(source.byte()) % 3] = source.word();
    }
    if matches!(op, op::STATE_TABLE | op::EVENT_RING) {
        // Where a table lies over the rings the guest breaks itself: that is what `ring` is for.
        let elsewhere = [vcpu.base + 0x8000, u64::MAX, 1 << 40, 4, u64::MAX - 7];
        arguments[0] = elsewhere[usize::from(source.byte()) % elsewhere.len()];
    }
    let to = match source.byte() {
        chosen @ 0..100 => name(NAMES[usize::from(chosen) % NAMES.len()]),
        len @ 100..200 => source.bytes(usize::from(len - 100)).to_vec(),
        _ => Vec::new(),
    };
    let control = match source.byte() {
        0..100 => Vec::new(),
        len @ 100..180 => source.bytes(usize::from(len)).to_vec(),
        len => {
            let (level, kind) = (source.byte(), source.byte());
            message(
                level.into(),
                kind.into(),
                source.bytes(usize::from(len - 180)),
            )
        }
    };
    let len = usize::from(source.byte());
    let data = source.bytes(len);
    let room = usize::from(source.byte()) * usize::from(source.byte() % 64);
    let call = Call {
        op,
        handle,
        arguments,
        name: &to,
        control: &control,
        data,
        name_room: usize::from(source.byte() % 140),
        control_room: usize::from(source.byte()) * 4,
        data_room: room,
    };
    // `call` checks that nothing outside of the answer's place is written.
    let reply = vcpu.call(&call);
    assert!(
        (0..4096).contains(&reply.error),
        "an error number: {}",
        reply.error
    );
    if reply.error != 0 {
        // A wait that fails to receive has waited, and says how many events there are.
        let waited = op == op::WAIT && reply.value & WAIT_RECEIVED != 0;
        assert!(reply.data.is_empty() && reply.control.is_empty() && (waited || reply.value == 0));
        return;
    }
    match op {
        op::SOCKET | op::ACCEPT => {
            assert!(!handles.contains(&reply.value), "a handle is given once");
            handles.push(reply.value);
        }
        op::CLOSE => {
            assert_eq!(vcpu.close(handle), Err(libc::EBADF));
        }
        _ => {}
    }
    assert!(vcpu.used().0 > 0);
}
