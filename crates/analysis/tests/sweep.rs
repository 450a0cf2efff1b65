//! Many plans at once: a field over a range, random task sets, several hosts.
#![allow(clippy::unwrap_used)]

use steadyvm_analysis::plan::{
    Measured, cluster, file, random, run,
    sweep::{self, Axis},
};

const WEB: &str = "[host]\npcpus = 1\nscheduler = \"pedf\"\n[[vm]]\nname = \"web\"\nperiod = \"1ms\"\n\
                   tasks = [ { name = \"x\", c = \"2ms\", t = \"10ms\" } ]\n\
                   [[service]]\nvm = \"web\"\ntask = \"x\"\nlimit = \"8ms\"\n";

/// What is measured counts in each point as in the plan of a file, and what is written wins.
#[test]
fn a_sweep_counts_measured_costs_as_a_plan_does() {
    let measured = Measured {
        context_switch: Some(20_000),
        cache_reload: Some(50_000),
        ..Measured::default()
    };
    let axis = Axis::parse("vm.web.period=2ms..6ms/2ms").unwrap();
    for (written, differs) in [
        ("", true),
        (
            "[host.overheads]\ncontext_switch = \"0ns\"\ncache_reload = \"0ns\"\n",
            false,
        ),
    ] {
        let text = WEB.replace("[[vm]]", &format!("{written}[[vm]]"));
        let points = sweep::run(&text, &axis, &measured).unwrap();
        let without = sweep::run(&text, &axis, &Measured::default()).unwrap();
        for (point, without) in points.iter().zip(&without) {
            let by_hand = text.replace(
                "period = \"1ms\"",
                &format!("period = \"{}ns\"", point.value),
            );
            let by_hand = steadyvm_config::File::parse("", &by_hand).unwrap();
            let by_hand = run(&file::of_measured(&by_hand, None, &measured).unwrap()).unwrap();
            assert_eq!(point.plan.vms, by_hand.vms);
            assert_eq!(point.plan.services, by_hand.services);
            assert_eq!(point.plan.vms != without.plan.vms, differs);
        }
    }
}

/// Each point is the plan of the file with that value, and the curves have the values.
#[test]
fn a_sweep_plans_every_value() {
    let axis = Axis::parse("vm.web.period=1ms..9ms/1ms").unwrap();
    let points = sweep::run(WEB, &axis, &Measured::default()).unwrap();
    assert_eq!(points.len(), 9);
    for point in &points {
        let by_hand = WEB.replace(
            "period = \"1ms\"",
            &format!("period = \"{}ns\"", point.value),
        );
        let by_hand = run(&file::parse(&by_hand).unwrap()).unwrap();
        assert_eq!(point.plan.vms, by_hand.vms, "{}", point.shown);
        assert_eq!(point.plan.feasible, by_hand.feasible);
        assert_eq!(point.plan.services, by_hand.services);
    }
    // A longer period costs more, until no budget does.
    let budgets: Vec<f64> = (points.iter())
        .map(|point| point.plan.cpus[0].utilization)
        .collect();
    assert!(budgets[0] < budgets[4], "{budgets:?}");
    let (text, csv, svg) = (
        sweep::text(&axis, &points),
        sweep::csv(&axis, &points),
        sweep::svg(&axis, &points),
    );
    assert!(
        text.contains("1 ms") && text.lines().count() == 10,
        "{text}"
    );
    assert!(
        csv.starts_with("vm.web.period,feasible,cpus,min_pcpus,x bound_ns\n1000000,true,"),
        "{csv}"
    );
    assert_eq!(csv.lines().count(), 10);
    assert_eq!(svg.matches("<circle").count(), 9);
}

#[test]
fn sweeps_of_what_is_not_there_are_errors() {
    for (axis, word) in [
        ("vm.web.period", "there is no ="),
        ("vm.web.period=1ms", "there is no .."),
        ("vm.web.period=1ms..2ms", "there is no /STEP"),
        ("vm.web.period=5ms..2ms/1ms", "must not exceed"),
        ("vm.web.period=1ns..2s/1ns", "10000 values"),
        ("vm.web.period=a..b/c", "a time such as"),
        ("host.pcpus=1..9223372036854775807/1", "10000 values"),
    ] {
        let error = Axis::parse(axis).unwrap_err().to_string();
        assert!(error.contains(word), "{axis}: {error}");
    }
    for (axis, word) in [
        ("vm.other.period=1..2/1", "no such part"),
        ("vm.web.perod=1..2/1", "unknown field"),
        ("period=1..2/1", "begin with host"),
        ("host.pcpus=0..2/1", "between 1 and"),
    ] {
        let axis = Axis::parse(axis).unwrap();
        let error = sweep::run(WEB, &axis, &Measured::default())
            .unwrap_err()
            .to_string();
        assert!(error.contains(word), "{axis:?}: {error}");
    }
}

