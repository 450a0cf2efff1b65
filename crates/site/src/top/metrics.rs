//! A frame as metrics for a collector.

use steadyvm_host::{State, printable};
use steadyvm_sched::exposition::{Exposition, Format, Kind, labels};

use super::frame::{Frame, Group, Sorted, Stage};
use super::starving::starving;
use crate::bounds::Measured;
use crate::checks::Term;

type Value = fn(&Stage) -> Option<f64>;

/// A metric of a thread: name, unit, help, value.
const METRICS: [(&str, &str, Value); 17] = [
    (
        "cpu_ratio",
        "CPU time of a thread over the interval, of one CPU.",
        |stage| Some(stage.cpu_percent? / 100.0),
    ),
    (
        "budget_seconds",
        "CPU time that SCHED_DEADLINE or our sched_ext scheduler gives a thread in each period.",
        |stage| Some(stage.budget?.runtime_us / 1e6),
    ),
    (
        "budget_period_seconds",
        "The period of a thread's budget.",
        |stage| Some(stage.budget?.period_us / 1e6),
    ),
    (
        "budget_used_ratio",
        "How much of its budget a thread used over the interval.",
        |stage| Some(stage.budget?.used_percent? / 100.0),
    ),
    (
        "budget_throttled_seconds",
        "Time so far that a VCPU had work and no budget.",
        |stage| Some(stage.enforced.as_ref()?.throttled_ns? as f64 / 1e9),
    ),
    (
        "budget_throttles",
        "How often so far a VCPU ran out of budget.",
        |stage| Some(stage.enforced.as_ref()?.throttles? as f64),
    ),
    (
        "budget_preemptions",
        "How often so far a VCPU with a budget stopped with work.",
        |stage| Some(stage.enforced.as_ref()?.preemptions as f64),
    ),
    (
        "budget_short_periods",
        "Periods so far that did not give a VCPU with work its budget.",
        |stage| Some(stage.enforced.as_ref()?.short_periods? as f64),
    ),
    (
        "guest_misses",
        "Jobs that the VCPU's guest has reported as done after their deadline.",
        |stage| Some(stage.enforced.as_ref()?.guest?.misses as f64),
    ),
    (
        "others_net_tx",
        "NET_TX softirqs that ran in a thread over the interval, also those that others raised.",
        |stage| Some(stage.others_work?.net_tx as f64),
    ),
    (
        "others_tasklets",
        "Tasklets' softirqs that ran in a thread over the interval, also those that others raised.",
        |stage| Some(stage.others_work?.tasklets as f64),
    ),
    (
        "others_seconds",
        "Time that softirqs but NET_RX took in a thread over the interval.",
        |stage| Some(stage.others_work?.total_us / 1e6),
    ),
    (
        "wake_ups",
        "Wake-ups of a thread in the interval.",
        |stage| Some(stage.wake_up.n as f64),
    ),
    (
        "wake_up_mean_seconds",
        "Mean time from wake-up to running.",
        |stage| Some(stage.wake_up.mean_us? / 1e6),
    ),
    (
        "wake_up_p50_seconds",
        "Median time from wake-up to running.",
        |stage| Some(stage.wake_up.p50_us? / 1e6),
    ),
    (
        "wake_up_p99_seconds",
        "99th percentile of the time from wake-up to running.",
        |stage| Some(stage.wake_up.p99_us? / 1e6),
    ),
    (
        "wake_up_max_seconds",
        "Largest time from wake-up to running.",
        |stage| Some(stage.wake_up.max_us? / 1e6),
    ),
];

