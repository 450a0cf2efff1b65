//! A guest that writes anything to the registers, ports and queues of its disk, its channel and its
//! sockets, and anything into its memory.

#![allow(clippy::disallowed_types)] // no virtual CPU waits here

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex, PoisonError};
use steadyvm_sockets::abi::{Request, op};
use steadyvm_sockets::{Device, Limits};
use virtio_bindings::virtio_mmio::{
    VIRTIO_MMIO_CONFIG, VIRTIO_MMIO_DRIVER_FEATURES, VIRTIO_MMIO_DRIVER_FEATURES_SEL,
    VIRTIO_MMIO_QUEUE_AVAIL_LOW, VIRTIO_MMIO_QUEUE_DESC_LOW, VIRTIO_MMIO_QUEUE_NOTIFY,
    VIRTIO_MMIO_QUEUE_NUM, VIRTIO_MMIO_QUEUE_READY, VIRTIO_MMIO_QUEUE_SEL,
    VIRTIO_MMIO_QUEUE_USED_LOW, VIRTIO_MMIO_STATUS,
};
use vm_memory::{Bytes, GuestAddress};
use vmm_sys_util::eventfd::EventFd;
use zerocopy::IntoBytes;

use super::guest::{END, Guarded, writable};
use super::{Source, enter_namespace};
use crate::bus::Bus;
use crate::configuration;
use crate::devices::block::{self, Block, Image};
use crate::devices::channel::{self, Channel};
use crate::devices::serial::Console;
use crate::devices::sockets::Sockets;
use crate::devices::transport::{Activation, Identity, QueueSetup};
use crate::devices::{Backend, Broken, Interrupt, MmioDevice};
use crate::layout;
use crate::output::{Messages, Pipe};

const DISK: usize = 0;
const CHANNEL: usize = 1;
const SOCKETS: usize = 2;
/// Queues of each device.
const QUEUES: [usize; 3] = [1, channel::QUEUES, 2];
const ENTRIES: u16 = 16;
/// A queue's place: its descriptors, rings and a request's head.
const PAGE: u64 = 0x1000;
const AVAILABLE: u64 = 0x400;
const USED: u64 = 0x800;
const HEAD: u64 = 0xc00;
const DATA: u64 = 0x8000;
const SECTORS: usize = 8;
const LIMITS: Limits = Limits {
    operations: ENTRIES,
    ..super::LIMITS
};

/// A backend, and how its driver has set its queues up.
struct Watched {
    backend: Box<dyn Backend>,
    setups: Arc<Mutex<Vec<QueueSetup>>>,
}

impl Backend for Watched {
    fn identity(&self) -> Identity {
        self.backend.identity()
    }

    fn configuration(&self) -> &[u8] {
        self.backend.configuration()
    }

    fn activate(&self, activation: &Activation) -> Result<(), Broken> {
        let setups = &mut *self.setups.lock().unwrap_or_else(PoisonError::into_inner);
        setups.clone_from(&activation.queues);
        self.backend.activate(activation)
    }

    fn notify(&self, queue: u32) -> Result<(), Broken> {
        self.backend.notify(queue)
    }

    fn reset(&self) {
        self.backend.reset();
    }
}

fn event() -> EventFd {
    EventFd::new(libc::EFD_NONBLOCK).expect("an eventfd")
}

/// A disk in memory, whose every sector has its number in it.
fn disk() -> File {
    let name = c"steadyvm-fuzz";
    let descriptor = nix::sys::memfd::memfd_create(name, nix::sys::memfd::MFdFlags::empty());
    let mut file = File::from(descriptor.expect("a file in memory"));
    let bytes: Vec<u8> = (0..SECTORS as u8)
        .flat_map(|sector| [sector; 512])
        .collect();
    file.write_all(&bytes).expect("a file in memory");
    file
}

/// The devices, their guest's memory, and the other ends.
struct Rig {
    bus: Bus,
    block: Arc<Block>,
    channel: Arc<Channel>,
    setups: [Arc<Mutex<Vec<QueueSetup>>>; 3],
    file: File,
    read_only: bool,
    peer: UnixStream,
    output: Arc<Pipe>,
    guest: Guarded,
}

