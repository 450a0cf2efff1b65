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

/// A request with one value replaced.
fn changed(pointer: &str, value: serde_json::Value) -> String {
    let mut request: serde_json::Value = serde_json::from_str(&request(7)).unwrap();
    let (parent, key) = pointer.rsplit_once('/').unwrap();
    match request.pointer_mut(parent).unwrap() {
        serde_json::Value::Array(list) => list[key.parse::<usize>().unwrap()] = value,
        other => other[key] = value,
    }
    request.to_string()
}

fn refused(arguments: &[&str], input: &str, place: &str, what: &str) {
    let output = plan(arguments, input);
    let message = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{input}: {message}");
    assert!(output.stdout.is_empty(), "{input}");
    assert!(
        message.contains(place) && message.contains(what),
        "{input}: {message}"
    );
    assert!(!message.contains("panicked"), "{message}");
}

#[test]
fn bad_requests_end_with_2_and_their_place() {
    use serde_json::json;
    let task = "vms[0].tasks[0]";
    for (pointer, value, place, what) in [
        ("/vms/0/tasks/0/c", json!(0), task, "greater than zero"),
        // Found while the plan is computed, not while it is read.
        (
            "/vms/0/budget",
            json!(11),
            "standard input: vms[0]",
            "more than its period",
        ),
        ("/vms/0/tasks/0/c", json!(-1), task, "greater than zero"),
        ("/vms/0/tasks/0/d", json!(-1), task, "greater than zero"),
        ("/vms/0/tasks/0/t", json!(0), task, "greater than zero"),
        (
            "/vms/0/tasks/0/c",
            json!(51),
            task,
            "more than the deadline",
        ),
        ("/vms/0/tasks/0/d", json!(51), task, "more than the period"),
        ("/vms/0/tasks/0/t", json!(i64::MAX), task, "2^53"),
        (
            "/vms/0/tasks/0/t",
            json!(i64::MAX as u64 + 1),
            "line 1 column",
            "9223372036854775808",
        ),
        (
            "/vms/0/tasks/0/jitter",
            json!(-1),
            task,
            "must not be negative",
        ),
        (
            "/vms/0/period",
            json!(0),
            "vms[0].period",
            "greater than zero",
        ),
        ("/vms/0/period", json!(i64::MAX), "vms[0].period", "2^53"),
        ("/vms/0/tasks", json!([]), "vms[0].tasks", "no tasks"),
        ("/vms", json!([]), "vms", "at least one VM"),
        (
            "/vms/0/colour",
            json!(1),
            "line 1 column",
            "unknown field `colour`",
        ),
        (
            "/vms/0/tasks/0/wcet",
            json!(1),
            "line 1 column",
            "unknown field `wcet`",
        ),
        (
            "/host/cores",
            json!(1),
            "line 1 column",
            "unknown field `cores`",
        ),
        (
            "/vms/0/scheduler",
            json!("rm"),
            "line 1 column",
            "unknown variant `rm`",
        ),
        (
            "/vms/0/interface",
            json!("cbs"),
            "line 1 column",
            "unknown variant `cbs`",
        ),
        (
            "/host/scheduler",
            json!("credit"),
            "line 1 column",
            "unknown variant `credit`",
        ),
        ("/host/pcpus", json!(0), "host.pcpus", "between 1"),
        ("/host/pcpus", json!(-4), "host.pcpus", "between 1"),
        ("/vms/0/vcpus", json!(0), "vms[0].vcpus", "between 1"),
    ] {
        refused(&["--json", "-"], &changed(pointer, value), place, what);
    }
    refused(&["--json", "-"], "[[[[", "line 1 column", "");
    refused(
        &["--json", "-"],
        &format!("{{\"vms\": {}", "[".repeat(100_000)),
        "line 1 column",
        "invalid type",
    );
    // What begins with no brace is a file.
    refused(&["-"], &"[".repeat(100_000), "line 1 column", "");
}

#[test]
fn bad_files_end_with_2_and_their_place() {
    const GOOD: &str = "[host]\npcpus = 1\nscheduler = \"pedf\"\n\n[class.rt]\nperiod = \"10ms\"\n\n[[vm]]\n\
                        name = \"a\"\nclass = \"rt\"\ntasks = [ { c = \"7ms\", d = \"40ms\", t = \"50ms\" } ]\n";
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("steadyvm.toml");
    let name = path.to_str().unwrap();
    std::fs::write(&path, GOOD).unwrap();
    assert_eq!(plan(&[name], "").status.code(), Some(0));
    for (from, to, line, what) in [
        ("c = \"7ms\"", "c = \"0ms\"", "line 11", "greater than zero"),
        ("c = \"7ms\"", "c = 7", "line 11", "write \"7ns\""),
        (
            "c = \"7ms\"",
            "c = \"-7ms\"",
            "line 11",
            "greater than zero",
        ),
        (
            "c = \"7ms\"",
            "c = \"41ms\"",
            "line 11",
            "more than the deadline",
        ),
        (
            "t = \"50ms\"",
            "t = \"9223372036854775807ns\"",
            "line 11",
            "2^53",
        ),
        (
            "t = \"50ms\"",
            "t = 9223372036854775807",
            "line 11",
            "a time is a text",
        ),
        ("t = \"50ms\"", "t = 9223372036854775808", "line 11", ""),
        (
            "t = \"50ms\"",
            "t = \"9223372036855s\"",
            "line 11",
            "a time such as",
        ),
        (
            "tasks = [ { c = \"7ms\", d = \"40ms\", t = \"50ms\" } ]",
            "tasks = []",
            "line 8",
            "empty",
        ),
        ("tasks = [", "taskz = [", "line 11", "unknown field `taskz`"),
        (
            "period = \"10ms\"",
            "period = \"10ms\"\nextends = \"rt\"",
            "line 5",
            "circle",
        ),
        (
            "class = \"rt\"",
            "class = \"dm\"",
            "line 8",
            "no class \"dm\"",
        ),
        ("[[vm]]", "[[vm]", "line 8", ""),
        ("pcpus = 1", "pcpus = 0", "host.pcpus", "between 1"),
    ] {
        let text = GOOD.replacen(from, to, 1);
        assert_ne!(text, GOOD, "{from}");
        std::fs::write(&path, text).unwrap();
        refused(&[name], "", line, what);
    }
    std::fs::write(&path, "[host]\npcpus = 1\nscheduler = \"pedf\"\n").unwrap();
    refused(&[name], "", "the file", "at least one VM");
    std::fs::write(&path, [0xff, 0xfe, 0]).unwrap();
    refused(&[name], "", "steadyvm.toml", "UTF-8");
}

