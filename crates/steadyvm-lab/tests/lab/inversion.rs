//! The experiment `inversion` in the emulated host: which kernels let a real-time card's packets wait behind another
//! card's preempted poll. As tests/lab.rs; it builds a kernel if there is none: `make program-tests`.

use serde_json::Value;
use std::process::{Command, Stdio};

const BESIDE_THE_SPINNER: &str = "hard interrupt to wake-up, beside a stream and a FIFO 60 thread";

/// A figure's value and n.
fn figure(results: &Value, row: &str, cell: &str, name: &str) -> (f64, u64) {
    let mut figures = results["figures"].as_array().unwrap().iter();
    let found = figures
        .find(|it| it["row"] == row && it["cell"] == cell && it["name"] == name)
        .unwrap_or_else(|| panic!("no {name} of {row}: {results}"));
    (
        found["value"].as_f64().unwrap(),
        found["n"].as_u64().unwrap(),
    )
}

#[test]
#[ignore = "needs the lab: make program-tests"]
fn packets_wait_behind_a_preempted_poll_on_7_3_alone_and_not_where_it_is_mended() {
    let out = tempfile::tempdir().unwrap();
    let page = out.path().join("inversion.md");
    let done = Command::new(env!("CARGO_BIN_EXE_steadyvm-lab"))
        .args(["experiment", "inversion", "--json"])
        .args(["--samples", "300", "--rounds", "1"])
        .args(["--out", out.path().to_str().unwrap()])
        .args(["--markdown", page.to_str().unwrap()])
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success(), "{said}");
    let results: Value = serde_json::from_slice(&done.stdout).unwrap();
    let late = |row: &str| figure(&results, row, BESIDE_THE_SPINNER, "late");
    for row in ["6.12-rt", "7.3-rt-threaded", "7.3-rt-patched"] {
        let (late, n) = late(row);
        assert!(n > 200, "{row}: {n}");
        assert!(late == 0.0, "{row}: {late} of {n} were late");
    }
    let (late, n) = late("7.3-rt");
    assert!(late > 0.0, "none of {n} was late");
    // Without a thread between the cards' there is nobody to wait for.
    let alone = "hard interrupt to wake-up, beside a stream";
    let (late, n) = figure(&results, "7.3-rt", alone, "late");
    assert!(late <= 0.0, "{late} of {n} were late");
    let page = std::fs::read_to_string(page).unwrap();
    for words in [
        "by others",
        "the slowest late packet of 7.3-rt",
        "poll bulk",
    ] {
        assert!(page.contains(words), "{words}: {page}");
    }
}
