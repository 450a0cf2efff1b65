//! Handles and the table they lead through.
//!
//! A handle is an index and a generation. A slot's generation grows with every socket it holds and
//! never repeats: a slot whose generations are used up is retired, so that a handle that was closed
//! stays invalid for ever.
//!
//! Locking: each slot has its own lock and `free` another; neither is held while the other is taken
//! or during a system call. Sending and receiving take only the lock of their own socket's slot, so
//! that a real-time VCPU waits for no VCPU that opens or closes other sockets.

use crate::handle::Handle;
use crate::lock::Lock;
use crate::socket::Socket;
use rustix::io::Errno;
use std::collections::VecDeque;
use std::sync::Arc;

#[derive(Default)]
struct Slot {
    /// Of the socket that is here, else of the last one that was.
    generation: u32,
    socket: Option<Arc<Socket>>,
}

/// All sockets of a VM.
pub struct Table {
    slots: Box<[Lock<Slot>]>,
    /// Free slots, the longest unused first.
    free: Lock<VecDeque<u32>>,
}

impl Table {
    /// A table for at most `sockets` at a time.
    pub fn new(sockets: u32) -> Self {
        Self {
            slots: (0..sockets).map(|_| Lock::default()).collect(),
            free: Lock::new((0..sockets).collect()),
        }
    }

    /// Sets a slot aside for a socket to be made.
    ///
    /// # Errors
    /// ENOBUFS where all are in use.
    pub fn reserve(&self) -> Result<Reservation<'_>, Errno> {
        let index = self.free.lock().pop_front().ok_or(Errno::NOBUFS)?;
        let generation = self.slots[index as usize].lock().generation + 1;
        Ok(Reservation {
            table: self,
            handle: Handle::new(index, generation),
            used: false,
        })
    }

    fn slot(&self, handle: Handle) -> Result<&Lock<Slot>, Errno> {
        self.slots.get(handle.index() as usize).ok_or(Errno::BADF)
    }

    /// The socket of a handle.
    ///
    /// # Errors
    /// EBADF where there is none, or no more.
    pub fn get(&self, handle: Handle) -> Result<Arc<Socket>, Errno> {
        let slot = self.slot(handle)?.lock();
        match &slot.socket {
            Some(socket) if slot.generation == handle.generation() => Ok(Arc::clone(socket)),
            _ => Err(Errno::BADF),
        }
    }

    /// Takes a socket out, which ends its handle. Operations that run still have it.
    ///
    /// # Errors
    /// EBADF where there is none, or no more.
    pub fn remove(&self, handle: Handle) -> Result<Arc<Socket>, Errno> {
        let mut slot = self.slot(handle)?.lock();
        if slot.generation != handle.generation() {
            return Err(Errno::BADF);
        }
        slot.socket.take().ok_or(Errno::BADF)
    }

    /// Lets a slot whose socket was removed be used again.
    pub fn release(&self, handle: Handle) {
        if handle.generation() < u32::MAX {
            self.free.lock().push_back(handle.index());
        }
    }

    /// Takes all sockets out.
    pub fn drain(&self) -> impl Iterator<Item = Arc<Socket>> {
        self.slots
            .iter()
            .filter_map(|slot| slot.lock().socket.take())
    }
}

/// A slot set aside; free again when dropped unused.
pub struct Reservation<'t> {
    table: &'t Table,
    handle: Handle,
    used: bool,
}

impl Reservation<'_> {
    /// The handle that the socket will have.
    pub const fn handle(&self) -> Handle {
        self.handle
    }

    /// Puts the socket in: its handle is valid from now on.
    pub fn fill(mut self, socket: Arc<Socket>) {
        let mut slot = self.table.slots[self.handle.index() as usize].lock();
        slot.generation = self.handle.generation();
        slot.socket = Some(socket);
        self.used = true;
    }
}

impl Drop for Reservation<'_> {
    fn drop(&mut self) {
        if !self.used {
            self.table.release(self.handle);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_used_again_under_other_handles() {
        let table = Table::new(1);
        let first = table.reserve().unwrap();
        assert_eq!(table.reserve().err(), Some(Errno::NOBUFS));
        let handle = first.handle();
        drop(first);
        // It never was a socket's: the same handle may be given again.
        assert_eq!(table.reserve().unwrap().handle(), handle);
        table.slots[0].lock().generation = handle.generation();
        assert_ne!(table.reserve().unwrap().handle(), handle);
        assert_eq!(table.get(handle).err(), Some(Errno::BADF));
    }

    #[test]
    fn a_slot_without_generations_left_is_retired() {
        let table = Table::new(2);
        table.slots[0].lock().generation = u32::MAX - 1;
        let last = table.reserve().unwrap();
        assert_eq!(last.handle().generation(), u32::MAX);
        let handle = last.handle();
        std::mem::forget(last);
        table.release(handle);
        for _ in 0..3 {
            assert_eq!(table.reserve().unwrap().handle().index(), 1);
        }
    }
}
