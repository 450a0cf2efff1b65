//! The experiment of RTCA in the emulated host, short. It needs root and what `steadyvm-lab prepare`
//! builds: `make lab-tests` runs it.

use crate::support::footprint::{Footprint, wait_until_gone};
use std::path::Path;
use std::process::Command;
use steadyvm_experiment::engine::results::{At, Record, from_json_of};
use steadyvm_experiment::rtca::{ENDPOINTS, NAME, required};
use steadyvm_experiment::testbed::{Endpoints, Interference};

const SAMPLES: u64 = 30;

/// Runs the experiment with one short round.
fn run(endpoints: &str, methods: &str, out: &Path) -> Record {
    let before = Footprint::now();
    let done = Command::new(env!("CARGO_BIN_EXE_steadyvm-lab"))
        .args(["experiment", "rtca", "--json", "--rounds", "1"])
        .args(["--stream-s", "1", "--samples", &SAMPLES.to_string()])
        .args(["--endpoints", endpoints, "--methods", methods, "--out"])
        .arg(out)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success(), "{said}\n{}", states(out));
    wait_until_gone(&before);
    let json = String::from_utf8(done.stdout.clone()).unwrap();
    let results = from_json_of(&json, NAME, required).unwrap();
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
fn require_figures(results: &Record, names: &[&str]) {
    assert_eq!(results.rows, names);
    assert_eq!(results.cells, Interference::ALL.map(Interference::key));
    for (name, level) in results.places() {
        require_level(results.at(name, level));
    }
}

fn require_level(at: At) {
    let what = || format!("{}: {:?}", at.row, at.figures().collect::<Vec<_>>());
    let n = at.count("n");
    assert_eq!(n + at.count("lost"), SAMPLES, "{}", what());
    assert!(n > 0 && at.value("median").unwrap() > 0.0, "{}", what());
    assert!(at.value("p95") >= at.value("median"), "{}", what());
    assert!(at.value("throughput").unwrap() > 0.0, "{}", what());
    let is_base = at.cell == Interference::Base.key();
    assert_eq!(at.ratio("median").is_none(), is_base, "{}", what());
    // A few packets of their kernels' own come at any time.
    let others = at.value("others.round_trips").unwrap();
    assert_eq!(others < 100.0, is_base, "{}", what());
    for name in ["cpu_busy.round_trips", "cpu_busy.stream"] {
        let busy = at.value(name).unwrap();
        assert!(busy > 0.0 && busy <= 1.0, "{}", what());
    }
}

#[test]
#[ignore = "needs the lab: make lab-tests"]
fn between_namespaces_every_method_and_batch_is_measured() {
    let out = tempfile::tempdir().unwrap();
    let names = ["vanilla", "rt-poll-list:1", "rt-poll-list:64"];
    let results = run("namespaces", &names.join(","), out.path());
    assert_eq!(results.setting(ENDPOINTS), Some(Endpoints::Namespaces));
    require_figures(&results, &names);
}

#[test]
#[ignore = "needs the lab: make lab-tests"]
fn between_vms_every_level_is_measured() {
    let out = tempfile::tempdir().unwrap();
    let names = ["rt-poll-list:1", "rt-poll-list:64"];
    let results = run("vms", &names.join(","), out.path());
    assert_eq!(results.setting(ENDPOINTS), Some(Endpoints::Vms));
    require_figures(&results, &names);
}
