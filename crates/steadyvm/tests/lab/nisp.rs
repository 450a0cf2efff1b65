//! The experiment of NISP in the emulated host, short. It needs root and what `steadyvm lab prepare`
//! builds: `make lab-tests` runs it.

use crate::support::{Footprint, wait_until_gone};
use std::fs;
use std::path::Path;
use std::process::Command;
use steadyvm_experiment::nisp::{tcp, udp};
use steadyvm_load::job::Punctuality;

/// Runs the experiment with 20 jobs and gives what it printed, the figures that are in results.json too.
fn run(options: &[&str], out: &Path) -> Vec<u8> {
    let before = Footprint::now();
    let done = Command::new(env!("CARGO_BIN_EXE_steadyvm"))
        .args(["lab", "experiment", "nisp", "--jobs", "20", "--json"])
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
    done.stdout
}

fn require_twenty_jobs(punctuality: &Punctuality) {
    assert_eq!(punctuality.jobs, 20);
    assert_eq!(punctuality.miss_ratios.len(), 2);
    assert!(punctuality.response_mean_us > 1000.0, "{punctuality:?}");
}

#[test]
#[ignore = "needs the lab: make lab-tests"]
fn with_udp_every_rate_is_measured() {
    let out = tempfile::tempdir().unwrap();
    let options = ["--rates", "2", "--rounds", "2", "--scale", "50"];
    let said = run(&options, out.path());
    let results: udp::Results = serde_json::from_slice(&said).unwrap();
    assert_eq!(results.rounds, 2);
    assert_eq!((results.execution_us, results.period_us), (24_000, 60_000));
    assert_eq!(results.deadlines_us, [32_000, 60_000]);
    let names: Vec<&str> = results.methods.iter().map(|method| &*method.name).collect();
    assert_eq!(names, ["vanilla", "preempt-rt"]);
    let peaks = results.methods.iter().map(|it| it.peak_packets_per_s);
    assert!((peaks.fold(0.0, f64::max) - results.peak_packets_per_s).abs() < f64::EPSILON);
    for (index, method) in results.methods.iter().enumerate() {
        assert!(method.alone_packets_per_s > 0.0, "{method:?}");
        assert_eq!(method.rounds_alone_packets_per_s.len(), 2, "{method:?}");
        assert_eq!(method.alone_to_first.is_some(), index > 0, "{method:?}");
        // More may be received at half of the peak than at all of it, next to the jobs.
        let [unloaded, half, full] = &method.points[..] else {
            panic!("{method:?}");
        };
        assert!(
            unloaded.received_packets_per_s < f64::EPSILON,
            "{unloaded:?}"
        );
        // A job was calibrated to take 24 ms, half of what it takes if no scale is asked for.
        let response_us = unloaded.jobs.punctuality.response_mean_us;
        assert!((18e3..36e3).contains(&response_us), "{unloaded:?}");
        assert!(half.asked_packets_per_s < full.asked_packets_per_s);
        for point in [half, full] {
            assert!(point.received_packets_per_s > 0.0, "{point:?}");
            assert!(point.sent_packets_per_s > 0.0, "{point:?}");
            assert!(point.jitter_sd_to_unloaded.is_some(), "{point:?}");
            assert!(point.response_mean_to_unloaded.is_some(), "{point:?}");
            assert_eq!(point.received_to_first.is_some(), index > 0, "{point:?}");
        }
        for point in &method.points {
            require_twenty_jobs(&point.jobs.punctuality);
            assert_eq!(point.rounds_received_packets_per_s.len(), 2, "{point:?}");
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
    let results: tcp::Results = serde_json::from_slice(&said).unwrap();
    assert_eq!(results.rounds, 1);
    let names: Vec<&str> = results.methods.iter().map(|method| &*method.name).collect();
    assert_eq!(names, ["vanilla", "preempt-rt"]);
    for method in &results.methods {
        for jobs in [&method.unloaded, &method.loaded] {
            require_twenty_jobs(&jobs.punctuality);
        }
        for stream in [&method.before, &method.during, &method.after] {
            assert!(stream.mbit_per_s.unwrap() > 0.0, "{method:?}");
            assert!(stream.segments.segments > 0, "{method:?}");
        }
        assert!(method.after_to_before.is_some(), "{method:?}");
        assert!(method.first_second_mbit_per_s.unwrap() > 0.0, "{method:?}");
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
