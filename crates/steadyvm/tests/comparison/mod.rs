//! Short comparisons, and what their results must have.

use serde_json::Value;
use std::path::Path;
use std::process::{Command, Output};
use steadyvm_experiment::compare::results::{MethodResult, Phase, Results};

const STEADYVM: &str = env!("CARGO_BIN_EXE_steadyvm");

/// Runs a comparison of 150 requests a phase; gives results.json and meta.json.
pub fn short_comparison(options: &[&str], out: &Path) -> (Results, Value) {
    let Output {
        status,
        stdout,
        stderr,
    } = Command::new(STEADYVM)
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
    let results = Results::from_json(&String::from_utf8(stdout).unwrap()).unwrap();
    let meta = std::fs::read(out.join("meta.json")).unwrap();
    let meta: Value = serde_json::from_slice(&meta).unwrap();
    let (accelerator, qemu) = (&meta["accelerator"], &meta["qemu"]);
    if accelerator.as_str().unwrap().contains("TCG") {
        assert!(qemu.as_str().unwrap().contains("steadyvm"), "{qemu}");
    }
    (results, meta)
}

/// A method of a short comparison has plausible figures of every phase.
pub fn require_figures(method: &MethodResult) {
    for phase in Phase::ALL {
        let figures = method.latency(phase);
        assert_eq!(figures.n + figures.lost, 150, "{phase:?}: {figures:?}");
        assert!(figures.max_us >= figures.p999_us, "{figures:?}");
        // There is none where all were lost.
        assert!(figures.sd_us > Some(0.0), "{phase:?}: {figures:?}");
    }
    let stream = &method.netstream;
    let carried = [stream.mbit_per_s, stream.equal_mbit_per_s];
    assert!(carried.iter().all(|it| it.unwrap() > 1.0), "{stream:?}");
    let busy = method.host.cpu_busy_fraction.unwrap();
    assert!(busy > 0.1 && busy <= 1.0, "{busy}");
}
