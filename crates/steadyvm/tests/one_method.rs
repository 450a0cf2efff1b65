//! One method without a file, `doctor`, snapshots, and the verbs of before, as a user calls them. Nothing here changes the
//! machine.

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
        &["apply", "--method", "fast"][..],
        &["apply", "--nic", "lo"],
        &["apply", "--vm", "web:1"],
        &["apply", "/etc/steadyvm.toml", "--method", "vanilla"],
        &["apply", "--strict", "--method", "vanilla"],
        &[
            "apply",
            "--method",
            "preempt-rt",
            "--nic",
            "lo",
            "--vm",
            "0:1",
        ],
        &["apply", "--method", "preempt-rt"],
        &["status", "--compare", "/etc/hostname"],
        &["status", "--snapshot", "--compare", "/no/such/file"],
        &["status", "--snapshot", "/etc/steadyvm.toml"],
        &["top", "--reports", "/run", "--once"],
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
    for more in [&[][..], &["--dry-run"]] {
        let arguments = ["apply", "--method", "preempt-rt", "--nic", "lo"];
        let vm = ["--vm", "no-such-vm:1"];
        let output = steadyvm(&[&arguments[..], &vm, more].concat());
        let message = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{message}");
        let said = "VM \"no-such-vm\" does not run on this host; start it first";
        assert!(message.contains(said), "{message}");
        assert!(output.stdout.is_empty());
    }
}

#[test]
fn an_unwritable_state_directory_is_named() {
    let output = steadyvm(&["undo", "--state-dir=/proc/no/state"]);
    assert_eq!(output.status.code(), Some(3));
    let message = text(&output.stderr);
    assert_eq!(message.matches("No such file").count(), 1, "{message}");
    assert!(message.contains("/proc/no/state"), "{message}");
}

#[test]
fn vanilla_status_and_undo_change_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let state = state_argument(directory.path());
    let applied = steadyvm(&["apply", "--method", "vanilla", "--json", &state]);
    assert_eq!(applied.status.code(), Some(0), "{}", text(&applied.stderr));
    let applied: serde_json::Value = serde_json::from_slice(&applied.stdout).unwrap();
    assert_eq!(
        (&applied["schema_version"], &applied["method"]),
        (&1.into(), &"vanilla".into())
    );
    let dry = steadyvm(&["apply", "--dry-run", "--method", "vanilla", &state]);
    let said = "0 settings would change, 0 would be restored; nothing was changed\n";
    assert_eq!(text(&dry.stdout), said);
    let shown = steadyvm(&["status", "--json", &state]);
    assert_eq!(shown.status.code(), Some(0), "{}", text(&shown.stderr));
    let shown: serde_json::Value = serde_json::from_slice(&shown.stdout).unwrap();
    assert_eq!(
        (&shown["schema_version"], &shown["state"], &shown["file"]),
        (&1.into(), &"none".into(), &serde_json::Value::Null)
    );
    let undone = steadyvm(&["undo", &state]);
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
    let output = steadyvm(&["undo", &argument]);
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
    let first = steadyvm(&["status", "--snapshot"]);
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
    let output = steadyvm(&["status", "--snapshot", "--compare", file.to_str().unwrap()]);
    assert_eq!(
        (output.status.code(), text(&output.stdout)),
        (Some(0), String::new())
    );
    quiet["settings"]["file"]["/proc/sys/kernel/sched_rt_runtime_us"] = "12345".into();
    std::fs::write(&file, quiet.to_string()).unwrap();
    let output = steadyvm(&["status", "--snapshot", "--compare", file.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stdout).contains("12345"));
}

#[test]
fn a_verb_of_before_names_the_one_of_now_and_does_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let state = state_argument(directory.path());
    for (before, now) in [
        ("host apply", "apply --method METHOD --nic IF --vm NAME"),
        (
            "host plan",
            "apply --dry-run --method METHOD --nic IF --vm NAME",
        ),
        ("host show", "status"),
        ("host undo", "undo"),
        ("host snapshot", "status --snapshot"),
        ("net apply", "apply --strict FILE"),
        ("net show", "status FILE"),
        ("net undo", "undo"),
        ("sched show", "top --budgets --once"),
        ("sched top", "top --budgets"),
    ] {
        let mut arguments: Vec<&str> = before.split(' ').collect();
        // Whatever it was called with.
        arguments.extend(["--json", "--method", "vanilla", "file.toml", &state]);
        let output = steadyvm(&arguments);
        assert_eq!(output.status.code(), Some(2), "{before}");
        assert!(output.stdout.is_empty());
        let expected =
            format!("steadyvm: there is no `steadyvm {before}` any more; run `steadyvm {now}`\n");
        assert_eq!(text(&output.stderr), expected);
    }
    let group = steadyvm(&["host", "--help"]);
    assert_eq!(group.status.code(), Some(2));
    let said = text(&group.stderr);
    assert!(
        said.contains("`steadyvm status`, or `steadyvm undo`"),
        "{said}"
    );
    assert!(!directory.path().join("state").exists());
}

/// What a person sees is what a person needs.
#[test]
fn the_help_shows_the_verbs_of_people_and_no_others() {
    let help = text(&steadyvm(&["--help"]).stdout);
    let verbs = help.split("Commands:\n").nth(1).unwrap();
    let verbs = verbs.lines().take_while(|line| !line.is_empty());
    // A verb stands two columns in; its words may take more lines.
    let first = |line: &str| line.split_whitespace().next().map(str::to_owned);
    let verbs = verbs
        .filter(|line| !line.starts_with("   "))
        .filter_map(first);
    let mut verbs: Vec<String> = verbs.filter(|verb| verb != "help").collect();
    verbs.sort();
    assert_eq!(
        verbs,
        [
            "apply",
            "calibrate",
            "doctor",
            "explain",
            "exporter",
            "measure",
            "plan",
            "simulate",
            "sockets",
            "status",
            "top",
            "undo",
            "up",
            "watch"
        ]
    );
    for hidden in ["capacity", "generate", "hook", "netrt", "sched"] {
        let output = steadyvm(&[hidden, "--help"]);
        assert_eq!(output.status.code(), Some(0), "{hidden}");
    }
}
