//! The way of a packet on from the wake-up of its reader: to the VCPU, into the guest, and back out.
//!
//! Rule: a thread's wait ends at the switch to it. What a vhost worker wakes first of its own VM's VCPUs, after it
//! began to run and before it is woken again, is the VCPU that it interrupts; a VCPU that is awake is interrupted
//! without a wake-up, and the journey ends there. A VCPU that wakes a worker of its VM has kicked its card: the
//! guest has sent. If that is another VCPU than the one that was interrupted, the guest has handed the packet to it:
//! where the first woke the second, else where the first stopped. The first packet that the worker then gives to the
//! card's driver ends the way back. Pure.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::event::{Event, Kind, Priority};
use crate::name::Name;

use super::Way;

/// Beyond this a switch or a wake-up is not of this packet.
const LONGEST_NS: u64 = 2_000_000_000;

/// The threads of a VM.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct VmThreads {
    /// Its name.
    pub name: String,
    /// The threads that carry packets between its cards and the host.
    pub carriers: BTreeSet<u32>,
    /// The numbers of its VCPUs, by thread.
    pub vcpus: BTreeMap<u32, u32>,
}

/// What a stage is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Step {
    /// A woken thread waits for a CPU.
    Wait,
    /// A worker carries the packet to its VM.
    Carry,
    /// The guest runs, until it sends or sleeps.
    Guest,
    /// A worker carries what the guest has sent to the card's driver.
    Send,
    /// A process of the host that reads the packet runs.
    Serve,
}

impl Step {
    /// A word for machines.
    pub fn kind(self) -> &'static str {
        match self {
            Self::Wait => "wait",
            Self::Carry => "carry",
            Self::Guest => "guest",
            Self::Send => "send",
            Self::Serve => "serve",
        }
    }
}

/// A stage of the way behind the wake-up of the reader.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stage {
    /// What it is.
    pub step: Step,
    /// The thread that it is about.
    pub thread: Name,
    /// The VM and the number of the VCPU, if the thread is one.
    pub vcpu: Option<(String, u32)>,
    /// The CPU.
    pub cpu: usize,
    /// What ran on that CPU meanwhile, in order, without a gap.
    pub pieces: Vec<Piece>,
    /// How it ended, where that is not the next stage.
    pub end: &'static str,
}

/// A thread that ran for a while.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Piece {
    /// How long.
    pub for_ns: u64,
    /// The thread; empty if it is not known.
    pub thread: Name,
    /// Its priority.
    pub priority: Priority,
}

impl Stage {
    /// How the guest's stage ends where it has sent.
    pub const SENT: &'static str = "the guest kicked its card: it has sent";

    /// Whether the guest's stage ended with a kick of its card.
    pub fn has_sent(&self) -> bool {
        self.step == Step::Guest && self.end == Self::SENT
    }

    /// How long other threads ran.
    pub fn others_ns(&self) -> u64 {
        let others = self
            .pieces
            .iter()
            .filter(|piece| piece.thread != self.thread);
        others.map(|piece| piece.for_ns).sum()
    }

    /// How long it took.
    pub fn total_ns(&self) -> u64 {
        self.pieces.iter().map(|piece| piece.for_ns).sum()
    }
}

/// Who ran when, and who woke whom, on all CPUs.
#[derive(Debug, Default)]
pub struct Timeline {
    /// Of each CPU: from when, which thread.
    cpus: BTreeMap<usize, Vec<Run>>,
    /// Switches to each thread: when, and on which CPU.
    starts: BTreeMap<u32, Vec<(u64, usize)>>,
    /// Wake-ups by whom of whom, in order of time.
    wakes: Vec<Woken>,
    /// Packets that each thread gave to a card's driver: when.
    sent: BTreeMap<u32, Vec<u64>>,
}

#[derive(Debug, Clone, Copy)]
struct Run {
    from_ns: u64,
    tid: u32,
    thread: Name,
    priority: Priority,
}

#[derive(Debug, Clone, Copy)]
struct Woken {
    at_ns: u64,
    by: u32,
    tid: u32,
    thread: Name,
}

