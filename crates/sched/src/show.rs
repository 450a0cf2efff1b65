//! How the VCPUs stand, as JSON, a table or `OpenMetrics` text.

use crate::abi::{DECISION_STEPS, Decisions};
use serde::{Deserialize, Serialize};
use std::fmt::Write as _;

/// What `show` tells.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Standing {
    /// Changes when a field changes its meaning.
    pub schema_version: u32,
    /// "ext".
    pub mechanism: String,
    /// Whether the scheduler has the host's threads. It ends when its loader does, and when the kernel's watchdog ends it.
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
            up_to_ns: (0..DECISION_STEPS)
                .map(|step| (step_end_ns(step), count(step)))
                .filter(|(_, count)| *count > 0)
                .collect(),
            max_ns: cpus.iter().map(|cpu| cpu.longest_ns).max().unwrap_or(0),
            total_ns: cpus.iter().map(|cpu| cpu.total_ns).sum(),
        }
    }

    /// How many decisions there were.
    pub fn count(&self) -> u64 {
        self.up_to_ns.iter().map(|(_, count)| count).sum()
    }
}

/// The longest time that `decided` of bpf/sched.bpf.c counts in a step.
fn step_end_ns(step: usize) -> u64 {
    let Some(shift) = (step / 8).checked_sub(1) else {
        return step as u64;
    };
    // The last steps are beyond 64 bits; no time gets there.
    let end = (9 + (step % 8) as u128) << shift.min(64);
    u64::try_from(end - 1).unwrap_or(u64::MAX)
}

/// One VCPU since it got its budget.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
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
    /// CPU time used, to when it last stopped or was looked at by the scheduler.
    pub used_ns: u64,
    /// How long it had work and no budget.
    pub throttled_ns: u64,
    /// How often that began.
    pub throttles: u64,
    /// How often it stopped with work and budget.
    pub preemptions: u64,
    /// How often it went on on another CPU.
    pub migrations: u64,
    /// How often it began to run.
    pub dispatches: u64,
    /// The longest that it ran beyond its budget, which the next ones pay.
    pub overrun_ns: u64,
    /// Where it ran last.
    pub cpu: u32,
}

impl Standing {
    /// A table for people.
    pub fn table(&self) -> String {
        let state = if self.attached {
            "sched_ext, steadyvm's scheduler"
        } else {
            "the kernel's own scheduler: budgets are not enforced"
        };
        let mut text = format!("scheduling: {state}\n");
        let decisions = self.decisions.count();
        if let Some(mean_ns) = self.decisions.total_ns.checked_div(decisions) {
            let max_ns = self.decisions.max_ns;
            let _ = writeln!(
                text,
                "decisions: {decisions}, {mean_ns} ns in the mean, the longest {max_ns} ns"
            );
        }
        if self.vcpus.is_empty() {
            return text;
        }
        let _ = writeln!(
            text,
            "{:<16} {:>4} {:>8} {:>16} {:>12} {:>12} {:>9} {:>9} {:>9} {:>10}",
            "VM",
            "VCPU",
            "thread",
            "budget/period us",
            "used ms",
            "throttled ms",
            "throttles",
            "preempted",
            "migrated",
            "overrun us"
        );
        for vcpu in &self.vcpus {
            let share = format!("{}/{}", vcpu.budget_ns / 1000, vcpu.period_ns / 1000);
            let ms = |ns: u64| ns as f64 / 1e6;
            let _ = writeln!(
                text,
                "{:<16} {:>4} {:>8} {share:>16} {:>12.1} {:>12.1} {:>9} {:>9} {:>9} {:>10}",
                vcpu.vm,
                vcpu.vcpu,
                vcpu.tid,
                ms(vcpu.used_ns),
                ms(vcpu.throttled_ns),
                vcpu.throttles,
                vcpu.preemptions,
                vcpu.migrations,
                vcpu.overrun_ns / 1000
            );
        }
        text
    }

