//! What one look at the host shows. Pure: from readings to figures.

use serde::Serialize;
use steadyvm_host::discover::ReceiveKind;
use steadyvm_host::parse::SchedStat;
use steadyvm_host::{CardCounts, CpuSet, Policy, Received, Scheduling, State, ThreadId};
use steadyvm_sched::show::VcpuStanding;
use steadyvm_trace::softirqs::{Counts, VECTORS};
use steadyvm_trace::wake_ups::Waits;

use crate::bounds::Measured;
use crate::checks::Checks;

/// The version of the shape of JSON.
pub const SCHEMA_VERSION: u32 = 1;

/// One look.
#[derive(Debug, Clone, Serialize)]
pub struct Frame {
    /// [`SCHEMA_VERSION`].
    pub schema_version: u32,
    /// When it ended, in seconds after 1970.
    pub at_unix_s: u64,
    /// How long it looked.
    pub interval_s: f64,
    /// What is in force.
    pub in_force: InForce,
    /// Where wake-up times are from: "bpf", which has percentiles of a histogram, "tracepoints", which has exact ones, or
    /// "schedstat", which has means only.
    pub wake_ups_from: &'static str,
    /// Events of "tracepoints" that were lost since the beginning; 0 of the others.
    pub lost_events: u64,
    /// CPU time of this program itself, in per cent of one CPU; none where the kernel does not count it.
    pub own_cpu_percent: Option<f64>,
    /// Network cards of the profile.
    pub nics: Vec<Group>,
    /// VMs of the profile; all of this host if nothing is in force.
    pub vms: Vec<Group>,
    /// Processes of the profile that are services themselves.
    pub processes: Vec<Group>,
    /// What the reader should know.
    pub warnings: Vec<String>,
}

impl Frame {
    /// Cards, VMs and services, each with the name of its kind.
    pub fn kinds(&self) -> [(&'static str, &[Group]); 3] {
        [
            ("card", &self.nics),
            ("VM", &self.vms),
            ("service", &self.processes),
        ]
    }
}

/// What is in force, as of the last look at it.
#[derive(Debug, Clone, Default, Serialize)]
pub struct InForce {
    /// The journal's state.
    pub state: State,
    /// The method, if one was applied.
    pub method: Option<String>,
    /// Settings that hold.
    pub holding: usize,
    /// Settings that do not, and settings that are pending.
    pub drifted: usize,
    /// When a watch saw drift first, in seconds after 1970; null if none did.
    pub drifted_since_unix_s: Option<u64>,
    /// Whether a watch keeps it in force.
    pub watch: bool,
    /// What `measure` found of planned services since the boot.
    pub measured: Vec<Measured>,
    /// How near a watch has seen requests come to their bounds; null if none checks them.
    pub checks: Option<Checks>,
}

/// A card, a VM or a process.
#[derive(Debug, Clone, Serialize)]
pub struct Group {
    /// Its name.
    pub name: String,
    /// Its process; none for a card, and for a VM that does not run.
    pub pid: Option<u32>,
    /// Its threads, in the order that a packet meets them.
    pub stages: Vec<Stage>,
    /// What receiving costs for it; none of a card and of a service.
    pub receive: Option<Receive>,
}

/// CPU time of all threads that do a VM's receive work.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Receive {
    /// Since each of them began. A thread that ends takes what it used out of it.
    pub cpu_s: f64,
    /// Over the interval, in per cent of one CPU; none where the kernel does not count it.
    pub cpu_percent: Option<f64>,
    /// Cards by which its packets come and whose interrupts and polls serve others, too: they are not in it.
    pub shared_cards: Vec<String>,
    /// Its part of a shared card whose program tells its packets apart.
    pub sorted: Option<Sorted>,
}

/// A VM's part of a shared card.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Sorted {
    /// The card.
    pub card: String,
    /// Packets to the VM since the card's program looks for its address.
    #[serde(flatten)]
    pub received: Received,
    /// CPU time of the card's polls over the interval by the VM's share of the packets, in per cent of one CPU; none without
    /// packets, and where no thread polls the card.
    pub poll_percent: Option<f64>,
}

