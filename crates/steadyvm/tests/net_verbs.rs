//! The verb `net` as a user calls it. Nothing here changes the machine.

#![allow(clippy::unwrap_used)] // helpers of tests

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

fn net(directory: &Path, arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_steadyvm"))
        .arg("net")
        .args(arguments)
        .arg(format!("--state-dir={}", directory.join("state").display()))
        .current_dir(directory)
        .output()
        .unwrap()
}

fn said(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

#[test]
fn what_is_wrong_with_a_file_is_told_with_its_place_and_ends_with_2() {
    let directory = tempfile::tempdir().unwrap();
    for (text, expected) in [
        (
            "[class.rt.net]\nirq = 99\n",
            "steadyvm.toml line 2 column 7: priority 99",
        ),
        (
            "[neet]\n",
            "steadyvm.toml line 1 column 2: unknown field `neet`",
        ),
        (
            "[class.rt.net]\nirq = 60\n[[nic]]\nname = \"no-such-nic\"\nclass = \"rt\"\n",
            "steadyvm.toml line 3 column 1: there is no network interface `no-such-nic`",
        ),
    ] {
        fs::write(directory.path().join("steadyvm.toml"), text).unwrap();
        for arguments in [
            &["apply"][..],
            &["apply", "--dry-run"],
            &["apply", "steadyvm.toml"],
        ] {
            let output = net(directory.path(), arguments);
            assert_eq!(output.status.code(), Some(2), "{}", said(&output));
            assert!(said(&output).contains(expected), "{}", said(&output));
            assert!(output.stdout.is_empty());
        }
    }
}

#[test]
fn a_missing_file_a_wrong_vm_and_wrong_use_end_with_2() {
    let directory = tempfile::tempdir().unwrap();
    let output = net(directory.path(), &["apply", "absent.toml"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(said(&output).contains("absent.toml"), "{}", said(&output));
    fs::write(
        directory.path().join("steadyvm.toml"),
        "[net]\nbudget_packets = 64\n",
    )
    .unwrap();
    let output = net(directory.path(), &["apply", "--dry-run", "--vm", "game=1"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(
        said(&output).contains("no VM \"game\""),
        "{}",
        said(&output)
    );
    for arguments in [
        &["apply", "--vm", "x"][..],
        &["apply", "--vm", "x=0"],
        &["nothing"],
        &[],
    ] {
        assert_eq!(
            net(directory.path(), arguments).status.code(),
            Some(2),
            "{arguments:?}"
        );
    }
}

#[test]
fn a_dry_run_says_what_would_be_changed_and_changes_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let path = "/proc/sys/net/core/netdev_budget";
    let before = fs::read_to_string(path).unwrap();
    let other = before.trim().parse::<u32>().unwrap() + 1;
    let text = format!("[net]\nbudget_packets = {other}\n");
    fs::write(directory.path().join("steadyvm.toml"), text).unwrap();
    let output = net(directory.path(), &["apply", "--dry-run", "--json"]);
    assert_eq!(output.status.code(), Some(0), "{}", said(&output));
    let plan: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(plan["schema_version"], 1);
    assert_eq!(plan["steps"][0]["path"], path);
    assert_eq!(plan["steps"][0]["new"], other.to_string());
    assert_eq!(fs::read_to_string(path).unwrap(), before);
    let shown = net(directory.path(), &["show", "--json"]);
    let shown: serde_json::Value = serde_json::from_slice(&shown.stdout).unwrap();
    assert_eq!(shown["state"], "none");
}

#[test]
fn show_and_undo_of_nothing_are_no_errors() {
    let directory = tempfile::tempdir().unwrap();
    let shown = net(directory.path(), &["show"]);
    assert_eq!(
        String::from_utf8(shown.stdout).unwrap(),
        "nothing is in force\n"
    );
    assert_eq!(net(directory.path(), &["undo"]).status.code(), Some(0));
}
