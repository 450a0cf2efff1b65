//! A guest of another monitor that writes anything into the memory it shares with its sockets, and rings
//! as it likes.

use std::mem::offset_of;
use std::sync::atomic::Ordering;
use steadyvm_sockets::abi::{Request, Response, Shared as Head, op, shared};
use steadyvm_sockets::{Limits, Memory};
use vm_memory::{Bytes, GuestAddress};
use vmm_sys_util::eventfd::EventFd;
use zerocopy::{FromBytes, IntoBytes};

use super::{Source, enter_namespace};
use crate::output::{Messages, Pipe};
use crate::shared::memory::{Layout, allocate};
use crate::shared::server::Server;
use crate::vcpu::Ending;

const CHANNELS: u16 = 2;
const LIMITS: Limits = Limits {
    operations: shared::QUEUE as u16,
    ..super::LIMITS
};
/// Where a good driver of this rig has its answers in a channel's area.
const ANSWER: u64 = 16 << 10;
const DESCRIPTOR_BYTES: u64 = 16;
/// Flags of a descriptor: another one follows; the device may write.
const NEXT: u16 = 1;
const WRITABLE: u16 = 2;

struct Rig {
    server: Server,
    memory: Memory,
    size: u64,
    ending: Ending,
}

impl Rig {
    fn new() -> Self {
        enter_namespace();
        let layout = Layout::new(CHANNELS, &LIMITS);
        let (memory, _file) = allocate(layout).expect("memory");
        let bell = EventFd::new(libc::EFD_NONBLOCK).expect("an eventfd");
        let messages = Messages(Pipe::new(&bell).expect("an eventfd"));
        let server = Server::new(LIMITS, layout, memory.clone(), messages);
        Self {
            server: server.expect("a sockets device"),
            memory,
            size: layout.size().into(),
            ending: Ending::new().expect("an eventfd"),
        }
    }

    /// A guest's own access: past the end of the memory it has written nothing.
    fn put(&self, bytes: &[u8], at: u64) {
        let _ = self.memory.write_slice(bytes, GuestAddress(at));
    }

    fn number(&self, at: u64) -> u32 {
        let number = self.memory.load(GuestAddress(at), Ordering::Acquire);
        number.expect("within the memory")
    }

    fn lay(&self, index: u64, channel: u16, (at, len): (u64, u32), (flags, next): (u16, u16)) {
        let bytes = [
            &at.to_le_bytes()[..],
            &len.to_le_bytes(),
            &flags.to_le_bytes(),
            &next.to_le_bytes(),
        ];
        let place = area(channel) + u64::from(shared::DESCRIPTORS) + index * DESCRIPTOR_BYTES;
        self.put(&bytes.concat(), place);
    }

    /// Makes the chain that begins with descriptor 0 available, and rings.
    fn offer(&self, channel: u16, step: u16) {
        let available = area(channel) + u64::from(shared::AVAILABLE);
        let slot = self.memory.read_obj::<u16>(GuestAddress(available + 2));
        let slot = slot.expect("within the memory");
        let place = available + 4 + 2 * u64::from(slot % shared::QUEUE as u16);
        self.put(&[0; 2], place);
        self.put(&slot.wrapping_add(step).to_le_bytes(), available + 2);
        self.server.serve(channel, &self.ending);
    }

    /// A good driver's beginning, and its first request: both must work, whatever was before.
    fn begin_and_ask(&self) {
        for channel in 0..CHANNELS {
            self.put(&[0; shared::DRIVERS as usize], area(channel));
        }
        let asked = offset_of!(Head, asked) as u64;
        let number = self.number(asked).wrapping_add(1);
        self.put(&number.to_le_bytes(), asked);
        self.server.begin_anew();
        assert_eq!(self.number(offset_of!(Head, done) as u64), number, "begun");

        for channel in 0..CHANNELS {
            let request = Request {
                op: op::SOCKET.into(),
                argument: [libc::AF_INET as u64, libc::SOCK_DGRAM as u64, 0].map(Into::into),
                ..Request::default()
            };
            let message = area(channel) + u64::from(shared::DRIVERS);
            let answer = area(channel) + ANSWER;
            self.put(request.as_bytes(), message);
            self.lay(
                0,
                channel,
                (message, size_of::<Request>() as u32),
                (NEXT, 1),
            );
            self.lay(
                1,
                channel,
                (answer, size_of::<Response>() as u32),
                (WRITABLE, 0),
            );
            self.offer(channel, 1);
            let served = area(channel) + u64::from(shared::SERVED);
            assert_eq!(self.number(served), 1, "a good request is served");
            let mut bytes = [0; size_of::<Response>()];
            let read = self.memory.read_slice(&mut bytes, GuestAddress(answer));
            read.expect("within the memory");
            let response = Response::read_from_bytes(&bytes).expect("its size");
            assert_eq!(response.error.get(), 0, "no socket is left of before");
        }
    }
}

