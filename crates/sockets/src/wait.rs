//! Wait sets and event rings: how a guest learns what became ready without an interrupt.

use crate::abi::{Event, EventRing};
use crate::busy_poll::BusyPoll;
use crate::counts::Counts;
use crate::memory::Memory;
use crate::news::are_news;
use rustix::event::{EventfdFlags, Timespec, epoll, eventfd};
use rustix::io::Errno;
use std::mem::{MaybeUninit, offset_of, size_of};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{Ordering, fence};
use std::time::Duration;
use vm_memory::{Bytes, GuestAddress, GuestMemory, Permissions};
use zerocopy::IntoBytes;

/// Host sockets that one VCPU waits for, and its doorbell.
pub struct WaitSet {
    /// All sockets of the set, edge-triggered, and the doorbell.
    pub epoll: OwnedFd,
    /// Level-triggered: seen by each look at the set until a sleep has ended by it.
    doorbell: OwnedFd,
}

/// What the doorbell is in the set: no socket has this handle, since generations begin at 1.
const DOORBELL: u64 = 0;

impl WaitSet {
    /// An empty set.
    pub fn new() -> Result<Self, Errno> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let doorbell = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let data = epoll::EventData::new_u64(DOORBELL);
        epoll::add(&epoll, &doorbell, data, epoll::EventFlags::IN)?;
        Ok(Self { epoll, doorbell })
    }

    /// Rings the doorbell: it stays rung until a sleep ends by it.
    pub fn ring(&self) {
        // Fails only where it has been rung 2^64 - 2 times already.
        let _ = rustix::io::write(&self.doorbell, &1_u64.to_ne_bytes());
    }

    /// Takes events. Where there are none, polls and sleeps until a socket has one, the doorbell is rung, a
    /// signal comes or the longest time is over.
    fn take<'e>(
        &self,
        events: &'e mut [MaybeUninit<epoll::Event>],
        wait: &mut Wait<'_>,
    ) -> Result<&'e [epoll::Event], Errno> {
        let longest = std::mem::take(&mut wait.longest);
        let timeout = Timespec {
            tv_sec: longest.as_secs().try_into().unwrap_or(i64::MAX),
            tv_nsec: longest.subsec_nanos().into(),
        };
        let begun = wait.poll.begin(self.epoll.as_fd(), longest);
        let taken = match epoll::wait(&self.epoll, events, Some(&timeout)) {
            Ok((taken, _)) => &*taken,
            Err(Errno::INTR) => &[],
            Err(error) => return Err(error),
        };
        let by_event = taken.iter().any(|event| !is_doorbell(event));
        wait.poll.end(begun, by_event, wait.counts);
        if !longest.is_zero() && taken.iter().any(is_doorbell) {
            let _ = rustix::io::read(&self.doorbell, &mut [0_u8; 8]);
        }
        Ok(taken)
    }
}

fn is_doorbell(event: &epoll::Event) -> bool {
    // epoll_event is packed: copied, not borrowed.
    let data = event.data;
    data.u64() == DOORBELL
}

/// Events taken from the kernel at a time.
const BATCH: usize = 64;

/// A ring may always have so many entries, however few sockets the VM has.
const LEAST_RING: u32 = 1024;

/// How a fill waits where there is nothing.
pub struct Wait<'w> {
    /// For at most so long; zero once it has.
    pub longest: Duration,
    /// By polling first, where that promises something.
    pub poll: &'w mut BusyPoll,
    /// Of the channel.
    pub counts: &'w Counts,
}

/// A ring as a fill leaves it.
#[derive(Clone, Copy)]
pub struct Filled {
    /// Events that the guest has to take.
    pub pending: u32,
    /// Some are new to a guest that looks at the ring no more: it must be told.
    pub are_news: bool,
}

/// A ring of events in guest memory.
pub struct Ring {
    address: u64,
    /// A power of two.
    entries: u32,
    /// Ours; the guest's copy is never read back.
    produced: u32,
}

