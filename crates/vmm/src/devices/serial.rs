//! The serial console: vm-superio's 16550 between the guest and a terminal or file.

use std::io;
use std::sync::Arc;
use steadyvm_sockets::{Held, Lock};
use vm_superio::Trigger;
use vm_superio::serial::{Serial, SerialEvents};
use vmm_sys_util::eventfd::EventFd;

use crate::output::{Entry, Pipe};
use steadyvm_fault::{At, Result};

/// The port's interrupt line.
pub struct Line(EventFd);

impl Trigger for Line {
    type E = io::Error;

    fn trigger(&self) -> io::Result<()> {
        self.0.write(1)
    }
}

/// Tells who feeds the port that the guest has taken everything.
pub struct Drained(EventFd);

impl SerialEvents for Drained {
    fn buffer_read(&self) {}
    fn out_byte(&self) {}
    fn tx_lost_byte(&self) {}

    fn in_buffer_empty(&self) {
        let _ = self.0.write(1);
    }
}

/// The guest's first serial port.
pub struct Console {
    /// Held for one register access, or while input is put in.
    port: Lock<Serial<Line, Drained, Entry>>,
    drained: EventFd,
}

impl Console {
    /// A port whose interrupt is `line`.
    pub fn new(line: &EventFd, output: Arc<Pipe>) -> Result<Self> {
        let what = "make the serial console";
        let drained = EventFd::new(libc::EFD_NONBLOCK | libc::EFD_CLOEXEC).cannot(what)?;
        let line = Line(line.try_clone().cannot(what)?);
        let events = Drained(drained.try_clone().cannot(what)?);
        Ok(Self {
            port: Lock::new(Serial::with_events(line, events, Entry(output))),
            drained,
        })
    }

    /// The guest reads a register.
    pub fn read(&self, offset: u8) -> u8 {
        self.lock().read(offset)
    }

    /// The guest writes a register. Output that nobody reads is lost, as on a line that nobody
    /// listens to.
    pub fn write(&self, offset: u8, value: u8) {
        let _ = self.lock().write(offset, value);
    }

    /// Puts as many bytes in as there is room for: the rest.
    pub fn feed<'b>(&self, bytes: &'b [u8]) -> &'b [u8] {
        let taken = self.lock().enqueue_raw_bytes(bytes).unwrap_or(0);
        &bytes[taken..]
    }

    /// Becomes readable when the guest has taken all input.
    pub const fn drained(&self) -> &EventFd {
        &self.drained
    }

    fn lock(&self) -> Held<'_, Serial<Line, Drained, Entry>> {
        self.port.lock()
    }
}