/// The first byte of a channel's area, as the memory's head says it.
fn area(channel: u16) -> u64 {
    Layout::queue(channel).descriptors - u64::from(shared::DESCRIPTORS)
}

/// An address: of a channel's own things mostly, else of the head, the memory's end, or anything.
fn address(rig: &Rig, source: &mut Source, channel: u16) -> u64 {
    let offset = source.word(2);
    match source.byte() % 16 {
        0..=7 => area(channel) + u64::from(shared::DRIVERS) + offset,
        8..=10 => area(channel) + offset % u64::from(shared::DRIVERS),
        11 => offset % 4096,
        12 => rig.size - 64 + offset % 128,
        13 => u64::MAX - offset % 256,
        _ => source.word(8),
    }
}

/// A request whose every part may be spoilt.
fn ask(rig: &Rig, source: &mut Source, channel: u16) {
    let message = area(channel) + u64::from(shared::DRIVERS);
    let operation = source.byte();
    let operation = if operation > 200 {
        op::SOCKET
    } else {
        u16::from(operation % (op::WAKE as u8 + 3))
    };
    let argument = if operation == op::SOCKET {
        [2, 1 + u64::from(source.byte() % 2), 0]
    } else {
        let place = address(rig, source, channel);
        [place, source.word(2), u64::from(source.byte())]
    };
    let handle_bytes = 1 + source.below(8);
    let request = Request {
        op: operation.into(),
        handle: source.word(handle_bytes).into(),
        name_len: u32::from(source.byte() % 32).into(),
        data_len: u32::from(source.byte()).into(),
        data_room: u32::from(source.byte()).into(),
        argument: argument.map(Into::into),
        ..Request::default()
    };
    rig.put(request.as_bytes(), message);
    let parts = 1 + source.below(5);
    for index in 0..parts {
        let (mut at, mut len) = (address(rig, source, channel), source.word(2) as u32);
        let mut flags = u16::from(source.byte());
        if index == 0 && source.byte() < 200 {
            (at, len, flags) = (message, size_of::<Request>() as u32 + len % 256, NEXT);
        } else if source.byte() < 200 {
            flags = WRITABLE | u16::from(index + 1 < parts);
        }
        let next = if source.byte() > 250 {
            source.word(2) as u16
        } else {
            index as u16 + 1
        };
        rig.lay(index as u64, channel, (at, len), (flags, next));
    }
    let step = if source.byte() > 250 {
        source.word(2) as u16
    } else {
        1
    };
    rig.offer(channel, step);
}

/// A guest's life in its shared memory: all that it writes and rings are bytes.
///
/// # Panics
/// Where the server panics, or a good driver's new beginning does not work afterwards.
pub fn shared_memory(bytes: &[u8]) {
    let mut source = Source(bytes);
    let rig = Rig::new();
    rig.begin_and_ask();
    for _ in 0..96 {
        if source.is_empty() {
            break;
        }
        let channel = source.below(CHANNELS.into()) as u16;
        match source.byte() % 8 {
            0 => rig.server.begin_anew(),
            1 => {
                let at = address(&rig, &mut source, channel);
                let len = source.below(64);
                rig.put(source.bytes(len), at);
                rig.server.serve(channel, &rig.ending);
            }
            2 => rig.begin_and_ask(),
            _ => ask(&rig, &mut source, channel),
        }
    }
    rig.begin_and_ask();
}
