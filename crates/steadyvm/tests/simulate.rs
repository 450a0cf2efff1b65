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

const SOFT: &str = "[host]\npcpus = 1\nserver = \"capacity-reclaiming\"\nenforce = \"ext\"\n\n\
                    [[vm]]\nname = \"hard\"\nperiod = \"5ms\"\ntasks = [{ name = \"t\", c = \"2ms\", t = \"20ms\" }]\n\n\
                    [[vm]]\nname = \"soft\"\nsoft = true\nbudget = \"1ms\"\nperiod = \"10ms\"\n\
                    tasks = [{ name = \"s\", c = \"12ms\", t = \"20ms\" }]\n";

#[test]
fn a_soft_vms_share_is_stated_and_its_late_jobs_are_no_failure() {
    let (output, _directory) = simulate(SOFT, &["--duration", "2s", "--json"]);
    let found: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(output.status.code(), Some(0), "{found}");
    assert_eq!(found["feasible"], true);
    let soft = &found["shares"][1];
    assert_eq!((&soft["vm"], &soft["soft"]), (&"soft".into(), &true.into()));
    let of = &soft["in_time"];
    assert_eq!(of["runs"], 20);
    let number = |value: &serde_json::Value| value.as_f64().expect("a number");
    let (low, high) = (number(&of["interval"][0]), number(&of["interval"][1]));
    assert!(low <= number(&of["share"]) && number(&of["share"]) <= high);
    assert_eq!(found["shares"][0]["in_time"]["share"], 1.0);

    let (output, _directory) = simulate(SOFT, &["--duration", "1s", "--runs", "3"]);
    let text = String::from_utf8(output.stdout).expect("text");
    assert!(
        text.contains("over 3 runs of 1 s") && text.contains("no promise"),
        "{text}"
    );
    // Others' files have no statement unless it is asked for.
    let (output, _directory) = simulate(ONE, &["--duration", "1s"]);
    assert!(
        !String::from_utf8(output.stdout)
            .expect("text")
            .contains("runs of")
    );

    for (from, to, said) in [
        (
            "capacity-reclaiming",
            "periodic",
            "write server = \\\"capacity-reclaiming\\\"",
        ),
        ("budget = \"1ms\"\n", "", "needs a budget"),
        (
            "soft = true\n",
            "soft = true\nrt = false\n",
            "leave out one of the two",
        ),
    ] {
        let (output, _directory) = simulate(&SOFT.replace(from, to), &[]);
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{error}");
        assert!(error.contains(&said.replace('\\', "")), "{error}");
    }
}

#[test]
fn measured_costs_count_as_in_the_plan() {
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("calibration.toml");
    let cost = |ns| {
        Some(steadyvm_calibration::Cost {
            samples: 100,
            median_ns: ns,
            p99_ns: ns,
            max_ns: ns,
        })
    };
    let calibration = steadyvm_calibration::Calibration {
        unix_s: steadyvm_site::now_unix_s(),
        kernel: "6.12".into(),
        cpu: "A CPU".into(),
        seconds: 10,
        vms: 0,
        context_switch: cost(700_000),
        cache_reload: cost(1),
        working_set_kib: Some(1024),
        migration: None,
        wake_up: cost(3),
        timer: cost(4),
        interruption: cost(5),
        packet: None,
        packet_unix_s: None,
    };
    steadyvm_calibration::store::write(&file, &calibration).expect("written");
    let named = file.to_str().expect("a name");
    let plan = ONE.replace("2ms", "3ms").replace("5ms", "1ms");
    for (arguments, feasible) in [
        (vec!["--json"], true),
        (vec!["--json", "--calibration", named], false),
    ] {
        let (output, directory) = simulate(&plan, &arguments);
        let found: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
        assert_eq!(found["feasible"], feasible, "{found}");
        let planned = Command::new(env!("CARGO_BIN_EXE_steadyvm"))
            .current_dir(&directory)
            .args(["plan", "steadyvm.toml"])
            .args(&arguments)
            .output()
            .expect("it runs");
        let planned: serde_json::Value = serde_json::from_slice(&planned.stdout).expect("JSON");
        assert_eq!(planned["feasible"], feasible);
        let swept = Command::new(env!("CARGO_BIN_EXE_steadyvm"))
            .current_dir(&directory)
            .args(["plan", "steadyvm.toml", "--sweep=vm.a.period=1ms..1ms/1ms"])
            .args(&arguments)
            .output()
            .expect("it runs");
        let swept: serde_json::Value = serde_json::from_slice(&swept.stdout).expect("JSON");
        assert_eq!(swept[0]["plan"]["feasible"], feasible);
    }
    let (output, _directory) = simulate(ONE, &["--calibration", "/nowhere.toml"]);
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
