//! The experiment of RTCA in the emulated host, short. It needs root and what `steadyvm lab prepare`
//! builds: `make lab-tests` runs it.

use crate::support::{Footprint, wait_until_gone};
use std::path::Path;
use std::process::Command;
use steadyvm_experiment::rtca::{Endpoints, Interference, LevelResult, Results};

const SAMPLES: u64 = 30;

/// Runs the experiment with one short round.
fn run(endpoints: &str, methods: &str, out: &Path) -> Results {
    let before = Footprint::now();
    let done = Command::new(env!("CARGO_BIN_EXE_steadyvm"))
        .args(["lab", "experiment", "rtca", "--json", "--rounds", "1"])
        .args(["--stream-s", "1", "--samples", &SAMPLES.to_string()])
        .args(["--endpoints", endpoints, "--methods", methods, "--out"])
        .arg(out)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success(), "{said}\n{}", states(out));
    wait_until_gone(&before);
    let results: Results = serde_json::from_slice(&done.stdout).unwrap();
    assert_eq!(
        std::fs::read(out.join("results.json")).unwrap(),
        done.stdout
    );
    for file in ["meta.json", "report.html", "samples.csv"] {
        assert!(out.join(file).metadata().unwrap().len() > 100, "{file}");
    }
    results
}

/// The states that machines were in when they did not do their work.
fn states(out: &Path) -> String {
    let logs = std::fs::read_dir(out.join("logs")).unwrap();
    logs.map(|log| log.unwrap().path())
        .filter(|path| path.extension().is_some_and(|it| it == "state"))
        .map(|path| std::fs::read_to_string(path).unwrap())
        .collect()
}

/// Every level of every configuration has its figures.
fn require_figures(results: &Results, names: &[&str]) {
    let found = results.configurations.iter().map(|it| &*it.name);
    assert_eq!(found.collect::<Vec<_>>(), names);
    for configuration in &results.configurations {
        let levels = configuration.levels.iter().map(|it| it.interference);
        assert_eq!(levels.collect::<Vec<_>>(), Interference::ALL);
        for level in &configuration.levels {
            require_level(&configuration.name, level);
        }
    }
}

fn require_level(name: &str, level: &LevelResult) {
    let what = || format!("{name}: {level:?}");
    assert_eq!(level.n + level.lost, SAMPLES, "{}", what());
    assert!(level.n > 0 && level.median_us.unwrap() > 0.0, "{}", what());
    assert!(level.p95_us >= level.median_us, "{}", what());
    assert!(level.mbit_per_s.unwrap() > 0.0, "{}", what());
    let is_base = level.interference == Interference::Base;
    assert_eq!(level.median_to_base.is_none(), is_base, "{}", what());
    // A few packets of their kernels' own come at any time.
    let others = level.round_trips_cost.others_packets_per_s.unwrap();
    assert_eq!(others < 100.0, is_base, "{}", what());
    for cost in [&level.round_trips_cost, &level.stream_cost] {
        let busy = cost.cpu_busy_fraction.unwrap();
        assert!(busy > 0.0 && busy <= 1.0, "{}", what());
    }
}

#[test]
#[ignore = "needs the lab: make lab-tests"]
fn between_namespaces_every_method_and_batch_is_measured() {
    let out = tempfile::tempdir().unwrap();
    let names = ["vanilla", "rt-poll-list:1", "rt-poll-list:64"];
    let results = run("namespaces", &names.join(","), out.path());
    assert_eq!(results.endpoints, Endpoints::Namespaces);
    require_figures(&results, &names);
}

#[test]
#[ignore = "needs the lab: make lab-tests"]
fn between_vms_every_level_is_measured() {
    let out = tempfile::tempdir().unwrap();
    let names = ["rt-poll-list:1", "rt-poll-list:64"];
    let results = run("vms", &names.join(","), out.path());
    assert_eq!(results.endpoints, Endpoints::Vms);
    require_figures(&results, &names);
}