/// The dissertation's order (Figure 3.5): partitioned host and guest best, global ones worst; the mean bandwidth of
/// gEDF guests is above that of pEDF ones (Figure 3.7). The same seed gives the same.
#[test]
fn acceptance_curves_have_the_dissertations_order() {
    let text = include_str!("../../../examples/random.toml")
        .replace("sets = 25", "sets = 4")
        .replace("step = 0.2", "step = 0.6");
    let wanted = random::Random::of(&text).unwrap();
    let curves = random::run(&text, &wanted).unwrap();
    let again = random::run(&text, &wanted).unwrap();
    assert_eq!(random::csv(&curves), random::csv(&again));
    let sum = |column: usize| {
        curves
            .rows
            .iter()
            .map(|row| row.accepted[column])
            .sum::<u32>()
    };
    let (best, worst) = (sum(0), sum(3));
    assert!(
        best > sum(1) && best > sum(2) && best > worst,
        "{}",
        random::text(&curves)
    );
    assert!(worst <= sum(1) && worst <= sum(2) && worst > 0);
    for row in curves.rows.iter().filter(|row| row.utilization > 2.0) {
        let (pedf, gedf) = (
            row.mean_bandwidth[0].unwrap(),
            row.mean_bandwidth[2].unwrap(),
        );
        assert!(row.utilization < pedf && pedf <= gedf, "{row:?}");
    }
    let last = &curves.rows.last().unwrap().mean_bandwidth;
    assert!(last[2].unwrap() > 1.1 * last[0].unwrap(), "{last:?}");
    assert_eq!(random::svg(&curves).matches("<polyline").count(), 4);
    assert_eq!(random::csv(&curves).lines().count(), 8);
}

#[test]
fn uunifast_sets_have_their_utilisation() {
    let text = "sets = 3\ntasks = 8\nvms = 2\nfrom = 1.0\n\
                to = 3.0\nstep = 1.0\nperiods = { from = \"10ms\", to = \"100ms\" }\nvcpu_periods = [\"1ms\", \"2ms\"]\n\
                columns = [ { host = \"pedf\", guest = \"pedf\", interface = \"prm\" } ]\n[host]\npcpus = 4\n";
    let wanted = random::Random::of(text).unwrap();
    let curves = random::run(text, &wanted).unwrap();
    assert_eq!(curves.rows.len(), 3);
    for row in &curves.rows {
        let mean = row.mean_bandwidth[0].unwrap();
        assert!(
            mean > row.utilization * 0.999 && mean < row.utilization * 1.5,
            "{row:?}"
        );
    }
    for (change, word) in [
        ("tasks = 8", "uunifast needs tasks"),
        ("step = 1.0", "missing field `step`"),
        ("to = 3.0", "missing field `to`"),
    ] {
        let error = random::Random::of(&text.replace(change, ""))
            .unwrap_err()
            .to_string();
        assert!(error.contains(word), "{change}: {error}");
    }
    // The host's file is none of random sets.
    let error = random::Random::of(WEB).unwrap_err().to_string();
    assert!(error.contains("unknown field"), "{error}");
}

/// Worst fit: the roomiest host with the memory. What no host takes is named, with why.
#[test]
fn a_cluster_says_which_host_takes_which_vm() {
    let text = include_str!("../../../examples/cluster.toml");
    assert!(cluster::is_cluster(text) && !cluster::is_cluster(WEB));
    let report = cluster::run(text).unwrap();
    assert!(report.feasible, "{report:?}");
    let vms: Vec<Vec<&str>> = (report.hosts.iter())
        .map(|host| host.vms.iter().map(String::as_str).collect())
        .collect();
    // video comes at a tie, and only rack1 has the memory; then rack2 has most CPU free.
    assert_eq!(vms, [vec!["robot", "video"], vec!["press", "web"], vec![]]);
    let printed = cluster::render(&report, false);
    assert!(
        printed.contains("rack1, 10240 of 12288 MiB: robot, video"),
        "{printed}"
    );
    for host in &report.hosts {
        assert!(host.plan.as_ref().is_none_or(|plan| plan.feasible));
    }
    // With less memory nobody takes video.
    let small = cluster::run(&text.replace("12288", "8192")).unwrap();
    assert!(!small.feasible && small.refused.len() == 1);
    let refused = &small.refused[0];
    assert_eq!(refused.vm, "video");
    assert!(
        refused.why.contains("MiB of memory left"),
        "{}",
        refused.why
    );
    // Nor with too little CPU.
    let full = cluster::run(
        &text
            .replace("6ms", "9.9ms")
            .replace("pcpus = 2", "pcpus = 1"),
    )
    .unwrap();
    assert_eq!(full.refused[0].vm, "video");
    assert!(
        full.refused[0].why.starts_with("host rack"),
        "{}",
        full.refused[0].why
    );
    for (from, to, word) in [
        ("memory_mib = 1024", "memory_mib = \"1G\"", "memory_mib"),
        ("name = \"press\"", "name = \"robot\"", "a name of its own"),
        ("pcpus = 1", "pcpu = 1", "host rack3"),
    ] {
        let text = text.replace(from, to).replace("12288", "4096");
        let error = cluster::run(&text).unwrap_err().to_string();
        assert!(error.contains(word), "{word}: {error}");
    }
}
