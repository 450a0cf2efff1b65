use super::*;
use crate::devices::transport::QueueSetup;
use crate::layout;
use proptest::prelude::*;
use vm_memory::{Bytes, GuestAddress};

const DESCRIPTORS: u64 = 0x1000;
const AVAILABLE: u64 = 0x2000;
const USED: u64 = 0x3000;
const HEADER_AT: u64 = 0x4000;
const DATA: u64 = 0x5000;
const STATUS: u64 = 0x9000;
const NEXT: u16 = 1;
const WRITABLE: u16 = 2;

/// A disk of four sectors, whose bytes are their sector's number, and a guest's memory.
struct Rig {
    memory: Memory,
    block: Registers,
    file: tempfile::NamedTempFile,
}

impl Rig {
    fn new(read_only: bool) -> Self {
        let bytes: Vec<u8> = (0..4)
            .flat_map(|sector| [sector; SECTOR as usize])
            .collect();
        Self::of(&bytes, read_only)
    }

    /// With a disk of these bytes.
    fn of(bytes: &[u8], read_only: bool) -> Self {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), bytes).unwrap();
        let disk = configuration::Disk {
            path: file.path().to_owned(),
            read_only,
        };
        let memory = layout::allocate(1 << 20).unwrap();
        let event = || EventFd::new(libc::EFD_NONBLOCK).unwrap();
        let interrupt = Interrupt::alone();
        let stopping = Arc::default();
        let image = Image::open(&disk).unwrap();
        let block = Block::new(image, memory.clone(), interrupt, event(), &stopping).unwrap();
        let rig = Self {
            memory,
            block: Registers(Arc::new(block)),
            file,
        };
        let setup = QueueSetup {
            size: 16,
            descriptors: DESCRIPTORS,
            available: AVAILABLE,
            used: USED,
            ready: true,
        };
        let activation = Activation {
            features: 0,
            queues: vec![setup],
        };
        rig.block.activate(&activation).unwrap();
        rig
    }

    /// Puts a chain of (address, length, flags) and a request's head there, and serves it.
    fn request(&self, kind: u32, sector: u64, parts: &[(u64, u32, u16)]) {
        let put = |bytes: &[u8], at| self.memory.write_slice(bytes, GuestAddress(at)).unwrap();
        put(&kind.to_le_bytes(), HEADER_AT);
        put(&sector.to_le_bytes(), HEADER_AT + 8);
        put(&[0xee], STATUS);
        for (index, (address, len, flags)) in parts.iter().enumerate() {
            let at = DESCRIPTORS + index as u64 * 16;
            put(&address.to_le_bytes(), at);
            put(&len.to_le_bytes(), at + 8);
            let last = index + 1 == parts.len();
            let flags = if last { *flags } else { flags | NEXT };
            put(&flags.to_le_bytes(), at + 12);
            put(&(index as u16 + 1).to_le_bytes(), at + 14);
        }
        let index: u16 = self.memory.read_obj(GuestAddress(AVAILABLE + 2)).unwrap();
        put(
            &0_u16.to_le_bytes(),
            AVAILABLE + 4 + u64::from(index % 16) * 2,
        );
        put(&(index + 1).to_le_bytes(), AVAILABLE + 2);
        self.block.notify(0).unwrap();
        self.block.0.serve();
    }

    fn transfer(&self, kind: u32, sector: u64, len: u32, data: u16) -> u8 {
        let parts = [(HEADER_AT, 16, 0), (DATA, len, data), (STATUS, 1, WRITABLE)];
        self.request(kind, sector, &parts);
        self.memory.read_obj(GuestAddress(STATUS)).unwrap()
    }
}

