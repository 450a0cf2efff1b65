//! A guest in a test: it lays requests in guest memory as the kernel module does, rings the queue,
//! and reads the answers. Written against the header, not with the device's own code.

// Every test binary uses a part of it.
#![allow(dead_code)]

use std::net::{IpAddr, SocketAddr};
use std::process::{Child, Command};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard};
use std::time::Duration;

use steadyvm_sockets::abi::{Event, EventRing, Request, Response, State, op};
use steadyvm_sockets::{Channel, Device, Limits, Memory, Served};
use virtio_queue::QueueT;
use vm_memory::{Bytes, GuestAddress};
use zerocopy::{FromBytes, IntoBytes};

/// An error number of the host.
pub type Errno = i32;

/// Puts the calling thread into a network namespace of its own with loopback up. It goes with the
/// thread and its sockets.
pub fn enter_namespace() {
    nix::sched::unshare(nix::sched::CloneFlags::CLONE_NEWNET)
        .expect("these tests make network namespaces: run them as root");
    ip("link set lo up multicast on");
    ip("route add 224.0.0.0/4 dev lo");
}

/// Written while a child is started. From its fork to its exec a child has every descriptor of this
/// process: a socket that another test closes meanwhile ends only then.
static STARTING: RwLock<()> = RwLock::new(());

/// Starts a child process, which has none of this process's sockets when this returns.
pub fn start(command: &mut Command) -> std::io::Result<Child> {
    let _starting = STARTING.write().unwrap_or_else(PoisonError::into_inner);
    command.spawn()
}

/// While this is held no child is started: what is closed ends at once.
pub fn no_child_starts() -> RwLockReadGuard<'static, ()> {
    STARTING.read().unwrap_or_else(PoisonError::into_inner)
}

/// Where nobody is in a namespace of the test's own: no port that was free a moment ago, whose socket a child that
/// is being started may still have.
pub const NOBODY: &str = "127.0.0.1:9";

/// Runs `ip WORDS` in the calling thread's namespace.
pub fn ip(words: &str) {
    let done = start(Command::new("ip").args(words.split(' '))).and_then(|mut child| child.wait());
    assert!(
        done.expect("the tests use ip (iproute2)").success(),
        "ip {words}"
    );
}

pub const QUEUE_SIZE: u16 = 64;
const CHANNEL_BYTES: u64 = 0x40_0000;
const DESCRIPTORS: u64 = 0;
const AVAILABLE: u64 = 0x4000;
const USED: u64 = 0x5000;
const RING: u64 = 0x6000;
const REQUEST: u64 = 0x1_0000;
const RESPONSE: u64 = 0x20_0000;
const STATE_TABLE: u64 = 0x1000;
const FIRST_CHANNEL: u64 = 0x40_0000;
/// Bytes of a piece of scattered memory, and the distance from one to the next.
const PIECE: usize = 1500;
/// Of room that the device may write.
pub const CANARY: u8 = 0xa5;

pub const RING_ENTRIES: u32 = 64;

/// Limits that let a test wait for long, so that a lost event is seen and not waited out.
pub fn patient() -> Limits {
    Limits {
        sockets: 256,
        longest_wait: Duration::from_secs(60),
        ..Limits::default()
    }
}

pub struct Guest {
    pub device: Arc<Device>,
    pub memory: Memory,
}

impl Guest {
    /// In a namespace of its own.
    pub fn new(limits: Limits, channels: u16) -> Self {
        enter_namespace();
        Self::here(limits, channels)
    }

    /// In the calling thread's namespace.
    pub fn here(limits: Limits, channels: u16) -> Self {
        let size = FIRST_CHANNEL + CHANNEL_BYTES * u64::from(channels);
        Self {
            device: Device::new(limits, channels).unwrap(),
            memory: Memory::from_ranges(&[(GuestAddress(0), size as usize)]).unwrap(),
        }
    }