impl Timeline {
    /// Of the events of all CPUs, each CPU's in order of time; packets leave the host by the devices that are meant.
    pub fn of(cpus: &[(usize, Vec<Event>)], is_meant: impl Fn(Name) -> bool) -> Self {
        let mut timeline = Self::default();
        for (cpu, events) in cpus {
            let runs = timeline.cpus.entry(*cpu).or_default();
            for event in events {
                match event.kind {
                    Kind::Switch {
                        to,
                        to_comm,
                        to_priority,
                        ..
                    } => {
                        let thread = if to == 0 { "idle".into() } else { to_comm };
                        runs.push(Run {
                            from_ns: event.time_ns,
                            tid: to,
                            thread,
                            priority: to_priority,
                        });
                        let starts = timeline.starts.entry(to).or_default();
                        starts.push((event.time_ns, *cpu));
                    }
                    Kind::Wake { tid, comm } => timeline.wakes.push(Woken {
                        at_ns: event.time_ns,
                        by: event.tid,
                        tid,
                        thread: comm,
                    }),
                    Kind::Sent { device } if is_meant(device) => {
                        let sent = timeline.sent.entry(event.tid).or_default();
                        sent.push(event.time_ns);
                    }
                    _ => {}
                }
            }
        }
        for starts in timeline.starts.values_mut() {
            starts.sort_unstable();
        }
        for sent in timeline.sent.values_mut() {
            sent.sort_unstable();
        }
        timeline.wakes.sort_by_key(|woken| woken.at_ns);
        timeline
    }

    /// When and where a thread runs first from a time on.
    fn start(&self, tid: u32, from_ns: u64) -> Option<(u64, usize)> {
        let starts = self.starts.get(&tid)?;
        let place = starts.partition_point(|(at_ns, _)| *at_ns < from_ns);
        let found = *starts.get(place)?;
        (found.0 - from_ns <= LONGEST_NS).then_some(found)
    }

    /// What ran on a CPU.
    fn pieces(&self, cpu: usize, from_ns: u64, to_ns: u64) -> Vec<Piece> {
        let runs = self.cpus.get(&cpu).map_or(&[][..], Vec::as_slice);
        let first = runs.partition_point(|run| run.from_ns <= from_ns);
        let before = first.checked_sub(1).and_then(|place| runs.get(place));
        let unknown = Run {
            from_ns,
            tid: 0,
            thread: Name::default(),
            priority: Priority::default(),
        };
        let mut current = *before.unwrap_or(&unknown);
        let mut at_ns = from_ns;
        let mut pieces: Vec<Piece> = Vec::new();
        let inside = runs[first..].iter().take_while(|run| run.from_ns < to_ns);
        let end = Run {
            from_ns: to_ns,
            ..unknown
        };
        for run in inside.chain([&end]) {
            let for_ns = run.from_ns.saturating_sub(at_ns);
            if for_ns > 0 {
                pieces.push(Piece {
                    for_ns,
                    thread: current.thread,
                    priority: current.priority,
                });
            }
            at_ns = run.from_ns;
            current = *run;
        }
        pieces
    }

    /// The first wake-up of one of some threads by a thread, within a time.
    fn wake_by(
        &self,
        by: u32,
        from_ns: u64,
        to_ns: u64,
        is_meant: impl Fn(u32) -> bool,
    ) -> Option<Woken> {
        let first = self.wakes.partition_point(|woken| woken.at_ns < from_ns);
        let mut inside = self.wakes[first..]
            .iter()
            .take_while(|woken| woken.at_ns <= to_ns);
        inside
            .find(|woken| woken.by == by && is_meant(woken.tid))
            .copied()
    }

    /// When a thread is woken next, which it is only if it has slept; the latest time looked at if it is not.
    fn next_wake(&self, tid: u32, from_ns: u64) -> u64 {
        let latest = from_ns.saturating_add(LONGEST_NS);
        let first = self.wakes.partition_point(|woken| woken.at_ns <= from_ns);
        let inside = self.wakes[first..].iter();
        inside
            .take_while(|woken| woken.at_ns <= latest)
            .find(|woken| woken.tid == tid)
            .map_or(latest, |woken| woken.at_ns)
    }