/// Coprime periods near 2^53, and 10,000 tasks: answered, by the allowance of work.
#[test]
fn huge_requests_are_answered() {
    use serde_json::json;
    let longest = 1_i64 << 53;
    let huge = json!([{"c": longest / 4, "d": longest, "t": longest},
                      {"c": longest / 4 - 1, "d": longest - 3, "t": longest - 1}]);
    let many: Vec<serde_json::Value> = (0..10_000)
        .map(|i| {
            let t = 1_000_000 + i * 7_919 % 900_001;
            json!({"c": 1 + i % 60, "d": t - i % 1_000, "t": t})
        })
        .collect();
    for tasks in [huge, json!(many)] {
        for (scheduler, interface) in [
            ("edf", "prm"),
            ("dm", "prm"),
            ("gedf", "mpr"),
            ("pedf", "dmpr"),
        ] {
            let request = json!({"vms": [{"name": "a", "scheduler": scheduler, "interface": interface,
                                          "period": 1_000, "tasks": tasks}],
                                 "host": {"pcpus": 2, "scheduler": "gedf"}});
            let output = plan(&["--json", "-"], &request.to_string());
            assert_eq!(output.status.code(), Some(0), "{scheduler} {interface}");
            let answer: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
            let budget = answer["vms"][0]["interface"]["budget"].as_i64().unwrap();
            assert!(
                (155..=1_000).contains(&budget),
                "{scheduler} {interface} {budget}"
            );
        }
    }
}

/// Sweeps and clusters: tables, JSON, comma-separated values, pictures and exit codes.
#[test]
fn sweeps_and_clusters() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name).to_str().unwrap().to_owned();
    let (web, svg) = (path("web.toml"), path("web.svg"));
    let service = "[[service]]\nvm = \"web\"\nc = \"2ms\"\nt = \"10ms\"\nlimit = \"5ms\"\n";
    std::fs::write(&web, service).unwrap();
    let sweep = "--sweep=service.web.limit=1ms..5ms/2ms";
    let text = |output: &Output| String::from_utf8(output.stdout.clone()).unwrap();
    let table = plan(&[&web, sweep, "--svg", &svg], "");
    assert_eq!(table.status.code(), Some(0), "{table:?}");
    assert_eq!(text(&table).lines().count(), 4);
    assert!(std::fs::read_to_string(&svg).unwrap().contains("<polyline"));
    let csv = text(&plan(&[&web, sweep, "--csv"], ""));
    assert!(csv.lines().nth(1).unwrap().starts_with("1000000,false,"));
    assert!(csv.lines().nth(3).unwrap().starts_with("5000000,true,"));
    let json: serde_json::Value =
        serde_json::from_slice(&plan(&[&web, sweep, "--json"], "").stdout).unwrap();
    assert_eq!(json[2]["plan"]["feasible"], true);
    // None of the values will do; no table of random sets; no range.
    for (arguments, code, words) in [
        ("--sweep=service.web.limit=1ms..1ms/1ms", 1, ""),
        ("--random", 2, "unknown field"),
        ("--sweep=service.web.limit", 2, "FROM..TO/STEP"),
    ] {
        let output = plan(&[&web, arguments], "");
        assert_eq!(output.status.code(), Some(code), "{arguments}: {output:?}");
        assert!(String::from_utf8_lossy(&output.stderr).contains(words));
    }
    let example = |name: &str| format!("{}/../../examples/{name}", env!("CARGO_MANIFEST_DIR"));
    let cluster = plan(&[&example("cluster.toml")], "");
    assert_eq!(cluster.status.code(), Some(0), "{cluster:?}");
    assert!(text(&cluster).contains("== rack2"), "{}", text(&cluster));
    let json: serde_json::Value =
        serde_json::from_slice(&plan(&[&example("cluster.toml"), "--json"], "").stdout).unwrap();
    assert_eq!(json["hosts"][0]["vms"][1], "video");
}

/// The review's inputs 17 and 20: standard input holds a file or a request; nothing on it is no riddle.
#[test]
fn standard_input_holds_a_file_or_a_request() {
    let file = "[[service]]\nvm = \"web\"\nc = \"2ms\"\nt = \"10ms\"\nlimit = \"5ms\"\n";
    let output = plan(&["-"], file);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert_eq!(plan(&["-"], &request(7)).status.code(), Some(0));
    refused(&["-"], "", "standard input", "The shortest plan is");
}
