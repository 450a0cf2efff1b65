//! Figures of what was found. Times in microseconds, `None` without packets; exact, of every
//! packet, percentiles nearest-rank.

use super::journey::Stage;
use super::{Cause, Findings, Wait, Way};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use steadyvm_stats::Summary;

/// What `steadyvm explain --receive-path --json` prints.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// Version of this shape.
    pub schema_version: u32,
    /// Which packets: "device eth0" or "port 7700".
    pub packets: String,
    /// How long events were recorded.
    pub duration_s: f64,
    /// From a packet's hard interrupt to the wake-up of its reader.
    pub total: Figures,
    /// Of these packets, those whose reader was awake: they end when the socket is told.
    pub readers_awake: u64,
    /// Packets that came without an interrupt of their own, behind one that is measured.
    pub followers: u64,
    /// What the CPU did meanwhile, the largest share first.
    pub causes: Vec<CauseFigures>,
    /// How long the device's own thread was blocked on locks.
    pub blocked: Blocked,
    /// The slowest packets, the slowest first.
    pub worst: Vec<WorstPacket>,
    /// Every packet's time from hard interrupt to wake-up in nanoseconds, in order of time.
    pub samples_ns: Vec<u64>,
    /// Events that were lost because a buffer was full; if there are any, so are packets, and
    /// their causes may be wrong.
    pub lost_events: u64,
    /// Tracepoints that this kernel does not have; what they show is missing.
    pub missing: Vec<String>,
}

/// The figures of a duration over all packets, those with none of it included.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Figures {
    /// Packets.
    pub n: u64,
    /// Mean.
    pub mean_us: Option<f64>,
    /// Sample standard deviation.
    pub sd_us: Option<f64>,
    /// Median.
    pub p50_us: Option<f64>,
    /// 99th percentile.
    pub p99_us: Option<f64>,
    /// Largest.
    pub max_us: Option<f64>,
}

/// How much of the time one cause took.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CauseFigures {
    /// `own`, `poll`, `softirq`, `interrupt`, `thread` or `idle`.
    pub kind: String,
    /// Which one of its kind.
    pub name: String,
    /// Whether it ran in the device's own interrupt or NAPI thread.
    pub in_own_thread: bool,
    /// Packets that had any of it.
    pub packets: u64,
    /// Its share of all packets' time: 0 to 1.
    pub share: f64,
    /// Its duration.
    #[serde(flatten)]
    pub figures: Figures,
}

/// The device's own thread on locks.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Blocked {
    /// Packets it was blocked for.
    pub packets: u64,
    /// How long.
    #[serde(flatten)]
    pub figures: Figures,
    /// Who had the locks, the most frequent first.
    pub owners: Vec<Owner>,
}

/// Who had a lock.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Owner {
    /// The thread; empty if unknown.
    pub thread: String,
    /// Whether it was the softirq lock of PREEMPT_RT.
    pub softirq_lock: bool,
    /// How often.
    pub times: u64,
}

/// One slow packet.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct WorstPacket {
    /// When its hard interrupt began, in seconds of the monotonic clock.
    pub at_s: f64,
    /// The CPU.
    pub cpu: usize,
    /// From hard interrupt to wake-up.
    pub total_us: f64,
    /// The thread that was woken; empty if the reader was awake.
    pub woken: String,
    /// What the CPU did, in order.
    pub timeline: Vec<WorstSpan>,
    /// From hard interrupt to the end of the last stage.
    #[serde(default)]
    pub whole_us: f64,
    /// What came after the wake-up, as far as it is known, in order.
    #[serde(default)]
    pub stages: Vec<WorstStage>,
}

/// A stage of a slow packet's way behind the wake-up of its reader.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct WorstStage {
    /// "wait", "carry", "guest", "send" or "serve".
    pub kind: String,
    /// The thread that it is about.
    pub thread: String,
    /// The VM, if the thread is a VCPU.
    pub vm: Option<String>,
    /// The number of the VCPU.
    pub vcpu: Option<u32>,
    /// The CPU.
    pub cpu: usize,
    /// Since the hard interrupt.
    pub after_us: f64,
    /// How long.
    pub for_us: f64,
    /// What ran on that CPU, in order.
    pub ran: Vec<WorstPiece>,
    /// How it ended, where that is not the next stage.
    pub end: String,
}

/// A thread that ran for a while.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct WorstPiece {
    /// How long.
    pub for_us: f64,
    /// The thread; empty if unknown.
    pub thread: String,
    /// Its priority, as in [`WorstSpan`].
    pub priority: String,
}

/// Which packets are the slowest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rank {
    /// By the time from hard interrupt to the wake-up of the reader.
    WakeUp,
    /// By all that is known of their way, the guest's part included.
    Whole,
}

/// A stretch of a slow packet's time.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct WorstSpan {
    /// Since the hard interrupt.
    pub after_us: f64,
    /// How long.
    pub for_us: f64,
    /// What, as in [`CauseFigures`].
    pub kind: String,
    /// Which one of its kind.
    pub name: String,
    /// The thread it ran in.
    pub thread: String,
    /// Its priority: "rt 80", "normal" or "deadline"; it may be lent.
    pub priority: String,
    /// Whether the device's own thread was blocked on a lock.
    pub blocked: bool,
}