#[test]
fn sectors_are_read_and_written_and_the_guest_is_told() {
    let rig = Rig::new(false);
    assert_eq!(rig.transfer(VIRTIO_BLK_T_IN, 2, 1024, WRITABLE), 0);
    let mut data = [0; 1024];
    rig.memory
        .read_slice(&mut data, GuestAddress(DATA))
        .unwrap();
    assert_eq!((data[0], data[511], data[512], data[1023]), (2, 2, 3, 3));
    let used: u32 = rig.memory.read_obj(GuestAddress(USED + 8)).unwrap();
    assert_eq!(used, 1025);
    assert_eq!(rig.block.0.interrupt.line.read().unwrap(), 1);

    rig.memory
        .write_slice(&[9; 512], GuestAddress(DATA))
        .unwrap();
    assert_eq!(rig.transfer(VIRTIO_BLK_T_OUT, 1, 512, 0), 0);
    let bytes = std::fs::read(rig.file.path()).unwrap();
    assert_eq!(
        (bytes[511], bytes[512], bytes[1023], bytes[1024]),
        (0, 9, 9, 2)
    );
    assert_eq!(rig.transfer(VIRTIO_BLK_T_FLUSH, 0, 0, 0), 0);
}

#[test]
fn what_is_beyond_the_disk_read_only_or_unknown_is_refused() {
    let rig = Rig::new(true);
    let failed = VIRTIO_BLK_S_IOERR as u8;
    for (sector, len) in [(4, 512), (3, 513), (u64::MAX, 512), (u64::MAX / 512, 512)] {
        assert_eq!(rig.transfer(VIRTIO_BLK_T_IN, sector, len, WRITABLE), failed);
    }
    assert_eq!(rig.transfer(VIRTIO_BLK_T_OUT, 0, 512, 0), failed);
    assert_eq!(rig.transfer(77, 0, 512, 0), VIRTIO_BLK_S_UNSUPP as u8);
}

proptest! {
    /// No chain makes it panic, grow its disk, or stop serving the next request.
    #[test]
    fn hostile_chains_do_no_harm(
        kind in prop_oneof![0_u32..12, any::<u32>()],
        sector in prop_oneof![0_u64..6, any::<u64>()],
        parts in prop::collection::vec(
            (prop_oneof![0x4000_u64..0xa000, any::<u64>()], 0_u32..2000, prop_oneof![Just(0), Just(WRITABLE), any::<u16>()]),
            1..6,
        ),
    ) {
        let rig = Rig::new(false);
        rig.request(kind, sector, &parts);
        prop_assert_eq!(rig.file.as_file().metadata().unwrap().len(), 4 * SECTOR);
    }
}

/// A disk whose bytes are requests: each sector, read over the request's head and the available ring's
/// index, asks for the next sector. No VCPU is needed.
fn ringing_itself(sectors: u16) -> Rig {
    let mut bytes = vec![0; usize::from(sectors) * SECTOR as usize];
    for (number, sector) in bytes.chunks_mut(SECTOR as usize).enumerate() {
        let next = number as u64 + 1;
        sector[8..16].copy_from_slice(&next.to_le_bytes());
        sector[16..18].copy_from_slice(&(number as u16 + 2).to_le_bytes());
    }
    let rig = Rig::of(&bytes, false);
    let put = |bytes: &[u8], at| rig.memory.write_slice(bytes, GuestAddress(at)).unwrap();
    let parts = [
        (HEADER_AT, 16, NEXT),
        (HEADER_AT, 16, NEXT | WRITABLE),
        (AVAILABLE + 2, 2, NEXT | WRITABLE),
        (STATUS, 1, WRITABLE),
    ];
    for (index, (address, len, flags)) in parts.into_iter().enumerate() {
        let at = DESCRIPTORS + index as u64 * 16;
        put(&address.to_le_bytes(), at);
        put(&u32::to_le_bytes(len), at + 8);
        put(&u16::to_le_bytes(flags), at + 12);
        put(&(index as u16 + 1).to_le_bytes(), at + 14);
    }
    put(&1_u16.to_le_bytes(), AVAILABLE + 2);
    rig
}

impl Rig {
    fn used(&self) -> u16 {
        self.memory.read_obj(GuestAddress(USED + 2)).unwrap()
    }
}