    pub fn vcpu(&self, index: u16) -> Vcpu {
        let base = FIRST_CHANNEL + CHANNEL_BYTES * u64::from(index);
        let mut channel = Channel::new(&self.device, index).unwrap();
        let queue = channel.queue();
        queue.set_size(QUEUE_SIZE);
        queue.set_desc_table_address(Some((base + DESCRIPTORS) as u32), Some(0));
        queue.set_avail_ring_address(Some((base + AVAILABLE) as u32), Some(0));
        queue.set_used_ring_address(Some((base + USED) as u32), Some(0));
        queue.set_ready(true);
        for ring in [AVAILABLE, USED] {
            self.memory
                .write_slice(&[0; 4], GuestAddress(base + ring))
                .unwrap();
        }
        Vcpu {
            memory: self.memory.clone(),
            device: Arc::clone(&self.device),
            channel,
            base,
            index: 0,
            consumed: 0,
        }
    }
}

/// One VCPU with a guest of its own and its event ring set up.
pub fn alone() -> Vcpu {
    let mut vcpu = Guest::new(patient(), 1).vcpu(0);
    vcpu.set_up();
    vcpu
}

/// One side of a channel.
pub struct Vcpu {
    pub memory: Memory,
    pub device: Arc<Device>,
    pub channel: Channel,
    pub base: u64,
    index: u16,
    consumed: u32,
}

/// What goes into a request.
#[derive(Clone, Default)]
pub struct Call<'a> {
    pub op: u16,
    pub handle: u64,
    pub arguments: [u64; 3],
    pub name: &'a [u8],
    pub control: &'a [u8],
    pub data: &'a [u8],
    pub name_room: usize,
    pub control_room: usize,
    pub data_room: usize,
}

/// What comes back.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reply {
    pub error: Errno,
    pub ready: u32,
    pub value: u64,
    pub name: Vec<u8>,
    pub name_len: u32,
    pub control: Vec<u8>,
    pub data: Vec<u8>,
    pub flags: i32,
}

impl Reply {
    pub fn result(self) -> Result<Self, Errno> {
        if self.error == 0 {
            Ok(self)
        } else {
            Err(self.error)
        }
    }

    pub fn address(&self) -> SocketAddr {
        address(&self.name)
    }
}

impl Vcpu {
    /// Registers the state table and the event ring.
    pub fn set_up(&mut self) {
        self.state_table(STATE_TABLE).unwrap();
        self.event_ring(self.base + RING, u64::from(RING_ENTRIES))
            .unwrap();
    }

    pub fn state_table(&mut self, address: u64) -> Result<Reply, Errno> {
        self.simple(op::STATE_TABLE, 0, [address, 0, 0])
    }

    pub fn event_ring(&mut self, address: u64, entries: u64) -> Result<Reply, Errno> {
        self.consumed = 0;
        self.simple(op::EVENT_RING, 0, [address, entries, 0])
    }

    fn simple(&mut self, op: u16, handle: u64, arguments: [u64; 3]) -> Result<Reply, Errno> {
        self.call(&Call {
            op,
            handle,
            arguments,
            ..Call::default()
        })
        .result()
    }

    /// Writes a descriptor: what a test may also do by itself, badly.
    pub fn descriptor(&self, index: u16, address: u64, len: u32, flags: u16, next: u16) {
        let mut bytes = address.to_le_bytes().to_vec();
        bytes.extend(len.to_le_bytes());
        bytes.extend(flags.to_le_bytes());
        bytes.extend(next.to_le_bytes());
        let at = self.base + DESCRIPTORS + u64::from(index) * 16;
        self.memory.write_slice(&bytes, GuestAddress(at)).unwrap();
    }

    /// Makes the chain that begins at `head` available and rings the queue.
    pub fn ring(&mut self, head: u16) -> Served {
        self.make_available(head);
        self.channel.serve(&self.memory).unwrap()
    }

    /// The same with a queue that may be broken: whether it is not.
    pub fn try_ring(&mut self, head: u16) -> bool {
        self.make_available(head);
        self.channel.serve(&self.memory).is_ok()
    }

