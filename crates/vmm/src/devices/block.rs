//! virtio-blk over a file or block device, served by a thread of its own: a VCPU never waits for a
//! disk.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::FileExt;
use std::sync::{Arc, Mutex, PoisonError};
use steadyvm_sockets::Memory;
use virtio_bindings::virtio_blk::{
    VIRTIO_BLK_F_FLUSH, VIRTIO_BLK_F_RO, VIRTIO_BLK_ID_BYTES, VIRTIO_BLK_S_IOERR, VIRTIO_BLK_S_OK,
    VIRTIO_BLK_S_UNSUPP, VIRTIO_BLK_T_FLUSH, VIRTIO_BLK_T_GET_ID, VIRTIO_BLK_T_IN,
    VIRTIO_BLK_T_OUT,
};
use virtio_bindings::virtio_ids::VIRTIO_ID_BLOCK;
use virtio_queue::{DescriptorChain, Queue, QueueOwnedT, QueueT, Reader, Writer};
use vmm_sys_util::eventfd::EventFd;

use super::transport::{Activation, Identity};
use super::{Backend, Broken, Interrupt};
use crate::configuration;
use crate::error::{Error, Result};

const QUEUE_SIZE: u16 = 128;
/// virtio-blk counts in these, whatever the disk's own are.
const SECTOR: u64 = 512;
/// `struct virtio_blk_outhdr`: kind, priority, first sector.
const HEADER: usize = 16;
/// What every disk says its serial number is.
const NAME: &[u8] = b"steadyvm";

/// An open disk.
pub struct Image {
    file: File,
    sectors: u64,
    read_only: bool,
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
        let bytes = file
            .seek(SeekFrom::End(0))
            .map_err(|error| Error::input(place(), error))?;
        Ok(Self {
            file,
            sectors: bytes / SECTOR,
            read_only: disk.read_only,
        })
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
    capacity: [u8; 8],
    /// Held while requests are served, or the queue is set up.
    queue: Mutex<Queue>,
    interrupt: Arc<Interrupt>,
    rung: EventFd,
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
    ) -> std::result::Result<Self, virtio_queue::Error> {
        Ok(Self {
            capacity: image.sectors.to_le_bytes(),
            image,
            memory,
            queue: Mutex::new(Queue::new(QUEUE_SIZE)?),
            interrupt,
            rung,
        })
    }

    /// The guest rings it.
    pub const fn bell(&self) -> &EventFd {
        &self.rung
    }

    /// Serves what is in the queue. A queue that the guest has broken is left alone until the next
    /// reset.
    pub fn serve(&self) {
        let _ = self.rung.read();
        let mut queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
        while let Ok(Some(chain)) = queue.iter(&self.memory).map(|mut chains| chains.next()) {
            let head = chain.head_index();
            let written = self.answer(chain);
            if queue.add_used(&self.memory, head, written).is_err() {
                return;
            }
            if let Ok(true) = queue.needs_notification(&self.memory) {
                self.interrupt.used_buffer();
            }
        }
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
            Err(_) => VIRTIO_BLK_S_IOERR,
        };
        match status.write_all(&[byte as u8]) {
            Ok(()) => data as u32 + 1,
            Err(_) => 0,
        }
    }

    fn carry_out(&self, reader: &mut Reader<()>, writer: &mut Writer<()>) -> io::Result<()> {
        let mut header = [0; HEADER];
        reader.read_exact(&mut header)?;
        let [kind, _, low, high] = words(header);
        let sector = u64::from(high) << 32 | u64::from(low);
        match kind {
            VIRTIO_BLK_T_IN => {
                let at = self.range(sector, writer.available_bytes())?;
                copy_in(&self.image.file, at, writer)
            }
            VIRTIO_BLK_T_OUT if self.image.read_only => Err(io::ErrorKind::PermissionDenied.into()),
            VIRTIO_BLK_T_OUT => {
                let at = self.range(sector, reader.available_bytes())?;
                copy_out(&self.image.file, at, reader)
            }
            VIRTIO_BLK_T_FLUSH => self.image.file.sync_data(),
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
}

fn words(bytes: [u8; HEADER]) -> [u32; 4] {
    std::array::from_fn(|word| {
        let at = word * 4;
        u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
    })
}

/// Copies go through a buffer: the disk is not on the path whose latency is promised.
const PIECE: usize = 64 << 10;

fn copy_in(file: &File, mut at: u64, writer: &mut Writer<()>) -> io::Result<()> {
    let mut buffer = vec![0; PIECE];
    while writer.available_bytes() > 0 {
        let piece = &mut buffer[..writer.available_bytes().min(PIECE)];
        file.read_exact_at(piece, at)?;
        writer.write_all(piece)?;
        at += piece.len() as u64;
    }
    Ok(())
}

fn copy_out(file: &File, mut at: u64, reader: &mut Reader<()>) -> io::Result<()> {
    let mut buffer = vec![0; PIECE];
    while reader.available_bytes() > 0 {
        let piece = &mut buffer[..reader.available_bytes().min(PIECE)];
        reader.read_exact(piece)?;
        file.write_all_at(piece, at)?;
        at += piece.len() as u64;
    }
    Ok(())
}

/// The registers' side of a disk.
pub struct Registers(pub Arc<Block>);

impl Backend for Registers {
    fn identity(&self) -> Identity {
        let read_only = u64::from(self.0.image.read_only) << VIRTIO_BLK_F_RO;
        Identity {
            id: VIRTIO_ID_BLOCK,
            features: 1 << VIRTIO_BLK_F_FLUSH | read_only,
            queue_sizes: vec![QUEUE_SIZE],
            kernel_interrupts: false,
        }
    }

    fn configuration(&self) -> &[u8] {
        &self.0.capacity
    }

    fn activate(&self, activation: &Activation) -> std::result::Result<(), Broken> {
        let mut queue = self.0.queue.lock().unwrap_or_else(PoisonError::into_inner);
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
        let mut queue = self.0.queue.lock().unwrap_or_else(PoisonError::into_inner);
        queue.reset();
    }
}

#[cfg(test)]
#[path = "block_tests.rs"]
mod tests;
