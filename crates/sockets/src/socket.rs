//! A socket of the host that belongs to a guest.

use crate::abi::{self, State};
use crate::handle::Handle;
use crate::limits::Charge;
use crate::lock::{Held, Lock};
use crate::memory::{Memory, Segments};
use crate::system::{self, HostSocket};
use rustix::event::{PollFd, PollFlags, Timespec, epoll};
use rustix::io::Errno;
use std::mem::size_of;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};
use vm_memory::{Bytes, GuestAddress};

/// How long a peer may leave data unacknowledged, or its window closed, in seconds.
pub const LONGEST_CLOSING_S: u32 = 120;

const NOW: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 0,
};

/// Where the guest keeps its state table, if it does.
pub struct StateTable(AtomicU64);

impl StateTable {
    const NONE: u64 = u64::MAX;

    /// No table yet.
    pub const fn none() -> Self {
        Self(AtomicU64::new(Self::NONE))
    }

    /// Sets the address, which the caller has checked to be that of guest memory, or all ones.
    pub fn set(&self, address: u64) {
        self.0.store(address, Ordering::Release);
    }

    /// Writes one entry, as one store.
    fn write(&self, memory: &Memory, index: u32, generation: u32, ready: u32) {
        let table = self.0.load(Ordering::Acquire);
        if table == Self::NONE {
            return;
        }
        let state = State {
            generation: generation.into(),
            ready: ready.into(),
        };
        let word = u64::from_ne_bytes(zerocopy::transmute!(state));
        let address = table + u64::from(index) * size_of::<State>() as u64;
        // Checked when the table was set, so this fails only where memory was taken from the guest
        // since: its own loss.
        let _ = memory.store(word, GuestAddress(address), Ordering::Release);
    }
}

/// Sizes of a socket's buffers as they were set, or by default. TCP grows them beyond on its own.
#[derive(Clone, Copy)]
pub struct Buffers {
    send: u64,
    receive: u64,
}

impl Buffers {
    /// What is charged for them.
    pub const fn bytes(self) -> u64 {
        self.send + self.receive
    }

    /// Those of a socket as it is.
    pub fn of(fd: BorrowedFd) -> Result<Self, Errno> {
        Ok(Self {
            send: buffer_bytes(fd, libc::SO_SNDBUF)?,
            receive: buffer_bytes(fd, libc::SO_RCVBUF)?,
        })
    }
}

fn buffer_bytes(fd: BorrowedFd, option: i32) -> Result<u64, Errno> {
    let bytes = system::get_int_option(fd, libc::SOL_SOCKET, option)?;
    Ok(u64::from(bytes.unsigned_abs()))
}

/// What may change about a socket.
struct Changing {
    /// The channel whose wait set it is in.
    channel: u16,
    buffers: Buffers,
    /// For the buffers.
    charge: Charge,
    /// Its handle has ended: the entry of the state table is another's.
    closed: bool,
    /// That there is room to send in is an event.
    ///
    /// A stream tells it when there was none before. A datagram socket tells it whenever the network
    /// card is done with a datagram, which would end the guest's idle wait after every answer it
    /// gave: so of those it is an event only from the moment that there was no room.
    tells_room: bool,
}

/// What a guest can have sockets of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// `SOCK_STREAM`.
    Stream,
    /// `SOCK_DGRAM`.
    Datagram,
}

/// A host socket, non-blocking, with the handle that the guest knows it by.
pub struct Socket {
    fd: HostSocket,
    kind: Kind,
    handle: Handle,
    /// Held while the host's socket is asked what it is ready for and that is published, so that
    /// what is published last was asked last. No call under this lock blocks.
    changing: Lock<Changing>,
    /// Held while something is received, so that a message that was looked at is the one that is
    /// received. No call under this lock blocks.
    receiving: Lock<()>,
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl Socket {
    /// Takes a descriptor over, whose buffers are charged.
    pub fn new(
        fd: HostSocket,
        kind: Kind,
        handle: Handle,
        channel: u16,
        buffers: Buffers,
        charge: Charge,
    ) -> Self {
        Self {
            fd,
            kind,
            handle,
            changing: Lock::new(Changing {
                channel,
                buffers,
                charge,
                closed: false,
                tells_room: kind == Kind::Stream,
            }),
            receiving: Lock::default(),
        }
    }

    /// Its handle.
    pub const fn handle(&self) -> Handle {
        self.handle
    }

    /// The channel whose wait set it is in.
    pub fn channel(&self) -> u16 {
        self.changing.lock().channel
    }

    /// Its buffers, which what it accepts inherits.
    pub fn buffers(&self) -> Buffers {
        self.changing.lock().buffers
    }

    /// Keeps others from receiving.
    pub fn receive_alone(&self) -> Held<'_, ()> {
        self.receiving.lock()
    }