    fn make_available(&mut self, head: u16) {
        let slot = self.base + AVAILABLE + 4 + u64::from(self.index % QUEUE_SIZE) * 2;
        self.memory
            .write_obj(head.to_le(), GuestAddress(slot))
            .unwrap();
        self.index = self.index.wrapping_add(1);
        let place = GuestAddress(self.base + AVAILABLE + 2);
        self.memory.write_obj(self.index.to_le(), place).unwrap();
    }

    /// The used ring: how many entries, and the last one's descriptor and length.
    pub fn used(&self) -> (u16, u32, u32) {
        let used: u16 = self
            .memory
            .read_obj(GuestAddress(self.base + USED + 2))
            .unwrap();
        let last = u64::from(used.wrapping_sub(1) % QUEUE_SIZE);
        let entry: [u32; 2] = self
            .memory
            .read_obj(GuestAddress(self.base + USED + 4 + last * 8))
            .unwrap();
        (used, entry[0], entry[1])
    }

    /// Lays out bytes in pieces with gaps and gives their places.
    fn scatter(start: u64, len: usize) -> Vec<(u64, u32)> {
        let pieces = len.div_ceil(PIECE);
        // Few and large where there is much, many and small where there is little.
        let piece = if pieces > 20 { len.div_ceil(20) } else { PIECE };
        (0..len.div_ceil(piece))
            .map(|index| {
                let left = len - index * piece;
                (
                    start + (index * (piece + 16)) as u64,
                    left.min(piece) as u32,
                )
            })
            .collect()
    }

    pub fn call(&mut self, call: &Call) -> Reply {
        let request = Request {
            op: call.op.into(),
            handle: call.handle.into(),
            name_len: (call.name.len() as u32).into(),
            control_len: (call.control.len() as u32).into(),
            data_len: (call.data.len() as u32).into(),
            name_room: (call.name_room as u32).into(),
            control_room: (call.control_room as u32).into(),
            data_room: (call.data_room as u32).into(),
            argument: call.arguments.map(Into::into),
            ..Request::default()
        };
        let readable = [request.as_bytes(), call.name, call.control, call.data].concat();
        self.exchange(
            &readable,
            [call.name_room, call.control_room, call.data_room],
        )
    }

    /// Sends any bytes, with any room for the parts of the answer.
    pub fn exchange(&mut self, readable: &[u8], rooms: [usize; 3]) -> Reply {
        let (name_room, control_room) = (rooms[0], rooms[1]);
        let room = size_of::<Response>() + rooms.iter().sum::<usize>();
        let input = Self::scatter(self.base + REQUEST, readable.len());
        let output = Self::scatter(self.base + RESPONSE, room);

        let mut rest = readable;
        for (address, len) in &input {
            let (now, later) = rest.split_at(*len as usize);
            self.memory
                .write_slice(now, GuestAddress(*address))
                .unwrap();
            rest = later;
        }
        for (address, len) in &output {
            let filled = vec![CANARY; *len as usize + 16];
            self.memory
                .write_slice(&filled, GuestAddress(*address))
                .unwrap();
        }
        let all = input.len() + output.len();
        for (index, (address, len)) in input.iter().chain(&output).enumerate() {
            let write = if index >= input.len() { 2 } else { 0 };
            let next = u16::from(index + 1 < all);
            self.descriptor(index as u16, *address, *len, write | next, index as u16 + 1);
        }
        let before = self.used().0;
        self.ring(0);
        assert_eq!(
            self.used().0,
            before.wrapping_add(1),
            "the request was not answered"
        );

        let mut bytes = Vec::new();
        for (address, len) in &output {
            let mut piece = vec![0; *len as usize + 16];
            self.memory
                .read_slice(&mut piece, GuestAddress(*address))
                .unwrap();
            let gap = piece.split_off(*len as usize);
            assert!(
                gap.iter().all(|byte| *byte == CANARY),
                "written outside of the answer"
            );
            bytes.extend(piece);
        }
        let (response, parts) = Response::read_from_prefix(&bytes).unwrap();
        let (name, parts) = parts.split_at(name_room);
        let (control, data) = parts.split_at(control_room);
        let name_len = response.name_len.get();
        Reply {
            error: response.error.get() as i32,
            ready: response.ready.get(),
            value: response.value.get(),
            name: name[..name_room.min(name_len as usize)].to_vec(),
            name_len,
            control: control[..response.control_len.get() as usize].to_vec(),
            data: data[..response.data_len.get() as usize].to_vec(),
            flags: response.message_flags.get() as i32,
        }
    }

