//! Where the time goes between a packet's hard interrupt and the wake-up of its reader.
//!
//! Pure: from the events of a [`Recording`] to [`Findings`], and from those to a [`Report`].
//! docs/design/receive-path-inversions.md says what is measured and how to read it.

mod cause;
mod cpu;
mod journey;
mod legs;
mod report;
#[cfg(test)]
mod tests;
mod text;
mod vectors;
mod way;

pub use cause::{Cause, Own};
pub use journey::{Piece, Stage, Step, VmThreads};
pub use legs::Legs;
pub use report::{
    Blocked, CauseFigures, Figures, Owner, Rank, Report, WorstPacket, WorstPiece, WorstSpan,
    WorstStage,
};
pub use text::{render, render_worst};

use crate::event::{Event, Kind, Priority};
use crate::name::Name;
use crate::recorder::Recording;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// Which packets are measured, and what is known of the host.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Setup {
    /// The network devices by the numbers of their interrupts.
    pub interrupts: BTreeMap<u32, Name>,
    /// Which packets.
    pub wanted: Wanted,
    /// Where the softirq lock of PREEMPT_RT lies in every CPU's own area.
    pub softirq_lock_offset: Option<u64>,
    /// The VMs of the host, which packets are followed into.
    pub vms: Vec<VmThreads>,
}

/// Which packets are measured.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Wanted {
    /// Those received on this device.
    Device(Name),
    /// Those that wake one of these threads.
    Threads(BTreeSet<u32>),
}

impl Setup {
    /// Whether the answers of the measured packets leave the host by this device.
    fn sends_on(&self, device: Name) -> bool {
        match &self.wanted {
            Wanted::Device(wanted) => device == *wanted,
            Wanted::Threads(_) => self.interrupts.values().any(|known| *known == device),
        }
    }
}

impl Wanted {
    /// Whether the event is one that a wanted packet causes once, as far as a single event tells.
    pub fn is_seen_in(&self, event: &Event) -> bool {
        match (self, event.kind) {
            (Self::Device(wanted), Kind::Packet { device }) => device == *wanted,
            (Self::Threads(threads), Kind::Wake { tid, .. }) => threads.contains(&tid),
            _ => false,
        }
    }
}

/// A packet's way from its hard interrupt to the wake-up of its reader, on one CPU.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Way {
    /// When its hard interrupt began.
    pub since_ns: u64,
    /// What the CPU did from then on, without a gap.
    pub spans: Vec<Span>,
    /// The thread that was woken; empty if the reader was awake.
    pub woken: Name,
    /// Its number; `None` if the reader was awake.
    pub woken_tid: Option<u32>,
    /// The owners of the locks that the device's thread was blocked on, in order.
    pub waits: Vec<Wait>,
    /// What came after the wake-up, as far as it is known.
    pub stages: Vec<Stage>,
}

/// What the CPU did for a while.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Span {
    /// How long.
    pub for_ns: u64,
    /// What.
    pub cause: Cause,
    /// Whether in the device's own thread, or in an interrupt of it.
    pub in_own_thread: bool,
    /// The thread.
    pub thread: Name,
    /// Its priority, which may be lent.
    pub priority: Priority,
    /// Whether the device's own thread was blocked on a lock meanwhile.
    pub blocked: bool,
}

/// A lock that the device's own thread was blocked on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Wait {
    /// Whether it was the softirq lock.
    pub softirq_lock: bool,
    /// Its owner, as far as known.
    pub owner: Name,
}

impl Way {
    /// From the hard interrupt to the wake-up.
    pub fn total_ns(&self) -> u64 {
        self.spans.iter().map(|span| span.for_ns).sum()
    }

    /// From the hard interrupt to the end of the last stage that is known.
    pub fn whole_ns(&self) -> u64 {
        let stages = self.stages.iter().map(Stage::total_ns);
        self.total_ns() + stages.sum::<u64>()
    }
}

/// All that was found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Findings {
    /// The measured packets, with the CPU, in order of time.
    pub ways: Vec<(usize, Way)>,
    /// Packets that were polled together with one that is measured, or after it without an
    /// interrupt of their own.
    pub followers: u64,
}

/// Finds the way of every wanted packet.
pub fn analyse(recording: &Recording, setup: &Setup) -> Findings {
    let mut findings = Findings::default();
    for (cpu, events) in &recording.cpus {
        let found = cpu::analyse(events, setup);
        findings.followers += found.followers;
        let ways = found.ways.into_iter().map(|way| (*cpu, way));
        findings.ways.extend(ways);
    }
    findings.ways.sort_by_key(|(_, way)| way.since_ns);
    let timeline = journey::Timeline::of(&recording.cpus, |device| setup.sends_on(device));
    for (_, way) in &mut findings.ways {
        way.stages = timeline.follow(way, &setup.vms);
    }
    findings
}
