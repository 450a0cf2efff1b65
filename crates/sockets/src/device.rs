//! A VM's outsourced sockets: what all its VCPUs share.

use crate::abi::{Config, VERSION};
use crate::closing::Closing;
use crate::congestion::Algorithms;
use crate::counts::Counts;
use crate::handle::Handle;
use crate::limits::{Budget, Charge, Limits};
use crate::memory::Memory;
use crate::socket::{Buffers, Kind, Socket, StateTable};
use crate::system::{self, HostSocket};
use crate::table::{Reservation, Table};
use crate::wait::WaitSet;
use rustix::io::Errno;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

/// What a device cannot start without.
#[derive(Debug, thiserror::Error)]
pub enum DeviceError {
    /// A limit that makes no sense.
    #[error("outsourced sockets: {0}")]
    Limits(&'static str),
    /// The host refuses something that every device needs.
    #[error("outsourced sockets: cannot {what}: {why}; {remedy}")]
    Host {
        /// What was tried.
        what: &'static str,
        /// The host's error.
        why: Errno,
        /// What may help.
        remedy: &'static str,
    },
}

/// The outsourced sockets of one VM.
///
/// Sockets are made in the network namespace of the thread that carries out `SVS_OP_SOCKET`. All
/// threads that serve channels must be in the namespace in which the device was made: a socket of
/// another is closed at once, and the guest gets EPERM.
pub struct Device {
    limits: Limits,
    namespace: u64,
    table: Table,
    state_table: StateTable,
    wait_sets: Box<[WaitSet]>,
    /// One a channel.
    counts: Arc<[Counts]>,
    budget: Arc<Budget>,
    closing: Closing,
    algorithms: Algorithms,
}

impl Device {
    /// A device for a VM with as many channels as it has VCPUs, in the network namespace of the
    /// calling thread.
    ///
    /// # Errors
    /// For limits that make no sense, or a host without `SO_NETNS_COOKIE` (Linux 5.14).
    pub fn new(limits: Limits, channels: u16) -> Result<Arc<Self>, DeviceError> {
        if channels == 0 {
            return Err(DeviceError::Limits("a VM has at least one channel"));
        }
        if limits.sockets == 0 || limits.sockets > 1 << 24 {
            return Err(DeviceError::Limits(
                "the limit of sockets is 1 to 16,777,216",
            ));
        }
        if !limits.operations.is_power_of_two() {
            return Err(DeviceError::Limits(
                "the limit of operations is a power of two",
            ));
        }
        let host = |what, remedy| move |why| DeviceError::Host { what, why, remedy };
        let namespace = system::socket(libc::AF_INET, libc::SOCK_DGRAM, 0)
            .and_then(|probe| namespace_cookie(probe.as_fd()))
            .map_err(host(
                "identify its network namespace",
                "use Linux 5.14 or newer",
            ))?;
        let wait_sets = (0..channels)
            .map(|_| WaitSet::new())
            .collect::<Result<_, _>>()
            .map_err(host(
                "make its wait sets",
                "raise the limit of open files (ulimit -n)",
            ))?;
        Ok(Arc::new(Self {
            limits,
            namespace,
            table: Table::new(limits.sockets),
            state_table: StateTable::none(),
            wait_sets,
            counts: (0..channels).map(|_| Counts::default()).collect(),
            budget: Budget::new(limits.buffer_bytes),
            closing: Closing::default(),
            algorithms: Algorithms::read(),
        }))
    }

    /// The configuration space of a device that is rung by its transport, or by an I/O port besides.
    pub fn config(&self, port: Option<u16>) -> Config {
        Config {
            version: VERSION.into(),
            channels: (self.wait_sets.len() as u32).into(),
            max_sockets: self.limits.sockets.into(),
            max_data: self.limits.request_bytes.into(),
            port: u32::from(port.unwrap_or_default()).into(),
        }
    }

    /// Its limits.
    pub const fn limits(&self) -> &Limits {
        &self.limits
    }

    /// Ends the sleep of channel `channel`, now or when it next begins: for interrupts, timers
    /// and signals that the VMM has for that VCPU. Unknown channels are ignored.
    pub fn wake(&self, channel: u16) {
        if let Some(set) = self.wait_sets.get(usize::from(channel)) {
            set.ring();
        }
    }

    /// What each channel did.
    pub fn counts(&self) -> Arc<[Counts]> {
        Arc::clone(&self.counts)
    }

    /// The counters of a channel that there is.
    pub(crate) fn counts_of(&self, channel: u16) -> &Counts {
        &self.counts[usize::from(channel)]
    }

    /// The congestion control that the guest may choose.
    pub(crate) const fn algorithms(&self) -> &Algorithms {
        &self.algorithms
    }

