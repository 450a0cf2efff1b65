//! virtio-blk over a file or block device, served by a thread of its own: a VCPU never waits for a
//! disk.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use steadyvm_sockets::{Held, Lock, Memory};
use virtio_bindings::virtio_blk::{
    VIRTIO_BLK_F_FLUSH, VIRTIO_BLK_F_RO, VIRTIO_BLK_F_SEG_MAX, VIRTIO_BLK_F_SIZE_MAX,
    VIRTIO_BLK_ID_BYTES, VIRTIO_BLK_S_IOERR, VIRTIO_BLK_S_OK, VIRTIO_BLK_S_UNSUPP,
    VIRTIO_BLK_T_FLUSH, VIRTIO_BLK_T_GET_ID, VIRTIO_BLK_T_IN, VIRTIO_BLK_T_OUT,
};
use virtio_bindings::virtio_ids::VIRTIO_ID_BLOCK;
use virtio_queue::{DescriptorChain, Queue, QueueOwnedT, QueueT, Reader, Writer};
use vmm_sys_util::eventfd::EventFd;

use super::transport::{Activation, Identity};
use super::{Backend, Broken, Interrupt, image_lock};
use crate::configuration;
use steadyvm_fault::{Fault as Error, Result};

const QUEUE_SIZE: u16 = 128;
/// virtio-blk counts in these, whatever the disk's own are.
const SECTOR: u64 = 512;
/// `struct virtio_blk_outhdr`: kind, priority, first sector.
const HEADER: usize = 16;
/// The most data segments of a request: all of a queue but header and status.
const SEGMENTS: u32 = QUEUE_SIZE as u32 - 2;
/// The most bytes of a segment.
const SEGMENT_BYTES: u32 = 64 << 10;
/// The most bytes of a request's data: so much work is one request at most.
const MOST_BYTES: usize = SEGMENTS as usize * SEGMENT_BYTES as usize;
/// Copies go through a buffer: the disk is not on the path whose latency is promised.
const PIECE: usize = 64 << 10;
/// What every disk says its serial number is.
const NAME: &[u8] = b"steadyvm";

/// An open disk.
pub struct Image {
    file: File,
    sectors: u64,
    read_only: bool,
    /// In messages.
    name: String,
}

impl Image {
    /// Opens a disk.
    pub fn open(disk: &configuration::Disk) -> Result<Self> {
        let place = || format!("disk.path = \"{}\"", disk.path.display());
        let mut file = OpenOptions::new()
            .read(true)
            .write(!disk.read_only)
            .open(&disk.path)
            .map_err(|error| Error::input(place(), error))?;
        image_lock::take(&file, disk.read_only).map_err(|why| Error::input(place(), why))?;
        let bytes = file
            .seek(SeekFrom::End(0))
            .map_err(|error| Error::input(place(), error))?;
        Ok(Self {
            file,
            sectors: bytes / SECTOR,
            read_only: disk.read_only,
            name: place(),
        })
    }

    /// The size of a file; a block device's is the device's own.
    pub const fn bytes(&self) -> u64 {
        self.sectors * SECTOR
    }

    /// The disk's `bytes` from `sector` on, or `None` where it does not have them all.
    fn range(&self, sector: u64, bytes: usize) -> Option<u64> {
        let end = sector.checked_add((bytes as u64).div_ceil(SECTOR))?;
        (end <= self.sectors).then(|| sector * SECTOR)
    }
}

/// What the VCPUs' side and the serving thread share.
pub struct Block {
    image: Image,
    memory: Memory,
    space: [u8; SPACE],
    /// Held while requests are served, or the queue is set up.
    queue: Lock<Queue>,
    interrupt: Arc<Interrupt>,
    rung: EventFd,
    /// A VCPU waits for the queue to reset it.
    resetting: AtomicBool,
    /// The VM is ending.
    stopping: Arc<AtomicBool>,
    /// A write or flush that failed once: every later flush fails too, for the host may have thrown
    /// away what it could not write.
    lost_writes: AtomicBool,
}

impl Block {
    /// A disk whose queue's bell is `rung`.
    ///
    /// # Errors
    /// None that a queue of this size can have.
    pub fn new(
        image: Image,
        memory: Memory,
        interrupt: Arc<Interrupt>,
        rung: EventFd,
        stopping: &Arc<AtomicBool>,
    ) -> std::result::Result<Self, virtio_queue::Error> {
        Ok(Self {
            space: configuration_space(image.sectors),
            image,
            memory,
            queue: Lock::new(Queue::new(QUEUE_SIZE)?),
            interrupt,
            rung,
            resetting: AtomicBool::new(false),
            stopping: Arc::clone(stopping),
            lost_writes: AtomicBool::new(false),
        })
    }

