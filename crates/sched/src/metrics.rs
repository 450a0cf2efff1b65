//! How the VCPUs stand, as metrics for a collector.

use crate::exposition::{Exposition, Format, Kind, labels};
use crate::show::{GuestReport, Standing, VcpuStanding};
use std::collections::BTreeMap;

impl Standing {
    /// Text to be served or written for a collector.
    pub fn metrics(&self, format: Format) -> String {
        let mut text = Exposition::new(format);
        for (name, help, kind, value) in METRICS {
            let sample = |vcpu: &VcpuStanding| {
                let number = vcpu.vcpu.to_string();
                Some((labels(&[("vm", &vcpu.vm), ("vcpu", &number)]), value(vcpu)?))
            };
            let samples: Vec<_> = self.vcpus.iter().filter_map(sample).collect();
            // Without a VCPU, too: which families there are does not change with VMs that come and go.
            if !samples.is_empty() || self.vcpus.is_empty() {
                text.family(&format!("steadyvm_vcpu_{name}"), help, *kind, &samples);
            }
        }
        self.guest_metrics(&mut text);
        self.decision_metrics(&mut text);
        let attached = (String::new(), f64::from(u8::from(self.attached)));
        let help = "Whether budgets are enforced.";
        text.family("steadyvm_sched_attached", help, Kind::Gauge, &[attached]);
        text.finish()
    }

    /// Of VMs, not of VCPUs.
    fn guest_metrics(&self, text: &mut Exposition) {
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
            let samples: Vec<_> = reports
                .iter()
                .map(|(vm, report)| (labels(&[("vm", vm)]), value(report) as f64))
                .collect();
            text.family(
                &format!("steadyvm_guest_{name}"),
                help,
                Kind::Counter,
                &samples,
            );
        }
    }

    /// Each step with all that are shorter.
    fn decision_metrics(&self, text: &mut Exposition) {
        let mut below = 0;
        let steps = self.decisions.up_to_ns.iter().map(|(end_ns, count)| {
            below += count;
            (seconds(*end_ns), below)
        });
        let steps: Vec<_> = steps.collect();
        text.histogram(
            "steadyvm_sched_decision_seconds",
            "Time that a scheduling decision took.",
            &steps,
            self.decisions.count(),
            seconds(self.decisions.total_ns),
        );
    }
}

/// Of a VCPU: name, help, kind, value.
type Metric = (
    &'static str,
    &'static str,
    Kind,
    fn(&VcpuStanding) -> Option<f64>,
);

fn seconds(ns: u64) -> f64 {
    ns as f64 / 1e9
}

const METRICS: &[Metric] = &[
    (
        "used_seconds",
        "CPU time used by a VCPU.",
        Kind::Counter,
        |v| Some(seconds(v.used_ns)),
    ),
    (
        "throttled_seconds",
        "Time that a VCPU had work and no budget.",
        Kind::Counter,
        |v| v.throttled_ns.map(seconds),
    ),
    (
        "waited_seconds",
        "Time that a VCPU had work and no CPU, with budget or without.",
        Kind::Counter,
        |v| v.waited_ns.map(seconds),
    ),
    (
        "throttles",
        "How often a VCPU ran out of budget.",
        Kind::Counter,
        |v| v.throttles.map(|count| count as f64),
    ),
    (
        "preemptions",
        "How often a VCPU stopped with work.",
        Kind::Counter,
        |v| Some(v.preemptions as f64),
    ),
    (
        "migrations",
        "How often a VCPU changed its CPU.",
        Kind::Counter,
        |v| Some(v.migrations as f64),
    ),
    (
        "periods",
        "Periods of a VCPU's budget that have ended.",
        Kind::Counter,
        |v| v.periods.map(|count| count as f64),
    ),
    (
        "short_periods",
        "Periods that did not give a VCPU with work its budget.",
        Kind::Counter,
        |v| v.short_periods.map(|count| count as f64),
    ),
    (
        "unexplained_periods",
        "Periods in which a VCPU used more than was granted and is owed: a fault.",
        Kind::Counter,
        |v| v.unexplained_periods.map(|count| count as f64),
    ),
    (
        "budget_seconds",
        "What a VCPU may use in each period.",
        Kind::Gauge,
        |v| Some(seconds(v.budget_ns)),
    ),
    ("period_seconds", "A VCPU's period.", Kind::Gauge, |v| {
        Some(seconds(v.period_ns))
    }),
    (
        "period_used_seconds",
        "What a VCPU has used in its period.",
        Kind::Gauge,
        |v| v.period_used_ns.map(seconds),
    ),
    (
        "last_period_used_seconds",
        "What a VCPU used in the period before.",
        Kind::Gauge,
        |v| v.last_period_used_ns.map(seconds),
    ),
];

#[cfg(test)]
mod tests {
    use crate::exposition::Format;
    use crate::show::tests::standing;

    #[test]
    fn open_metrics_ends_with_its_mark_and_escapes_names() {
        let text = standing().metrics(Format::OpenMetrics);
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
