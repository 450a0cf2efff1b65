//! Short comparisons, and what their results must have.

use serde_json::Value;
use std::path::Path;
use std::process::{Command, Output};

const STEADYVM: &str = env!("CARGO_BIN_EXE_steadyvm");

/// Runs a comparison of 150 requests a phase; gives results.json and meta.json.
pub fn short_comparison(options: &[&str], out: &Path) -> (Value, Value) {
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
    let read = |name| serde_json::from_slice(&std::fs::read(out.join(name)).unwrap()).unwrap();
    let results: Value = serde_json::from_slice(&stdout).unwrap();
    assert_eq!(read("results.json"), results);
    let meta: Value = read("meta.json");
    let (accelerator, qemu) = (&meta["accelerator"], &meta["qemu"]);
    if accelerator.as_str().unwrap().contains("TCG") {
        assert!(qemu.as_str().unwrap().contains("steadyvm"), "{qemu}");
    }
    (results, meta)
}

/// A method of a short comparison has plausible figures of every phase.
pub fn require_figures(method: &Value) {
    for phase in ["netrt", "netrt_equal", "netrt_idle"] {
        let figures = &method[phase];
        let (n, lost) = (
            figures["n"].as_u64().unwrap(),
            figures["lost"].as_u64().unwrap(),
        );
        assert_eq!(n + lost, 150, "{phase}: {figures}");
        assert!(
            figures["max_us"].as_f64() >= figures["p999_us"].as_f64(),
            "{figures}"
        );
        // There is none where all were lost.
        assert!(figures["sd_us"].as_f64() > Some(0.0), "{phase}: {figures}");
    }
    let stream = &method["netstream"];
    let (full, equal) = (&stream["mbit_per_s"], &stream["equal_mbit_per_s"]);
    assert!(
        full.as_f64().unwrap() > 1.0 && equal.as_f64().unwrap() > 1.0,
        "{stream}"
    );
    let busy = method["host"]["cpu_busy_fraction"].as_f64().unwrap();
    assert!(busy > 0.1 && busy <= 1.0, "{busy}");
}
