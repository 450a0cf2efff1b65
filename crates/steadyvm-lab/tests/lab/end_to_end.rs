//! The experiment of RTCA's figure 10 in the emulated host, short. It needs root and what `steadyvm-lab prepare`
//! builds: `make program-tests` runs it.

use std::process::{Command, Stdio};
use steadyvm_experiment::engine::latency::required;
use steadyvm_experiment::engine::results::from_json_of;

const JOBS: u64 = 10;

#[test]
#[ignore = "needs the lab: make program-tests"]
fn every_combination_of_scheduling_and_receive_path_is_measured_at_every_level() {
    let out = tempfile::tempdir().unwrap();
    let page = out.path().join("page.md");
    let done = Command::new(env!("CARGO_BIN_EXE_steadyvm-lab"))
        .args(["experiment", "end-to-end", "--json"])
        .args(["--samples", &JOBS.to_string(), "--rounds", "1"])
        .args(["--out", out.path().to_str().unwrap()])
        .args(["--markdown", page.to_str().unwrap()])
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success(), "{said}");
    let json = String::from_utf8(done.stdout).unwrap();
    let results = from_json_of(&json, "end-to-end", required).unwrap();
    assert_eq!((results.rows.len(), results.cells.len()), (6, 4));
    for row in &results.rows {
        for cell in &results.cells {
            let of = |name| results.at(row, cell).figure(name).unwrap();
            assert_eq!(of("misses").n, JOBS, "{row}, {cell}: {said}");
            // Three stages of 20 ms: none can be faster by more than the calibration errs.
            let median_us = of("p50").value.unwrap();
            assert!(median_us > 30_000.0, "{row}, {cell}: {median_us}");
        }
    }
    let page = std::fs::read_to_string(page).unwrap();
    for part in ["RT-Xen + RTCA", "ext, levels", "Heavy"] {
        assert!(page.contains(part), "{part}:\n{page}");
    }
    for file in ["meta.json", "report.html", "samples.csv"] {
        assert!(out.path().join(file).is_file(), "{file}");
    }
}