    /// The last time before `to_ns` that a thread, which runs on a CPU from `from_ns` on, stopped there.
    fn last_stop(&self, tid: u32, cpu: usize, from_ns: u64, to_ns: u64) -> Option<u64> {
        let runs = self.cpus.get(&cpu)?;
        let first = runs.partition_point(|run| run.from_ns < from_ns);
        let inside = runs.get(first..)?;
        let pairs = inside
            .windows(2)
            .take_while(|pair| pair[1].from_ns <= to_ns);
        let stops = pairs.filter(|pair| pair[0].tid == tid);
        stops.map(|pair| pair[1].from_ns).last()
    }

    /// The stages behind the wake-up of a packet's reader.
    pub fn follow(&self, way: &Way, vms: &[VmThreads]) -> Vec<Stage> {
        let mut stages = Vec::new();
        if let Some(reader) = way.woken_tid {
            self.follow_to(way, reader, vms, &mut stages);
        }
        stages
    }

    /// As far as there are events; nothing more is known then.
    fn follow_to(
        &self,
        way: &Way,
        reader: u32,
        vms: &[VmThreads],
        stages: &mut Vec<Stage>,
    ) -> Option<()> {
        let woken_ns = way.since_ns + way.total_ns();
        let (runs_ns, cpu) = self.start(reader, woken_ns)?;
        stages.push(self.stage(Step::Wait, way.woken, None, cpu, woken_ns, runs_ns));
        let until_ns = self.next_wake(reader, runs_ns);
        let Some(vm) = vms.iter().find(|vm| vm.carriers.contains(&reader)) else {
            let vm = vms.iter().find(|vm| vm.vcpus.contains_key(&reader));
            if let Some(vm) = vm {
                // A card that is passed through wakes the VCPU itself.
                return self.guest(vm, reader, way.woken, (runs_ns, cpu), stages);
            }
            let stops_ns = self.last_stop(reader, cpu, runs_ns, until_ns)?;
            stages.push(self.stage(Step::Serve, way.woken, None, cpu, runs_ns, stops_ns));
            return Some(());
        };
        let is_vcpu = |tid| vm.vcpus.contains_key(&tid);
        let Some(woken) = self.wake_by(reader, runs_ns, until_ns, is_vcpu) else {
            let stops_ns = self.last_stop(reader, cpu, runs_ns, until_ns)?;
            let mut stage = self.stage(Step::Carry, way.woken, None, cpu, runs_ns, stops_ns);
            stage.end = "it woke no VCPU: the VCPU was awake, and was interrupted";
            stages.push(stage);
            return Some(());
        };
        stages.push(self.stage(Step::Carry, way.woken, None, cpu, runs_ns, woken.at_ns));
        let vcpu = vm.vcpus.get(&woken.tid).map(|it| (vm.name.clone(), *it));
        let (enters_ns, cpu) = self.start(woken.tid, woken.at_ns)?;
        stages.push(self.stage(Step::Wait, woken.thread, vcpu, cpu, woken.at_ns, enters_ns));
        self.guest(vm, woken.tid, woken.thread, (enters_ns, cpu), stages)
    }

