//! `steadyvm plan` as other programs see it.
// Helpers of tests unwrap, too.
#![allow(clippy::unwrap_used)]

use std::{
    io::Write,
    process::{Command, Output, Stdio},
};

fn plan(arguments: &[&str], input: &str) -> Output {
    let mut child = Command::new(env!("CARGO_BIN_EXE_steadyvm"))
        .arg("plan")
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child
        .stdin
        .take()
        .unwrap()
        .write_all(input.as_bytes())
        .unwrap();
    child.wait_with_output().unwrap()
}

fn request(execution: i64) -> String {
    format!(
        r#"{{"vms":[{{"name":"a","scheduler":"dm","tasks":[{{"c":{execution},"d":50,"t":50}},
        {{"c":9,"d":75,"t":75}}],"interface":"prm","period":10}}],
        "host":{{"pcpus":1,"scheduler":"pedf"}}}}"#
    )
}

#[test]
fn json_in_json_out_with_exit_codes() {
    for (execution, code, budget) in [(7, 0, Some(4)), (49, 1, None), (0, 2, None), (51, 2, None)] {
        let output = plan(&["--json", "-"], &request(execution));
        assert_eq!(output.status.code(), Some(code), "{execution}: {output:?}");
        if code == 2 {
            assert!(output.stdout.is_empty());
            let message = String::from_utf8(output.stderr).unwrap();
            assert!(message.contains("vms[0].tasks[0]"), "{message}");
            continue;
        }
        assert!(output.stderr.is_empty());
        let answer: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(answer["schema_version"], 1);
        assert_eq!(answer["feasible"], code == 0);
        assert_eq!(answer["vms"][0]["interface"]["budget"].as_i64(), budget);
        if code == 0 {
            assert_eq!(answer["min_pcpus"], 1);
            assert_eq!(answer["vms"][0]["vcpus"][0]["period"], 10);
        } else {
            let why = &answer["explanations"][0];
            assert!(why["demand"].as_i64() > why["supply"].as_i64(), "{why}");
        }
    }
}

#[test]
fn files_pictures_and_missing_files() {
    let folder = tempfile::tempdir().unwrap();
    let picture = folder.path().join("plan.svg");
    let example = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/steadyvm.toml");
    let output = plan(
        &[example, "--explain", "--svg", picture.to_str().unwrap()],
        "",
    );
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert!(String::from_utf8(output.stdout).unwrap().contains("game-3"));
    assert!(
        std::fs::read_to_string(&picture)
            .unwrap()
            .starts_with("<svg")
    );
    let missing = folder.path().join("none.toml");
    let output = plan(&[missing.to_str().unwrap()], "");
    assert_eq!(output.status.code(), Some(2));
    assert!(
        String::from_utf8(output.stderr)
            .unwrap()
            .contains("none.toml")
    );
    for input in ["", "\u{0}", "{\"vms\":"] {
        assert_eq!(plan(&["-"], input).status.code(), Some(2));
    }
}
