//! The ways of the packets on one CPU.
//!
//! Rule: a hard interrupt of a device opens a way, unless one of the same interrupt is open and
//! not polled yet. From then on, all that the CPU does is a span of that way. The first packet
//! that the poll of that interrupt delivers takes the way; it ends when the packet's reader is
//! woken, or, if the reader is awake, when its socket is told. A poll without packets (of sent
//! ones) closes the way unused. A hard interrupt may break into the handling of a packet: who is
//! woken in one, or on its way out, is not the packet's reader.
//!
//! A packet that is not delivered within a poll of its device (it went through the backlog of
//! RPS, or a thread of a CPU map) takes the oldest way of its device that was polled.

use super::cause::NET_RX;
use super::way::{Activity, ClosedWay, Known, OpenWay, Segment, device_of};
use super::{Setup, Wait, Wanted, Way, vectors};
use crate::event::{Event, Kind, Priority};
use crate::name::Name;
use std::collections::{BTreeMap, HashMap};

/// Each CPU's own area begins at a page.
const PAGE_BYTES: u64 = 4096;
/// A way that long has lost its packet.
const MOST_SEGMENTS: usize = 10_000;

/// Threads that hard interrupts wake on their way out, when they are no more to be seen, and that read
/// no socket: threaded handlers, and what runs softirqs, timers and RCU's callbacks.
const WOKEN_BY_INTERRUPTS: [&str; 4] = ["irq/", "ksoftirqd/", "ktimers/", "rcuc/"];

/// What was found on one CPU.
#[derive(Debug, Default)]
pub struct Found {
    pub ways: Vec<Way>,
    pub followers: u64,
}

/// Finds the ways in the events of one CPU, which are in order of time.
pub fn analyse(events: &[Event], setup: &Setup) -> Found {
    let mut cpu = Cpu {
        setup,
        irq_of_napi: vectors::learn(events, &setup.interrupts),
        now_ns: events.first().map_or(0, |event| event.time_ns),
        running: events.first().map_or(0, |event| event.tid),
        interrupts: Vec::new(),
        contexts: HashMap::new(),
        open: BTreeMap::new(),
        polls: Vec::new(),
        comms: HashMap::from([(0, "idle".into())]),
        priorities: HashMap::new(),
        closed: Vec::new(),
        followers: 0,
    };
    for event in events {
        cpu.pass(event);
    }
    cpu.found()
}

struct Cpu<'a> {
    setup: &'a Setup,
    irq_of_napi: HashMap<u64, u32>,
    now_ns: u64,
    running: u32,
    /// The hard interrupts that run, the innermost last. Neither a softirq nor a switch happens in
    /// one, so these end them all: the end of one may be lost, or the recording have begun in it.
    interrupts: Vec<Activity>,
    /// What each thread is in the middle of. The idle task has one too.
    contexts: HashMap<u32, Context>,
    /// Ways that wait for their packet, by interrupt.
    open: BTreeMap<u32, OpenWay>,
    /// The device of every poll; `None` for what turned out to be none.
    polls: Vec<Option<Name>>,
    comms: HashMap<u32, Name>,
    priorities: HashMap<u32, Priority>,
    closed: Vec<ClosedWay>,
    followers: u64,
}

#[derive(Debug, Default)]
struct Context {
    softirq: Option<u32>,
    /// The poll that runs, as an index into `polls`: its device is known when it ends.
    poll: Option<usize>,
    packet: Option<Packet>,
    /// What the poll has delivered.
    deliveries: Vec<Delivery>,
    wait: Option<Wait>,
}

/// A packet on its way through the network stack.
#[derive(Debug, Clone, Copy)]
struct Packet {
    device: Name,
    ready_ns: Option<u64>,
    woken: bool,
}

#[derive(Debug, Clone, Copy)]
struct Delivery {
    device: Name,
    at_ns: u64,
    /// `None` if the reader was awake.
    woken: Option<u32>,
}