impl Ring {
    /// Takes guest memory for a ring, which starts empty. More entries than a VM has sockets would let a
    /// peer that makes events hold the VCPU for as many: a ring full is what one fill moves at most.
    ///
    /// # Errors
    /// EINVAL for a bad size or alignment, EFAULT for what is not guest memory.
    pub fn new(memory: &Memory, address: u64, entries: u64, sockets: u32) -> Result<Self, Errno> {
        let most = sockets.next_power_of_two().max(LEAST_RING);
        let entries = u32::try_from(entries).map_err(|_| Errno::INVAL)?;
        if !entries.is_power_of_two() || entries > most || !address.is_multiple_of(8) {
            return Err(Errno::INVAL);
        }
        let size = size_of::<EventRing>() + entries as usize * size_of::<Event>();
        if !memory.check_range(GuestAddress(address), size, Permissions::Write) {
            return Err(Errno::FAULT);
        }
        let ring = Self {
            address,
            entries,
            produced: 0,
        };
        for offset in [
            offset_of!(EventRing, produced),
            offset_of!(EventRing, consumed),
        ] {
            ring.store(memory, offset, 0)?;
        }
        Ok(ring)
    }

    fn at(&self, offset: usize) -> GuestAddress {
        // Checked in `new` for every offset inside the ring.
        GuestAddress(self.address.wrapping_add(offset as u64))
    }

    fn store(&self, memory: &Memory, offset: usize, value: u32) -> Result<(), Errno> {
        memory
            .store(value.to_le(), self.at(offset), Ordering::Release)
            .map_err(|_| Errno::FAULT)
    }

    /// Events in the ring that the guest has not taken.
    ///
    /// # Errors
    /// EPROTO where the guest claims to have taken what was never there.
    pub fn pending(&self, memory: &Memory) -> Result<u32, Errno> {
        let consumed: u32 = memory
            .load(self.at(offset_of!(EventRing, consumed)), Ordering::Acquire)
            .map_err(|_| Errno::FAULT)?;
        let pending = self.produced.wrapping_sub(u32::from_le(consumed));
        if pending > self.entries {
            return Err(Errno::PROTO);
        }
        Ok(pending)
    }

    /// Moves events from the set to the ring while there is room; the rest stays in the set. Where
    /// there is nothing in either, waits, or until the doorbell is rung. `publish` is told each handle
    /// and says what its socket is ready for by now, or that the guest has it no more.
    pub fn fill(
        &mut self,
        memory: &Memory,
        set: &WaitSet,
        mut wait: Wait<'_>,
        publish: impl Fn(u64) -> Option<u32>,
    ) -> Result<Filled, Errno> {
        let pending = self.pending(memory)?;
        if pending > 0 {
            wait.longest = Duration::ZERO;
        }
        let before = self.produced;
        // A peer that makes events without end must not keep the VCPU here: one ring full at most.
        let mut room = (self.entries - pending) as usize;
        let mut doorbell_alone = false;
        while room > 0 {
            let mut events = [const { MaybeUninit::uninit() }; BATCH];
            let asked = room.min(BATCH);
            let taken = set.take(&mut events[..asked], &mut wait)?;
            let sockets = taken.iter().filter(|event| !is_doorbell(event));
            let had = room;
            for event in sockets {
                room -= 1;
                let (data, flags) = (event.data, event.flags);
                if let Some(ready) = publish(data.u64()) {
                    self.push(memory, data.u64(), flags.bits() | ready)?;
                }
            }
            // The doorbell, where it takes the last place, is behind all sockets the next time.
            if taken.len() < asked || (room == had && doorbell_alone) {
                break;
            }
            doorbell_alone = room == had;
        }
        let pushed = self.produced.wrapping_sub(before);
        if pushed > 0 {
            // The events are counted before it is looked how many the guest has taken: see `news`.
            fence(Ordering::SeqCst);
        }
        let pending = self.pending(memory)?;
        Ok(Filled {
            pending,
            are_news: are_news(pending, pushed),
        })
    }

    fn push(&mut self, memory: &Memory, handle: u64, ready: u32) -> Result<(), Errno> {
        let event = Event {
            handle: handle.into(),
            ready: ready.into(),
            reserved: 0.into(),
        };
        let slot = (self.produced & (self.entries - 1)) as usize;
        let offset = size_of::<EventRing>() + slot * size_of::<Event>();
        memory
            .write_slice(event.as_bytes(), self.at(offset))
            .map_err(|_| Errno::FAULT)?;
        self.produced = self.produced.wrapping_add(1);
        self.store(memory, offset_of!(EventRing, produced), self.produced)
    }
}
