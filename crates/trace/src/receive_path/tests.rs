//! Ways are found as they were: scenarios by hand, random ones against their own script.

use super::*;
use crate::event::{Event, Kind, Priority};
use proptest::prelude::*;

const RT_IRQ: u32 = 29;
const BULK_IRQ: u32 = 31;
const RT_NAPI: u64 = 0xa0;
const BULK_NAPI: u64 = 0xb0;
/// Threads: the RT device's, another's, the reader of the packets.
const OWN: u32 = 90;
const OTHER: u32 = 91;
const READER: u32 = 100;
const NET_RX: u32 = 3;
const SOFTIRQ_LOCK: u64 = 0x212c0;

fn setup() -> Setup {
    Setup {
        interrupts: BTreeMap::from([(RT_IRQ, "rt".into()), (BULK_IRQ, "bulk".into())]),
        wanted: Wanted::Device("rt".into()),
        softirq_lock_offset: Some(SOFTIRQ_LOCK),
        vms: Vec::new(),
    }
}

/// Writes events of one CPU, and remembers what it did since a packet's interrupt.
#[derive(Default)]
struct Script {
    events: Vec<Event>,
    now_ns: u64,
    tid: u32,
    expected: BTreeMap<(Cause, bool), u64>,
    blocked_ns: u64,
    blocked: bool,
}

impl Script {
    fn event(&mut self, kind: Kind) {
        self.events.push(Event {
            time_ns: self.now_ns,
            tid: self.tid,
            kind,
        });
    }

    /// Lets time pass with something that the analysis should see as `cause`.
    fn spend(&mut self, for_ns: u64, cause: Cause) {
        self.now_ns += for_ns;
        if for_ns > 0 {
            let in_own_thread = self.tid == OWN;
            *self.expected.entry((cause, in_own_thread)).or_default() += for_ns;
            self.blocked_ns += if self.blocked { for_ns } else { 0 };
        }
    }

    fn interrupt(&mut self, irq: u32, for_ns: u64) {
        let name = if irq == RT_IRQ {
            "rt-rx-0"
        } else {
            "bulk-rx-0"
        };
        self.event(Kind::InterruptBegin {
            irq,
            name: name.into(),
        });
        let cause = if irq == RT_IRQ {
            Cause::Own(Own::Interrupt)
        } else {
            Cause::Interrupt(name.into())
        };
        self.spend(for_ns, cause);
        self.event(Kind::InterruptEnd);
    }

    fn switch(&mut self, to: u32) {
        self.event(Kind::Switch {
            from_comm: comm(self.tid),
            to,
            to_comm: comm(to),
            // Its waiter's, if the device's thread waits for it.
            to_priority: Priority(if self.blocked { 19 } else { 120 }),
        });
        self.tid = to;
    }

    fn poll(&mut self, napi: u64, device: &str, for_ns: u64, packets: u32) {
        let cause = if device == "rt" {
            Cause::Own(Own::Poll)
        } else {
            Cause::Poll(device.into())
        };
        self.spend(for_ns, cause);
        self.poll_end(napi, device, packets);
    }

    fn poll_end(&mut self, napi: u64, device: &str, packets: u32) {
        self.event(Kind::PollEnd {
            napi,
            device: device.into(),
            packets,
        });
    }

    fn packet(&mut self, woken: Option<u32>) {
        self.event(Kind::Packet {
            device: "rt".into(),
        });
        // Through a bridge it is received once more.
        self.event(Kind::Packet {
            device: "br-rt".into(),
        });
        self.event(Kind::SocketReady);
        if let Some(tid) = woken {
            self.event(Kind::Wake {
                tid,
                comm: comm(tid),
            });
        }
    }

    fn softirq(&mut self, vector: u32) {
        self.event(Kind::SoftirqBegin { vector });
    }

    fn analyse(&self) -> Findings {
        let recording = Recording {
            cpus: vec![(0, self.events.clone())],
            ..Recording::default()
        };
        super::analyse(&recording, &setup())
    }
}

fn comm(tid: u32) -> Name {
    match tid {
        0 => "swapper/0".into(),
        OWN => "irq/29-rt-rx-0".into(),
        OTHER => "ksoftirqd/0".into(),
        READER => "steadyvm".into(),
        other => Name::from(format!("thread-{other}").as_str()),
    }
}

/// Durations by cause, as the analysis found them.
fn durations(way: &Way) -> BTreeMap<(Cause, bool), u64> {
    let mut durations = BTreeMap::new();
    for span in &way.spans {
        *durations
            .entry((span.cause, span.in_own_thread))
            .or_default() += span.for_ns;
    }
    durations
}

