//! The ways of a VM's packets, cut where the terms of a service's latency bound are.
//!
//! Rule: a packet belongs to the VM whose worker or VCPU it woke. A leg counts where it was followed to its end, so
//! later legs may have fewer packets. Pure.

use super::journey::{Stage, Step};
use super::{Figures, Findings, Setup, Way};
use serde::{Deserialize, Serialize};

/// How long each part of the way takes, over the packets of one VM.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Legs {
    /// From the hard interrupt to the wake-up of the thread that carries the packet into the VM.
    pub interrupt: Figures,
    /// That thread waits for a CPU.
    pub carrier_wait: Figures,
    /// It carries the packet, until it wakes the VCPU, or is done where the VCPU was awake.
    pub carry: Figures,
    /// The three of these together.
    pub receive: Figures,
    /// The woken VCPU waits for a CPU.
    pub vcpu_wait: Figures,
    /// From the VCPU's first instruction to the guest's kick of its card, preemptions included, and the wait for a CPU
    /// of another VCPU that the guest goes on on.
    pub guest: Figures,
    /// The part of that in which other threads of the host ran in the VCPUs' place.
    pub preempted: Figures,
    /// From the guest's kick to the worker's first instruction.
    pub sender_wait: Figures,
    /// From there until the card's driver has the packet.
    pub send: Figures,
    /// The two of these together.
    pub back: Figures,
    /// From the hard interrupt until the card's driver has the answer.
    pub whole: Figures,
}

/// One packet's, in nanoseconds.
#[derive(Debug, Default)]
struct Cut {
    interrupt: u64,
    carrier_wait: Option<u64>,
    carry: Option<u64>,
    vcpu_wait: Option<u64>,
    guest: Option<u64>,
    preempted: Option<u64>,
    sender_wait: Option<u64>,
    send: Option<u64>,
}

impl Legs {
    /// Of the packets of the VM with this name; `None` if `setup` has no such VM.
    pub fn of(findings: &Findings, setup: &Setup, vm: &str) -> Option<Self> {
        let vm = setup.vms.iter().find(|known| known.name == vm)?;
        let is_its = |tid| vm.carriers.contains(&tid) || vm.vcpus.contains_key(&tid);
        let ways = findings.ways.iter().map(|(_, way)| way);
        let cuts: Vec<Cut> = ways
            .filter(|way| way.woken_tid.is_some_and(is_its))
            .map(|way| {
                Cut::of(
                    way,
                    way.woken_tid.is_some_and(|tid| vm.vcpus.contains_key(&tid)),
                )
            })
            .collect();
        let of = |leg: fn(&Cut) -> Option<u64>| {
            Figures::of(&cuts.iter().filter_map(leg).collect::<Vec<u64>>())
        };
        Some(Self {
            interrupt: of(|cut| Some(cut.interrupt)),
            carrier_wait: of(|cut| cut.carrier_wait),
            carry: of(|cut| cut.carry),
            receive: of(Cut::receive),
            vcpu_wait: of(|cut| cut.vcpu_wait),
            guest: of(|cut| cut.guest),
            preempted: of(|cut| cut.preempted),
            sender_wait: of(|cut| cut.sender_wait),
            send: of(|cut| cut.send),
            back: of(Cut::back),
            whole: of(|cut| Some(cut.receive()? + cut.vcpu_wait? + cut.guest? + cut.back()?)),
        })
    }
}

impl Cut {
    /// `is_direct`: the card is passed through, and its interrupt woke the VCPU itself.
    fn of(way: &Way, is_direct: bool) -> Self {
        let mut cut = Self {
            interrupt: way.total_ns(),
            ..Self::default()
        };
        let mut stages = way.stages.iter().peekable();
        let mut next = |step: Step| stages.next_if(|stage| stage.step == step);
        let whole = |stage: &Stage| stage.total_ns();
        if is_direct {
            (cut.carrier_wait, cut.carry) = (Some(0), Some(0));
        } else {
            cut.carrier_wait = next(Step::Wait).map(whole);
            cut.carry = next(Step::Carry).map(whole);
        }
        cut.vcpu_wait = next(Step::Wait).map(whole);
        // A guest that goes on on another of its VCPUs may wait for that one's CPU in between.
        let (mut guest, mut others) = (0, 0);
        loop {
            if let Some(wait) = next(Step::Wait) {
                guest += whole(wait);
                others += whole(wait);
            }
            let Some(stage) = next(Step::Guest) else {
                return cut;
            };
            guest += whole(stage);
            others += stage.others_ns();
            if stage.has_sent() {
                break;
            }
        }
        (cut.guest, cut.preempted) = (Some(guest), Some(others));
        cut.sender_wait = next(Step::Wait).map(whole);
        cut.send = next(Step::Send).map(whole);
        cut
    }