impl Rig {
    fn new(read_only: bool) -> Self {
        enter_namespace();
        let guest = Guarded::new();
        let output = Pipe::new(&event()).expect("an eventfd");
        let interrupt = || Arc::new(Interrupt::new(event(), Messages(Arc::clone(&output))));
        let file = disk();
        let path = format!("/proc/self/fd/{}", file.as_raw_fd()).into();
        let image = Image::open(&configuration::Disk { path, read_only }).expect("a disk");
        let memory = || guest.memory.clone();
        let (disk_line, channel_line) = (interrupt(), interrupt());
        let stopping = Arc::default();
        let block = Block::new(image, memory(), Arc::clone(&disk_line), event(), &stopping);
        let block = Arc::new(block.expect("a queue"));
        let (here, peer) = UnixStream::pair().expect("a pair of sockets");
        peer.set_nonblocking(true).expect("a socket");
        let channel = Channel::new("a.port", here, memory(), Arc::clone(&channel_line), event());
        let channel = Arc::new(channel.expect("a channel"));
        let device = Device::new(LIMITS, QUEUES[SOCKETS] as u16).expect("a sockets device");
        let port = layout::notification_port(SOCKETS);
        let sockets = Sockets::new(&device, QUEUES[SOCKETS] as u16, memory(), port, stopping);
        let setups: [Arc<Mutex<Vec<QueueSetup>>>; 3] = std::array::from_fn(|_| Arc::default());
        let watched = |index: usize, backend: Box<dyn Backend>, line| {
            let setups = Arc::clone(&setups[index]);
            Arc::new(MmioDevice::new(Box::new(Watched { backend, setups }), line))
        };
        let devices = vec![
            watched(
                DISK,
                Box::new(block::Registers(Arc::clone(&block))),
                disk_line,
            ),
            watched(
                CHANNEL,
                Box::new(channel::Registers(Arc::clone(&channel))),
                channel_line,
            ),
            watched(SOCKETS, Box::new(sockets.expect("channels")), interrupt()),
        ];
        let console = Console::new(&event(), Arc::clone(&output)).expect("a serial port");
        Self {
            bus: Bus { console, devices },
            block,
            channel,
            setups,
            file,
            read_only,
            peer,
            output,
            guest,
        }
    }

    fn write(&self, device: usize, register: u32, value: u32) {
        let address = layout::device_address(device) + u64::from(register);
        self.bus.write_memory(address, &value.to_le_bytes());
    }

    fn read(&self, device: usize, register: u32) -> u32 {
        let mut data = [0; 4];
        let address = layout::device_address(device) + u64::from(register);
        self.bus.read_memory(address, &mut data);
        u32::from_le_bytes(data)
    }

    /// What the guest cannot know, or must find again, after anything that a device did.
    fn check(&self) {
        self.guest.check_guards();
        let mut bytes = Vec::new();
        let mut file = File::open(format!("/proc/self/fd/{}", self.file.as_raw_fd()));
        let read = file.as_mut().map(|file| file.read_to_end(&mut bytes));
        assert!(matches!(read, Ok(Ok(_))), "the disk is there");
        assert_eq!(bytes.len(), SECTORS * 512, "the disk keeps its size");
        if self.read_only {
            let kept = (bytes.chunks(512).zip(0..)).all(|(bytes, number)| bytes == [number; 512]);
            assert!(kept, "a disk that is read only was written");
        }
    }

    /// Serves a device that has a thread of its own: only its used rings and writable buffers change.
    fn serve(&self, device: usize) {
        let setups = self.setups[device]
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone();
        let before = self.guest.snapshot();
        self.turn(device);
        if let Some(allowed) = writable(&before, &setups) {
            let after = self.guest.snapshot();
            let bad = (0..END).find(|at| before[*at] != after[*at] && !allowed[*at]);
            assert_eq!(
                bad, None,
                "device {device} wrote where its driver lets it not"
            );
        }
    }

    fn turn(&self, device: usize) {
        if device == DISK {
            self.block.serve();
        } else {
            self.channel.serve();
        }
    }

    /// Serves a device while its driver resets it: what is there after the reset stays.
    fn serve_and_reset(&self, device: usize) {
        std::thread::scope(|scope| {
            let server = scope.spawn(|| {
                for _ in 0..4 {
                    self.turn(device);
                }
            });
            self.write(device, VIRTIO_MMIO_STATUS, 0);
            let after = self.guest.snapshot();
            server.join().expect("the server does not panic");
            assert!(after == self.guest.snapshot(), "written after a reset");
        });
        assert_eq!(self.read(device, VIRTIO_MMIO_STATUS), 0, "reset");
    }
}

/// The first page of a queue.
fn page(device: usize, queue: usize) -> u64 {
    let before: usize = QUEUES[..device].iter().sum();
    PAGE * (before + queue) as u64
}