    // Operations, as the socket calls of libc.

    pub fn socket(&mut self, family: i32, kind: i32, protocol: i32) -> Result<u64, Errno> {
        let arguments = [family as u64, kind as u64, protocol as u64];
        Ok(self.simple(op::SOCKET, 0, arguments)?.value)
    }

    pub fn stream(&mut self) -> u64 {
        self.socket(libc::AF_INET, libc::SOCK_STREAM, 0).unwrap()
    }

    pub fn datagram(&mut self) -> u64 {
        self.socket(libc::AF_INET, libc::SOCK_DGRAM, 0).unwrap()
    }

    fn with_name(&mut self, op: u16, handle: u64, to: &str) -> Result<Reply, Errno> {
        let name = &name(to);
        self.call(&Call {
            op,
            handle,
            name,
            ..Call::default()
        })
        .result()
    }

    pub fn bind(&mut self, handle: u64, to: &str) -> Result<Reply, Errno> {
        self.with_name(op::BIND, handle, to)
    }

    pub fn connect(&mut self, handle: u64, to: &str) -> Result<Reply, Errno> {
        self.with_name(op::CONNECT, handle, to)
    }

    pub fn listen(&mut self, handle: u64, backlog: i32) -> Result<Reply, Errno> {
        self.simple(op::LISTEN, handle, [backlog as u64, 0, 0])
    }

    pub fn accept(&mut self, handle: u64) -> Result<(u64, SocketAddr), Errno> {
        let call = Call {
            op: op::ACCEPT,
            handle,
            name_room: 128,
            ..Call::default()
        };
        let reply = self.call(&call).result()?;
        Ok((reply.value, reply.address()))
    }

    pub fn send(&mut self, handle: u64, data: &[u8], flags: i32) -> Result<u64, Errno> {
        let arguments = [flags as u64, 0, 0];
        let call = Call {
            op: op::SEND,
            handle,
            arguments,
            data,
            ..Call::default()
        };
        Ok(self.call(&call).result()?.value)
    }

    pub fn send_to(&mut self, handle: u64, data: &[u8], to: &str) -> Result<u64, Errno> {
        self.send_message(handle, data, &[], to)
    }

    pub fn send_message(
        &mut self,
        handle: u64,
        data: &[u8],
        control: &[u8],
        to: &str,
    ) -> Result<u64, Errno> {
        let name = &name(to);
        let call = Call {
            op: op::SEND,
            handle,
            name,
            control,
            data,
            ..Call::default()
        };
        Ok(self.call(&call).result()?.value)
    }

    pub fn receive(&mut self, handle: u64, room: usize, flags: i32) -> Result<Reply, Errno> {
        self.call(&Call {
            op: op::RECEIVE,
            handle,
            arguments: [flags as u64, 0, 0],
            name_room: 128,
            control_room: 512,
            data_room: room,
            ..Call::default()
        })
        .result()
    }

    pub fn shutdown(&mut self, handle: u64, how: i32) -> Result<Reply, Errno> {
        self.simple(op::SHUTDOWN, handle, [how as u64, 0, 0])
    }

    pub fn close(&mut self, handle: u64) -> Result<Reply, Errno> {
        self.simple(op::CLOSE, handle, [0; 3])
    }

    pub fn local(&mut self, handle: u64) -> Result<SocketAddr, Errno> {
        let call = Call {
            op: op::GETSOCKNAME,
            handle,
            name_room: 128,
            ..Call::default()
        };
        Ok(self.call(&call).result()?.address())
    }

    pub fn peer(&mut self, handle: u64) -> Result<SocketAddr, Errno> {
        let call = Call {
            op: op::GETPEERNAME,
            handle,
            name_room: 128,
            ..Call::default()
        };
        Ok(self.call(&call).result()?.address())
    }