    /// The guest rings it.
    pub const fn bell(&self) -> &EventFd {
        &self.rung
    }

    /// Serves what is in the queue, for one turn. What a disk holds may be another request, or the next
    /// one may come meanwhile: a turn is bounded, and a reset or the VM's end are not kept waiting.
    pub fn serve(&self) {
        let _ = self.rung.read();
        for _ in 0..QUEUE_SIZE {
            if self.is_interrupted() {
                return;
            }
            match self.serve_one() {
                Ok(true) => {}
                // Not set up, or not any more, is no breakage.
                Ok(false) | Err(virtio_queue::Error::QueueNotReady) => return,
                Err(error) => {
                    let why = format!("virtio-blk: the guest broke its queue: {error}");
                    return self.interrupt.broken(&Broken::new(why));
                }
            }
        }
        // There may be more.
        let _ = self.rung.write(1);
    }

    /// Serves one request, if there is one.
    fn serve_one(&self) -> std::result::Result<bool, virtio_queue::Error> {
        let mut queue = self.lock();
        let Some(chain) = queue.iter(&self.memory)?.next() else {
            return Ok(false);
        };
        let head = chain.head_index();
        let written = self.answer(chain);
        queue.add_used(&self.memory, head, written)?;
        if queue.needs_notification(&self.memory)? {
            self.interrupt.used_buffer();
        }
        Ok(true)
    }

    fn is_interrupted(&self) -> bool {
        self.resetting.load(Ordering::SeqCst) || self.stopping.load(Ordering::SeqCst)
    }

    fn lock(&self) -> Held<'_, Queue> {
        self.queue.lock()
    }

    /// Carries one request out: the bytes written to the guest, the last of them the status.
    fn answer(&self, chain: DescriptorChain<&Memory>) -> u32 {
        let memory = &self.memory;
        let (Ok(mut reader), Ok(mut writer)) = (
            chain.clone().reader::<()>(memory),
            chain.writer::<()>(memory),
        ) else {
            return 0;
        };
        // The status is the last byte of what the device may write, wherever that lies.
        let room = writer.available_bytes();
        let Some(Ok(mut status)) = room.checked_sub(1).map(|at| writer.split_at(at)) else {
            return 0;
        };
        let result = self.carry_out(&mut reader, &mut writer);
        let data = writer.bytes_written();
        let byte = match result {
            Ok(()) => VIRTIO_BLK_S_OK,
            Err(error) if error.kind() == io::ErrorKind::Unsupported => VIRTIO_BLK_S_UNSUPP,
            Err(error) => {
                // What the host says has a number; a request that makes no sense is the guest's.
                if error.raw_os_error().is_some() {
                    self.interrupt.say(&format!("{}: {error}", self.image.name));
                }
                VIRTIO_BLK_S_IOERR
            }
        };
        match status.write_all(&[byte as u8]) {
            Ok(()) => data as u32 + 1,
            Err(_) => 0,
        }
    }

    fn carry_out(&self, reader: &mut Reader<()>, writer: &mut Writer<()>) -> io::Result<()> {
        let mut header = [0; HEADER];
        reader.read_exact(&mut header)?;
        if reader.available_bytes().max(writer.available_bytes()) > MOST_BYTES {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let [kind, _, low, high] = words(header);
        let sector = u64::from(high) << 32 | u64::from(low);
        match kind {
            VIRTIO_BLK_T_IN => {
                let at = self.range(sector, writer.available_bytes())?;
                self.copy_in(at, writer)
            }
            VIRTIO_BLK_T_OUT if self.image.read_only => Err(io::ErrorKind::PermissionDenied.into()),
            VIRTIO_BLK_T_OUT => {
                let at = self.range(sector, reader.available_bytes())?;
                self.remember_loss(self.copy_out(at, reader))
            }
            VIRTIO_BLK_T_FLUSH if self.lost_writes.load(Ordering::SeqCst) => {
                Err(io::Error::other("a write to this disk was lost"))
            }
            VIRTIO_BLK_T_FLUSH => self.remember_loss(self.image.file.sync_data()),
            VIRTIO_BLK_T_GET_ID => {
                let mut name = [0; VIRTIO_BLK_ID_BYTES as usize];
                name[..NAME.len()].copy_from_slice(NAME);
                let count = writer.available_bytes().min(name.len());
                writer.write_all(&name[..count])
            }
            _ => Err(io::ErrorKind::Unsupported.into()),
        }
    }

    fn range(&self, sector: u64, bytes: usize) -> io::Result<u64> {
        let range = self.image.range(sector, bytes);
        range.ok_or_else(|| io::ErrorKind::InvalidInput.into())
    }

    /// Writes that the host refused are remembered; a request that the end interrupted is not one.
    fn remember_loss(&self, result: io::Result<()>) -> io::Result<()> {
        if result
            .as_ref()
            .is_err_and(|error| error.raw_os_error().is_some())
        {
            self.lost_writes.store(true, Ordering::SeqCst);
        }
        result
    }

    fn copy_in(&self, mut at: u64, writer: &mut Writer<()>) -> io::Result<()> {
        let mut buffer = vec![0; PIECE];
        while writer.available_bytes() > 0 {
            self.go_on()?;
            let piece = &mut buffer[..writer.available_bytes().min(PIECE)];
            self.image.file.read_exact_at(piece, at)?;
            writer.write_all(piece)?;
            at += piece.len() as u64;
        }
        Ok(())
    }

    fn copy_out(&self, mut at: u64, reader: &mut Reader<()>) -> io::Result<()> {
        let mut buffer = vec![0; PIECE];
        while reader.available_bytes() > 0 {
            self.go_on()?;
            let piece = &mut buffer[..reader.available_bytes().min(PIECE)];
            reader.read_exact(piece)?;
            self.image.file.write_all_at(piece, at)?;
            at += piece.len() as u64;
        }
        Ok(())
    }

    /// Whether a request may go on: the guest that a reset or the end takes it from does not miss it.
    fn go_on(&self) -> io::Result<()> {
        if self.is_interrupted() {
            return Err(io::ErrorKind::Interrupted.into());
        }
        Ok(())
    }
}

