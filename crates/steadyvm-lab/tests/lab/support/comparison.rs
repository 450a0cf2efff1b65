//! Short comparisons, and what their results must have.

use serde_json::Value;
use std::path::Path;
use std::process::{Command, Output};
use steadyvm_experiment::compare::{BUSY, NAME, Phase, THROUGHPUT, required};
use steadyvm_experiment::engine::results::{Record, from_json_of};

const LAB: &str = env!("CARGO_BIN_EXE_steadyvm-lab");

/// Runs a comparison of 150 requests a phase; gives results.json and meta.json.
pub fn short_comparison(options: &[&str], out: &Path) -> (Record, Value) {
    let Output {
        status,
        stdout,
        stderr,
    } = Command::new(LAB)
        .args(["compare", "--samples", "150", "--json"])
        .args(options)
        .arg("--out")
        .arg(out)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&stderr);
    assert!(status.success(), "{said}");
    // Off a terminal progress is lines, not a bar that draws itself over and over.
    assert!(!said.contains(['\r', '\x1b']), "{said:?}");
    assert_eq!(std::fs::read(out.join("results.json")).unwrap(), stdout);
    let results = from_json_of(&String::from_utf8(stdout).unwrap(), NAME, required).unwrap();
    let meta = std::fs::read(out.join("meta.json")).unwrap();
    let meta: Value = serde_json::from_slice(&meta).unwrap();
    let (accelerator, qemu) = (&meta["accelerator"], &meta["qemu"]);
    if accelerator.as_str().unwrap().contains("TCG") {
        assert!(qemu.as_str().unwrap().contains("steadyvm"), "{qemu}");
    }
    (results, meta)
}

/// A method of a short comparison has plausible figures of every phase.
pub fn require_figures(results: &Record, method: &str) {
    for phase in Phase::ALL {
        let at = results.at(method, phase.cell());
        let figures: Vec<_> = at.figures().collect();
        assert_eq!(
            at.count("n") + at.count("lost"),
            150,
            "{phase:?}: {figures:?}"
        );
        assert!(at.value("max") >= at.value("p99.9"), "{figures:?}");
        // There is none where all were lost.
        assert!(at.value("sd") > Some(0.0), "{phase:?}: {figures:?}");
    }
    for phase in [Phase::Full, Phase::Equal] {
        let carried = results.at(method, phase.cell()).value(THROUGHPUT).unwrap();
        assert!(carried > 1.0, "{method}, {phase:?}: {carried}");
    }
    let busy = results.at(method, Phase::Full.cell()).value(BUSY).unwrap();
    assert!(busy > 0.1 && busy <= 1.0, "{busy}");
}