    pub fn set(&mut self, handle: u64, level: i32, option: i32, data: &[u8]) -> Result<(), Errno> {
        let arguments = [level as u64, option as u64, 0];
        let call = Call {
            op: op::SETSOCKOPT,
            handle,
            arguments,
            data,
            ..Call::default()
        };
        self.call(&call).result().map(drop)
    }

    pub fn set_int(
        &mut self,
        handle: u64,
        level: i32,
        option: i32,
        value: i32,
    ) -> Result<(), Errno> {
        self.set(handle, level, option, &value.to_ne_bytes())
    }

    pub fn get(
        &mut self,
        handle: u64,
        level: i32,
        option: i32,
        room: usize,
    ) -> Result<Vec<u8>, Errno> {
        let arguments = [level as u64, option as u64, 0];
        let call = Call {
            op: op::GETSOCKOPT,
            handle,
            arguments,
            data_room: room,
            ..Call::default()
        };
        Ok(self.call(&call).result()?.data)
    }

    pub fn get_int(&mut self, handle: u64, level: i32, option: i32) -> Result<i32, Errno> {
        let value = self.get(handle, level, option, 4)?;
        Ok(i32::from_ne_bytes(value.try_into().expect("four bytes")))
    }

    pub fn ioctl(&mut self, handle: u64, request: u64, data: &[u8]) -> Result<Vec<u8>, Errno> {
        let (arguments, data_room) = ([request, 0, 0], data.len());
        let call = Call {
            op: op::IOCTL,
            handle,
            arguments,
            data,
            data_room,
            ..Call::default()
        };
        Ok(self.call(&call).result()?.data)
    }

    pub fn ioctl_int(&mut self, handle: u64, request: u64) -> Result<i32, Errno> {
        let value = self.ioctl(handle, request, &[0; 4])?;
        Ok(i32::from_ne_bytes(value.try_into().expect("four bytes")))
    }

    pub fn poll(&mut self, handle: u64) -> u32 {
        self.simple(op::POLL, handle, [0; 3]).unwrap().ready
    }

    pub fn steer(&mut self, handle: u64, channel: u64) -> Result<Reply, Errno> {
        self.simple(op::STEER, handle, [channel, 0, 0])
    }

    pub fn harvest(&mut self) -> Result<u64, Errno> {
        Ok(self.simple(op::HARVEST, 0, [0; 3])?.value)
    }

    pub fn wait(&mut self, longest: Option<Duration>) -> Result<u64, Errno> {
        let longest = longest.map_or(u64::MAX, |longest| longest.as_nanos() as u64);
        Ok(self.simple(op::WAIT, 0, [longest, 0, 0])?.value)
    }

    /// A wait of at most 50 ms that receives for who blocks in `handle`.
    pub fn call_to_wait(&mut self, handle: u64, room: usize, flags: i32) -> Reply {
        self.call(&Call {
            op: op::WAIT,
            handle,
            arguments: [50_000_000, flags as u64, 0],
            name_room: 128,
            control_room: 512,
            data_room: room,
            ..Call::default()
        })
    }

    pub fn wait_to_receive(
        &mut self,
        handle: u64,
        room: usize,
        flags: i32,
    ) -> Result<Reply, Errno> {
        self.call_to_wait(handle, room, flags).result()
    }

    pub fn wake(&mut self, channel: u64) -> Result<Reply, Errno> {
        self.simple(op::WAKE, 0, [channel, 0, 0])
    }

    /// Idles until the socket is ready for one of `wanted`, as a blocked guest thread does. Fails
    /// where it became ready without an event.
    pub fn idle_until(&mut self, handle: u64, wanted: u32) -> u32 {
        loop {
            let ready = self.poll(handle);
            if ready & wanted != 0 {
                return ready;
            }
            if self.wait(None).unwrap() == 0 {
                // The time was over, or there was no reason. What is ready by now was told by now.
                let ready = self.poll(handle);
                let told = !self.events().is_empty();
                assert!(ready & wanted == 0 || told, "ready, and no event said so");
            }
            self.events();
        }
    }

