//! Exits to this program, counted by VCPU and reason.

use serde::Serialize;
use std::sync::atomic::{AtomicU64, Ordering};

/// Why a VCPU left the guest for this program.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Exit {
    /// A register of a device was read.
    MmioRead,
    /// A register of a device was written, or a queue of outsourced sockets was rung.
    MmioWrite,
    /// An I/O port was read.
    PortRead,
    /// An I/O port was written.
    PortWrite,
    /// A signal for the thread.
    Signal,
    /// Anything else, which ends the VM.
    Other,
}

impl Exit {
    const ALL: [Self; 6] = [
        Self::MmioRead,
        Self::MmioWrite,
        Self::PortRead,
        Self::PortWrite,
        Self::Signal,
        Self::Other,
    ];
}

/// The exits of one VCPU, written by its thread alone.
#[derive(Debug, Default)]
pub struct Counters([AtomicU64; Exit::ALL.len()]);

impl Counters {
    /// Counts one.
    pub fn add(&self, exit: Exit) {
        self.0[exit as usize].fetch_add(1, Ordering::Relaxed);
    }
}