/// The text.
pub fn metrics(frame: &Frame, format: Format) -> String {
    let mut text = Exposition::new(format);
    let in_force = &frame.in_force;
    let is_applied = in_force.state == State::Applied;
    let whole: [(&str, &str, Option<f64>); 8] = [
        (
            "in_force",
            "Whether settings are in force.",
            Some(f64::from(u8::from(is_applied))),
        ),
        (
            "settings_holding",
            "Settings that hold.",
            Some(in_force.holding as f64),
        ),
        (
            "settings_drifted",
            "Settings that do not hold or are pending.",
            Some(in_force.drifted as f64),
        ),
        (
            "drifted_since_seconds",
            "When a watch saw drift first, in seconds after 1970.",
            in_force.drifted_since_unix_s.map(|it| it as f64),
        ),
        (
            "watch",
            "Whether a watch keeps the settings in force.",
            Some(f64::from(u8::from(in_force.watch))),
        ),
        (
            "interval_seconds",
            "How long the figures of threads are of.",
            Some(frame.interval_s),
        ),
        (
            "lost_events",
            "Events of tracepoints that were lost so far.",
            Some(frame.lost_events as f64),
        ),
        (
            "own_cpu_ratio",
            "CPU time of the program that made this, of one CPU.",
            frame.own_cpu_percent.map(|own| own / 100.0),
        ),
    ];
    for (name, help, value) in whole {
        if let Some(value) = value {
            let sample = (String::new(), value);
            text.family(&format!("steadyvm_{name}"), help, Kind::Gauge, &[sample]);
        }
    }
    let from = labels(&[("from", frame.wake_ups_from)]);
    text.family(
        "steadyvm_wake_ups_source",
        "Where wake-up times are from: bpf (percentiles less than an eighth too high), tracepoints (exact) or schedstat \
         (means).",
        Kind::Info,
        &[(from, 1.0)],
    );
    starving_metrics(frame, &mut text);
    receive_metrics(frame, &mut text);
    bound_metrics(frame, &mut text);
    check_metrics(frame, &mut text);
    for (name, help, value) in METRICS {
        let mut samples = Vec::new();
        for (kind, groups) in frame.kinds() {
            for group in groups {
                let sample = |stage| Some((labels_of(kind, group, stage), value(stage)?));
                samples.extend(group.stages.iter().filter_map(sample));
            }
        }
        if !samples.is_empty() {
            text.family(
                &format!("steadyvm_thread_{name}"),
                help,
                Kind::Gauge,
                &samples,
            );
        }
    }
    text.finish()
}

fn starving_metrics(frame: &Frame, text: &mut Exposition) {
    let samples: Vec<_> = starving(&frame.vms)
        .into_iter()
        .map(|it| {
            let (vm, by) = (printable(it.vm), printable(it.by));
            (labels(&[("vm", &*vm), ("by", &*by)]), it.cpus as f64)
        })
        .collect();
    if !samples.is_empty() {
        text.family(
            "steadyvm_vm_starving_cpus",
            "CPUs that a VM's VCPUs lose while a VCPU of the other VM computes: that has no budget, and no lower rank.",
            Kind::Gauge,
            &samples,
        );
    }
}

/// A series per thread: the kernel counts from a thread's begin on, and a thread that ends must not make a sum fall, which
/// collectors take for a count that began anew.
fn receive_metrics(frame: &Frame, text: &mut Exposition) {
    let mut samples = Vec::new();
    for vm in &frame.vms {
        let sample = |stage: &Stage| {
            let kind = match stage.stage {
                "vfio" => "irq",
                other => other,
            };
            let (vm, tid) = (printable(&vm.name), stage.tid.to_string());
            let labels = labels(&[("vm", &*vm), ("thread", kind), ("tid", &tid)]);
            Some((labels, stage.receive_cpu_s?))
        };
        samples.extend(vm.stages.iter().filter_map(sample));
    }
    if !samples.is_empty() {
        text.family(
            "steadyvm_vm_receive_cpu_seconds",
            "CPU time of a thread that does a VM's receive work, since it began. A thread that begins anew is a series of \
             its own: take rates before sums.",
            Kind::Counter,
            &samples,
        );
    }
    let sorted = frame.vms.iter().filter_map(|vm| {
        let sorted = vm.receive.as_ref()?.sorted.as_ref()?;
        let labels = labels(&[
            ("vm", &*printable(&vm.name)),
            ("nic", &*printable(&sorted.card)),
        ]);
        Some((labels, sorted))
    });
    let sorted: Vec<(String, &Sorted)> = sorted.collect();
    for (name, help, kind, value) in SORTED {
        let sample = |(labels, sorted): &(String, &Sorted)| Some((labels.clone(), value(sorted)?));
        let samples: Vec<_> = sorted.iter().filter_map(sample).collect();
        if !samples.is_empty() {
            text.family(&format!("steadyvm_vm_card_{name}"), help, kind, &samples);
        }
    }
}

fn bound_metrics(frame: &Frame, text: &mut Exposition) {
    for (name, help, value) in BOUNDS {
        let sample = |it: &Measured| {
            let (file, bound) = (it.file.display().to_string(), &it.bound);
            let labels = labels(&[
                ("service", &*printable(&bound.service)),
                ("vm", &*printable(&bound.vm)),
                ("file", &*printable(&file)),
            ]);
            (labels, value(it))
        };
        let samples: Vec<_> = frame.in_force.measured.iter().map(sample).collect();
        if !samples.is_empty() {
            text.family(
                &format!("steadyvm_service_{name}"),
                help,
                Kind::Gauge,
                &samples,
            );
        }
    }
}

