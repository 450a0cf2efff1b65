//! How long the `sched_ext` scheduler's decisions take, as VCPUs become more. As `sched.rs`.

use crate::support::sched::Lab;
use serde_json::Value;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::Duration;
use steadyvm_stats::steps::percentile_of_ends;

/// VCPUs. The first number and the last are compared.
const COUNTS: [usize; 3] = [4, 40, 400];
/// Each VCPU's. All together have three quarters of both CPUs, by periods that grow with their number: so as many budgets
/// end in a second with many as with few, and only the queues are longer.
const BUDGET_US: usize = 7_500;
const PERIOD_PER_VCPU_US: usize = 5_000;
const PATIENCE: Duration = Duration::from_secs(300);

/// Steps of a histogram, by their upper ends in ns.
type Histogram = BTreeMap<u64, u64>;

fn histogram(standing: &Value) -> Histogram {
    let steps = standing["decisions"]["up_to_ns"].as_array().unwrap().iter();
    steps
        .map(|step| (step[0].as_u64().unwrap(), step[1].as_u64().unwrap()))
        .collect()
}

fn between(before: &Histogram, after: &Histogram) -> Histogram {
    let new = |(end, count): (&u64, &u64)| (*end, count - before.get(end).unwrap_or(&0));
    after
        .iter()
        .map(new)
        .filter(|(_, count)| *count > 0)
        .collect()
}

/// The decisions of ten seconds in which so many VCPUs compute and run out of budget.
fn decisions(lab: &Lab, count: usize) -> Histogram {
    let none = "[host]\nenforce = \"ext\"\nscheduler = \"gedf\"\n";
    let loader = lab.load(none, "");
    // Nice: until they have budgets they are normal threads, and the program that gives them would be one of 401.
    let words = format!(
        "for i in {{1..{count}}}; do (while :; do :; done) & renice -n 19 $! > /dev/null; done; echo all; wait"
    );
    let connection = lab.host.connection();
    let mut computes = connection.spawn(&["bash", "-c", &words]).unwrap();
    computes.wait_for_line("all", PATIENCE).unwrap();
    let pid = computes.pid();
    let tids = lab.run_first(&format!("pgrep -P {pid}"));
    let (mut config, mut threads) = (none.to_owned(), String::new());
    let period_us = PERIOD_PER_VCPU_US * count;
    let _ = writeln!(
        config,
        "[[vm]]\nname = \"all\"\nbudget = \"{BUDGET_US}us\"\nperiod = \"{period_us}us\""
    );
    for tid in tids.split_whitespace() {
        let _ = write!(threads, " --thread all={tid}");
    }
    lab.apply_first(&config, &threads);
    let first = lab.show();
    assert_eq!(first["vcpus"].as_array().unwrap().len(), count);
    lab.run_first("sleep 10");
    let second = lab.show();
    assert_eq!(second["attached"], true);
    lab.run_first(&format!(
        "steadyvm sched ext stop; pkill -9 -P {pid}; kill -9 {pid}"
    ));
    loader.finish(PATIENCE).unwrap();
    between(&histogram(&first), &histogram(&second))
}

/// At most as the logarithm of their number: the kernel's queues are trees.
#[test]
#[ignore = "needs the lab: make sched-tests"]
fn decisions_grow_no_faster_than_the_logarithm_of_the_vcpus() {
    let lab = Lab::boot("cost");
    let medians = COUNTS.map(|count| {
        let found = decisions(&lab, count);
        let ends: Vec<(u64, u64)> = found.iter().map(|(end, count)| (*end, *count)).collect();
        let of = |percent: f64| percentile_of_ends(&ends, u64::MAX, percent).unwrap();
        eprintln!(
            "{count} VCPUs: n = {}, p50 {} ns, p99 {} ns, longest at most {} ns",
            found.values().sum::<u64>(),
            of(50.0),
            of(99.0),
            of(100.0)
        );
        of(50.0)
    });
    let growth = medians[2] as f64 / medians[0] as f64;
    let most = (COUNTS[2] as f64).ln() / (COUNTS[0] as f64).ln();
    assert!(
        growth <= most,
        "{growth:.2} times, more than {most:.2}: {medians:?}"
    );
}
