//! Real, unmodified services of Debian measured in the emulated host. As tests/lab.

use serde_json::Value;
use std::process::{Command, Stdio};

/// Measures a service for one method, and gives results.json.
fn measure(experiment: &str, samples: u64) -> Value {
    let out = tempfile::tempdir().unwrap();
    let done = Command::new(env!("CARGO_BIN_EXE_steadyvm-lab"))
        .args(["experiment", experiment, "--methods", "rt-sockets"])
        .args(["--samples", &samples.to_string(), "--rounds", "1", "--json"])
        .args(["--out", out.path().to_str().unwrap()])
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success(), "{said}");
    for file in ["results.json", "meta.json", "samples.csv", "report.html"] {
        assert!(out.path().join(file).is_file(), "{file}");
    }
    serde_json::from_slice(&done.stdout).unwrap()
}

/// How many samples a cell has, and how many of them were lost.
fn counts(results: &Value, cell: &str) -> (u64, u64) {
    let figures = results["figures"].as_array().unwrap();
    let of = |name: &str| {
        let mut found = figures.iter();
        found
            .find(|it| it["cell"] == cell && it["name"] == name)
            .unwrap_or_else(|| panic!("no {name} of {cell}: {results}"))
    };
    assert!(of("p99")["value"].as_f64().unwrap() > 0.0);
    let lost = of("lost")["value"].as_f64().unwrap();
    (of("p99")["n"].as_u64().unwrap(), lost as u64)
}

#[test]
#[ignore = "needs the lab: make program-tests"]
fn memcached_answers_every_get() {
    let results = measure("memcached", 50);
    for cell in ["GET, no NetStream", "GET, beside NetStream at full speed"] {
        assert_eq!(counts(&results, cell), (45, 0), "{cell}");
    }
}

#[test]
#[ignore = "needs the lab: make program-tests"]
fn kamailio_forwards_every_message() {
    let results = measure("kamailio", 60);
    for beside in ["no NetStream", "beside NetStream at full speed"] {
        let all = format!("all six messages, {beside}");
        assert_eq!(counts(&results, &all), (60, 0), "{all}");
    }
    for message in [
        "INVITE",
        "180 Ringing",
        "200 OK to INVITE",
        "ACK",
        "BYE",
        "200 OK to BYE",
    ] {
        let cell = format!("{message}, beside NetStream at full speed");
        assert_eq!(counts(&results, &cell), (10, 0), "{cell}");
    }
}