impl Sorted {
    /// Of two looks at a card.
    pub fn of(
        card: &str,
        before: Option<&CardCounts>,
        after: &CardCounts,
        interval_s: f64,
    ) -> Self {
        let polls_ns = before.and_then(|before| after.polls_since_ns(before));
        Self {
            card: card.to_owned(),
            received: after.packets(),
            poll_percent: polls_ns.map(|ns| ns as f64 / 1e7 / interval_s),
        }
    }
}

impl Receive {
    /// Of a VM with these threads.
    pub fn of(stages: &[Stage], shared_cards: Vec<String>, sorted: Option<Sorted>) -> Self {
        let work = || stages.iter().filter(|stage| stage.receive_cpu_s.is_some());
        Self {
            cpu_s: work().filter_map(|stage| stage.receive_cpu_s).sum(),
            cpu_percent: work().map(|stage| stage.cpu_percent).sum(),
            shared_cards,
            sorted,
        }
    }
}

/// A thread on the way of a packet.
#[derive(Debug, Clone, Serialize)]
#[allow(clippy::struct_field_names)] // the name in the JSON and in metrics
pub struct Stage {
    /// "irq", "napi", "vhost", "sockets", "vcpu", "vfio", "io", "main" or "thread".
    pub stage: &'static str,
    /// The number of a VCPU.
    pub number: Option<u32>,
    /// The thread.
    pub tid: u32,
    /// Its name.
    pub thread: String,
    /// How it is scheduled, as the kernel says it.
    #[serde(skip)]
    pub scheduling: Scheduling,
    /// The same in words: "FIFO 50", "deadline 4000/10000 us", "normal (nice 0)".
    pub rank: String,
    /// Its budget, if `SCHED_DEADLINE` or our `sched_ext` scheduler gives it one.
    pub budget: Option<Budget>,
    /// The CPUs it may use.
    pub cpus: String,
    /// CPU time, in per cent of one CPU; none where the kernel does not count it.
    pub cpu_percent: Option<f64>,
    /// CPU time since it began, of a thread that does a VM's receive work.
    pub receive_cpu_s: Option<f64>,
    /// From wake-up to running.
    pub wake_up: WakeUp,
    /// Work of others that it did over the interval; none where it is not counted.
    pub others_work: Option<OthersWork>,
    /// Of a VCPU with a budget: what `steadyvm top --budgets` says of it.
    pub enforced: Option<VcpuStanding>,
}

/// Softirq handlers that ran in a thread, but for packets that come: they were pending on its CPU when it let softirqs run, also
/// those that others raised, and ran with its rank.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct OthersWork {
    /// Packets that are sent (`NET_TX`).
    pub net_tx: u64,
    /// Tasklets (`TASKLET`, `HI`).
    pub tasklets: u64,
    /// Timers (`TIMER`, `HRTIMER`).
    pub timers: u64,
    /// All others, such as disks' (`BLOCK`) and RCU's.
    pub rest: u64,
    /// How long they took in all, with what preempted them.
    pub total_us: f64,
}

impl OthersWork {
    /// Of what was counted.
    pub fn of(counts: &Counts) -> Self {
        let mut work = Self::default();
        for (vector, name) in VECTORS.into_iter().enumerate() {
            let handlers = counts.handlers[vector];
            match name {
                "NET_RX" => continue,
                "NET_TX" => work.net_tx += handlers,
                "TASKLET" | "HI" => work.tasklets += handlers,
                "TIMER" | "HRTIMER" => work.timers += handlers,
                _ => work.rest += handlers,
            }
            work.total_us += counts.ns[vector] as f64 / 1e3;
        }
        work
    }

    /// Handlers in all.
    pub const fn handlers(&self) -> u64 {
        self.net_tx + self.tasklets + self.timers + self.rest
    }
}