/// `struct virtio_blk_config` as far as the features offered go: sectors, `size_max`, `seg_max`.
const SPACE: usize = 16;

fn configuration_space(sectors: u64) -> [u8; SPACE] {
    let mut space = [0; SPACE];
    space[..8].copy_from_slice(&sectors.to_le_bytes());
    space[8..12].copy_from_slice(&SEGMENT_BYTES.to_le_bytes());
    space[12..].copy_from_slice(&SEGMENTS.to_le_bytes());
    space
}

fn words(bytes: [u8; HEADER]) -> [u32; 4] {
    std::array::from_fn(|word| {
        let at = word * 4;
        u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
    })
}

/// The registers' side of a disk.
pub struct Registers(pub Arc<Block>);

impl Backend for Registers {
    fn identity(&self) -> Identity {
        let read_only = u64::from(self.0.image.read_only) << VIRTIO_BLK_F_RO;
        Identity {
            id: VIRTIO_ID_BLOCK,
            features: 1 << VIRTIO_BLK_F_FLUSH
                | 1 << VIRTIO_BLK_F_SIZE_MAX
                | 1 << VIRTIO_BLK_F_SEG_MAX
                | read_only,
            queue_sizes: vec![QUEUE_SIZE],
            kernel_interrupts: false,
        }
    }

    fn configuration(&self) -> &[u8] {
        &self.0.space
    }

    fn activate(&self, activation: &Activation) -> std::result::Result<(), Broken> {
        let mut queue = self.0.lock();
        for setup in &activation.queues {
            setup.apply(&mut queue);
        }
        if queue.is_valid(&self.0.memory) {
            Ok(())
        } else {
            Err(Broken::new(
                "virtio-blk: the guest set its queue up outside its memory",
            ))
        }
    }

    fn notify(&self, _queue: u32) -> std::result::Result<(), Broken> {
        let _ = self.0.rung.write(1);
        Ok(())
    }

    fn reset(&self) {
        self.0.resetting.store(true, Ordering::SeqCst);
        let mut queue = self.0.lock();
        queue.reset();
        self.0.resetting.store(false, Ordering::SeqCst);
    }
}

#[cfg(test)]
#[path = "block_tests.rs"]
mod tests;