    /// Gives up sockets that have sent all that the guest left in them.
    pub(crate) fn end_closed(&self) {
        self.closing
            .look_at_all(|socket| self.table.release(socket.handle()));
    }

    /// Closes all sockets, as at a reset of the virtio device. The caller resets every channel too,
    /// and serves none meanwhile.
    pub fn reset(&self, memory: &Memory) {
        for socket in self.table.drain() {
            self.end(socket, memory);
        }
        self.state_table.set(u64::MAX);
    }

    pub(crate) const fn table(&self) -> &Table {
        &self.table
    }

    /// Asks what a socket is ready for and tells the guest, in its state table.
    pub(crate) fn publish(&self, socket: &Socket, memory: &Memory) -> u32 {
        socket.publish(memory, &self.state_table, |channel| self.epoll_of(channel))
    }

    /// The same for a socket of which an event was taken.
    pub(crate) fn publish_event(&self, socket: &Socket, memory: &Memory) -> u32 {
        socket.publish_event(memory, &self.state_table, |channel| self.epoll_of(channel))
    }

    pub(crate) const fn state_table(&self) -> &StateTable {
        &self.state_table
    }

    /// The wait set of a channel.
    ///
    /// # Errors
    /// EINVAL where there is no such channel.
    pub(crate) fn wait_set(&self, channel: u64) -> Result<&WaitSet, Errno> {
        let index = usize::try_from(channel).map_err(|_| Errno::INVAL)?;
        self.wait_sets.get(index).ok_or(Errno::INVAL)
    }

    /// The epoll of a channel that a socket is known to be in.
    pub(crate) fn epoll_of(&self, channel: u16) -> &OwnedFd {
        &self.wait_sets[usize::from(channel)].epoll
    }

    /// Gives a new socket of a `kind` a handle, in the wait set of `channel`. What `make` makes has the
    /// buffers that it inherits, else its own. It is called when there is a slot, and bytes for what is
    /// inherited: nothing is taken from a backlog that cannot be kept.
    pub(crate) fn add<T>(
        &self,
        kind: Kind,
        channel: u16,
        inherited: Option<Buffers>,
        memory: &Memory,
        make: impl FnOnce() -> Result<(HostSocket, T), Errno>,
    ) -> Result<(Handle, T), Errno> {
        let release = |socket: &Socket| self.table.release(socket.handle());
        self.closing.glance(release);
        let (slot, mut charge) = self.room(inherited).or_else(|_| {
            self.closing.look_at_all(release);
            self.room(inherited)
        })?;
        let handle = slot.handle();
        let (fd, besides) = make()?;
        if namespace_cookie(fd.as_fd())? != self.namespace {
            return Err(Errno::PERM);
        }
        let buffers = inherited.map_or_else(|| Buffers::of(fd.as_fd()), Ok)?;
        if charge.change_to(buffers.bytes()).is_err() {
            self.closing.look_at_all(release);
            charge.change_to(buffers.bytes())?;
        }
        let socket = Arc::new(Socket::new(fd, kind, handle, channel, buffers, charge));
        slot.fill(Arc::clone(&socket));
        self.publish(&socket, memory);
        if let Err(error) = socket.join(self.epoll_of(channel)) {
            self.close(handle, memory)?;
            return Err(error);
        }
        Ok((handle, besides))
    }

    /// A slot, and a charge for buffers that are known before.
    fn room(&self, inherited: Option<Buffers>) -> Result<(Reservation<'_>, Charge), Errno> {
        let slot = self.table.reserve()?;
        let mut charge = Charge::none(Arc::clone(&self.budget));
        charge.change_to(inherited.map_or(0, Buffers::bytes))?;
        Ok((slot, charge))
    }

    pub(crate) fn close(&self, handle: Handle, memory: &Memory) -> Result<(), Errno> {
        let socket = self.table.remove(handle)?;
        self.end(socket, memory);
        self.closing
            .glance(|socket| self.table.release(socket.handle()));
        Ok(())
    }

    fn end(&self, socket: Arc<Socket>, memory: &Memory) {
        socket.close(memory, &self.state_table, |channel| self.epoll_of(channel));
        if socket.begin_to_close() {
            self.closing.keep(socket);
        } else {
            self.table.release(socket.handle());
        }
    }

    pub(crate) fn steer(&self, socket: &Socket, channel: u64) -> Result<(), Errno> {
        self.wait_set(channel)?;
        socket.steer(channel as u16, |channel| self.epoll_of(channel))
    }
}

fn namespace_cookie(fd: BorrowedFd) -> Result<u64, Errno> {
    const SO_NETNS_COOKIE: i32 = 71;
    let mut cookie = [0; 8];
    system::get_option(fd, libc::SOL_SOCKET, SO_NETNS_COOKIE, &mut cookie)?;
    Ok(u64::from_ne_bytes(cookie))
}