/// What a watch has counted of each term of a bound.
fn check_metrics(frame: &Frame, text: &mut Exposition) {
    let vms = frame.in_force.checks.iter().flat_map(|it| &it.vms);
    let terms: Vec<(String, &Term)> = vms
        .flat_map(|checked| checked.terms.iter().map(move |term| (checked, term)))
        .map(|(checked, term)| {
            let services = checked.services.join(",");
            let labels = labels(&[
                ("vm", &*printable(&checked.vm)),
                ("services", &*printable(&services)),
                ("term", &term.term),
            ]);
            (labels, term)
        })
        .collect();
    for (name, help, value) in TERMS {
        let sample = |(labels, term): &(String, &Term)| Some((labels.clone(), value(term)?));
        let samples: Vec<_> = terms.iter().filter_map(sample).collect();
        if !samples.is_empty() {
            let name = format!("steadyvm_bound_term_{name}");
            text.family(&name, help, Kind::Gauge, &samples);
        }
    }
}

type OfTerm = fn(&Term) -> Option<f64>;

/// Of each term that a watch checks. Counts begin anew with each plan, so they are gauges.
const TERMS: [(&str, &str, OfTerm); 5] = [
    (
        "planned_seconds",
        "The longest that the plan allows.",
        |it| it.planned_ns.map(|ns| ns as f64 / 1e9),
    ),
    (
        "longest_seconds",
        "The longest request that the watch has followed through it.",
        |it| it.longest_ns.map(|ns| ns as f64 / 1e9),
    ),
    (
        "near_ratio",
        "The longest over what is planned: above 1 the bound is broken.",
        |it| it.near,
    ),
    (
        "requests",
        "Requests that the watch has followed through it.",
        |it| Some(it.n as f64),
    ),
    (
        "over",
        "Those of them that took longer than planned.",
        |it| Some(it.over as f64),
    ),
];

type OfBound = fn(&Measured) -> f64;

/// What `measure` found last of a planned service.
const BOUNDS: [(&str, &str, OfBound); 6] = [
    (
        "bound_seconds",
        "The plan's bound of a service when it was measured.",
        |it| it.bound.bound_ns as f64 / 1e9,
    ),
    (
        "longest_seconds",
        "The longest round trip of its last measurement.",
        |it| it.round_trips.longest_ns as f64 / 1e9,
    ),
    (
        "round_trips",
        "Round trips of its last measurement.",
        |it| it.round_trips.answered as f64,
    ),
    (
        "over_bound",
        "Those of them that took longer than the bound.",
        |it| it.round_trips.over as f64,
    ),
    (
        "lost_requests",
        "Requests of its last measurement that had no reply.",
        |it| it.round_trips.lost as f64,
    ),
    (
        "measured_seconds",
        "When it was measured last, in seconds after 1970.",
        |it| it.unix_s as f64,
    ),
];

type OfCard = fn(&Sorted) -> Option<f64>;

/// What a shared card's program counts of a VM.
const SORTED: [(&str, &str, Kind, OfCard); 4] = [
    (
        "packets",
        "Packets to a VM that the XDP program of a shared card has seen.",
        Kind::Counter,
        |it| Some(it.received.packets as f64),
    ),
    ("bytes", "Bytes of these packets.", Kind::Counter, |it| {
        Some(it.received.bytes as f64)
    }),
    (
        "discarded_packets",
        "Packets to a VM that were dropped at the card, since they were over its budget.",
        Kind::Counter,
        |it| Some(it.received.discarded as f64),
    ),
    (
        "poll_cpu_ratio",
        "CPU time of a shared card's polls over the interval by a VM's share of the packets, of one CPU.",
        Kind::Gauge,
        |it| Some(it.poll_percent? / 100.0),
    ),
];

