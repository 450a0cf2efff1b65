//! `steadyvm simulate` from the outside: exit codes, JSON, pictures, errors.

use std::{
    fs,
    process::{Command, Output},
};

const ONE: &str = "[host]\npcpus = 1\nscheduler = \"pedf\"\nserver = \"deferrable\"\n\n[[vm]]\nname = \"a\"\nperiod = \"5ms\"\ntasks = [{ name = \"t\", c = \"2ms\", t = \"20ms\" }]\n";

fn simulate(plan: &str, arguments: &[&str]) -> (Output, tempfile::TempDir) {
    simulate_as(plan, "", arguments)
}

/// With this simulate.toml.
fn simulate_as(plan: &str, how: &str, arguments: &[&str]) -> (Output, tempfile::TempDir) {
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("steadyvm.toml");
    fs::write(&file, plan).expect("written");
    fs::write(directory.path().join("simulate.toml"), how).expect("written");
    let output = Command::new(env!("CARGO_BIN_EXE_steadyvm"))
        .current_dir(&directory)
        .arg("simulate")
        .arg(&file)
        .args(["--with", "simulate.toml"])
        .args(arguments)
        .output()
        .expect("it runs");
    (output, directory)
}

#[test]
fn a_feasible_plan_is_played_in_time() {
    let (output, directory) = simulate(
        ONE,
        &[
            "--json",
            "--duration",
            "1s",
            "--gantt",
            "out.svg",
            "--trace",
            "out.json",
        ],
    );
    assert_eq!(output.status.code(), Some(0));
    let found: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(found["jobs"], 50);
    assert_eq!(found["late_jobs"], 0);
    assert_eq!(found["vms"][0]["vcpus"][0]["supplied_ns"], 100_000_000);
    let chart = fs::read_to_string(directory.path().join("out.svg")).expect("a chart");
    assert!(chart.contains("a/0 runs a/t"));
    let trace = fs::read_to_string(directory.path().join("out.json")).expect("a trace");
    let trace: serde_json::Value = serde_json::from_str(&trace).expect("JSON");
    let jobs = trace["traceEvents"]
        .as_array()
        .expect("events")
        .iter()
        .filter(|event| event["name"] == "in time");
    assert_eq!(jobs.count(), 50);
}

#[test]
fn late_jobs_are_exit_code_1() {
    // A polling server gives less than the periodic one that the plan is for.
    let plan = ONE.replace("2ms", "9ms").replace("5ms", "10ms");
    let how = "server = \"polling\"\nrandom_offsets = true\n";
    let codes: Vec<Option<i32>> = (1..9)
        .map(|seed| {
            simulate_as(&plan, how, &["--seed", &seed.to_string()])
                .0
                .status
                .code()
        })
        .collect();
    assert!(codes.contains(&Some(1)), "{codes:?}");
}

#[test]
fn what_cannot_be_simulated_is_exit_code_2_and_says_why() {
    for (added, said) in [
        (
            "server = \"magic\"\n",
            "simulate.toml line 1 column 10: unknown variant `magic`, expected one of `cbs`",
        ),
        ("quantum = \"soon\"\n", "a time such as \"10ms\""),
        ("scheduler = \"gdm\"\n", "plan for the other"),
        ("speed = 9\n", "unknown field `speed`"),
        ("execution_factor_percent = 0\n", "give 1 to 100"),
    ] {
        let (output, _directory) = simulate_as(ONE, added, &[]);
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{error}");
        assert!(error.contains(said), "{error}");
    }
    let (output, _directory) = simulate(ONE, &["--duration", "long"]);
    assert_eq!(output.status.code(), Some(2));
}

/// `simulate cluster` on this file.
fn cluster(file: &str, arguments: &[&str]) -> Output {
    let directory = tempfile::tempdir().expect("a directory");
    fs::write(directory.path().join("c.toml"), file).expect("written");
    Command::new(env!("CARGO_BIN_EXE_steadyvm"))
        .current_dir(&directory)
        .args(["simulate", "cluster", "c.toml"])
        .args(arguments)
        .output()
        .expect("it runs")
}

const CLUSTER: &str = "length = \"3600s\"\nseeds = 3\npolicies = [\"nova\", \"nova-per-cpu\"]\n\n[[host]]\nname = \"h\"\ncpus = 1\n\
                       memory_mib = 100\nusable_percent = 100\n\n[[vm]]\nname = \"a\"\nmemory_mib = 1\nbudget = \"3ms\"\n\
                       period = \"10ms\"\n\n[[start]]\nvm = \"a\"\ncount = 5\n";

#[test]
fn policies_are_compared_on_a_cluster() {
    let output = cluster(CLUSTER, &["--json", "--placement"]);
    assert_eq!(output.status.code(), Some(0));
    let found: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    // A VM of 30 % claims half of a CPU; three have 90 % of one.
    for (number, admitted) in [(0, 2), (1, 3)] {
        let policy = &found["policies"][number];
        assert_eq!(policy["runs"][2]["admitted_rt"], admitted);
        assert_eq!(policy["runs"][2]["rejected_rt"], 5 - admitted);
        assert_eq!(policy["figures"][0]["mean"], f64::from(admitted));
        assert_eq!(
            policy["placement"][0]["vms"].as_array().expect("VMs").len(),
            admitted as usize
        );
    }
    let text = cluster(CLUSTER, &["--threads", "1"]);
    let text = String::from_utf8(text.stdout).expect("text");
    assert!(text.contains("real-time VMs admitted") && text.contains("3.0 [3.0, 3.0]"));
}

#[test]
fn a_wrong_cluster_is_exit_code_2_and_names_its_line() {
    let wrong = CLUSTER.replace("cpus = 1", "cpus = 0");
    let output = cluster(&wrong, &[]);
    assert_eq!(output.status.code(), Some(2));
    let message = String::from_utf8(output.stderr).expect("text");
    assert!(
        message.contains("c.toml line 5") && message.contains("cpus is 0"),
        "{message}"
    );
}
