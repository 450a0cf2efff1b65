//! `steadyvm explain` as a user calls it wrongly, and on a recording; what it measures is tested in the lab.
//!
//! The recording is of 12 requests to a guest in the lab: `tests/lab/measure.rs`, `a_plans_terms_are_measured_both_ways`.

#![allow(clippy::unwrap_used)] // helpers of tests

use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;

#[test]
fn wrong_use_ends_with_2_and_says_what_to_do() {
    for (arguments, said) in [
        (&[][..], "--receive-path"),
        (&["--receive-path"], "--device"),
        (
            &["--receive-path", "--device", "no-such-device"],
            "name one of",
        ),
        (&["--receive-path", "--device", "lo"], "physical interface"),
        (
            &["--receive-path", "--device", "lo", "--port", "5"],
            "cannot be used with",
        ),
        (&["--receive-path", "--port", "0"], "0"),
        (&["--receive-path", "--device", "lo", "--seconds", "0"], "0"),
        (
            &["--service", "x", "--worst", "1", "--device", "lo"],
            "--plan",
        ),
        (&["--worst", "1", "--from", "no-such-file"], "--record"),
        (
            &["--worst", "1", "--from", "x", "--device", "lo"],
            "cannot be used with",
        ),
        (
            &["--plan", "no-such-file", "--device", "lo"],
            "steadyvm plan",
        ),
    ] {
        let output = Command::new(env!("CARGO_BIN_EXE_steadyvm"))
            .arg("explain")
            .args(arguments)
            .output()
            .unwrap();
        let error = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {error}");
        assert!(error.contains(said), "{arguments:?}: {error}");
        assert!(output.stdout.is_empty());
    }
}

const RECORDING: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/recordings/guest.json");

/// Explains the recording next to a plan.
fn compared(folder: &Path, plan: &str, more: &[&str]) -> Output {
    let file = folder.join("steadyvm.toml");
    std::fs::write(&file, plan).unwrap();
    let file = file.to_str().unwrap();
    Command::new(env!("CARGO_BIN_EXE_steadyvm"))
        .args(["explain", "--from", RECORDING, "--plan", file])
        .args(more)
        .output()
        .unwrap()
}

/// A service of VM "rt" whose terms are `unit` and small multiples of it.
fn plan(unit: &str, c: &str) -> String {
    format!(
        "[[service]]\nname = \"netrt\"\nvm = \"rt\"\nc = \"{c}\"\nt = \"4s\"\nlimit = \"3s\"\nwake = \"20{unit}\"\n\
         receive = {{ interrupt = \"100{unit}\", packet = \"10{unit}\" }}\n\
         send = {{ guest = \"5{unit}\", host = \"200{unit}\", nic = \"7{unit}\" }}\n"
    )
}

fn json(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {output:?}"))
}

#[test]
fn a_recordings_terms_stand_beside_the_plans() {
    let folder = tempfile::tempdir().unwrap();
    let wide = compared(folder.path(), &plan("ms", "300ms"), &["--json"]);
    assert_eq!(wide.status.code(), Some(0), "{wide:?}");
    let answer = json(&wide);
    assert_eq!(answer["plan"]["within"], true);
    let term = |name: &str| {
        let terms = answer["plan"]["terms"].as_array().unwrap();
        let found = terms.iter().find(|term| term["term"] == name);
        found.unwrap_or_else(|| panic!("{name}: {answer}")).clone()
    };
    // The plan's: interrupt and two packets; the worker's part of the way back; what only the card knows.
    assert_eq!(term("receive path")["planned_us"], 120_000.0);
    assert_eq!(term("way back: vhost send")["planned_us"], 200_000.0);
    assert_eq!(term("way back: NIC")["planned_us"], 7_000.0);
    assert_eq!(term("way back: NIC")["measured"], Value::Null);
    assert!(
        term("  guest wake-up alone")["not_seen"]
            .as_str()
            .unwrap()
            .contains("which thread of the guest")
    );
    // The measured ones add up, packet by packet: so do their longest, at least.
    let most = |value: &Value| value["max_us"].as_f64().unwrap();
    let (mut sum, mut packets) = (0.0, Vec::new());
    for name in [
        "receive path",
        "VCPU blackout",
        "guest: response, wake-up, transmit",
        "way back: vhost send",
    ] {
        let term = term(name);
        assert!(most(&term["measured"]) > 0.0, "{term}");
        sum += most(&term["measured"]);
        packets.push(term["measured"]["n"].as_u64().unwrap());
    }
    let whole = term("in all, to the card's driver");
    assert!(most(&whole["measured"]) <= sum + 1e-6);
    assert!(
        packets.is_sorted_by(|one, other| one >= other),
        "{packets:?}"
    );
    assert_eq!(answer["total"]["n"].as_u64(), packets.first().copied());
    assert!(whole["measured"]["n"].as_u64() > Some(5), "{whole}");

    let tight = compared(folder.path(), &plan("us", "300us"), &[]);
    assert_eq!(tight.status.code(), Some(1));
    let text = String::from_utf8(tight.stdout).unwrap();
    assert!(
        text.contains("OVER") && text.contains("not visible from the host"),
        "{text}"
    );
    assert!(
        text.lines().all(|line| line.chars().count() <= 100),
        "{text}"
    );
}

#[test]
fn what_has_no_terms_is_wrong_use() {
    let folder = tempfile::tempdir().unwrap();
    let two = plan("ms", "300ms") + &plan("ms", "9ms").replace("netrt", "other");
    for (text, more, said) in [
        (
            plan("ms", "300ms").replace("\"rt\"", "\"web\""),
            &[][..],
            "no such VM runs here (running: rt)",
        ),
        (two.clone(), &[], "name one with --service: netrt, other"),
        (two, &["--service", "x"], "name one of: netrt, other"),
        (
            "[host]\npcpus = 1\nscheduler = \"pedf\"\n[[vm]]\nname = \"rt\"\nrt = false\n"
                .to_owned(),
            &[],
            "no [[service]]",
        ),
        ("[[service]]\n".to_owned(), &[], "steadyvm plan"),
    ] {
        let output = compared(folder.path(), &text, more);
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{error}");
        assert!(error.contains(said), "{said}: {error}");
    }
}

#[test]
fn what_is_no_recording_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let good = std::fs::read_to_string(RECORDING).unwrap();
    let late = good.replacen("\"time_ns\":", "\"time_ns\":99999999", 1);
    let newer = good.replacen("\"schema_version\":1", "\"schema_version\":2", 1);
    for (text, said) in [
        (good[..good.len() / 2].to_owned(), "EOF"),
        (late, "2^60"),
        (newer, "version 2"),
        ("{}".to_owned(), "schema_version"),
    ] {
        let file = folder.path().join("recording.json");
        std::fs::write(&file, text).unwrap();
        let output = Command::new(env!("CARGO_BIN_EXE_steadyvm"))
            .args(["explain", "--worst", "1", "--from"])
            .arg(&file)
            .output()
            .unwrap();
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{error}");
        assert!(error.contains(said), "{said}: {error}");
    }
}