/// A budget in force.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Budget {
    /// CPU time in each period.
    pub runtime_us: f64,
    /// When it is there at the latest.
    pub deadline_us: f64,
    /// The period.
    pub period_us: f64,
    /// How much of it was used in the interval, in per cent.
    pub used_percent: Option<f64>,
}

/// How long a thread waited for a CPU after it was woken, in microseconds; `None` without wake-ups.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct WakeUp {
    /// Wake-ups; where they are from schedstat, how often it began to run.
    pub n: u64,
    /// Mean, exact.
    pub mean_us: Option<f64>,
    /// Median, nearest rank. Of "bpf", the upper end of its step: above it by less than an eighth of it.
    pub p50_us: Option<f64>,
    /// 99th percentile, as the median.
    pub p99_us: Option<f64>,
    /// Largest, exact.
    pub max_us: Option<f64>,
}

/// A thread's role on the way of a packet.
#[derive(Debug, Clone)]
pub struct Role {
    /// As in [`Stage`].
    pub stage: &'static str,
    /// The number of a VCPU.
    pub number: Option<u32>,
    /// The thread.
    pub thread: ThreadId,
    /// What it does of a VM's receive work.
    pub receives: Option<ReceiveKind>,
}

/// What was read of a thread at both ends of the interval.
#[derive(Debug, Clone)]
pub struct Reading {
    /// How it is scheduled now.
    pub scheduling: Scheduling,
    /// Where it may run.
    pub cpus: Option<CpuSet>,
    /// At the begin.
    pub before: Option<SchedStat>,
    /// At the end.
    pub after: Option<SchedStat>,
    /// CPU time since it began, of a thread that does receive work.
    pub receive_cpu_ns: Option<u64>,
    /// Its waits, where they were traced.
    pub waits: Option<Waits>,
    /// Softirq handlers that ran in it, where they were counted.
    pub softirqs: Option<Counts>,
}

impl Stage {
    /// A thread's figures over an interval.
    pub fn of(role: &Role, reading: &Reading, interval_s: f64) -> Self {
        let ends = reading.before.zip(reading.after);
        let ran_s = ends.map(|(before, after)| {
            let ran_ns = after.ran_ns.saturating_sub(before.ran_ns);
            ran_ns as f64 / 1e9
        });
        let wake_up = match &reading.waits {
            Some(waits) => WakeUp::of_waits(waits),
            None => ends.map_or_else(WakeUp::default, |(before, after)| {
                WakeUp::of_counters(&before, &after)
            }),
        };
        Self {
            stage: role.stage,
            number: role.number,
            tid: role.thread.tid,
            thread: steadyvm_host::printable(&role.thread.comm).into_owned(),
            rank: reading.scheduling.to_string(),
            scheduling: reading.scheduling,
            budget: budget(&reading.scheduling, ran_s, interval_s),
            cpus: reading
                .cpus
                .as_ref()
                .map_or_else(String::new, ToString::to_string),
            cpu_percent: ran_s.map(|ran_s| 100.0 * ran_s / interval_s),
            receive_cpu_s: reading.receive_cpu_ns.map(|ns| ns as f64 / 1e9),
            wake_up,
            others_work: reading.softirqs.as_ref().map(OthersWork::of),
            enforced: None,
        }
    }

    /// The same with what enforces its budget. To the kernel, a VCPU of our `sched_ext` scheduler is a normal thread.
    #[must_use]
    pub fn under(mut self, enforced: VcpuStanding) -> Self {
        if self.budget.is_none() && enforced.period_ns > 0 {
            let us = |ns: u64| ns as f64 / 1e3;
            let share = 100.0 * enforced.budget_ns as f64 / enforced.period_ns as f64;
            self.rank = format!(
                "ext {}/{} us",
                enforced.budget_ns / 1000,
                enforced.period_ns / 1000
            );
            self.budget = Some(Budget {
                runtime_us: us(enforced.budget_ns),
                deadline_us: us(enforced.period_ns),
                period_us: us(enforced.period_ns),
                used_percent: self.cpu_percent.map(|percent| 100.0 * percent / share),
            });
        }
        self.enforced = Some(enforced);
        self
    }
}