    fn receive(&self) -> Option<u64> {
        Some(self.interrupt + self.carrier_wait? + self.carry?)
    }

    fn back(&self) -> Option<u64> {
        Some(self.sender_wait? + self.send?)
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Piece, VmThreads, Wanted};
    use super::*;
    use crate::event::Priority;
    use std::collections::BTreeMap;

    const WORKER: u32 = 200;
    const VCPU: u32 = 300;

    fn stage(step: Step, thread: &str, pieces: &[(u64, &str)]) -> Stage {
        let piece = |&(for_ns, thread): &(u64, &str)| Piece {
            for_ns,
            thread: thread.into(),
            priority: Priority::default(),
        };
        Stage {
            step,
            thread: thread.into(),
            vcpu: None,
            cpu: 0,
            pieces: pieces.iter().map(piece).collect(),
            end: if step == Step::Guest { Stage::SENT } else { "" },
        }
    }

    fn way(reader: u32, stages: Vec<Stage>) -> (usize, Way) {
        let way = Way {
            since_ns: 1,
            spans: Vec::new(),
            woken: "reader".into(),
            woken_tid: Some(reader),
            waits: Vec::new(),
            stages,
        };
        (0, way)
    }

    fn setup() -> Setup {
        Setup {
            interrupts: BTreeMap::new(),
            wanted: Wanted::Device("eth1".into()),
            softirq_lock_offset: None,
            vms: vec![VmThreads {
                name: "rt".into(),
                carriers: [WORKER].into(),
                vcpus: [(VCPU, 0)].into(),
            }],
        }
    }

    /// Of a leg: packets, and the longest in nanoseconds.
    fn shown(figures: Figures) -> (u64, Option<f64>) {
        (figures.n, figures.max_us.map(|max_us| max_us * 1e3))
    }

    #[test]
    fn each_leg_counts_the_packets_that_were_followed_to_its_end() {
        let there = || {
            vec![
                stage(Step::Wait, "vhost", &[(40, "other")]),
                stage(Step::Carry, "vhost", &[(20, "vhost")]),
                stage(Step::Wait, "vcpu", &[(30, "other")]),
            ]
        };
        let mut whole = there();
        whole.extend([
            stage(
                Step::Guest,
                "vcpu",
                &[(50, "vcpu"), (7, "other"), (3, "vcpu")],
            ),
            stage(Step::Wait, "vhost", &[(11, "other")]),
            stage(Step::Send, "vhost", &[(9, "vhost")]),
        ]);
        let mut unanswered = there();
        let mut asleep = stage(Step::Guest, "vcpu", &[(1_000, "vcpu")]);
        asleep.end = "the VCPU went to sleep";
        unanswered.push(asleep);
        // Another of its VCPUs answers: its wait for a CPU is a part of the guest's time, and is none of its work.
        let mut handed = there();
        let mut first = stage(Step::Guest, "vcpu", &[(10, "vcpu"), (2, "other")]);
        first.end = "the guest goes on on another of its VCPUs";
        handed.extend([
            first,
            stage(Step::Wait, "other vcpu", &[(8, "other")]),
            stage(Step::Guest, "other vcpu", &[(45, "other vcpu")]),
        ]);
        let awake = there()[..2].to_vec();
        let direct = vec![
            stage(Step::Wait, "vcpu", &[(5, "idle")]),
            stage(Step::Guest, "vcpu", &[(6, "vcpu")]),
        ];
        let findings = Findings {
            ways: vec![
                way(WORKER, whole),
                way(WORKER, unanswered),
                way(WORKER, handed),
                way(WORKER, awake),
                way(VCPU, direct),
                way(999, there()),
            ],
            followers: 0,
        };
        let legs = Legs::of(&findings, &setup(), "rt").unwrap();
        assert_eq!(shown(legs.interrupt).0, 5, "another VM's packet is not its");
        assert_eq!(shown(legs.receive), (5, Some(60.0)));
        assert_eq!(shown(legs.vcpu_wait), (4, Some(30.0)));
        assert_eq!(shown(legs.guest), (3, Some(65.0)), "only guests that sent");
        assert_eq!(shown(legs.preempted), (3, Some(10.0)));
        assert_eq!(shown(legs.back), (1, Some(20.0)));
        assert_eq!(shown(legs.whole), (1, Some(60.0 + 30.0 + 60.0 + 20.0)));
        assert!(Legs::of(&findings, &setup(), "other").is_none());
        let none = Legs::of(&Findings::default(), &setup(), "rt").unwrap();
        assert_eq!(shown(none.whole), (0, None));
    }
}
