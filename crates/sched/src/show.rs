//! How the VCPUs stand, as JSON or a table.

use crate::abi::Decisions;
use serde::{Deserialize, Serialize};
use std::fmt::Write as _;
use steadyvm_stats::steps::{STEPS, percentile_of_ends, step_end_ns};

/// What `show` tells.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Standing {
    /// Changes when a field changes its meaning.
    pub schema_version: u32,
    /// "ext" or "deadline".
    pub mechanism: String,
    /// Whether budgets are enforced. The `sched_ext` scheduler ends when its loader does, and when the kernel's watchdog ends
    /// it.
    pub attached: bool,
    /// `CLOCK_MONOTONIC` when this was read, in ns.
    pub at_ns: u64,
    /// How long the scheduler's decisions took since it was loaded.
    #[serde(default)]
    pub decisions: DecisionTimes,
    /// VCPUs with a budget.
    pub vcpus: Vec<VcpuStanding>,
}

/// Times in the callback `dispatch`, which accounts, replenishes and chooses, on all CPUs.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DecisionTimes {
    /// Upper ends of steps in ns, and how many decisions each has; without empty ones, in ascending order. A step is an
    /// eighth of the power of two below it.
    pub up_to_ns: Vec<(u64, u64)>,
    /// The longest.
    pub max_ns: u64,
    /// All together.
    pub total_ns: u64,
}

impl DecisionTimes {
    pub(crate) fn of(cpus: &[Decisions]) -> Self {
        let count = |step: usize| cpus.iter().map(|cpu| cpu.count[step]).sum::<u64>();
        Self {
            up_to_ns: (0..STEPS)
                .map(|step| (step_end_ns(step), count(step)))
                .filter(|(_, count)| *count > 0)
                .collect(),
            max_ns: cpus.iter().map(|cpu| cpu.longest_ns).max().unwrap_or(0),
            total_ns: cpus.iter().map(|cpu| cpu.total_ns).sum(),
        }
    }

    /// The upper end of the step that has this percentile, nearest rank, in ns; none without decisions.
    pub fn percentile_ns(&self, percent: f64) -> Option<u64> {
        percentile_of_ends(&self.up_to_ns, self.max_ns, percent)
    }

    /// How many decisions there were.
    pub fn count(&self) -> u64 {
        self.up_to_ns.iter().map(|(_, count)| count).sum()
    }
}

/// One VCPU since it got its budget. What a mechanism does not count is none.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct VcpuStanding {
    /// The VM's name.
    pub vm: String,
    /// The VCPU's number.
    pub vcpu: u32,
    /// Its thread.
    pub tid: u32,
    /// Whether the thread lives.
    pub alive: bool,
    /// What it may use in each period.
    pub budget_ns: u64,
    /// The period.
    pub period_ns: u64,
    /// The server's word.
    pub server: String,
    /// CPU time used, to when it last stopped or was looked at by the scheduler. Of `SCHED_DEADLINE`: since the thread began.
    pub used_ns: u64,
    /// Used in the period that now is, to the same time. Of `SCHED_DEADLINE`: in the period in which it ran last.
    pub period_used_ns: Option<u64>,
    /// Used in the period before.
    pub last_period_used_ns: Option<u64>,
    /// The most that was used in one period. What is beyond the budget the next ones pay.
    pub most_period_used_ns: Option<u64>,
    /// Periods that have ended.
    pub periods: Option<u64>,
    /// Of these, how many did not give the budget to a VCPU that had work all the time; of deferrable and polling servers.
    pub short_periods: Option<u64>,
    /// What was missing in the worst of these.
    pub most_short_ns: Option<u64>,
    /// Periods in which more was used than was granted and is owed: 0, or the scheduler has a fault.
    pub unexplained_periods: Option<u64>,
    /// How long it had work and no CPU, with budget or without.
    pub waited_ns: Option<u64>,
    /// How long it had work and no budget.
    pub throttled_ns: Option<u64>,
    /// How often that began.
    pub throttles: Option<u64>,
    /// How often it stopped with work and budget. Of `SCHED_DEADLINE`: with work, throttled or not.
    pub preemptions: u64,
    /// How often it went on on another CPU.
    pub migrations: u64,
    /// How often it began to run.
    pub dispatches: u64,
    /// The most that it was ever beyond its budget, which the next ones pay.
    pub overrun_ns: Option<u64>,
    /// Where it ran last.
    pub cpu: u32,
    /// What the guest says of its jobs: of the whole VM, the same for each of its VCPUs.
    pub guest: Option<GuestReport>,
}

/// What a guest's jobs report: `steadyvm-lab load job --report`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct GuestReport {
    /// Jobs that are done.
    pub jobs: u64,
    /// Of these, how many were done after their deadline.
    pub misses: u64,
}

/// The version of the shape of JSON. 2: what a mechanism does not count is null; periods; guests' reports.
pub const SCHEMA_VERSION: u32 = 2;

impl Standing {
    /// Of a host on which nothing is enforced.
    pub fn nothing() -> Self {
        Self {
            schema_version: SCHEMA_VERSION,
            mechanism: "ext".into(),
            attached: false,
            at_ns: 0,
            decisions: DecisionTimes::default(),
            vcpus: Vec::new(),
        }
    }