fn budget(scheduling: &Scheduling, ran_s: Option<f64>, interval_s: f64) -> Option<Budget> {
    if scheduling.policy != Policy::Deadline || scheduling.period_ns == 0 {
        return None;
    }
    let us = |ns: u64| ns as f64 / 1e3;
    let granted_s = interval_s * scheduling.runtime_ns as f64 / scheduling.period_ns as f64;
    Some(Budget {
        runtime_us: us(scheduling.runtime_ns),
        deadline_us: us(scheduling.deadline_ns),
        period_us: us(scheduling.period_ns),
        used_percent: ran_s
            .filter(|_| granted_s > 0.0)
            .map(|ran_s| 100.0 * ran_s / granted_s),
    })
}

impl WakeUp {
    /// What was traced.
    pub fn of_waits(waits: &Waits) -> Self {
        let us = |ns: u64| (waits.n > 0).then_some(ns as f64 / 1e3);
        Self {
            n: waits.n,
            mean_us: waits.mean_ns().map(|ns| ns / 1e3),
            p50_us: us(waits.p50_ns),
            p99_us: us(waits.p99_ns),
            max_us: us(waits.max_ns),
        }
    }

    /// The mean of the kernel's counters.
    fn of_counters(before: &SchedStat, after: &SchedStat) -> Self {
        let n = after.times.saturating_sub(before.times);
        let waited_ns = after.waited_ns.saturating_sub(before.waited_ns);
        Self {
            n,
            mean_us: (n > 0).then(|| waited_ns as f64 / n as f64 / 1e3),
            ..Self::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn role() -> Role {
        Role {
            stage: "vcpu",
            number: Some(1),
            thread: ThreadId {
                pid: 5,
                tid: 7,
                start_time: 1,
                comm: "CPU 1/KVM".into(),
            },
            receives: None,
        }
    }

    fn reading(scheduling: Scheduling) -> Reading {
        let at = |ran_ns, waited_ns, times| {
            Some(SchedStat {
                ran_ns,
                waited_ns,
                times,
            })
        };
        Reading {
            scheduling,
            cpus: "0-1".parse().ok(),
            before: at(1_000_000_000, 1_000_000, 100),
            after: at(1_400_000_000, 1_600_000, 300),
            receive_cpu_ns: None,
            waits: None,
            softirqs: None,
        }
    }

    #[test]
    fn a_budget_is_used_by_what_its_thread_ran() {
        let scheduling = Scheduling::deadline(4_000_000, 9_000_000, 10_000_000, 0);
        let stage = Stage::of(&role(), &reading(scheduling), 2.0);
        let budget = stage.budget.unwrap();
        assert!((budget.runtime_us - 4000.0).abs() < 1e-9);
        assert!((budget.deadline_us - 9000.0).abs() < 1e-9);
        // 0.4 s of the 0.8 s that 4 ms in 10 ms are in 2 s.
        assert!((budget.used_percent.unwrap() - 50.0).abs() < 1e-9);
        assert!((stage.cpu_percent.unwrap() - 20.0).abs() < 1e-9);
        assert_eq!(stage.rank, "deadline 4000/10000 us");
        assert_eq!(
            Stage::of(&role(), &reading(Scheduling::fifo(50, 0)), 2.0).budget,
            None
        );
    }

    /// A thread that used half a second of 2 s since it began 7 s of CPU time ago, and one of which the kernel counts
    /// no interval.
    #[test]
    fn receive_work_is_the_sum_of_the_threads_that_do_it() {
        let mut work = reading(Scheduling::normal());
        work.receive_cpu_ns = Some(7_000_000_000);
        let vcpu = Stage::of(&role(), &reading(Scheduling::normal()), 2.0);
        let worker = Stage::of(&role(), &work, 2.0);
        let shared = vec!["eth0".to_owned()];
        let all = [vcpu.clone(), worker.clone(), worker.clone()];
        let sum = Receive::of(&all, shared.clone(), None);
        assert!((sum.cpu_s - 14.0).abs() < 1e-9);
        assert!((sum.cpu_percent.unwrap() - 40.0).abs() < 1e-9);
        assert_eq!(sum.shared_cards, shared);
        work.before = None;
        let uncounted = Stage::of(&role(), &work, 2.0);
        let sum = Receive::of(&[worker, uncounted], Vec::new(), None);
        assert!((sum.cpu_s - 14.0).abs() < 1e-9);
        assert_eq!(sum.cpu_percent, None);
        assert_eq!(
            Receive::of(&[vcpu], Vec::new(), None).cpu_percent,
            Some(0.0)
        );
    }

    #[test]
    fn packets_that_come_are_no_work_of_others() {
        let counts = Counts {
            handlers: std::array::from_fn(|vector| 1 << vector),
            ns: [1000; VECTORS.len()],
        };
        let work = OthersWork::of(&counts);
        // HI 1, TIMER 2, NET_TX 4, NET_RX 8, BLOCK 16, IRQ_POLL 32, TASKLET 64, SCHED 128, HRTIMER 256, RCU 512.
        let kinds = (work.net_tx, work.tasklets, work.timers, work.rest);
        assert_eq!(kinds, (4, 65, 258, 688));
        assert_eq!(work.handlers(), 1023 - 8);
        assert!((work.total_us - 9.0).abs() < 1e-9);
    }

    #[test]
    fn a_vcpu_of_our_scheduler_has_a_budget_though_the_kernel_knows_of_none() {
        let enforced = VcpuStanding {
            budget_ns: 4_000_000,
            period_ns: 10_000_000,
            throttles: Some(3),
            ..VcpuStanding::default()
        };
        let stage = Stage::of(&role(), &reading(Scheduling::normal()), 2.0).under(enforced);
        assert_eq!(stage.rank, "ext 4000/10000 us");
        // A fifth of a CPU is half of 40 %.
        assert!((stage.budget.unwrap().used_percent.unwrap() - 50.0).abs() < 1e-9);
        assert_eq!(stage.enforced.unwrap().throttles, Some(3));
    }

    #[test]
    fn counters_give_a_mean_and_traced_waits_all_figures() {
        let counted = Stage::of(&role(), &reading(Scheduling::normal()), 1.0).wake_up;
        assert_eq!((counted.n, counted.mean_us), (200, Some(3.0)));
        assert_eq!(counted.p99_us, None);
        let mut traced = reading(Scheduling::normal());
        traced.waits = Some(Waits {
            n: 100,
            total_ns: 5_050_000,
            p50_ns: 50_000,
            p99_ns: 99_000,
            max_ns: 100_000,
        });
        let traced = Stage::of(&role(), &traced, 1.0).wake_up;
        assert_eq!(
            (traced.n, traced.p50_us, traced.p99_us, traced.max_us),
            (100, Some(50.0), Some(99.0), Some(100.0))
        );
        assert_eq!(traced.mean_us, Some(50.5));
        assert_eq!(WakeUp::of_waits(&Waits::default()), WakeUp::default());
    }

    #[test]
    fn a_kernel_that_does_not_count_has_no_figures() {
        assert_eq!(SchedStat::parse("0 0 0\n"), None);
        assert_eq!(SchedStat::parse("5 6"), None);
        let found = SchedStat::parse("5 6 7\n").unwrap();
        assert_eq!((found.ran_ns, found.waited_ns, found.times), (5, 6, 7));
    }

    proptest! {
        #[test]
        fn no_text_panics(text in ".{0,60}") {
            let _ = SchedStat::parse(&text);
        }
    }
}