    /// Takes all events out of the ring.
    pub fn events(&mut self) -> Vec<(u64, u32)> {
        let ring = self.base + RING;
        let produced: u32 = self.memory.read_obj(GuestAddress(ring)).unwrap();
        let mut events = Vec::new();
        while self.consumed != produced {
            let slot = u64::from(self.consumed % RING_ENTRIES) * size_of::<Event>() as u64;
            let mut bytes = [0; size_of::<Event>()];
            let at = ring + size_of::<EventRing>() as u64 + slot;
            self.memory
                .read_slice(&mut bytes, GuestAddress(at))
                .unwrap();
            let event = Event::read_from_bytes(&bytes).unwrap();
            events.push((event.handle.get(), event.ready.get()));
            self.consumed = self.consumed.wrapping_add(1);
        }
        self.set_consumed(self.consumed);
        events
    }

    pub fn set_consumed(&self, consumed: u32) {
        let at = GuestAddress(self.base + RING + 64);
        self.memory.write_obj(consumed.to_le(), at).unwrap();
    }

    /// The state table's entry: generation and readiness.
    pub fn state(&self, handle: u64) -> (u32, u32) {
        let index = handle & u64::from(u32::MAX);
        let mut bytes = [0; size_of::<State>()];
        let at = GuestAddress(STATE_TABLE + index * 8);
        self.memory.read_slice(&mut bytes, at).unwrap();
        let state = State::read_from_bytes(&bytes).unwrap();
        (state.generation.get(), state.ready.get())
    }
}

/// The bytes of a sockaddr.
pub fn name(text: &str) -> Vec<u8> {
    if text.is_empty() {
        return Vec::new();
    }
    let address: SocketAddr = text.parse().unwrap();
    let port = address.port().to_be_bytes();
    match address.ip() {
        IpAddr::V4(ip) => {
            let family = (libc::AF_INET as u16).to_ne_bytes();
            [&family[..], &port, &ip.octets(), &[0; 8]].concat()
        }
        IpAddr::V6(ip) => {
            let family = (libc::AF_INET6 as u16).to_ne_bytes();
            [&family[..], &port, &[0; 4], &ip.octets(), &[0; 4]].concat()
        }
    }
}

/// A sockaddr's bytes, read.
pub fn address(bytes: &[u8]) -> SocketAddr {
    let port = u16::from_be_bytes([bytes[2], bytes[3]]);
    let ip = match i32::from(u16::from_ne_bytes([bytes[0], bytes[1]])) {
        libc::AF_INET => IpAddr::from(<[u8; 4]>::try_from(&bytes[4..8]).unwrap()),
        libc::AF_INET6 => IpAddr::from(<[u8; 16]>::try_from(&bytes[8..24]).unwrap()),
        family => panic!("no address of the internet: family {family}"),
    };
    SocketAddr::new(ip, port)
}

/// Control messages in a buffer: level, type, payload.
pub fn messages(mut bytes: &[u8]) -> Vec<(i32, i32, Vec<u8>)> {
    let mut found = Vec::new();
    while bytes.len() >= 16 {
        let len = u64::from_ne_bytes(bytes[..8].try_into().unwrap()) as usize;
        let level = i32::from_ne_bytes(bytes[8..12].try_into().unwrap());
        let kind = i32::from_ne_bytes(bytes[12..16].try_into().unwrap());
        found.push((level, kind, bytes[16..len].to_vec()));
        bytes = bytes.get(len.next_multiple_of(8)..).unwrap_or(&[]);
    }
    found
}

/// A control message's bytes.
pub fn message(level: i32, kind: i32, payload: &[u8]) -> Vec<u8> {
    let mut bytes = (16 + payload.len() as u64).to_ne_bytes().to_vec();
    bytes.extend(level.to_ne_bytes());
    bytes.extend(kind.to_ne_bytes());
    bytes.extend(payload);
    bytes.resize(bytes.len().next_multiple_of(8), 0);
    bytes
}