impl Cpu<'_> {
    fn pass(&mut self, event: &Event) {
        self.advance(event.time_ns);
        self.running = event.tid;
        match event.kind {
            Kind::InterruptBegin { irq, name } => self.interrupt(irq, name),
            Kind::TimerBegin => self.interrupts.push(Activity::Timer),
            Kind::InterruptEnd | Kind::TimerEnd => drop(self.interrupts.pop()),
            Kind::SoftirqBegin { vector } => {
                self.interrupts.clear();
                let poll = (vector == NET_RX).then(|| self.new_poll());
                let context = self.context();
                context.softirq = Some(vector);
                context.poll = poll;
            }
            Kind::SoftirqEnd => {
                self.end_of_poll(None);
                let context = self.context();
                context.softirq = None;
                context.poll = None;
            }
            Kind::PollEnd {
                napi,
                device,
                packets,
            } => self.poll_end(napi, device, packets),
            Kind::Packet { device } => self.packet(device),
            Kind::SocketReady => {
                if let Some(packet) = &mut self.context().packet {
                    packet.ready_ns = packet.ready_ns.or(Some(event.time_ns));
                }
            }
            Kind::Wake { tid, comm } => self.wake(tid, comm),
            Kind::Switch {
                from_comm,
                to,
                to_comm,
                to_priority,
            } => {
                self.switch(from_comm, to, to_comm);
                self.priorities.insert(to, to_priority);
            }
            Kind::ContentionBegin { lock } => self.contention(lock),
            Kind::ContentionEnd => self.context().wait = None,
            // Of the way back, which `journey` follows.
            Kind::Sent { .. } => {}
            Kind::PriorityLent {
                tid,
                owner,
                priority,
            } => {
                self.name_owner(event.tid, owner);
                self.priorities.insert(tid, priority);
            }
        }
    }

    /// Adds what the CPU did until now to all open ways.
    fn advance(&mut self, to_ns: u64) {
        let from_ns = self.now_ns;
        if to_ns <= from_ns {
            return;
        }
        self.now_ns = to_ns;
        let activity = self.activity();
        let priority = self.priorities.get(&self.running).copied();
        let priority = priority.unwrap_or_default();
        let waiting: Vec<Name> = self
            .contexts
            .iter()
            .filter(|(_, context)| context.wait.is_some())
            .filter_map(|(tid, _)| self.device_of_thread(*tid))
            .collect();
        for way in self.open.values_mut() {
            way.add(Segment {
                from_ns,
                to_ns,
                tid: self.running,
                activity,
                priority,
                blocked: waiting.contains(&way.device),
            });
        }
        self.open
            .retain(|_, way| way.segments.len() < MOST_SEGMENTS);
    }

    fn activity(&self) -> Activity {
        if let Some(interrupt) = self.interrupts.last() {
            return *interrupt;
        }
        let Some(context) = self.contexts.get(&self.running) else {
            return Activity::Thread;
        };
        match (context.poll, context.softirq) {
            (Some(poll), _) => Activity::Poll(poll),
            (None, Some(vector)) => Activity::Softirq(vector),
            (None, None) => Activity::Thread,
        }
    }

    fn context(&mut self) -> &mut Context {
        self.contexts.entry(self.running).or_default()
    }

    fn new_poll(&mut self) -> usize {
        self.polls.push(None);
        self.polls.len() - 1
    }

    fn interrupt(&mut self, irq: u32, name: Name) {
        self.interrupts.push(Activity::Interrupt(irq, name));
        let Some(&device) = self.setup.interrupts.get(&irq) else {
            return;
        };
        if self.open.get(&irq).is_none_or(|way| way.polled) {
            let way = OpenWay {
                device,
                since_ns: self.now_ns,
                segments: Vec::new(),
                polled: false,
                waits: Vec::new(),
            };
            self.open.insert(irq, way);
        }
    }

    fn poll_end(&mut self, napi: u64, device: Name, packets: u32) {
        let next = self.context().softirq.is_some().then(|| self.new_poll());
        let context = self.context();
        if let Some(poll) = std::mem::replace(&mut context.poll, next) {
            self.polls[poll] = Some(device);
        }
        let irq = self.irq_of_napi.get(&napi).copied();
        self.end_of_poll(irq);
        let Some(irq) = irq else { return };
        if packets == 0 {
            self.open.remove(&irq);
        } else if let Some(way) = self.open.get_mut(&irq) {
            way.polled = true;
        }
    }

    fn packet(&mut self, device: Name) {
        // A packet that goes up through a bridge is received once more, on the bridge.
        if self.setup.interrupts.values().any(|known| *known == device) {
            self.end_of_packet();
            self.context().packet = Some(Packet {
                device,
                ready_ns: None,
                woken: false,
            });
        }
    }

    fn wake(&mut self, tid: u32, comm: Name) {
        self.comms.insert(tid, comm);
        let mut of_interrupts = WOKEN_BY_INTERRUPTS.iter();
        if !self.interrupts.is_empty() || of_interrupts.any(|prefix| comm.after(prefix).is_some()) {
            return;
        }
        let at_ns = self.now_ns;
        let context = self.context();
        let Some(packet) = &mut context.packet else {
            return;
        };
        if packet.ready_ns.is_some() && !packet.woken {
            packet.woken = true;
            let delivery = Delivery {
                device: packet.device,
                at_ns,
                woken: Some(tid),
            };
            context.deliveries.push(delivery);
        }
    }

    fn end_of_packet(&mut self) {
        let context = self.context();
        let Some(packet) = context.packet.take() else {
            return;
        };
        if let Some(at_ns) = packet.ready_ns.filter(|_| !packet.woken) {
            context.deliveries.push(Delivery {
                device: packet.device,
                at_ns,
                woken: None,
            });
        }
    }

    /// Gives ways to what the poll has delivered.
    fn end_of_poll(&mut self, irq: Option<u32>) {
        self.end_of_packet();
        for delivery in std::mem::take(&mut self.context().deliveries) {
            if !self.is_wanted(&delivery) {
                continue;
            }
            let irq = irq
                .filter(|irq| self.open.contains_key(irq))
                .or_else(|| self.oldest_polled(delivery.device));
            let way = irq.and_then(|irq| self.open.remove(&irq));
            match way {
                None => self.followers += 1,
                Some(way) => self.closed.push(ClosedWay {
                    way,
                    until_ns: delivery.at_ns,
                    woken: delivery.woken,
                }),
            }
        }
    }

    fn is_wanted(&self, delivery: &Delivery) -> bool {
        match &self.setup.wanted {
            Wanted::Device(device) => delivery.device == *device,
            Wanted::Threads(threads) => delivery.woken.is_some_and(|tid| threads.contains(&tid)),
        }
    }

    fn oldest_polled(&self, device: Name) -> Option<u32> {
        let polled = |(_, way): &(&u32, &OpenWay)| way.device == device && way.polled;
        let open = self.open.iter().filter(polled);
        open.min_by_key(|(_, way)| way.since_ns)
            .map(|(irq, _)| *irq)
    }

    fn switch(&mut self, from_comm: Name, to: u32, to_comm: Name) {
        self.interrupts.clear();
        self.comms.insert(self.running, from_comm);
        self.comms.insert(to, to_comm);
        // Outside softirqs nothing else tells that a thread is done with its packets.
        if self.context().softirq.is_none() {
            self.end_of_poll(None);
        }
        self.comms.insert(0, "idle".into());
        let waiter = self.running;
        self.running = to;
        // Where no priority is lent, whoever runs next has the lock.
        let is_nameless = |context: &Context| context.wait.is_some_and(|it| it.owner.is_empty());
        if to != 0 && self.contexts.get(&waiter).is_some_and(is_nameless) {
            self.name_owner(waiter, to_comm);
        }
    }

    fn contention(&mut self, lock: u64) {
        let offset = self.setup.softirq_lock_offset;
        // The same place within a page on every CPU.
        let softirq_lock =
            offset.is_some_and(|offset| lock.wrapping_sub(offset).is_multiple_of(PAGE_BYTES));
        let wait = Wait {
            softirq_lock,
            owner: Name::default(),
        };
        self.context().wait = Some(wait);
        for way in self.open_ways_of(self.running) {
            way.waits.push(wait);
        }
    }

    fn name_owner(&mut self, waiter: u32, owner: Name) {
        let context = self.contexts.get_mut(&waiter);
        let Some(wait) = context.and_then(|context| context.wait.as_mut()) else {
            return;
        };
        wait.owner = owner;
        for way in self.open_ways_of(waiter) {
            if let Some(last) = way.waits.last_mut() {
                last.owner = owner;
            }
        }
    }

    /// The open ways of the device that a thread works for.
    fn open_ways_of(&mut self, tid: u32) -> impl Iterator<Item = &mut OpenWay> {
        let device = self.device_of_thread(tid);
        let ways = self.open.values_mut();
        ways.filter(move |way| Some(way.device) == device)
    }

    /// The device whose interrupt or NAPI thread this is.
    fn device_of_thread(&self, tid: u32) -> Option<Name> {
        device_of(*self.comms.get(&tid)?, &self.setup.interrupts)
    }

    fn found(self) -> Found {
        let known = Known {
            interrupts: &self.setup.interrupts,
            polls: &self.polls,
            comms: &self.comms,
        };
        let ways = self.closed.iter().map(|closed| known.resolve(closed));
        Found {
            ways: ways.collect(),
            followers: self.followers,
        }
    }
}