    /// The same; `None` where somebody else receives.
    pub fn try_to_receive_alone(&self) -> Option<Held<'_, ()>> {
        self.receiving.try_lock()
    }

    /// The length of the next message, or of what a stream has.
    ///
    /// # Errors
    /// What a receive would fail with, which it then does not any more: the caller passes it on.
    /// EAGAIN where there is nothing.
    pub fn next_length(&self) -> Result<u64, Errno> {
        // A listener has no length, which is not what a receive from it fails with.
        let length = || rustix::io::ioctl_fionread(self).unwrap_or(0);
        match length() {
            0 => {
                // Nothing yet, or a message without data, or one that has come since.
                let look = libc::MSG_PEEK | libc::MSG_DONTWAIT;
                system::receive(self.as_fd(), &mut [], &Segments::default(), look)?;
                Ok(length())
            }
            some => Ok(some),
        }
    }

    /// Asks what the socket is ready for and writes it to the state table. `set` gives the wait set
    /// of a channel.
    pub fn publish<'s>(
        &self,
        memory: &Memory,
        table: &StateTable,
        set: impl Fn(u16) -> &'s OwnedFd,
    ) -> u32 {
        self.publish_under_lock(&mut self.changing.lock(), memory, table, set)
    }

    /// The same when an event has been taken that the guest is going to be told.
    pub fn publish_event<'s>(
        &self,
        memory: &Memory,
        table: &StateTable,
        set: impl Fn(u16) -> &'s OwnedFd,
    ) -> u32 {
        let mut changing = self.changing.lock();
        let ready = self.publish_under_lock(&mut changing, memory, table, &set);
        // Only here: at any other moment the event may be in the set, and the guest would not be
        // told.
        let has_room = ready & abi::ready::OUT != 0;
        if self.kind == Kind::Datagram && has_room && changing.tells_room {
            self.tell_room(&mut changing, false, set);
        }
        ready
    }

    fn publish_under_lock<'s>(
        &self,
        changing: &mut Changing,
        memory: &Memory,
        table: &StateTable,
        set: impl Fn(u16) -> &'s OwnedFd,
    ) -> u32 {
        let ready = self.ready();
        if changing.closed {
            return ready;
        }
        table.write(memory, self.handle.index(), self.handle.generation(), ready);
        if ready & abi::ready::OUT == 0 && !changing.tells_room {
            self.tell_room(changing, true, set);
        }
        ready
    }

    /// If there is room already when it begins to be an event, that is one.
    fn tell_room<'s>(
        &self,
        changing: &mut Changing,
        tells_room: bool,
        set: impl Fn(u16) -> &'s OwnedFd,
    ) {
        changing.tells_room = tells_room;
        // Fails only where the socket is not in the set yet.
        let _ = epoll::modify(
            set(changing.channel),
            self,
            epoll::EventData::new_u64(self.handle.to_guest()),
            edges(tells_room),
        );
    }

    fn ready(&self) -> u32 {
        let asked = PollFlags::IN | PollFlags::PRI | PollFlags::OUT | PollFlags::RDHUP;
        let mut poll = [PollFd::new(&self.fd, asked)];
        match rustix::event::poll(&mut poll, Some(&NOW)) {
            Ok(_) => u32::from(poll[0].revents().bits()),
            Err(_) => abi::ready::ERR,
        }
    }

    /// Puts the socket into its channel's wait set for the first time.
    pub fn join(&self, set: &OwnedFd) -> Result<(), Errno> {
        self.join_under_lock(&self.changing.lock(), set)
    }

    fn join_under_lock(&self, changing: &Changing, set: &OwnedFd) -> Result<(), Errno> {
        epoll::add(
            set,
            self,
            epoll::EventData::new_u64(self.handle.to_guest()),
            edges(changing.tells_room),
        )
    }

    /// Moves the socket to the wait set of `channel`. What it is ready for is an edge there.
    pub fn steer<'s>(&self, channel: u16, set: impl Fn(u16) -> &'s OwnedFd) -> Result<(), Errno> {
        let mut changing = self.changing.lock();
        if changing.closed {
            return Err(Errno::BADF);
        }
        if changing.channel == channel {
            return Ok(());
        }
        self.join_under_lock(&changing, set(channel))?;
        let before = std::mem::replace(&mut changing.channel, channel);
        // Cannot fail: the socket has been in that set until now.
        epoll::delete(set(before), self)
    }

    /// Sets an option that may change the size of a buffer (`SO_SNDBUF`, `SO_RCVBUF`, `SO_RCVLOWAT`) and
    /// charges it; where that is too much, option and buffers are as before.
    ///
    /// # Errors
    /// ENOBUFS where the VM's buffer bytes are used up, else the host's.
    pub fn resize_buffer(&self, option: i32, value: &[u8]) -> Result<(), Errno> {
        let mut changing = self.changing.lock();
        let fd = self.as_fd();
        let before = system::get_int_option(fd, libc::SOL_SOCKET, option)?;
        let sizes = Buffers::of(fd)?;
        system::set_option(fd, libc::SOL_SOCKET, option, value)?;
        let after = Buffers::of(fd)?;
        // What TCP has added by itself until now is not charged here: only a change is.
        let mut buffers = changing.buffers;
        if after.send != sizes.send || option == libc::SO_SNDBUF {
            buffers.send = after.send;
        }
        if after.receive != sizes.receive || option == libc::SO_RCVBUF {
            buffers.receive = after.receive;
        }
        if let Err(error) = changing.charge.change_to(buffers.bytes()) {
            let restore = |option, value: i32| {
                system::set_option(fd, libc::SOL_SOCKET, option, &value.to_ne_bytes())
            };
            // The kernel reports twice what was set.
            match option {
                libc::SO_RCVLOWAT => {
                    restore(option, before)?;
                    restore(libc::SO_RCVBUF, (sizes.receive / 2) as i32)?;
                }
                _ => restore(option, before / 2)?,
            }
            return Err(error);
        }
        changing.buffers = buffers;
        Ok(())
    }

    /// Begins the end of a socket that the guest has closed. True where the kernel has data to send that
    /// the peer has not acknowledged: then the socket must be kept until [`is_sending`](Self::is_sending)
    /// says that it is done.
    pub fn begin_to_close(&self) -> bool {
        let sends = self.kind == Kind::Stream
            // What the guest has not read makes close(2) a reset, and so does a linger time of 0.
            && rustix::io::ioctl_fionread(self).is_ok_and(|unread| unread == 0)
            && self.fd.linger() != Some(0)
            && self.is_sending();
        if sends {
            let fd = self.as_fd();
            let longest = LONGEST_CLOSING_S * 1000;
            let limit = longest.to_ne_bytes();
            // Fails only for a connection that has ended since, as what follows then sees.
            let _ = system::set_option(fd, libc::IPPROTO_TCP, libc::TCP_USER_TIMEOUT, &limit);
            let _ = rustix::net::shutdown(self, rustix::net::Shutdown::Both);
        }
        sends
    }

    /// Whether a stream has data that its peer has not acknowledged.
    pub fn is_sending(&self) -> bool {
        /// Of `TCP_INFO`'s first byte.
        const TCP_CLOSE: u8 = 7;
        let mut queued = [0; 4];
        let outstanding = system::ioctl(self.as_fd(), libc::TIOCOUTQ as u32, &mut queued);
        let mut state = [0; 1];
        let known = system::get_option(self.as_fd(), libc::IPPROTO_TCP, libc::TCP_INFO, &mut state);
        outstanding.is_ok()
            && u32::from_ne_bytes(queued) != 0
            && known.is_ok()
            && state != [TCP_CLOSE]
    }

    /// Ends the handle, after it was removed from the table: no events and no state from now on.
    pub fn close<'s>(&self, memory: &Memory, table: &StateTable, set: impl Fn(u16) -> &'s OwnedFd) {
        let mut changing = self.changing.lock();
        changing.closed = true;
        // It is in the set, unless it could not join it.
        let _ = epoll::delete(set(changing.channel), self);
        table.write(memory, self.handle.index(), 0, 0);
    }
}

fn edges(tells_room: bool) -> epoll::EventFlags {
    let mut edges = epoll::EventFlags::IN
        | epoll::EventFlags::PRI
        | epoll::EventFlags::RDHUP
        | epoll::EventFlags::ET;
    edges.set(epoll::EventFlags::OUT, tells_room);
    edges
}
