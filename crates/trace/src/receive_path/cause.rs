//! What a CPU does while a packet waits for it.

use crate::name::Name;
use std::fmt;

/// What a CPU does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Cause {
    /// It works for the packet's own device.
    Own(Own),
    /// It polls another device, or the backlog of packets without one (an empty name).
    Poll(Name),
    /// It works off a softirq vector; of `NET_RX` what is no poll.
    Softirq(u32),
    /// It is in the hard interrupt of something else.
    Interrupt(Name),
    /// It runs a thread, outside all of these.
    Thread(Name),
    /// It has nothing to do, or is about to leave or enter that state.
    Idle,
}

/// A step of the packet's own device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Own {
    /// Its hard interrupt.
    Interrupt,
    /// Its interrupt or NAPI thread, outside softirqs.
    Thread,
    /// Its poll, up to the packet's socket.
    Poll,
}

/// The kernel's softirq vectors in their order (`include/linux/interrupt.h`).
const VECTORS: [&str; 10] = [
    "HI", "TIMER", "NET_TX", "NET_RX", "BLOCK", "IRQ_POLL", "TASKLET", "SCHED", "HRTIMER", "RCU",
];
/// The vector that polls devices.
pub const NET_RX: u32 = 3;

impl Cause {
    /// The kind of the cause, a word for machines.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Own(_) => "own",
            Self::Poll(_) => "poll",
            Self::Softirq(_) => "softirq",
            Self::Interrupt(_) => "interrupt",
            Self::Thread(_) => "thread",
            Self::Idle => "idle",
        }
    }

    /// Which one of its kind.
    pub fn name(&self) -> String {
        match self {
            Self::Own(Own::Interrupt) => "interrupt".into(),
            Self::Own(Own::Thread) => "thread".into(),
            Self::Own(Own::Poll) => "poll".into(),
            Self::Poll(device) if device.is_empty() => "backlog".into(),
            Self::Poll(name) | Self::Interrupt(name) | Self::Thread(name) => name.to_string(),
            Self::Softirq(vector) => VECTORS
                .get(*vector as usize)
                .map_or_else(|| vector.to_string(), ToString::to_string),
            Self::Idle => String::new(),
        }
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = format!("{} {}", self.kind(), self.name());
        formatter.pad(text.trim_end())
    }
}
