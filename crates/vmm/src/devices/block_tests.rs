use super::*;
use crate::devices::transport::{InterruptStatus, QueueSetup};
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
        let file = tempfile::NamedTempFile::new().unwrap();
        let bytes: Vec<u8> = (0..4)
            .flat_map(|sector| [sector; SECTOR as usize])
            .collect();
        std::fs::write(file.path(), bytes).unwrap();
        let disk = configuration::Disk {
            path: file.path().to_owned(),
            read_only,
        };
        let memory = layout::allocate(1 << 20).unwrap();
        let event = || EventFd::new(libc::EFD_NONBLOCK).unwrap();
        let interrupt = Arc::new(Interrupt {
            status: Arc::new(InterruptStatus::default()),
            line: event(),
        });
        let image = Image::open(&disk).unwrap();
        let block = Block::new(image, memory.clone(), interrupt, event()).unwrap();
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