    /// `OpenMetrics` text, to be served or written for a collector.
    pub fn open_metrics(&self) -> String {
        type Value = fn(&VcpuStanding) -> f64;
        let counters: [(&str, &str, Value); 5] = [
            ("used_seconds", "CPU time used by a VCPU.", |v| {
                v.used_ns as f64 / 1e9
            }),
            (
                "throttled_seconds",
                "Time that a VCPU had work and no budget.",
                |v| v.throttled_ns as f64 / 1e9,
            ),
            ("throttles", "How often a VCPU ran out of budget.", |v| {
                v.throttles as f64
            }),
            (
                "preemptions",
                "How often a VCPU stopped with work and budget.",
                |v| v.preemptions as f64,
            ),
            ("migrations", "How often a VCPU changed its CPU.", |v| {
                v.migrations as f64
            }),
        ];
        let gauges: [(&str, &str, Value); 2] = [
            (
                "budget_seconds",
                "What a VCPU may use in each period.",
                |v| v.budget_ns as f64 / 1e9,
            ),
            ("period_seconds", "A VCPU's period.", |v| {
                v.period_ns as f64 / 1e9
            }),
        ];
        let mut text = String::new();
        let mut family = |name: &str, help: &str, kind: &str, suffix: &str, value: Value| {
            let _ = writeln!(text, "# HELP steadyvm_vcpu_{name} {help}");
            let _ = writeln!(text, "# TYPE steadyvm_vcpu_{name} {kind}");
            for vcpu in &self.vcpus {
                let vm = vcpu
                    .vm
                    .replace('\\', "\\\\")
                    .replace('"', "\\\"")
                    .replace('\n', "\\n");
                let number = vcpu.vcpu;
                let value = value(vcpu);
                let _ = writeln!(
                    text,
                    "steadyvm_vcpu_{name}{suffix}{{vm=\"{vm}\",vcpu=\"{number}\"}} {value}"
                );
            }
        };
        for (name, help, value) in counters {
            family(name, help, "counter", "_total", value);
        }
        for (name, help, value) in gauges {
            family(name, help, "gauge", "", value);
        }
        self.decision_metrics(&mut text);
        let _ = writeln!(
            text,
            "# HELP steadyvm_sched_attached Whether budgets are enforced."
        );
        let _ = writeln!(text, "# TYPE steadyvm_sched_attached gauge");
        let _ = writeln!(text, "steadyvm_sched_attached {}", u8::from(self.attached));
        text.push_str("# EOF\n");
        text
    }

    /// A histogram: each step with all that are shorter.
    fn decision_metrics(&self, text: &mut String) {
        const NAME: &str = "steadyvm_sched_decision_seconds";
        let (decisions, count) = (&self.decisions, self.decisions.count());
        let _ = writeln!(text, "# HELP {NAME} Time that a scheduling decision took.");
        let _ = writeln!(text, "# TYPE {NAME} histogram");
        let mut below = 0;
        for (end_ns, count) in &decisions.up_to_ns {
            below += count;
            let end_s = *end_ns as f64 / 1e9;
            let _ = writeln!(text, "{NAME}_bucket{{le=\"{end_s}\"}} {below}");
        }
        let _ = writeln!(text, "{NAME}_bucket{{le=\"+Inf\"}} {count}");
        let _ = writeln!(text, "{NAME}_sum {}", decisions.total_ns as f64 / 1e9);
        let _ = writeln!(text, "{NAME}_count {count}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn standing() -> Standing {
        Standing {
            schema_version: 1,
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
                throttled_ns: 250_000_000,
                throttles: 3,
                preemptions: 4,
                migrations: 5,
                dispatches: 6,
                overrun_ns: 7000,
                cpu: 0,
            }],
        }
    }

    #[test]
    fn open_metrics_ends_with_its_mark_and_escapes_names() {
        let text = standing().open_metrics();
        assert!(
            text.contains("steadyvm_vcpu_used_seconds_total{vm=\"a\\\"b\",vcpu=\"1\"} 1.5\n"),
            "{text}"
        );
        assert!(text.contains("# TYPE steadyvm_vcpu_budget_seconds gauge\n"));
        assert!(text.contains("steadyvm_sched_attached 1\n"));
        assert!(text.ends_with("# EOF\n"));
    }

    #[test]
    fn decisions_are_a_histogram_of_all_that_are_shorter() {
        let text = standing().open_metrics();
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
        assert!(table.contains("decisions: 4, 900 ns in the mean, the longest 1500 ns"));
    }

    #[test]
    fn a_step_ends_where_the_next_begins() {
        // As `decided` counts: the eighths of each power of two.
        let step = |ns: u64| match ns.checked_ilog2() {
            Some(top) if top >= 3 => ((top - 2) * 8) as usize + (ns >> (top - 3) & 7) as usize,
            _ => ns as usize,
        };
        for ns in (0..5000).chain([u64::from(u32::MAX), 1 << 40, u64::MAX - 1]) {
            let (of, next) = (step(ns), step(ns + 1));
            assert!(ns <= step_end_ns(of), "{ns}");
            assert_eq!(ns == step_end_ns(of), of != next, "{ns}");
        }
    }

    #[test]
    fn cpus_are_counted_together() {
        let mut cpu = Decisions {
            total_ns: 30,
            longest_ns: 20,
            count: [0; DECISION_STEPS],
        };
        cpu.count[8] = 2;
        let both = DecisionTimes::of(&[cpu.clone(), cpu]);
        assert_eq!(both.up_to_ns, [(8, 4)]);
        assert_eq!((both.max_ns, both.total_ns, both.count()), (20, 60, 4));
    }

    #[test]
    fn the_table_says_when_nothing_is_enforced() {
        let mut standing = standing();
        assert!(standing.table().contains("4000/10000"));
        standing.attached = false;
        assert!(standing.table().contains("budgets are not enforced"));
    }
}
