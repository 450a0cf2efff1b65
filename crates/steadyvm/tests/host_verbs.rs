//! The verbs `host` and `doctor` as a user calls them. Nothing here changes the machine.

#![allow(clippy::unwrap_used)] // helpers of tests

use std::path::Path;
use std::process::{Command, Output};

fn steadyvm(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_steadyvm"))
        .args(arguments)
        .output()
        .unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

fn state_argument(directory: &Path) -> String {
    format!("--state-dir={}", directory.join("state").display())
}

#[test]
fn doctor_always_ends_well_and_prints_json() {
    let output = steadyvm(&["doctor", "--json"]);
    assert_eq!(output.status.code(), Some(0));
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["schema_version"], 1);
    assert_eq!(
        report["methods"].as_array().unwrap().len(),
        steadyvm_host::Method::of_hosts().count()
    );
    for check in report["checks"].as_array().unwrap() {
        for field in ["id", "group", "title", "status", "found", "why", "fix"] {
            assert!(check[field].is_string(), "{check}");
        }
    }
    let plain = steadyvm(&["doctor"]);
    assert_eq!(plain.status.code(), Some(0));
    assert!(
        !text(&plain.stdout).contains('\x1b'),
        "no colour into a pipe"
    );
}

#[test]
fn wrong_use_ends_with_2() {
    let directory = tempfile::tempdir().unwrap();
    let state = state_argument(directory.path());
    for arguments in [
        &["host", "apply", "--method", "fast"][..],
        &["host", "apply"],
        &["host", "apply", "--method", "preempt-rt", "--rt-vm", "0:1"],
        &["host", "apply", "--method", "preempt-rt"],
        &["host", "nothing"],
        &["host", "snapshot", "--compare", "/no/such/file"],
    ] {
        let mut arguments = arguments.to_vec();
        arguments.push(&state);
        let output = steadyvm(&arguments);
        assert_eq!(
            output.status.code(),
            Some(2),
            "{arguments:?}: {}",
            text(&output.stderr)
        );
        assert!(output.stdout.is_empty());
        assert!(!output.stderr.is_empty());
    }
}

#[test]
fn a_vm_that_does_not_run_is_named_with_what_to_do() {
    for verb in ["apply", "plan"] {
        let arguments = ["host", verb, "--method", "preempt-rt", "--rt-nic", "lo"];
        let output = steadyvm(&[&arguments[..], &["--rt-vm", "no-such-vm:1"]].concat());
        let message = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{message}");
        let said = "VM \"no-such-vm\" does not run on this host; start it first";
        assert!(message.contains(said), "{message}");
        assert!(output.stdout.is_empty());
    }
}

#[test]
fn an_unwritable_state_directory_is_named() {
    let output = steadyvm(&["host", "undo", "--state-dir=/proc/no/state"]);
    assert_eq!(output.status.code(), Some(3));
    let message = text(&output.stderr);
    assert_eq!(message.matches("No such file").count(), 1, "{message}");
    assert!(message.contains("/proc/no/state"), "{message}");
}

#[test]
fn vanilla_show_and_undo_change_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let state = state_argument(directory.path());
    let applied = steadyvm(&["host", "apply", "--method", "vanilla", "--json", &state]);
    assert_eq!(applied.status.code(), Some(0), "{}", text(&applied.stderr));
    let applied: serde_json::Value = serde_json::from_slice(&applied.stdout).unwrap();
    assert_eq!(
        (&applied["schema_version"], &applied["method"]),
        (&1.into(), &"vanilla".into())
    );
    let shown = steadyvm(&["host", "show", "--json", &state]);
    let shown: serde_json::Value = serde_json::from_slice(&shown.stdout).unwrap();
    assert_eq!(
        (&shown["schema_version"], &shown["state"]),
        (&1.into(), &"none".into())
    );
    let undone = steadyvm(&["host", "undo", &state]);
    assert_eq!(
        (undone.status.code(), text(&undone.stdout)),
        (Some(0), "0 restored\n".into())
    );
}

#[test]
fn a_damaged_journal_is_named_with_what_to_do() {
    let directory = tempfile::tempdir().unwrap();
    let state = directory.path().join("state");
    std::fs::create_dir(&state).unwrap();
    std::fs::write(state.join("journal.jsonl"), "rubbish\n").unwrap();
    let argument = state_argument(directory.path());
    let output = steadyvm(&["host", "undo", &argument]);
    assert_eq!(output.status.code(), Some(3));
    let message = text(&output.stderr);
    assert!(
        message.contains("journal.jsonl") && message.contains("remove the file"),
        "{message}"
    );
}

#[test]
fn undo_forgets_a_journal_that_cannot_be_restored() {
    let directory = tempfile::tempdir().unwrap();
    let state = directory.path().join("state");
    std::fs::create_dir(&state).unwrap();
    let journal = state.join("journal.jsonl");
    std::fs::write(&journal, "rubbish\n").unwrap();
    let output = steadyvm(&["undo", "--forget", &state_argument(directory.path())]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    assert!(text(&output.stderr).contains("nothing was restored"));
    assert!(!journal.exists());
}

#[test]
fn a_snapshot_compares_with_itself() {
    let directory = tempfile::tempdir().unwrap();
    let first = steadyvm(&["host", "snapshot"]);
    assert_eq!(first.status.code(), Some(0), "{}", text(&first.stderr));
    let snapshot: serde_json::Value = serde_json::from_slice(&first.stdout).unwrap();
    assert_eq!(snapshot["schema_version"], 2);
    // Other processes of this machine may change meanwhile: compare what cannot.
    let mut quiet = snapshot.clone();
    for kind in ["thread-policy", "thread-affinity", "irq-affinity"] {
        assert!(quiet["settings"][kind].is_object());
        quiet["settings"][kind] = serde_json::json!({});
    }
    let file = directory.path().join("snapshot.json");
    std::fs::write(&file, quiet.to_string()).unwrap();
    let output = steadyvm(&["host", "snapshot", "--compare", file.to_str().unwrap()]);
    assert_eq!(
        (output.status.code(), text(&output.stdout)),
        (Some(0), String::new())
    );
    quiet["settings"]["file"]["/proc/sys/kernel/sched_rt_runtime_us"] = "12345".into();
    std::fs::write(&file, quiet.to_string()).unwrap();
    let output = steadyvm(&["host", "snapshot", "--compare", file.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stdout).contains("12345"));
}
