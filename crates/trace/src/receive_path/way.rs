//! A way while it is recorded, and the names that are known only later.

use super::cause::{Cause, NET_RX, Own};
use super::{Span, Wait, Way};
use crate::event::Priority;
use crate::name::Name;
use std::collections::{BTreeMap, HashMap};

/// What a CPU does, as far as it is known at that moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Activity {
    Interrupt(u32, Name),
    Timer,
    /// Of a device that is known when the poll ends: an index into [`Known::polls`].
    Poll(usize),
    Softirq(u32),
    Thread,
}

/// What the CPU did from one event to a later one.
#[derive(Debug, Clone, Copy)]
pub struct Segment {
    pub from_ns: u64,
    pub to_ns: u64,
    pub tid: u32,
    pub activity: Activity,
    pub priority: Priority,
    pub blocked: bool,
}

/// A way whose packet has not been delivered yet.
#[derive(Debug)]
pub struct OpenWay {
    pub device: Name,
    pub since_ns: u64,
    pub segments: Vec<Segment>,
    /// A poll of its interrupt has ended and delivered nothing.
    pub polled: bool,
    pub waits: Vec<Wait>,
}

/// A way that has ended. Its poll may have gone on: what came after the end is in the segments too.
pub struct ClosedWay {
    pub way: OpenWay,
    pub until_ns: u64,
    /// The thread; `None` if the reader was awake.
    pub woken: Option<u32>,
}

impl OpenWay {
    /// Adds what the CPU did next.
    pub fn add(&mut self, segment: Segment) {
        match self.segments.last_mut() {
            Some(last)
                if last.tid == segment.tid
                    && last.activity == segment.activity
                    && last.priority == segment.priority
                    && last.blocked == segment.blocked =>
            {
                last.to_ns = segment.to_ns;
            }
            _ => self.segments.push(segment),
        }
    }
}

impl Span {
    /// Whether only the durations differ.
    fn is_like(&self, other: &Self) -> bool {
        let for_ns = self.for_ns;
        *self == Self { for_ns, ..*other }
    }
}

/// What is known when all events have passed.
pub struct Known<'a> {
    /// The devices by their interrupts.
    pub interrupts: &'a BTreeMap<u32, Name>,
    /// The device of every poll; `None` for what turned out to be none.
    pub polls: &'a [Option<Name>],
    /// The threads' names.
    pub comms: &'a HashMap<u32, Name>,
}

impl Known<'_> {
    /// Names all that was not known yet while the way was open.
    pub fn resolve(&self, closed: &ClosedWay) -> Way {
        let way = &closed.way;
        let comm = |tid| self.comms.get(&tid).copied().unwrap_or_default();
        let mut spans: Vec<Span> = Vec::new();
        for segment in &way.segments {
            let to_ns = segment.to_ns.min(closed.until_ns);
            let thread = comm(segment.tid);
            let span = Span {
                for_ns: to_ns.saturating_sub(segment.from_ns),
                cause: self.cause(segment, way.device),
                in_own_thread: device_of(thread, self.interrupts) == Some(way.device),
                thread,
                priority: segment.priority,
                blocked: segment.blocked,
            };
            match spans.last_mut() {
                _ if span.for_ns == 0 => {}
                Some(last) if last.is_like(&span) => last.for_ns += span.for_ns,
                _ => spans.push(span),
            }
        }
        Way {
            since_ns: way.since_ns,
            spans,
            woken: closed.woken.map(comm).unwrap_or_default(),
            woken_tid: closed.woken,
            waits: way.waits.clone(),
            stages: Vec::new(),
        }
    }

    fn cause(&self, segment: &Segment, device: Name) -> Cause {
        let is_own = |thread| device_of(thread, self.interrupts) == Some(device);
        match segment.activity {
            Activity::Interrupt(irq, _) if self.interrupts.get(&irq) == Some(&device) => {
                Cause::Own(Own::Interrupt)
            }
            Activity::Interrupt(_, name) => Cause::Interrupt(name),
            Activity::Timer => Cause::Interrupt("local timer".into()),
            Activity::Poll(poll) => match self.polls.get(poll).copied().flatten() {
                Some(polled) if polled == device => Cause::Own(Own::Poll),
                Some(polled) => Cause::Poll(polled),
                None => Cause::Softirq(NET_RX),
            },
            Activity::Softirq(vector) => Cause::Softirq(vector),
            Activity::Thread if segment.tid == 0 => Cause::Idle,
            Activity::Thread => match self.comms.get(&segment.tid).copied() {
                Some(thread) if is_own(thread) => Cause::Own(Own::Thread),
                thread => Cause::Thread(thread.unwrap_or_default()),
            },
        }
    }
}

/// The device whose interrupt thread (`irq/29-eth0-rx-0`) or NAPI thread (`napi/eth0-8193`) has
/// this name.
pub fn device_of(thread: Name, interrupts: &BTreeMap<u32, Name>) -> Option<Name> {
    if let Some(rest) = thread.after("irq/") {
        let irq: u32 = rest.split('-').next()?.parse().ok()?;
        return interrupts.get(&irq).copied();
    }
    let device = thread.after("napi/")?.rsplit_once('-')?.0;
    let device = Name::from(device);
    interrupts
        .values()
        .any(|known| *known == device)
        .then_some(device)
}
