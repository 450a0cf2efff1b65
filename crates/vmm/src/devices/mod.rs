//! Devices of the guest: the registers on one side, whoever serves the queues on the other.

pub mod block;
pub mod channel;
mod image_lock;
pub mod net;
pub mod serial;
pub mod sockets;
pub mod tap;
pub mod transport;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;
use steadyvm_sockets::{Held, Lock};
use transport::{Action, Activation, Identity, InterruptStatus, Transport};
use virtio_bindings::virtio_mmio::{VIRTIO_MMIO_CONFIG, VIRTIO_MMIO_QUEUE_NOTIFY};
use vmm_sys_util::eventfd::EventFd;

use crate::output::{Limiter, Messages};

/// The interrupt line of a device, and what else those who serve it tell.
pub struct Interrupt {
    /// What the guest reads when the interrupt has come.
    pub status: Arc<InterruptStatus>,
    /// Raises the line in the kernel.
    pub line: EventFd,
    messages: Messages,
    /// The guest can break its devices at any rate: not all of it is said.
    limiter: Limiter,
}

impl Interrupt {
    /// A line with registers as after a reset.
    pub fn new(line: EventFd, messages: Messages) -> Self {
        Self {
            status: Arc::default(),
            line,
            messages,
            limiter: Limiter::default(),
        }
    }

    /// A line whose messages nobody carries out.
    #[cfg(test)]
    pub fn alone() -> Arc<Self> {
        let event = || EventFd::new(libc::EFD_NONBLOCK).unwrap();
        let messages = crate::output::Pipe::new(&event()).unwrap();
        Arc::new(Self::new(event(), Messages(messages)))
    }

    /// The device needs a reset: says why, and tells the guest.
    pub fn broken(&self, why: &Broken) {
        self.say(&format!("{why}; the device needs a reset"));
        self.status.broken();
        self.raise();
    }

    /// Says something that a guest can cause at any rate.
    pub fn say(&self, line: &str) {
        match self.limiter.allows(Instant::now()) {
            None => {}
            Some(0) => self.messages.say(line),
            Some(more) => self
                .messages
                .say(&format!("{line} ({more} messages before are left out)")),
        }
    }

    /// Tells the guest that a buffer has been used.
    pub fn used_buffer(&self) {
        self.status.used_buffer();
        self.raise();
    }

    /// Raises the line alone.
    pub fn raise(&self) {
        // Fails only where it has been raised 2^64 - 2 times without the kernel taking it.
        let _ = self.line.write(1);
    }
}

/// The guest broke a queue, or set the device up so that it cannot be served.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct Broken(String);

impl Broken {
    /// With a reason.
    pub fn new(why: impl std::fmt::Display) -> Self {
        Self(why.to_string())
    }
}

/// What serves a device's queues.
pub trait Backend: Send + Sync {
    /// What it is.
    fn identity(&self) -> Identity;
    /// Its configuration space.
    fn configuration(&self) -> &[u8];
    /// The driver is ready.
    ///
    /// # Errors
    /// Queues or features that cannot be served.
    fn activate(&self, activation: &Activation) -> Result<(), Broken>;
    /// The driver has rung a queue. Only between activation and reset.
    ///
    /// # Errors
    /// A queue that the guest has broken.
    fn notify(&self, queue: u32) -> Result<(), Broken>;
    /// Ends all service; nothing of the guest is touched after it returns.
    fn reset(&self);
}

/// A virtio device in the guest's address space.
pub struct MmioDevice {
    /// Held while the backend is activated or reset, never while it serves.
    transport: Lock<Transport>,
    /// Between activation and reset. A notification that races with a reset finds its queue not
    /// ready.
    active: AtomicBool,
    interrupt: Arc<Interrupt>,
    backend: Box<dyn Backend>,
}

impl MmioDevice {
    /// Puts registers before a backend.
    pub fn new(backend: Box<dyn Backend>, interrupt: Arc<Interrupt>) -> Self {
        let transport = Transport::new(backend.identity(), Arc::clone(&interrupt.status));
        Self {
            transport: Lock::new(transport),
            active: AtomicBool::new(false),
            interrupt,
            backend,
        }
    }

    /// The guest reads at `offset` of the device's page.
    pub fn read(&self, offset: u32, data: &mut [u8]) {
        data.fill(0);
        if offset >= VIRTIO_MMIO_CONFIG {
            let start = (offset - VIRTIO_MMIO_CONFIG) as usize;
            let space = self.backend.configuration();
            let there = space.get(start..).unwrap_or_default();
            let count = there.len().min(data.len());
            data[..count].copy_from_slice(&there[..count]);
        } else if let Ok(data) = <&mut [u8; 4]>::try_from(data) {
            *data = self.lock().read(offset).to_le_bytes();
        }
    }

    /// The guest writes there. No device here has configuration to be written.
    pub fn write(&self, offset: u32, data: &[u8]) {
        let Ok(bytes) = <[u8; 4]>::try_from(data) else {
            return;
        };
        let value = u32::from_le_bytes(bytes);
        if offset == VIRTIO_MMIO_QUEUE_NOTIFY {
            self.ring(value);
        } else if offset < VIRTIO_MMIO_CONFIG {
            let mut transport = self.lock();
            match transport.write(offset, value) {
                Action::None => {}
                Action::Activate(activation) => self.activate(&activation),
                Action::Reset => self.reset(),
            }
        }
    }

    /// Serves a queue, as its notification register does.
    pub fn ring(&self, queue: u32) {
        if self.active.load(Ordering::Acquire)
            && let Err(broken) = self.backend.notify(queue)
        {
            self.give_up(&broken);
        }
    }

    fn activate(&self, activation: &Activation) {
        match self.backend.activate(activation) {
            Ok(()) => self.active.store(true, Ordering::Release),
            Err(broken) => self.give_up(&broken),
        }
    }

    fn give_up(&self, broken: &Broken) {
        self.active.store(false, Ordering::Release);
        self.interrupt.broken(broken);
    }

    fn reset(&self) {
        self.active.store(false, Ordering::Release);
        self.backend.reset();
        // Who served until now may have said that the device is broken.
        self.interrupt.status.clear();
    }

    fn lock(&self) -> Held<'_, Transport> {
        self.transport.lock()
    }
}

#[cfg(test)]
#[path = "device_tests.rs"]
mod tests;