#[test]
fn a_threaded_interrupt_behind_a_lock_and_another_device() {
    let mut script = Script::default();
    script.interrupt(RT_IRQ, 10);
    script.spend(5, Cause::Idle);
    script.switch(OWN);
    script.spend(3, Cause::Own(Own::Thread));
    script.event(Kind::ContentionBegin {
        lock: 0xffff_8880_0000_0000 + SOFTIRQ_LOCK,
    });
    script.event(Kind::PriorityLent {
        tid: OTHER,
        owner: comm(OTHER),
        priority: Priority(19),
    });
    script.blocked = true;
    script.spend(2, Cause::Own(Own::Thread));
    script.switch(OTHER);
    script.spend(200, Cause::Thread(comm(OTHER)));
    script.switch(OWN);
    script.event(Kind::ContentionEnd);
    script.blocked = false;
    script.softirq(NET_RX);
    script.poll(BULK_NAPI, "bulk", 400, 64);
    script.spend(20, Cause::Own(Own::Poll));
    script.packet(Some(READER));
    let expected = script.expected.clone();
    script.poll(RT_NAPI, "rt", 9, 1);
    script.event(Kind::SoftirqEnd);

    let findings = script.analyse();
    let [(0, way)] = &findings.ways[..] else {
        panic!("{findings:?}");
    };
    assert_eq!(durations(way), expected);
    assert_eq!(way.total_ns(), 640);
    assert_eq!(way.woken, "steadyvm".into());
    assert_eq!(
        way.waits,
        [Wait {
            softirq_lock: true,
            owner: comm(OTHER)
        }]
    );
    let report = Report::new("device rt".into(), 1.0, &findings, 1, Rank::WakeUp);
    assert_eq!(report.blocked.figures.max_us, Some(0.202));
    assert_eq!(report.samples_ns, [640]);
    let text = render(&report);
    for expected in [
        "poll bulk (own thread)",
        "softirq lock, owner ksoftirqd/0: 1 times",
        "that woke steadyvm",
        "ksoftirqd/0 (rt 80)",
    ] {
        assert!(text.contains(expected), "{text}");
    }
    assert!(
        text.lines().all(|line| line.chars().count() <= 100),
        "{text}"
    );
}

#[test]
fn a_softirq_on_the_way_out_of_an_interrupt() {
    let mut script = Script {
        tid: 7,
        ..Script::default()
    };
    script.interrupt(RT_IRQ, 10);
    script.softirq(NET_RX);
    script.spend(30, Cause::Own(Own::Poll));
    script.packet(None);
    let expected = script.expected.clone();
    script.poll(RT_NAPI, "rt", 5, 1);
    script.event(Kind::SoftirqEnd);
    let findings = script.analyse();
    assert_eq!(durations(&findings.ways[0].1), expected);
    assert!(findings.ways[0].1.woken.is_empty(), "its reader was awake");
    let report = Report::new("device rt".into(), 1.0, &findings, 0, Rank::WakeUp);
    assert_eq!(report.readers_awake, 1);
}

/// Between the socket and its reader's wake-up a timer wakes a thread, and another device's
/// interrupt, on its way out, its own.
#[test]
fn who_an_interrupt_wakes_is_not_the_reader() {
    let in_timer = |script: &mut Script| {
        script.event(Kind::TimerBegin);
        let comm = "any".into();
        script.event(Kind::Wake { tid: 70, comm });
        script.event(Kind::TimerEnd);
    };
    let on_the_way_out = |script: &mut Script| {
        script.interrupt(BULK_IRQ, 4);
        let comm = "irq/31-bulk-rx-0".into();
        script.event(Kind::Wake { tid: 71, comm });
    };
    let breaks: [&dyn Fn(&mut Script); 2] = [&in_timer, &on_the_way_out];
    for (interrupt, reader) in breaks
        .into_iter()
        .flat_map(|interrupt| [(interrupt, None), (interrupt, Some(READER))])
    {
        let mut script = Script::default();
        script.interrupt(RT_IRQ, 10);
        script.softirq(NET_RX);
        script.packet(None);
        interrupt(&mut script);
        if let Some(tid) = reader {
            let comm = comm(tid);
            script.event(Kind::Wake { tid, comm });
        }
        script.poll(RT_NAPI, "rt", 5, 1);
        script.event(Kind::SoftirqEnd);
        let findings = script.analyse();
        let expected = reader.map(comm).unwrap_or_default();
        assert_eq!(findings.ways[0].1.woken, expected);
    }
}