    fn guest(
        &self,
        vm: &VmThreads,
        tid: u32,
        thread: Name,
        (enters_ns, cpu): (u64, usize),
        stages: &mut Vec<Stage>,
    ) -> Option<()> {
        let vcpu = |tid| vm.vcpus.get(&tid).map(|it| (vm.name.clone(), *it));
        let until_ns = self.next_wake(tid, enters_ns);
        let is_carrier = |tid| vm.carriers.contains(&tid);
        let own = self.wake_by(tid, enters_ns, until_ns, is_carrier);
        let Some(kick) = own.or_else(|| self.kick(vm, enters_ns)) else {
            let leaves_ns = self.last_stop(tid, cpu, enters_ns, until_ns)?;
            let mut stage = self.stage(Step::Guest, thread, vcpu(tid), cpu, enters_ns, leaves_ns);
            stage.end = "the VCPU went to sleep, and had not kicked its card";
            stages.push(stage);
            return None;
        };
        let (mut from_ns, mut sender, mut sender_cpu) = (enters_ns, thread, cpu);
        if kick.by != tid {
            (sender, sender_cpu) = self.runs(kick.by, kick.at_ns)?;
            let is_sender = |tid| tid == kick.by;
            let woken = self.wake_by(tid, enters_ns, kick.at_ns, is_sender);
            let stops_ns = self.last_stop(tid, cpu, enters_ns, kick.at_ns);
            let hands_ns = woken.map(|woken| woken.at_ns).or(stops_ns);
            if let Some(hands_ns) = hands_ns {
                let mut stage =
                    self.stage(Step::Guest, thread, vcpu(tid), cpu, enters_ns, hands_ns);
                stage.end = "the guest goes on on another of its VCPUs";
                stages.push(stage);
                from_ns = hands_ns;
            }
            if woken.is_some() {
                let (runs_ns, cpu) = self.start(kick.by, from_ns)?;
                let wait = self.stage(Step::Wait, sender, vcpu(kick.by), cpu, from_ns, runs_ns);
                stages.push(wait);
                from_ns = runs_ns;
            }
        }
        let (by, at_ns) = (vcpu(kick.by), kick.at_ns);
        let mut stage = self.stage(Step::Guest, sender, by, sender_cpu, from_ns, at_ns);
        stage.end = Stage::SENT;
        stages.push(stage);
        self.way_back(kick, stages)
    }

    /// The first wake-up of a worker of a VM from a time on, if one of its VCPUs did it. Anything else that wakes the
    /// worker is the next packet, and whether the guest has answered this one is not known.
    fn kick(&self, vm: &VmThreads, from_ns: u64) -> Option<Woken> {
        let latest = from_ns.saturating_add(LONGEST_NS);
        let first = self.wakes.partition_point(|woken| woken.at_ns < from_ns);
        let mut inside = self.wakes[first..]
            .iter()
            .take_while(|woken| woken.at_ns <= latest);
        let next = inside.find(|woken| vm.carriers.contains(&woken.tid))?;
        vm.vcpus.contains_key(&next.by).then_some(*next)
    }

    /// The name of a thread that runs at a time, and its CPU.
    fn runs(&self, tid: u32, at_ns: u64) -> Option<(Name, usize)> {
        self.cpus.iter().find_map(|(cpu, runs)| {
            let after = runs.partition_point(|run| run.from_ns <= at_ns);
            let current = runs.get(after.checked_sub(1)?)?;
            (current.tid == tid).then_some((current.thread, *cpu))
        })
    }

    /// From the guest's kick until the card's driver has the packet.
    fn way_back(&self, worker: Woken, stages: &mut Vec<Stage>) -> Option<()> {
        let (runs_ns, cpu) = self.start(worker.tid, worker.at_ns)?;
        stages.push(self.stage(Step::Wait, worker.thread, None, cpu, worker.at_ns, runs_ns));
        let until_ns = self.next_wake(worker.tid, runs_ns);
        let sent = self.sent.get(&worker.tid)?;
        let first = sent.partition_point(|at_ns| *at_ns < runs_ns);
        let sent_ns = *sent.get(first).filter(|at_ns| **at_ns <= until_ns)?;
        let mut stage = self.stage(Step::Send, worker.thread, None, cpu, runs_ns, sent_ns);
        stage.end = "the card's driver has the packet";
        stages.push(stage);
        Some(())
    }