    /// A table for people.
    pub fn table(&self) -> String {
        let state = match (self.attached, self.mechanism.as_str()) {
            (true, "deadline") => "SCHED_DEADLINE, the kernel's",
            (true, _) => "sched_ext, steadyvm's scheduler",
            (false, _) => "the kernel's own scheduler: budgets are not enforced",
        };
        let mut text = format!("scheduling: {state}\n");
        let decisions = self.decisions.count();
        if let Some(mean_ns) = self.decisions.total_ns.checked_div(decisions) {
            let max_ns = self.decisions.max_ns;
            let _ = writeln!(
                text,
                "decisions: {decisions}, {mean_ns} ns in the mean, p50 {} ns, p99 {} ns, the longest {max_ns} ns",
                self.decisions.percentile_ns(50.0).unwrap_or(0),
                self.decisions.percentile_ns(99.0).unwrap_or(0),
            );
        }
        if self.vcpus.is_empty() {
            return text;
        }
        let _ = writeln!(
            text,
            "{:<12} {:>4} {:>7} {:<10} {:>14} {:>7} {:>7} {:>10} {:>12} {:>9} {:>6} {:>6} {:>6} {:>6}",
            "VM",
            "VCPU",
            "thread",
            "server",
            "budget/per. us",
            "now us",
            "last us",
            "used ms",
            "throttled ms",
            "throttles",
            "preem.",
            "migr.",
            "short",
            "misses"
        );
        for vcpu in &self.vcpus {
            let share = format!("{}/{}", vcpu.budget_ns / 1000, vcpu.period_ns / 1000);
            let ms = |ns: u64| format!("{:.1}", ns as f64 / 1e6);
            let or_not = |text: Option<String>| text.unwrap_or_else(|| "-".into());
            let count = |count: Option<u64>| or_not(count.map(|count| count.to_string()));
            let us = |ns: Option<u64>| count(ns.map(|ns| ns / 1000));
            let _ = writeln!(
                text,
                "{:<12} {:>4} {:>7} {:<10} {share:>14} {:>7} {:>7} {:>10} {:>12} {:>9} {:>6} {:>6} {:>6} {:>6}",
                vcpu.vm,
                vcpu.vcpu,
                vcpu.tid,
                vcpu.server,
                us(vcpu.period_used_ns),
                us(vcpu.last_period_used_ns),
                ms(vcpu.used_ns),
                or_not(vcpu.throttled_ns.map(ms)),
                count(vcpu.throttles),
                vcpu.preemptions,
                vcpu.migrations,
                count(vcpu.short_periods),
                count(vcpu.guest.map(|guest| guest.misses)),
            );
        }
        let broken: u64 = self
            .vcpus
            .iter()
            .filter_map(|vcpu| vcpu.unexplained_periods)
            .sum();
        if broken > 0 {
            let _ = writeln!(
                text,
                "{broken} periods used more than was granted: a fault of the scheduler; report it"
            );
        }
        text
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn standing() -> Standing {
        Standing {
            schema_version: SCHEMA_VERSION,
            mechanism: "ext".into(),
            attached: true,
            at_ns: 5,
            decisions: DecisionTimes {
                up_to_ns: vec![(1000, 3), (2000, 1)],
                max_ns: 1500,
                total_ns: 3600,
            },
            vcpus: vec![VcpuStanding {
                vm: "a\"b".into(),
                vcpu: 1,
                tid: 77,
                alive: true,
                budget_ns: 4_000_000,
                period_ns: 10_000_000,
                server: "deferrable".into(),
                used_ns: 1_500_000_000,
                period_used_ns: Some(1_234_000),
                last_period_used_ns: Some(4_000_000),
                throttled_ns: Some(250_000_000),
                throttles: Some(3),
                preemptions: 4,
                migrations: 5,
                guest: Some(GuestReport {
                    jobs: 50,
                    misses: 2,
                }),
                ..VcpuStanding::default()
            }],
        }
    }

    #[test]
    fn decisions_are_a_histogram_of_all_that_are_shorter() {
        let text = standing().metrics(crate::exposition::Format::OpenMetrics);
        for line in [
            "steadyvm_sched_decision_seconds_bucket{le=\"0.000001\"} 3\n",
            "steadyvm_sched_decision_seconds_bucket{le=\"0.000002\"} 4\n",
            "steadyvm_sched_decision_seconds_bucket{le=\"+Inf\"} 4\n",
            "steadyvm_sched_decision_seconds_sum 0.0000036\n",
            "steadyvm_sched_decision_seconds_count 4\n",
        ] {
            assert!(text.contains(line), "{line}{text}");
        }
        let table = standing().table();
        assert!(table.contains(
            "decisions: 4, 900 ns in the mean, p50 1000 ns, p99 1500 ns, the longest 1500 ns"
        ));
    }

    #[test]
    fn cpus_are_counted_together() {
        let mut cpu = Decisions {
            total_ns: 30,
            longest_ns: 20,
            count: [0; STEPS],
        };
        cpu.count[8] = 2;
        let both = DecisionTimes::of(&[cpu.clone(), cpu]);
        assert_eq!(both.up_to_ns, [(8, 4)]);
        assert_eq!((both.max_ns, both.total_ns, both.count()), (20, 60, 4));
    }

    #[test]
    fn the_table_says_when_nothing_is_enforced() {
        let mut standing = standing();
        let table = standing.table();
        let row: Vec<&str> = table.lines().last().unwrap().split_whitespace().collect();
        let expected = "a\"b 1 77 deferrable 4000/10000 1234 4000 1500.0 250.0 3 4 5 - 2";
        assert_eq!(row, expected.split(' ').collect::<Vec<_>>(), "{table}");
        assert!(
            table.lines().all(|line| line.chars().count() <= 140),
            "{table}"
        );
        standing.mechanism = "deadline".into();
        assert!(standing.table().contains("SCHED_DEADLINE"));
        standing.attached = false;
        assert!(standing.table().contains("budgets are not enforced"));
    }
}
