//! The memory that is shared with a guest of another monitor, and where things are in it.

use nix::fcntl::{FcntlArg, SealFlag, fcntl};
use nix::sys::memfd::{MFdFlags, memfd_create};
use std::fs::File;
use steadyvm_sockets::abi::{Shared as Head, State, VERSION, shared};
use steadyvm_sockets::{Limits, Memory};
use vm_memory::{Bytes, FileOffset, GuestAddress};
use zerocopy::IntoBytes;

use crate::devices::transport::QueueSetup;
use steadyvm_fault::{At, Result};

/// The head has a page of its own.
const HEAD_BYTES: u32 = 4096;
/// Bytes of one channel's area: queue, request, answer, event ring, and a request's payload each way.
const CHANNEL_BYTES: u32 = 256 << 10;
/// Most bytes of data in one request: a datagram fits, and two of them into a channel's area.
pub const MOST_DATA: u32 = 64 << 10;
/// The most channels.
pub const MOST_CHANNELS: u16 = 64;

/// Where things are. All offsets are multiples of 8.
#[derive(Clone, Copy, Debug)]
pub struct Layout {
    channels: u16,
    sockets: u32,
    data: u32,
}

impl Layout {
    /// For a VM with so many channels, 1 to [`MOST_CHANNELS`].
    pub fn new(channels: u16, limits: &Limits) -> Self {
        Self {
            channels: channels.clamp(1, MOST_CHANNELS),
            sockets: limits.sockets,
            data: limits.request_bytes.min(MOST_DATA),
        }
    }

    /// Channels.
    pub const fn channels(self) -> u16 {
        self.channels
    }

    /// Bytes of all: a power of two, as the size of a PCI device's memory is.
    pub fn size(self) -> u32 {
        let states = self.sockets * size_of::<State>() as u32;
        (Self::area(self.channels) + states).next_power_of_two()
    }

    fn area(channel: u16) -> u32 {
        HEAD_BYTES + u32::from(channel) * CHANNEL_BYTES
    }

    /// Where requests of a channel that were served are counted.
    pub fn served(channel: u16) -> GuestAddress {
        GuestAddress(u64::from(Self::area(channel) + shared::SERVED))
    }

    /// The request queue of a channel.
    pub fn queue(channel: u16) -> QueueSetup {
        let at = |offset: u32| u64::from(Self::area(channel) + offset);
        QueueSetup {
            size: shared::QUEUE as u16,
            descriptors: at(shared::DESCRIPTORS),
            available: at(shared::AVAILABLE),
            used: at(shared::USED),
            ready: true,
        }
    }

    fn head(self) -> Head {
        Head {
            magic: shared::MAGIC.into(),
            version: VERSION.into(),
            channels: u32::from(self.channels).into(),
            max_sockets: self.sockets.into(),
            max_data: self.data.into(),
            first_channel: Self::area(0).into(),
            channel_size: CHANNEL_BYTES.into(),
            size: self.size().into(),
            ..Head::default()
        }
    }
}

/// The memory with its head written, and the file that it is, which can neither shrink nor grow: who maps it
/// too cannot take it from under this process.
pub fn allocate(layout: Layout) -> Result<(Memory, File)> {
    let what = "make the memory that is shared with the guest";
    let flags = MFdFlags::MFD_CLOEXEC | MFdFlags::MFD_ALLOW_SEALING;
    let file = File::from(memfd_create(c"steadyvm-sockets", flags).cannot(what)?);
    let size = layout.size();
    file.set_len(size.into()).cannot(what)?;
    let seals = SealFlag::F_SEAL_SHRINK | SealFlag::F_SEAL_GROW | SealFlag::F_SEAL_SEAL;
    fcntl(&file, FcntlArg::F_ADD_SEALS(seals)).cannot(what)?;
    let mapped = file.try_clone().cannot(what)?;
    let range = (
        GuestAddress(0),
        size as usize,
        Some(FileOffset::new(mapped, 0)),
    );
    let memory = Memory::from_ranges_with_files([range]).cannot(what)?;
    let head = layout.head();
    memory
        .write_slice(head.as_bytes(), GuestAddress(0))
        .cannot(what)?;
    Ok((memory, file))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use steadyvm_sockets::abi::{Event, EventRing, MAX_CONTROL, MAX_NAME, Request};
    use vm_memory::{GuestMemory, Permissions};

    proptest! {
        #[test]
        fn all_parts_are_inside_and_none_is_in_another(channels in 1_u16..=MOST_CHANNELS, sockets in 1_u32..1 << 20) {
            let layout = Layout::new(channels, &Limits { sockets, ..Limits::default() });
            prop_assert!(layout.size().is_power_of_two());
            let mut end = u64::from(HEAD_BYTES);
            for channel in 0..channels {
                let queue = Layout::queue(channel);
                prop_assert!(queue.descriptors >= end);
                let size = u64::from(queue.size);
                prop_assert!(queue.available >= queue.descriptors + 16 * size);
                prop_assert!(queue.used >= queue.available + 6 + 2 * size);
                let served = Layout::served(channel).0;
                prop_assert!(served >= queue.used + 6 + 8 * size);
                end = queue.descriptors + u64::from(CHANNEL_BYTES);
                prop_assert!(served < queue.descriptors + u64::from(shared::DRIVERS));
            }
            prop_assert!(end + u64::from(sockets) * 8 <= u64::from(layout.size()));
        }
    }

    /// The module lays these out behind the queue: 256 events, 1,024 bytes of small payload.
    #[test]
    fn a_channels_area_has_room_for_what_the_driver_keeps_there() {
        let parts = MAX_NAME + MAX_CONTROL + 1024;
        let ring = size_of::<EventRing>() + 256 * size_of::<Event>();
        let heads = 2 * (size_of::<Request>() + parts);
        let all = shared::DRIVERS as usize + heads + ring + 2 * MOST_DATA as usize;
        assert!(all + 4 * 4096 < CHANNEL_BYTES as usize, "{all}");
    }

    #[test]
    fn the_memory_can_neither_shrink_nor_grow() {
        let layout = Layout::new(2, &Limits::default());
        let (memory, file) = allocate(layout).unwrap();
        let size = u64::from(layout.size());
        for other in [0, size - 4096, size + 4096] {
            assert!(file.set_len(other).is_err(), "{other}");
        }
        assert!(memory.check_range(GuestAddress(0), size as usize, Permissions::Write));
        assert!(!memory.check_range(GuestAddress(0), size as usize + 1, Permissions::Write));
    }
}