impl Report {
    /// Computes the figures, and keeps this many of the slowest packets.
    pub fn new(
        packets: String,
        duration_s: f64,
        findings: &Findings,
        worst: usize,
        rank: Rank,
    ) -> Self {
        let ways: Vec<&Way> = findings.ways.iter().map(|(_, way)| way).collect();
        let samples_ns: Vec<u64> = ways.iter().map(|way| way.total_ns()).collect();
        let awake = ways.iter().filter(|way| way.woken.is_empty()).count();
        Self {
            schema_version: 1,
            packets,
            duration_s,
            total: Figures::of(&samples_ns),
            readers_awake: awake as u64,
            followers: findings.followers,
            causes: causes(&ways),
            blocked: blocked(&ways),
            worst: slowest(findings, worst, rank),
            samples_ns,
            lost_events: 0,
            missing: Vec::new(),
        }
    }
}

impl Figures {
    /// Of these durations in nanoseconds.
    pub fn of(durations_ns: &[u64]) -> Self {
        let Some(summary) = Summary::of(durations_ns) else {
            return Self::default();
        };
        Self {
            n: summary.n,
            mean_us: Some(summary.mean_ns / 1e3),
            sd_us: summary.sd_ns.map(|sd| sd / 1e3),
            p50_us: Some(microseconds(summary.p50_ns)),
            p99_us: Some(microseconds(summary.p99_ns)),
            max_us: Some(microseconds(summary.max_ns)),
        }
    }
}

fn causes(ways: &[&Way]) -> Vec<CauseFigures> {
    // By cause, a duration for every packet that has any.
    let mut durations: BTreeMap<(Cause, bool), Vec<u64>> = BTreeMap::new();
    for way in ways {
        let mut of_way: BTreeMap<(Cause, bool), u64> = BTreeMap::new();
        for span in &way.spans {
            *of_way.entry((span.cause, span.in_own_thread)).or_default() += span.for_ns;
        }
        for (cause, duration) in of_way {
            durations.entry(cause).or_default().push(duration);
        }
    }
    let all_ns: u64 = ways.iter().map(|way| way.total_ns()).sum();
    let mut causes: Vec<CauseFigures> = durations
        .into_iter()
        .map(|((cause, in_own_thread), mut durations)| {
            let packets = durations.len() as u64;
            let sum: u64 = durations.iter().sum();
            durations.resize(ways.len(), 0);
            CauseFigures {
                kind: cause.kind().to_owned(),
                name: cause.name(),
                in_own_thread,
                packets,
                share: sum as f64 / all_ns as f64,
                figures: Figures::of(&durations),
            }
        })
        .collect();
    causes.sort_by(|one, other| other.share.total_cmp(&one.share));
    causes
}

fn blocked(ways: &[&Way]) -> Blocked {
    let of_way = |way: &&Way| -> u64 {
        let blocked = way.spans.iter().filter(|span| span.blocked);
        blocked.map(|span| span.for_ns).sum()
    };
    let durations: Vec<u64> = ways.iter().map(of_way).collect();
    let mut times: BTreeMap<Wait, u64> = BTreeMap::new();
    for wait in ways.iter().flat_map(|way| &way.waits) {
        *times.entry(*wait).or_default() += 1;
    }
    let mut owners: Vec<Owner> = times
        .into_iter()
        .map(|(wait, times)| Owner {
            thread: wait.owner.to_string(),
            softirq_lock: wait.softirq_lock,
            times,
        })
        .collect();
    owners.sort_by_key(|owner| std::cmp::Reverse(owner.times));
    Blocked {
        packets: durations.iter().filter(|duration| **duration > 0).count() as u64,
        figures: Figures::of(&durations),
        owners,
    }
}

fn slowest(findings: &Findings, count: usize, rank: Rank) -> Vec<WorstPacket> {
    let mut ways: Vec<&(usize, Way)> = findings.ways.iter().collect();
    ways.sort_by_key(|(_, way)| {
        std::cmp::Reverse(match rank {
            Rank::WakeUp => way.total_ns(),
            Rank::Whole => way.whole_ns(),
        })
    });
    let packet = |(cpu, way): &(usize, Way)| {
        let mut after_ns = 0;
        let timeline = way.spans.iter().map(|span| {
            let began = after_ns;
            after_ns += span.for_ns;
            WorstSpan {
                after_us: microseconds(began),
                for_us: microseconds(span.for_ns),
                kind: span.cause.kind().to_owned(),
                name: span.cause.name(),
                thread: span.thread.to_string(),
                priority: span.priority.to_string(),
                blocked: span.blocked,
            }
        });
        WorstPacket {
            timeline: timeline.collect(),
            at_s: way.since_ns as f64 / 1e9,
            cpu: *cpu,
            total_us: microseconds(way.total_ns()),
            woken: way.woken.to_string(),
            whole_us: microseconds(way.whole_ns()),
            stages: stages(way),
        }
    };
    ways.into_iter().take(count).map(packet).collect()
}

fn stages(way: &Way) -> Vec<WorstStage> {
    let mut after_ns = way.total_ns();
    let stage = |stage: &Stage| {
        let began_ns = after_ns;
        after_ns += stage.total_ns();
        let pieces = stage.pieces.iter().map(|piece| WorstPiece {
            for_us: microseconds(piece.for_ns),
            thread: piece.thread.to_string(),
            priority: piece.priority.to_string(),
        });
        WorstStage {
            kind: stage.step.kind().to_owned(),
            thread: stage.thread.to_string(),
            vm: stage.vcpu.as_ref().map(|(vm, _)| vm.clone()),
            vcpu: stage.vcpu.as_ref().map(|(_, number)| *number),
            cpu: stage.cpu,
            after_us: microseconds(began_ns),
            for_us: microseconds(stage.total_ns()),
            ran: pieces.collect(),
            end: stage.end.to_owned(),
        }
    };
    way.stages.iter().map(stage).collect()
}

fn microseconds(nanoseconds: u64) -> f64 {
    nanoseconds as f64 / 1e3
}