/// A driver that does all as it should, but for what its bytes say.
fn drive(rig: &Rig, source: &mut Source, device: usize) {
    rig.write(device, VIRTIO_MMIO_STATUS, 0);
    rig.write(device, VIRTIO_MMIO_STATUS, 3);
    for (selector, features) in [(0, source.word(4) as u32), (1, 1)] {
        rig.write(device, VIRTIO_MMIO_DRIVER_FEATURES_SEL, selector);
        let offered = rig.read(
            device,
            virtio_bindings::virtio_mmio::VIRTIO_MMIO_DEVICE_FEATURES,
        );
        let features = if selector == 0 {
            features & offered
        } else {
            features
        };
        rig.write(device, VIRTIO_MMIO_DRIVER_FEATURES, features);
    }
    rig.write(device, VIRTIO_MMIO_STATUS, 11);
    assert_eq!(
        rig.read(device, VIRTIO_MMIO_STATUS) & 8,
        8,
        "features are agreed on"
    );
    let sizes = source.byte();
    for queue in 0..QUEUES[device] {
        let size = if sizes & 0x80 == 0 {
            ENTRIES
        } else {
            1 << (sizes % 5)
        };
        let base = page(device, queue) as u32;
        rig.write(device, VIRTIO_MMIO_QUEUE_SEL, queue as u32);
        rig.write(device, VIRTIO_MMIO_QUEUE_NUM, size.into());
        rig.write(device, VIRTIO_MMIO_QUEUE_DESC_LOW, base);
        rig.write(device, VIRTIO_MMIO_QUEUE_AVAIL_LOW, base + AVAILABLE as u32);
        rig.write(device, VIRTIO_MMIO_QUEUE_USED_LOW, base + USED as u32);
        rig.write(device, VIRTIO_MMIO_QUEUE_READY, 1);
        put(rig, &[0; 4], page(device, queue) + AVAILABLE);
        put(rig, &[0; 4], page(device, queue) + USED);
    }
    rig.write(device, VIRTIO_MMIO_STATUS, 15);
    assert_eq!(
        rig.read(device, VIRTIO_MMIO_STATUS),
        15,
        "a good driver is taken"
    );
}

fn put(rig: &Rig, bytes: &[u8], at: u64) {
    // Where the guest's own address is bad, it has written nothing.
    let _ = rig.guest.memory.write_slice(bytes, GuestAddress(at));
}

/// An address: of buffers mostly, else of queues, of regions' ends, or anything.
fn address(source: &mut Source) -> u64 {
    let offset = source.word(2);
    match source.byte() % 16 {
        0..=7 => DATA + offset % 0x7000,
        8 | 9 => offset % 0x7000,
        10 => 0xff00 + offset % 0x200,
        11 => 0x1_ff00 + offset % 0x200,
        12 => 0x3_0f00 + offset % 0x200,
        13 => u64::MAX - offset % 0x100,
        14 => source.word(8),
        _ => page(0, 0) + HEAD,
    }
}

/// Lays a chain and makes it available.
fn offer(rig: &Rig, source: &mut Source, device: usize) {
    let queue = source.below(QUEUES[device]);
    let base = page(device, queue);
    head(rig, source, device, base + HEAD);
    let parts = 1 + source.below(5);
    for index in 0..parts {
        let (mut at, mut len) = (address(source), source.word(2) as u32 & 0x1fff);
        let mut flags = u16::from(source.byte() & 7);
        if index == 0 && source.byte() < 200 {
            (at, len, flags) = (base + HEAD, len.max(16) % 256, 0);
        }
        if source.byte() > 20 {
            flags = flags & 2 | u16::from(index + 1 < parts);
        }
        if source.byte() > 250 {
            len = u32::MAX;
        }
        let next = if source.byte() > 250 {
            source.word(2) as u16
        } else {
            index as u16 + 1
        };
        let descriptor = [
            &at.to_le_bytes()[..],
            &len.to_le_bytes(),
            &flags.to_le_bytes(),
            &next.to_le_bytes(),
        ];
        put(rig, &descriptor.concat(), base + index as u64 * 16);
    }
    let slot: u16 = rig
        .guest
        .memory
        .read_obj(GuestAddress(base + AVAILABLE + 2))
        .unwrap_or(0);
    let entry = base + AVAILABLE + 4 + u64::from(slot % ENTRIES) * 2;
    let first = if source.byte() > 250 {
        source.word(2) as u16
    } else {
        0
    };
    put(rig, &first.to_le_bytes(), entry);
    let step = if source.byte() > 250 {
        source.word(2) as u16
    } else {
        1
    };
    put(
        rig,
        &slot.wrapping_add(step).to_le_bytes(),
        base + AVAILABLE + 2,
    );
}

