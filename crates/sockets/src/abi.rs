//! The interface with the guest, as in `kernel/modules/steadyvm_sockets/steadyvm_sockets.h`, where
//! every name is explained. `tests/abi.rs` compares the two.

use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// `SVS_VERSION`: the version of this interface.
pub const VERSION: u32 = 1;
/// `SVS_VIRTIO_ID`: the device number of virtio.
pub const VIRTIO_ID: u32 = 65535;
/// `SVS_F_EVENTS`: feature bit of the state table and the event rings.
pub const FEATURE_EVENTS: u32 = 0;
/// `SVS_F_WAIT`: feature bit of [`op::WAIT`] and [`op::WAKE`].
pub const FEATURE_WAIT: u32 = 1;
/// `SVS_MAX_NAME`: the longest socket address, in bytes.
pub const MAX_NAME: usize = 128;
/// `SVS_MAX_CONTROL`: the most bytes of control messages in one request, each way.
pub const MAX_CONTROL: usize = 4096;
/// `SVS_MAX_SEGMENTS`: the most descriptors of one chain.
pub const MAX_SEGMENTS: usize = 1024;

/// `SVS_WAIT_RECEIVED`: in the value of [`op::WAIT`], that it has received.
pub const WAIT_RECEIVED: u64 = 1 << 63;

/// `SVS_OP_…`: what a request asks for.
pub mod op {
    #![allow(missing_docs)] // the header explains each
    pub const SOCKET: u16 = 1;
    pub const BIND: u16 = 2;
    pub const CONNECT: u16 = 3;
    pub const LISTEN: u16 = 4;
    pub const ACCEPT: u16 = 5;
    pub const SEND: u16 = 6;
    pub const RECEIVE: u16 = 7;
    pub const SHUTDOWN: u16 = 8;
    pub const CLOSE: u16 = 9;
    pub const GETSOCKNAME: u16 = 10;
    pub const GETPEERNAME: u16 = 11;
    pub const SETSOCKOPT: u16 = 12;
    pub const GETSOCKOPT: u16 = 13;
    pub const IOCTL: u16 = 14;
    pub const POLL: u16 = 15;
    pub const STEER: u16 = 16;
    pub const STATE_TABLE: u16 = 17;
    pub const EVENT_RING: u16 = 18;
    pub const HARVEST: u16 = 19;
    pub const WAIT: u16 = 20;
    pub const WAKE: u16 = 21;
}

/// `SVS_READY_…`: what a socket is ready for; the values of poll(2).
pub mod ready {
    #![allow(missing_docs)] // those of poll(2)
    pub const IN: u32 = 0x0001;
    pub const PRI: u32 = 0x0002;
    pub const OUT: u32 = 0x0004;
    pub const ERR: u32 = 0x0008;
    pub const HUP: u32 = 0x0010;
    pub const RDHUP: u32 = 0x2000;
}

/// `struct svs_config`: the device's configuration space.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct Config {
    /// [`VERSION`].
    pub version: U32,
    /// Request queues, wait sets and event rings.
    pub channels: U32,
    /// Entries of the state table.
    pub max_sockets: U32,
    /// Most bytes of data in one request, each way.
    pub max_data: U32,
    /// I/O port that a channel's number is written to; 0: none.
    pub port: U32,
}

/// `struct svs_request`: the head of what the driver writes.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct Request {
    /// One of [`op`].
    pub op: U16,
    /// Zero.
    pub reserved0: U16,
    /// Zero.
    pub reserved1: U32,
    /// The socket, or 0.
    pub handle: U64,
    /// Bytes of the name that follow.
    pub name_len: U32,
    /// Bytes of control messages that follow.
    pub control_len: U32,
    /// Bytes of data that follow.
    pub data_len: U32,
    /// Bytes for a name in the answer.
    pub name_room: U32,
    /// Bytes for control messages in the answer.
    pub control_room: U32,
    /// Bytes for data in the answer.
    pub data_room: U32,
    /// What the operation takes.
    pub argument: [U64; 3],
}

/// `struct svs_response`: the head of what the device writes.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct Response {
    /// 0 or an error number.
    pub error: U32,
    /// [`ready`] of the socket after the operation.
    pub ready: U32,
    /// What the operation gives.
    pub value: U64,
    /// Length of the name itself, which may be more than its room.
    pub name_len: U32,
    /// Bytes in the control area.
    pub control_len: U32,
    /// Bytes in the data area.
    pub data_len: U32,
    /// `MSG_` flags of a received message.
    pub message_flags: U32,
}

/// `struct svs_state`: an entry of the state table.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct State {
    /// Of the socket; 0: there is none.
    pub generation: U32,
    /// [`ready`] now.
    pub ready: U32,
}

/// `struct svs_event_ring`: the head of an event ring.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct EventRing {
    /// Events ever added, modulo 2^32.
    pub produced: U32,
    /// Zero.
    pub reserved0: [U32; 15],
    /// Events ever taken, modulo 2^32.
    pub consumed: U32,
    /// Zero.
    pub reserved1: [U32; 15],
}

/// `struct svs_event`: an entry of an event ring.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct Event {
    /// The socket.
    pub handle: U64,
    /// [`ready`] at the edge: more than what has changed.
    pub ready: U32,
    /// Zero.
    pub reserved: U32,
}

/// `SVS_SHARED_…`: where things are in memory that is shared without virtio.
pub mod shared {
    #![allow(missing_docs)] // the header explains each
    pub const MAGIC: u32 = 0x4d53_5653;
    pub const SERVER: u32 = 0;
    pub const QUEUE: u32 = 8;
    pub const DESCRIPTORS: u32 = 0;
    pub const AVAILABLE: u32 = 128;
    pub const USED: u32 = 192;
    pub const SERVED: u32 = 320;
    pub const DRIVERS: u32 = 512;
}

/// `struct svs_shared`: the head of memory that is shared without virtio.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct Shared {
    /// [`shared::MAGIC`].
    pub magic: U32,
    /// [`VERSION`].
    pub version: U32,
    /// As in [`Config`].
    pub channels: U32,
    /// As in [`Config`].
    pub max_sockets: U32,
    /// As in [`Config`].
    pub max_data: U32,
    /// Offset of the first channel's area.
    pub first_channel: U32,
    /// Bytes of each channel's area.
    pub channel_size: U32,
    /// Bytes of all.
    pub size: U32,
    /// Zero.
    pub reserved0: [U32; 8],
    /// How often the driver has asked to begin anew.
    pub asked: U32,
    /// Zero.
    pub reserved1: [U32; 15],
    /// The last of these that was done.
    pub done: U32,
    /// Zero.
    pub reserved2: [U32; 15],
}
