//! How the VCPUs stand, as JSON, a table or `OpenMetrics` text.

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
    /// VCPUs with a budget.
    pub vcpus: Vec<VcpuStanding>,
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
        let _ = writeln!(
            text,
            "# HELP steadyvm_sched_attached Whether budgets are enforced."
        );
        let _ = writeln!(text, "# TYPE steadyvm_sched_attached gauge");
        let _ = writeln!(text, "steadyvm_sched_attached {}", u8::from(self.attached));
        text.push_str("# EOF\n");
        text
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
    fn the_table_says_when_nothing_is_enforced() {
        let mut standing = standing();
        assert!(standing.table().contains("4000/10000"));
        standing.attached = false;
        assert!(standing.table().contains("budgets are not enforced"));
    }
}
