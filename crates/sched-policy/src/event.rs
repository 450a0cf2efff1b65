//! Records of a running scheduler (`policy/event.h`).

use crate::{CpuSet, Kind, Parameters};
use std::fmt;

/// `POLICY_EVENT_VERSION`.
pub const EVENT_VERSION: u32 = 4;

/// [`Event::other`] where there is none.
pub const NO_SERVER: u32 = u32::MAX;

/// `enum policy_event_kind`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u32)]
pub enum EventKind {
    /// A server begins.
    Init = 0,
    /// Its parameters change.
    Parameters = 1,
    /// Its CPUs change.
    Cpus = 2,
    /// The host's policy changes.
    Host = 3,
    /// It has work.
    Wake = 4,
    /// It has none.
    Block = 5,
    /// It begins to run.
    Run = 6,
    /// It stops, and its time is accounted.
    Stop = 7,
    /// An idle server begins to hold a CPU on which nobody runs.
    Hold = 8,
    /// It no longer does.
    Release = 9,
    /// A CPU found nobody.
    Idle = 10,
    /// A server ends.
    Exit = 11,
    /// Time is accounted to a server that goes on.
    Account = 12,
    /// Replenishments are applied.
    Advance = 13,
    /// Records were lost before this one.
    Lost = 14,
}

impl EventKind {
    /// All kinds, in the order of their numbers.
    pub const ALL: [Self; 15] = [
        Self::Init,
        Self::Parameters,
        Self::Cpus,
        Self::Host,
        Self::Wake,
        Self::Block,
        Self::Run,
        Self::Stop,
        Self::Hold,
        Self::Release,
        Self::Idle,
        Self::Exit,
        Self::Account,
        Self::Advance,
        Self::Lost,
    ];
}

/// `struct policy_event`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(C)]
pub struct Event {
    /// The `now` given to the policy, ns.
    pub time_ns: u64,
    /// A number of [`EventKind`].
    pub kind: u32,
    /// The CPU.
    pub cpu: u32,
    /// The server's number.
    pub server: u32,
    /// The idle holder that the server runs for, or [`NO_SERVER`].
    pub other: u32,
    /// Time accounted, ns, or what the kind says.
    pub amount_ns: u64,
    pub(crate) parameters: Parameters,
    /// Of INIT and CPUS.
    pub cpus: CpuSet,
}

impl fmt::Display for Event {
    /// One line: when, what, where, whom, and the numbers that the kind has.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match EventKind::ALL.get(self.kind as usize) {
            Some(kind) => write!(f, "{} ns {kind:?}", self.time_ns)?,
            None => write!(f, "{} ns kind {}", self.time_ns, self.kind)?,
        }
        write!(
            f,
            " of server {} on CPU {}: {} ns",
            self.server, self.cpu, self.amount_ns
        )?;
        if self.other != NO_SERVER {
            write!(f, ", for server {}", self.other)?;
        }
        if self.kind == EventKind::Run as u32 {
            write!(f, ", key {}", self.key_ns())?;
        }
        if [EventKind::Init as u32, EventKind::Parameters as u32].contains(&self.kind) {
            write!(f, ", {:?}", self.parameters)?;
        }
        Ok(())
    }
}

impl Event {
    /// Of INIT and PARAMETERS; of HOST, the order as kind and the quantum as period.
    pub const fn parameters(&self) -> &Parameters {
        &self.parameters
    }

    /// The key at a RUN.
    pub const fn key_ns(&self) -> u64 {
        self.parameters.period_ns()
    }

    /// The kind of the idle holder at a RUN, as the CPU read it; `None` if there is no such kind.
    pub(crate) fn holder_kind(&self) -> Option<Kind> {
        Kind::ALL.get(self.parameters.priority() as usize).copied()
    }

    /// From its bytes in a record; zero where they are too few.
    pub(crate) fn from_bytes(bytes: &[u8]) -> Self {
        let mut event = std::mem::MaybeUninit::<Self>::zeroed();
        let length = bytes.len().min(size_of::<Self>());
        // SAFETY: so many bytes are read from a live slice and written into a live value. The type consists of numbers,
        // which all bit patterns are, and the rest of it is zero.
        unsafe {
            std::ptr::copy_nonoverlapping(bytes.as_ptr(), event.as_mut_ptr().cast(), length);
            event.assume_init()
        }
    }
}