#[test]
fn a_disk_that_rings_itself_has_one_turn_at_a_time() {
    let rig = ringing_itself(1000);
    rig.block.0.serve();
    assert_eq!(rig.used(), QUEUE_SIZE, "one turn");
    assert_eq!(rig.block.0.rung.read().unwrap(), 1, "the next is rung for");
    rig.block.0.stopping.store(true, Ordering::SeqCst);
    rig.block.0.serve();
    assert_eq!(rig.used(), QUEUE_SIZE, "the end is not kept waiting");
}

#[test]
fn a_reset_takes_the_queue_from_a_disk_that_rings_itself() {
    let rig = ringing_itself(60_000);
    let block = Arc::clone(&rig.block.0);
    let (began, started) = std::sync::mpsc::channel();
    let server = std::thread::spawn(move || {
        began.send(()).unwrap();
        while block.rung.read().is_ok() {
            block.serve();
        }
    });
    rig.block.notify(0).unwrap();
    started.recv().unwrap();
    rig.block.reset();
    server.join().unwrap();
    assert!(!rig.block.0.lock().ready());
}

#[test]
fn a_request_is_bounded_by_what_the_disk_says() {
    let rig = Rig::new(true);
    let space = rig.block.configuration();
    assert_eq!(space[8..12], SEGMENT_BYTES.to_le_bytes());
    assert_eq!(space[12..16], SEGMENTS.to_le_bytes());
    let wanted = 1 << VIRTIO_BLK_F_SIZE_MAX | 1 << VIRTIO_BLK_F_SEG_MAX;
    assert_eq!(rig.block.identity().features & wanted, wanted);
    // 16 segments of a MiB over one another are more than a request may have.
    let mut parts = vec![(HEADER_AT, 16, 0)];
    parts.extend([(0, 1 << 20, WRITABLE); 14]);
    parts.push((STATUS, 1, WRITABLE));
    rig.request(VIRTIO_BLK_T_IN, 0, &parts);
    let status: u8 = rig.memory.read_obj(GuestAddress(STATUS)).unwrap();
    assert_eq!(status, VIRTIO_BLK_S_IOERR as u8);
}

#[test]
fn a_broken_queue_is_said_and_needs_a_reset() {
    let rig = Rig::new(false);
    // More than a queue of requests at once.
    let index = 100_u16.to_le_bytes();
    rig.memory
        .write_slice(&index, GuestAddress(AVAILABLE + 2))
        .unwrap();
    rig.block.0.serve();
    assert_eq!(
        rig.block.0.interrupt.line.read().unwrap(),
        1,
        "the guest is told"
    );
    assert!(rig.block.0.interrupt.status.is_broken());
}

#[test]
fn two_vms_share_a_disk_only_to_read_it() {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), [0; 512]).unwrap();
    let disk = |read_only| configuration::Disk {
        path: file.path().to_owned(),
        read_only,
    };
    let reader = Image::open(&disk(true)).unwrap();
    let other = Image::open(&disk(true)).unwrap();
    let refused = Image::open(&disk(false)).err().unwrap().to_string();
    assert!(refused.contains("has this disk"), "{refused}");
    drop((reader, other));
    let _writer = Image::open(&disk(false)).unwrap();
    assert!(Image::open(&disk(true)).is_err());
    assert!(Image::open(&disk(false)).is_err());
}

#[test]
fn a_flush_after_a_lost_write_fails() {
    let rig = Rig::new(false);
    assert_eq!(rig.transfer(VIRTIO_BLK_T_FLUSH, 0, 0, 0), 0);
    let lost = rig
        .block
        .0
        .remember_loss(Err(io::Error::from_raw_os_error(libc::EIO)));
    assert!(lost.is_err());
    let failed = VIRTIO_BLK_S_IOERR as u8;
    assert_eq!(rig.transfer(VIRTIO_BLK_T_FLUSH, 0, 0, 0), failed);
    assert_eq!(rig.transfer(VIRTIO_BLK_T_FLUSH, 0, 0, 0), failed);
}