#[test]
fn a_poll_of_sent_packets_uses_no_way_and_a_second_packet_none() {
    let mut script = Script::default();
    script.interrupt(RT_IRQ, 1);
    script.softirq(NET_RX);
    script.poll(RT_NAPI, "rt", 5, 0);
    script.event(Kind::SoftirqEnd);
    script.spend(1000, Cause::Idle);
    let begun = script.now_ns;
    script.interrupt(RT_IRQ, 1);
    script.softirq(NET_RX);
    script.packet(Some(READER));
    let ended = script.now_ns;
    script.packet(Some(READER));
    script.poll(RT_NAPI, "rt", 5, 2);
    script.event(Kind::SoftirqEnd);
    let findings = script.analyse();
    assert_eq!((findings.ways.len(), findings.followers), (1, 1));
    let way = &findings.ways[0].1;
    assert_eq!((way.since_ns, way.total_ns()), (begun, ended - begun));
}

#[test]
fn an_interrupt_whose_end_is_lost_does_not_last_for_ever() {
    let mut script = Script::default();
    script.event(Kind::TimerBegin);
    script.switch(OWN);
    script.interrupt(RT_IRQ, 5);
    script.spend(6, Cause::Own(Own::Thread));
    script.event(Kind::TimerBegin);
    script.softirq(NET_RX);
    script.spend(7, Cause::Own(Own::Poll));
    script.packet(Some(READER));
    let expected = script.expected.clone();
    script.poll(RT_NAPI, "rt", 5, 1);
    let findings = script.analyse();
    assert_eq!(durations(&findings.ways[0].1), expected);
}

#[test]
fn a_packet_delivered_by_another_thread_keeps_its_way() {
    let mut script = Script::default();
    script.interrupt(RT_IRQ, 1);
    script.softirq(NET_RX);
    script.poll(RT_NAPI, "rt", 5, 1);
    script.event(Kind::SoftirqEnd);
    script.switch(55);
    script.spend(50, Cause::Thread(comm(55)));
    script.packet(Some(READER));
    let expected = script.expected.clone();
    script.spend(10, Cause::Thread(comm(55)));
    script.switch(0);
    let findings = script.analyse();
    assert_eq!(durations(&findings.ways[0].1), expected);
}

#[test]
fn threads_can_be_what_is_wanted() {
    let mut script = Script::default();
    script.interrupt(RT_IRQ, 1);
    script.softirq(NET_RX);
    script.packet(Some(5));
    script.packet(Some(READER));
    script.poll(RT_NAPI, "rt", 5, 2);
    script.event(Kind::SoftirqEnd);
    let recording = Recording {
        cpus: vec![(3, script.events)],
        ..Recording::default()
    };
    let setup = Setup {
        wanted: Wanted::Threads(BTreeSet::from([READER])),
        ..setup()
    };
    let findings = super::analyse(&recording, &setup);
    assert_eq!(findings.ways.len(), 1);
    assert_eq!(findings.ways[0].0, 3);
    assert_eq!(findings.ways[0].1.woken, comm(READER));
}

/// What may come between a packet's interrupt and its poll.
#[derive(Debug, Clone)]
enum Between {
    OtherInterrupt(u64),
    Timer(u64),
    Softirq(u32, u64),
    OtherPolls(Vec<(u64, u32)>),
    OtherThread(u64, Vec<(u64, u32)>),
    Blocked(u64),
}

fn between() -> impl Strategy<Value = Between> {
    let polls = || prop::collection::vec((0_u64..500, 0_u32..65), 0..3);
    prop_oneof![
        (0_u64..50).prop_map(Between::OtherInterrupt),
        (0_u64..50).prop_map(Between::Timer),
        (prop::sample::select(vec![1_u32, 6, 9]), 0_u64..90)
            .prop_map(|(vector, time)| Between::Softirq(vector, time)),
        polls().prop_map(Between::OtherPolls),
        (0_u64..900, polls()).prop_map(|(time, polls)| Between::OtherThread(time, polls)),
        (0_u64..300).prop_map(Between::Blocked),
    ]
}

fn play(script: &mut Script, act: &Between) {
    let others = |script: &mut Script, polls: &[(u64, u32)]| {
        script.softirq(NET_RX);
        for (time, packets) in polls {
            script.poll(BULK_NAPI, "bulk", *time, *packets);
        }
        script.spend(4, Cause::Softirq(NET_RX));
        script.event(Kind::SoftirqEnd);
    };
    match act {
        Between::OtherInterrupt(time) => script.interrupt(BULK_IRQ, *time),
        Between::Timer(time) => {
            script.event(Kind::TimerBegin);
            script.spend(*time, Cause::Interrupt("local timer".into()));
            script.event(Kind::TimerEnd);
        }
        Between::Softirq(vector, time) => {
            script.softirq(*vector);
            script.spend(*time, Cause::Softirq(*vector));
            script.event(Kind::SoftirqEnd);
        }
        Between::OtherPolls(polls) => others(script, polls),
        Between::OtherThread(time, polls) => {
            script.switch(OTHER);
            script.spend(*time, Cause::Thread(comm(OTHER)));
            others(script, polls);
            script.switch(OWN);
        }
        Between::Blocked(time) => {
            script.event(Kind::ContentionBegin { lock: SOFTIRQ_LOCK });
            script.blocked = true;
            script.switch(OTHER);
            script.spend(*time, Cause::Thread(comm(OTHER)));
            script.switch(OWN);
            script.event(Kind::ContentionEnd);
            script.blocked = false;
        }
    }
}

