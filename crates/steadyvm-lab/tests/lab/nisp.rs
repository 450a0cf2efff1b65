//! The experiment of NISP in the emulated host, short. It needs root and what `steadyvm-lab prepare`
//! builds: `make lab-tests` runs it.

use crate::support::footprint::{Footprint, wait_until_gone};
use std::fs;
use std::path::Path;
use std::process::Command;
use steadyvm_experiment::engine::results::{At, from_json_of};
use steadyvm_experiment::nisp::{tcp, udp};

/// Runs the experiment with 20 jobs and gives what it printed, the figures that are in results.json too.
fn run(options: &[&str], out: &Path) -> String {
    let before = Footprint::now();
    let done = Command::new(env!("CARGO_BIN_EXE_steadyvm-lab"))
        .args(["experiment", "nisp", "--jobs", "20", "--json"])
        .args(options)
        .arg("--out")
        .arg(out)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success(), "{said}");
    wait_until_gone(&before);
    assert_eq!(fs::read(out.join("results.json")).unwrap(), done.stdout);
    for file in ["meta.json", "report.html"] {
        assert!(out.join(file).metadata().unwrap().len() > 100, "{file}");
    }
    String::from_utf8(done.stdout).unwrap()
}

fn require_twenty_jobs(at: At, deadlines_ms: [u64; 2]) {
    assert_eq!(at.count("n"), 20);
    for deadline in deadlines_ms {
        let missed = format!("missed_share_{deadline}_ms");
        assert!(at.value(&missed).is_some(), "{missed}");
    }
    assert!(at.value("response_mean").unwrap() > 1000.0, "{at:?}");
}

#[test]
#[ignore = "needs the lab: make lab-tests"]
fn with_udp_every_rate_is_measured() {
    let out = tempfile::tempdir().unwrap();
    let options = ["--rates", "2", "--rounds", "2", "--scale", "50"];
    let said = run(&options, out.path());
    let results = from_json_of(&said, udp::NAME, udp::required).unwrap();
    assert_eq!(results.rounds, 2);
    let us = |key| results.setting::<u64>(key).unwrap();
    assert_eq!((us("execution_us"), us("period_us")), (24_000, 60_000));
    let deadlines_us: Vec<u64> = results.setting("deadlines_us").unwrap();
    assert_eq!(deadlines_us, [32_000, 60_000]);
    assert_eq!(results.rows, ["vanilla", "preempt-rt"]);
    let [alone, rates @ ..] = &results.cells[..] else {
        panic!("{results:?}");
    };
    let peaks = results
        .rows
        .iter()
        .map(|name| results.at(name, alone).value("peak").unwrap());
    let best: f64 = results.setting("peak_packets_per_s").unwrap();
    assert!((peaks.fold(0.0, f64::max) - best).abs() < f64::EPSILON);
    let asked: Vec<f64> = results.setting("asked_packets_per_s").unwrap();
    assert!(asked.len() == 3 && asked[1] < asked[2], "{asked:?}");
    for (index, name) in results.rows.iter().enumerate() {
        let without_jobs = results.at(name, alone);
        assert!(without_jobs.value("received").unwrap() > 0.0, "{name}");
        assert_eq!(without_jobs.rounds("received").len(), 2, "{name}");
        assert_eq!(
            without_jobs.ratio("received").is_some(),
            index > 0,
            "{name}"
        );
        // More may be received at half of the peak than at all of it, next to the jobs.
        let unloaded = results.at(name, &rates[0]);
        assert!(unloaded.value("received").unwrap() < f64::EPSILON, "{name}");
        // A job was calibrated to take 24 ms, half of what it takes if no scale is asked for.
        let response_us = unloaded.value("response_mean").unwrap();
        assert!((18e3..36e3).contains(&response_us), "{name}: {response_us}");
        for rate in &rates[1..] {
            let point = results.at(name, rate);
            assert!(point.value("received").unwrap() > 0.0, "{name}, {rate}");
            assert!(point.value("sent").unwrap() > 0.0, "{name}, {rate}");
            assert!(point.ratio("jitter_sd").is_some(), "{name}, {rate}");
            assert!(point.ratio("response_mean").is_some(), "{name}, {rate}");
            assert_eq!(
                point.ratio("received").is_some(),
                index > 0,
                "{name}, {rate}"
            );
        }
        for rate in rates {
            let point = results.at(name, rate);
            require_twenty_jobs(point, [32, 60]);
            assert_eq!(point.rounds("received").len(), 2, "{name}, {rate}");
        }
    }
    // Twenty jobs a method and rate.
    let samples = fs::read_to_string(out.path().join("samples.csv")).unwrap();
    assert_eq!(samples.lines().count(), 1 + 2 * 3 * 20);
}

#[test]
#[ignore = "needs the lab: make lab-tests"]
fn with_tcp_every_phase_is_measured() {
    let out = tempfile::tempdir().unwrap();
    let options = ["--protocol", "tcp", "--rounds", "1", "--stream-s", "2"];
    let said = run(&[&options[..], &["--scale", "100"]].concat(), out.path());
    let results = from_json_of(&said, tcp::NAME, tcp::required).unwrap();
    assert_eq!(results.rounds, 1);
    assert_eq!(results.rows, ["vanilla", "preempt-rt"]);
    for name in &results.rows {
        for jobs in ["unloaded", "loaded"] {
            require_twenty_jobs(results.at(name, jobs), [16, 30]);
        }
        for phase in ["before", "during", "after"] {
            let stream = results.at(name, phase);
            assert!(stream.value("throughput").unwrap() > 0.0, "{name}, {phase}");
            assert!(stream.count("segments") > 0, "{name}, {phase}");
        }
        let after = results.at(name, "after").ratio("throughput");
        assert!(after.is_some(), "{name}");
        let first = results.at(name, "first second after");
        assert!(first.value("throughput").unwrap() > 0.0, "{name}");
    }
    let text = |file: &str| fs::read_to_string(out.path().join(file)).unwrap();
    // Twice twenty jobs a method.
    assert_eq!(text("samples.csv").lines().count(), 1 + 80);
    let stream = text("stream.csv");
    let parts: Vec<Vec<&str>> = stream
        .lines()
        .map(|line| line.split(',').collect())
        .collect();
    // Two seconds before, the jobs' time, two seconds after.
    assert_eq!(parts.len(), 1 + 10, "{stream}");
    for part in &parts[1..] {
        // A sink that only answers when its stream pauses would make them many times as long.
        let duration_s: f64 = part[4].parse().unwrap();
        assert!(duration_s < 3.0, "{stream}");
    }
}