    fn stage(
        &self,
        step: Step,
        thread: Name,
        vcpu: Option<(String, u32)>,
        cpu: usize,
        from_ns: u64,
        to_ns: u64,
    ) -> Stage {
        Stage {
            step,
            thread,
            vcpu,
            cpu,
            pieces: self.pieces(cpu, from_ns, to_ns),
            end: "",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Cause, Own, Span};
    use super::*;
    use proptest::prelude::*;

    const VHOST: u32 = 200;
    const VCPU: u32 = 300;
    const NOISE: u32 = 400;

    fn event(time_ns: u64, tid: u32, kind: Kind) -> Event {
        Event { time_ns, tid, kind }
    }

    fn switch(time_ns: u64, from: u32, to: u32, priority: i32) -> Event {
        let kind = Kind::Switch {
            from_comm: name(from),
            to,
            to_comm: name(to),
            to_priority: Priority(priority),
        };
        event(time_ns, from, kind)
    }

    fn wake(time_ns: u64, by: u32, tid: u32) -> Event {
        let comm = name(tid);
        event(time_ns, by, Kind::Wake { tid, comm })
    }

    fn sent(time_ns: u64, tid: u32, device: &str) -> Event {
        let device = device.into();
        event(time_ns, tid, Kind::Sent { device })
    }

    fn timeline(cpus: &[(usize, Vec<Event>)]) -> Timeline {
        Timeline::of(cpus, |device| device == "eth1".into())
    }

    fn name(tid: u32) -> Name {
        format!("t{tid}").as_str().into()
    }

    fn vm() -> VmThreads {
        VmThreads {
            name: "rt".into(),
            carriers: [VHOST].into(),
            vcpus: [(VCPU, 1)].into(),
        }
    }

    /// A packet whose interrupt was at 100 and that woke `reader` at 110.
    fn way(reader: u32) -> Way {
        Way {
            since_ns: 100,
            spans: vec![Span {
                for_ns: 10,
                cause: Cause::Own(Own::Poll),
                in_own_thread: true,
                thread: name(90),
                priority: Priority(10),
                blocked: false,
            }],
            woken: name(reader),
            woken_tid: Some(reader),
            waits: Vec::new(),
            stages: Vec::new(),
        }
    }

    /// The worker waits for a noisy thread on CPU 0, the VCPU for one on CPU 1, and the guest is preempted once.
    fn events() -> Vec<(usize, Vec<Event>)> {
        let first = vec![
            switch(50, 0, NOISE, 120),
            wake(110, 90, VHOST),
            switch(150, NOISE, VHOST, 50),
            wake(170, VHOST, VCPU),
            switch(180, VHOST, 0, 120),
            wake(290, VCPU, VHOST),
            switch(330, 0, VHOST, 50),
            sent(340, VHOST, "other"),
            sent(345, VHOST, "eth1"),
            sent(349, VHOST, "eth1"),
        ];
        let second = vec![
            switch(60, 0, NOISE + 1, 40),
            switch(200, NOISE + 1, VCPU, 49),
            switch(220, VCPU, NOISE + 1, 40),
            switch(250, NOISE + 1, VCPU, 49),
            switch(300, VCPU, 0, 120),
        ];
        vec![(0, first), (1, second)]
    }

    #[test]
    fn a_packet_is_followed_into_the_guest_and_back_out() {
        type Pieces = Vec<(u64, Name)>;
        let stages = timeline(&events()).follow(&way(VHOST), &[vm()]);
        let shown: Vec<(Step, usize, Pieces)> = stages
            .iter()
            .map(|stage| {
                let pieces = stage.pieces.iter();
                let pieces = pieces.map(|piece| (piece.for_ns, piece.thread)).collect();
                (stage.step, stage.cpu, pieces)
            })
            .collect();
        let noise = name(NOISE + 1);
        let expected = [
            (Step::Wait, 0, vec![(40, name(NOISE))]),
            (Step::Carry, 0, vec![(20, name(VHOST))]),
            (Step::Wait, 1, vec![(30, noise)]),
            (
                Step::Guest,
                1,
                vec![(20, name(VCPU)), (30, noise), (40, name(VCPU))],
            ),
            (Step::Wait, 0, vec![(40, "idle".into())]),
            (Step::Send, 0, vec![(15, name(VHOST))]),
        ];
        assert_eq!(shown, expected);
        assert_eq!(stages[2].vcpu, Some(("rt".to_owned(), 1)));
        assert!(stages[3].has_sent() && stages[3].others_ns() == 30);
        // What the worker sends by another device is not the answer.
        let elsewhere = Timeline::of(&events(), |_| false);
        let stages = elsewhere.follow(&way(VHOST), &[vm()]);
        assert_eq!((stages.len(), stages[4].step), (5, Step::Wait));
    }

    /// The guest's process is on another VCPU than the card's interrupt.
    #[test]
    fn a_packet_is_followed_to_the_vcpu_that_answers() {
        const OTHER: u32 = 301;
        let vm = VmThreads {
            vcpus: [(VCPU, 1), (OTHER, 0)].into(),
            ..vm()
        };
        let handed = |wakes: bool| {
            let mut cpus = events();
            for event in &mut cpus[0].1 {
                if event.time_ns == 290 {
                    event.tid = OTHER;
                }
            }
            cpus[1].1.truncate(2);
            let more = [
                switch(220, VCPU, 0, 120),
                switch(240, 0, OTHER, 49),
                switch(300, OTHER, 0, 120),
            ];
            if wakes {
                cpus[1].1.push(wake(210, VCPU, OTHER));
            }
            cpus[1].1.extend(more);
            let stages = timeline(&cpus).follow(&way(VHOST), std::slice::from_ref(&vm));
            let stages = stages.iter().skip(3);
            let shown = stages.map(|stage| {
                let vcpu = stage.vcpu.as_ref().map(|it| it.1);
                (stage.step, vcpu, stage.total_ns(), stage.has_sent())
            });
            shown.collect::<Vec<_>>()
        };
        let back = [(Step::Wait, None, 40, false), (Step::Send, None, 15, false)];
        let woken = [
            (Step::Guest, Some(1), 10, false),
            (Step::Wait, Some(0), 30, false),
            (Step::Guest, Some(0), 50, true),
        ];
        assert_eq!(handed(true), [&woken[..], &back].concat());
        let awake = [
            (Step::Guest, Some(1), 20, false),
            (Step::Guest, Some(0), 70, true),
        ];
        assert_eq!(handed(false), [&awake[..], &back].concat());

        // The worker was woken for the next packet meanwhile: nothing is known of this one's answer.
        let mut cpus = events();
        cpus[0].1.retain(|event| event.time_ns != 290);
        cpus[0].1.insert(5, wake(280, NOISE, VHOST));
        cpus[0].1.insert(6, wake(295, OTHER, VHOST));
        let stages = timeline(&cpus).follow(&way(VHOST), &[vm]);
        let last = stages.last().unwrap();
        assert!(last.step == Step::Guest && !last.has_sent(), "{last:?}");
    }

    #[test]
    fn an_awake_vcpu_ends_the_journey_and_a_process_serves_by_itself() {
        let mut cpus = events();
        cpus[0].1.retain(|event| {
            let is_wake = matches!(event.kind, Kind::Wake { tid, .. } if tid == VCPU);
            !is_wake
        });
        let stages = timeline(&cpus).follow(&way(VHOST), &[vm()]);
        let last = stages.last().unwrap();
        assert_eq!((last.step, last.total_ns()), (Step::Carry, 30));
        assert!(last.end.contains("was awake"));
        let stages = timeline(&events()).follow(&way(VHOST), &[]);
        let steps: Vec<Step> = stages.iter().map(|stage| stage.step).collect();
        assert_eq!(steps, [Step::Wait, Step::Serve]);
        assert!(Timeline::default().follow(&way(VHOST), &[vm()]).is_empty());
    }

    proptest! {
        #[test]
        fn stages_have_no_gap_and_no_events_panic(
            script in prop::collection::vec((0_u64..400, 0_usize..2, 0_u32..4, 0_u32..4, 0_u8..3), 0..60)
        ) {
            let tids = [0, VHOST, VCPU, NOISE];
            let mut cpus = vec![(0, Vec::new()), (1, Vec::new())];
            for (time, cpu, one, other, kind) in script {
                let (one, other) = (tids[one as usize], tids[other as usize]);
                let event = match kind {
                    0 => wake(time, one, other),
                    1 => switch(time, one, other, 120),
                    _ => sent(time, one, "eth1"),
                };
                cpus[cpu].1.push(event);
            }
            for (_, events) in &mut cpus {
                events.sort_by_key(|event| event.time_ns);
            }
            let timeline = timeline(&cpus);
            for reader in [VHOST, VCPU, NOISE] {
                let stages = timeline.follow(&way(reader), &[vm()]);
                prop_assert!(stages.len() <= 8);
                // The wait begins at the wake-up, and the next stage where it ends.
                if let [wait, ..] = &stages[..] {
                    let runs = timeline.start(reader, 110).unwrap().0;
                    prop_assert_eq!(wait.total_ns(), runs - 110);
                }
            }
        }
    }
}