fn any_kind() -> impl Strategy<Value = Kind> {
    let device = || prop::sample::select(vec!["rt", "bulk", "", "br"]).prop_map(Name::from);
    let tid = || prop::sample::select(vec![0, OWN, OTHER, READER]);
    prop_oneof![
        (28_u32..33, device()).prop_map(|(irq, name)| Kind::InterruptBegin { irq, name }),
        Just(Kind::InterruptEnd),
        Just(Kind::TimerBegin),
        Just(Kind::TimerEnd),
        (0_u32..12).prop_map(|vector| Kind::SoftirqBegin { vector }),
        Just(Kind::SoftirqEnd),
        (any::<bool>(), device(), 0_u32..3).prop_map(|(rt, device, packets)| Kind::PollEnd {
            napi: if rt { RT_NAPI } else { BULK_NAPI },
            device,
            packets
        }),
        device().prop_map(|device| Kind::Packet { device }),
        Just(Kind::SocketReady),
        tid().prop_map(|tid| Kind::Wake {
            tid,
            comm: comm(tid)
        }),
        (tid(), tid()).prop_map(|(from, to)| Kind::Switch {
            from_comm: comm(from),
            to,
            to_comm: comm(to),
            to_priority: Priority(to as i32 - 50),
        }),
        any::<u64>().prop_map(|lock| Kind::ContentionBegin { lock }),
        Just(Kind::ContentionEnd),
        tid().prop_map(|tid| Kind::PriorityLent {
            tid,
            owner: comm(tid),
            priority: Priority(tid as i32)
        }),
    ]
}

proptest! {
    #[test]
    fn every_nanosecond_goes_to_its_cause(
        acts in prop::collection::vec(between(), 0..8),
        woken in any::<bool>(),
        own in 0_u64..60,
    ) {
        let mut script = Script { tid: OWN, ..Script::default() };
        script.switch(OWN);
        script.interrupt(RT_IRQ, 7);
        for act in &acts {
            play(&mut script, act);
        }
        script.softirq(NET_RX);
        script.spend(own, Cause::Own(Own::Poll));
        script.packet(woken.then_some(READER));
        let (expected, blocked_ns) = (script.expected.clone(), script.blocked_ns);
        script.poll(RT_NAPI, "rt", 5, 1);
        script.event(Kind::SoftirqEnd);

        let findings = script.analyse();
        prop_assert_eq!(findings.ways.len(), 1);
        let way = &findings.ways[0].1;
        prop_assert_eq!(durations(way), expected);
        prop_assert_eq!(way.woken.is_empty(), !woken);
        let blocked: u64 = way.spans.iter().filter(|span| span.blocked).map(|span| span.for_ns).sum();
        prop_assert_eq!(blocked, blocked_ns);
        let waits = acts.iter().filter(|act| matches!(act, Between::Blocked(_))).count();
        prop_assert_eq!(way.waits.len(), waits);
        prop_assert!(way.waits.iter().all(|wait| wait.softirq_lock && wait.owner == comm(OTHER)));
    }

    /// Events may be lost, so any order must be survived.
    #[test]
    fn no_events_panic_and_ways_have_no_gaps(
        kinds in prop::collection::vec((any_kind(), 0_u64..100, prop::sample::select(vec![0, OWN, OTHER])), 0..200),
    ) {
        let mut now_ns = 0;
        let events: Vec<Event> = kinds.into_iter().map(|(kind, after, tid)| {
            now_ns += after;
            Event { time_ns: now_ns, tid, kind }
        }).collect();
        let packets = events.iter().filter(|event| matches!(event.kind, Kind::Packet { .. })).count();
        let recording = Recording { cpus: vec![(0, events)], ..Recording::default() };
        let findings = super::analyse(&recording, &setup());
        prop_assert!(findings.ways.len() + findings.followers as usize <= packets);
        for (_, way) in &findings.ways {
            prop_assert!(way.since_ns + way.total_ns() <= now_ns);
        }
        let report = Report::new("device rt".into(), 1.0, &findings, 2, Rank::WakeUp);
        let shares: f64 = report.causes.iter().map(|cause| cause.share).sum();
        prop_assert!(report.samples_ns.iter().sum::<u64>() == 0 || (shares - 1.0).abs() < 1e-9);
        let json = serde_json::to_string(&report).unwrap();
        prop_assert_eq!(serde_json::from_str::<Report>(&json).unwrap().samples_ns, report.samples_ns.clone());
        let _ = render(&report);
    }
}