fn labels_of(kind: &str, group: &Group, stage: &Stage) -> String {
    let of = match kind {
        "card" => "nic",
        "VM" => "vm",
        _ => "service",
    };
    labels(&[
        (of, &printable(&group.name)),
        ("stage", stage.stage),
        (
            "number",
            &stage.number.map_or(String::new(), |it| it.to_string()),
        ),
        ("tid", &stage.tid.to_string()),
        ("thread", &printable(&stage.thread)),
        ("rank", &stage.rank),
    ])
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::path::Path;

    use steadyvm_host::Scheduling;

    use super::*;
    use crate::top::text::tests::{frame, sorted};

    /// A word of a file for Prometheus or Grafana that is a metric of ours.
    fn named(text: &str) -> BTreeSet<&str> {
        let words = text.split(|it: char| !it.is_ascii_alphanumeric() && it != '_');
        words.filter(|word| word.starts_with("steadyvm_")).collect()
    }

    #[test]
    fn the_board_and_the_alert_rules_name_metrics_that_there_are() {
        let mut frame = frame();
        // A VM without a budget beside one with a rank and none.
        for (name, scheduling) in [("a", Scheduling::fifo(50, 0)), ("b", Scheduling::normal())] {
            let mut vm = frame.vms[0].clone();
            name.clone_into(&mut vm.name);
            vm.stages[0].scheduling = scheduling;
            frame.vms.push(vm);
        }
        let text = metrics(&frame, Format::Prometheus);
        let told: BTreeSet<&str> = text
            .lines()
            .filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next())
            .collect();
        let packaging = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging");
        for file in [
            "grafana/steadyvm.json",
            "prometheus/steadyvm.rules.yml",
            "prometheus/steadyvm.rules.test.yml",
        ] {
            let text = std::fs::read_to_string(packaging.join(file)).unwrap();
            let named = named(&text);
            assert!(named.len() > 5, "{file}: {named:?}");
            let unknown: Vec<_> = named.difference(&told).collect();
            assert_eq!(unknown, [&""; 0], "{file}");
        }
    }

    #[test]
    fn metrics_are_of_the_format() {
        let text = metrics(&frame(), Format::OpenMetrics);
        let labels = "{service=\"web\",vm=\"we\\\"b\",file=\"/etc/steadyvm.toml\"}";
        for (name, value) in [("bound_seconds", "0.002"), ("over_bound", "3")] {
            let line = format!("steadyvm_service_{name}{labels} {value}\n");
            assert!(text.contains(&line), "{line}: {text}");
        }
        let labels = "{vm=\"we\\\"b\",services=\"web\",term=\"VCPU blackout\"}";
        for (name, value) in [
            ("planned_seconds", "0.001"),
            ("near_ratio", "2.5"),
            ("over", "3"),
        ] {
            let line = format!("steadyvm_bound_term_{name}{labels} {value}\n");
            assert!(text.contains(&line), "{line}: {text}");
        }
        assert!(text.ends_with("# EOF\n"));
        assert!(text.contains("steadyvm_settings_drifted 2\n"));
        let line = "steadyvm_thread_wake_up_p99_seconds{vm=\"we\\\"b\",stage=\"vcpu\",number=\"1\",tid=\"7\",\
                    thread=\"CPU 1/KVM\",rank=\"deadline 4000/10000 us\"} 0.000004\n";
        assert!(text.contains(line), "{text}");
        assert!(
            text.contains("steadyvm_thread_guest_misses{vm=\"we\\\"b\","),
            "{text}"
        );
        let work = "steadyvm_vm_receive_cpu_seconds_total{vm=\"we\\\"b\",thread=\"vhost\",tid=\"8\"} 1.5\n";
        assert!(text.contains(work), "{text}");
        assert_eq!(text.matches("receive_cpu_seconds_total{").count(), 1);
        assert!(!text.contains("steadyvm_vm_card_"), "{text}");
        let mut frame = frame();
        frame.vms[0].receive.as_mut().unwrap().sorted = Some(sorted());
        let of_card = metrics(&frame, Format::OpenMetrics);
        let labels = "{vm=\"we\\\"b\",nic=\"eth0\"}";
        for sample in [
            "packets_total L 70",
            "bytes_total L 4480",
            "discarded_packets_total L 20",
            "poll_cpu_ratio L 0.0125",
        ] {
            let line = format!("steadyvm_vm_card_{}\n", sample.replace(" L", labels));
            assert!(of_card.contains(&line), "{line}: {of_card}");
        }
        assert!(
            text.contains("steadyvm_wake_ups_source_info{from=\"bpf\"} 1\n"),
            "{text}"
        );
        // A family is told once, before its samples.
        let mut seen = BTreeSet::new();
        for family in text.lines().filter_map(|line| line.strip_prefix("# TYPE ")) {
            assert!(seen.insert(family), "{family} twice");
        }
    }
}
