//! How the VCPUs stand, as `OpenMetrics` text.

use crate::show::{GuestReport, Standing, VcpuStanding};
use std::collections::BTreeMap;
use std::fmt::Write as _;

impl Standing {
    /// `OpenMetrics` text, to be served or written for a collector.
    pub fn open_metrics(&self) -> String {
        let mut text = String::new();
        for (name, help, kind, value) in METRICS {
            let mut samples = String::new();
            let suffix = if *kind == "counter" { "_total" } else { "" };
            for vcpu in &self.vcpus {
                let Some(value) = value(vcpu) else { continue };
                let vm = escape(&vcpu.vm);
                let number = vcpu.vcpu;
                let _ = writeln!(
                    samples,
                    "steadyvm_vcpu_{name}{suffix}{{vm=\"{vm}\",vcpu=\"{number}\"}} {value}"
                );
            }
            // Without a VCPU, too: which families there are does not change with VMs that come and go.
            if !samples.is_empty() || self.vcpus.is_empty() {
                let _ = writeln!(text, "# HELP steadyvm_vcpu_{name} {help}");
                let _ = writeln!(text, "# TYPE steadyvm_vcpu_{name} {kind}");
                text.push_str(&samples);
            }
        }
        self.guest_metrics(&mut text);
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

    /// Of VMs, not of VCPUs.
    fn guest_metrics(&self, text: &mut String) {
        type Value = fn(&GuestReport) -> u64;
        let reports: BTreeMap<&str, GuestReport> = self
            .vcpus
            .iter()
            .filter_map(|vcpu| Some((vcpu.vm.as_str(), vcpu.guest?)))
            .collect();
        let families: [(&str, &str, Value); 2] = [
            ("jobs", "Jobs that a guest reports as done.", |it| it.jobs),
            (
                "misses",
                "Jobs that a guest reports as done after their deadline.",
                |it| it.misses,
            ),
        ];
        for (name, help, value) in families {
            if reports.is_empty() {
                continue;
            }
            let _ = writeln!(text, "# HELP steadyvm_guest_{name} {help}");
            let _ = writeln!(text, "# TYPE steadyvm_guest_{name} counter");
            for (vm, report) in &reports {
                let (vm, value) = (escape(vm), value(report));
                let _ = writeln!(text, "steadyvm_guest_{name}_total{{vm=\"{vm}\"}} {value}");
            }
        }
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

/// A label's value: `\`, `"` and line feeds are written by two characters.
fn escape(value: &str) -> String {
    value
        .replace('\\', "\\\\")
        .replace('"', "\\\"")
        .replace('\n', "\\n")
}

/// Of a VCPU: name, help, type, value.
type Metric = (
    &'static str,
    &'static str,
    &'static str,
    fn(&VcpuStanding) -> Option<f64>,
);

fn seconds(ns: u64) -> f64 {
    ns as f64 / 1e9
}

const METRICS: &[Metric] = &[
    ("used_seconds", "CPU time used by a VCPU.", "counter", |v| {
        Some(seconds(v.used_ns))
    }),
    (
        "throttled_seconds",
        "Time that a VCPU had work and no budget.",
        "counter",
        |v| v.throttled_ns.map(seconds),
    ),
    (
        "waited_seconds",
        "Time that a VCPU had work and no CPU, with budget or without.",
        "counter",
        |v| v.waited_ns.map(seconds),
    ),
    (
        "throttles",
        "How often a VCPU ran out of budget.",
        "counter",
        |v| v.throttles.map(|count| count as f64),
    ),
    (
        "preemptions",
        "How often a VCPU stopped with work.",
        "counter",
        |v| Some(v.preemptions as f64),
    ),
    (
        "migrations",
        "How often a VCPU changed its CPU.",
        "counter",
        |v| Some(v.migrations as f64),
    ),
    (
        "periods",
        "Periods of a VCPU's budget that have ended.",
        "counter",
        |v| v.periods.map(|count| count as f64),
    ),
    (
        "short_periods",
        "Periods that did not give a VCPU with work its budget.",
        "counter",
        |v| v.short_periods.map(|count| count as f64),
    ),
    (
        "unexplained_periods",
        "Periods in which a VCPU used more than was granted and is owed: a fault.",
        "counter",
        |v| v.unexplained_periods.map(|count| count as f64),
    ),
    (
        "budget_seconds",
        "What a VCPU may use in each period.",
        "gauge",
        |v| Some(seconds(v.budget_ns)),
    ),
    ("period_seconds", "A VCPU's period.", "gauge", |v| {
        Some(seconds(v.period_ns))
    }),
    (
        "period_used_seconds",
        "What a VCPU has used in its period.",
        "gauge",
        |v| v.period_used_ns.map(seconds),
    ),
    (
        "last_period_used_seconds",
        "What a VCPU used in the period before.",
        "gauge",
        |v| v.last_period_used_ns.map(seconds),
    ),
];

#[cfg(test)]
mod tests {
    use crate::show::tests::standing;

    #[test]
    fn open_metrics_ends_with_its_mark_and_escapes_names() {
        let text = standing().open_metrics();
        assert!(
            text.contains("steadyvm_vcpu_used_seconds_total{vm=\"a\\\"b\",vcpu=\"1\"} 1.5\n"),
            "{text}"
        );
        assert!(text.contains("# TYPE steadyvm_vcpu_budget_seconds gauge\n"));
        assert!(
            text.contains("steadyvm_vcpu_period_used_seconds{vm=\"a\\\"b\",vcpu=\"1\"} 0.001234\n")
        );
        assert!(text.contains("steadyvm_guest_misses_total{vm=\"a\\\"b\"} 2\n"));
        // What is not counted has no family, and a family is told once.
        assert!(!text.contains("waited"));
        let mut seen = std::collections::BTreeSet::new();
        for family in text.lines().filter_map(|line| line.strip_prefix("# TYPE ")) {
            assert!(seen.insert(family), "{family} twice");
        }
        assert!(text.contains("steadyvm_sched_attached 1\n"));
        assert!(text.ends_with("# EOF\n"));
    }
}