/// The beginning of a request of a device.
fn head(rig: &Rig, source: &mut Source, device: usize, at: u64) {
    let kind = source.byte();
    match device {
        DISK => {
            let kind = [0, 1, 4, 8, u32::from(kind)][source.below(5)];
            let sector = if source.byte() > 240 {
                source.word(8)
            } else {
                u64::from(kind) % 10
            };
            put(rig, &[kind.to_le_bytes(), [0; 4]].concat(), at);
            put(rig, &sector.to_le_bytes(), at + 8);
        }
        CHANNEL => put(rig, &[0, 0, 0, 0, kind % 8, 0, source.byte() % 3, 0], at),
        _ => {
            let operation = if kind > 200 {
                op::SOCKET
            } else {
                u16::from(kind % 24)
            };
            let argument = match operation {
                op::SOCKET => [2, 1 + u64::from(source.byte() % 2), 0],
                _ => [address(source), source.word(2), u64::from(source.byte())],
            };
            let handle_bytes = 1 + source.below(8);
            let request = Request {
                op: operation.into(),
                handle: source.word(handle_bytes).into(),
                data_len: u32::from(source.byte()).into(),
                data_room: u32::from(source.byte()).into(),
                argument: argument.map(Into::into),
                ..Request::default()
            };
            put(rig, request.as_bytes(), at);
        }
    }
}

fn step(rig: &Rig, source: &mut Source) {
    let device = source.below(QUEUES.len());
    match source.byte() % 16 {
        0 | 1 => drive(rig, source, device),
        2 => {
            let register = (source.word(2) as u32 % 0x120) & !3;
            let value = match source.byte() {
                0 => u32::MAX,
                byte @ 1..128 => byte.into(),
                _ => source.word(4) as u32,
            };
            rig.write(device, register, value);
        }
        3 => {
            let mut data = [0xee; 8];
            let data = &mut data[..1 << source.below(4)];
            let register = source.word(2) % layout::DEVICE_SIZE;
            let space = register >= u64::from(VIRTIO_MMIO_CONFIG);
            rig.bus
                .read_memory(layout::device_address(device) + register, data);
            assert!(space || data.len() == 4 || data.iter().all(|byte| *byte == 0));
        }
        4..=7 => offer(rig, source, device),
        8 => rig.write(device, VIRTIO_MMIO_QUEUE_NOTIFY, source.below(6) as u32),
        9 => {
            let (port, len) = (source.word(2) as u16, source.below(5));
            let port = if source.byte() < 128 {
                layout::SERIAL_PORT + port % 8
            } else {
                layout::notification_port(0) + port % 72
            };
            rig.bus.write_port(port, source.bytes(len));
            let mut data = [0; 4];
            rig.bus.read_port(port, &mut data[..len]);
        }
        10 => {
            let len = source.below(64);
            let at = address(source);
            put(rig, source.bytes(len), at);
        }
        11 => {
            let len = source.below(200);
            // A socket that is full takes less.
            let _ = (&rig.peer).write(source.bytes(len));
            let _ = (&rig.peer).read(&mut [0; 4096]);
            rig.output.take();
        }
        12 => serve_and_reset_of(rig, device),
        _ if device == SOCKETS => {
            rig.write(device, VIRTIO_MMIO_QUEUE_NOTIFY, source.below(3) as u32);
        }
        _ => rig.serve(device),
    }
}

fn serve_and_reset_of(rig: &Rig, device: usize) {
    if device == SOCKETS {
        rig.write(device, VIRTIO_MMIO_STATUS, 0);
        assert_eq!(rig.read(device, VIRTIO_MMIO_STATUS), 0, "reset");
    } else {
        rig.serve_and_reset(device);
    }
}

/// A guest's life: all of its accesses are bytes.
///
/// # Panics
/// Where a device writes what its guest does not let it write, or outside of the guest, changes a disk
/// that is read only or a disk's size, or works on after a reset.
pub fn devices(bytes: &[u8]) {
    let mut source = Source(bytes);
    let rig = Rig::new(source.byte() & 1 == 1);
    for _ in 0..96 {
        if source.is_empty() {
            break;
        }
        step(&rig, &mut source);
        rig.check();
    }
}
