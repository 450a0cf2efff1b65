//! The pages of docs/reference have every key that the program takes or writes, and no other. What vm.toml may have is
//! asked of serde itself: an unknown key's error lists all that were expected. The page of steadyvm.toml is generated.

#![allow(clippy::unwrap_used)] // helpers of tests

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::Value;
use steadyvm_analysis::plan;
use steadyvm_report::results::{Curve, Figure, Interval, Over, RATIO, Record, Settings, Version};
use steadyvm_sched::show::{GuestReport, Standing, VcpuStanding};

type Keys = BTreeSet<String>;

fn page(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference");
    fs::read_to_string(path.join(name)).unwrap()
}

/// Words between backticks.
fn quoted(text: &str) -> Keys {
    text.split('`')
        .skip(1)
        .step_by(2)
        .map(str::to_owned)
        .collect()
}

/// What stands below a heading, up to the next one.
fn section<'t>(page: &'t str, heading: &str) -> &'t str {
    let start = page
        .find(&format!("\n## {heading}\n"))
        .unwrap_or_else(|| panic!("the page has no section {heading}"));
    let text = &page[start + 4..];
    text.find("\n## ").map_or(text, |end| &text[..end])
}

/// The keys of a section: the words in the first cells of its rows.
fn described(page: &str, heading: &str) -> Keys {
    let rows = section(page, heading)
        .lines()
        .filter(|line| line.starts_with("| `"));
    rows.flat_map(|row| quoted(row.split('|').nth(1).unwrap()))
        .collect()
}

/// The keys that a reader would have taken instead of `zz`, by its refusal.
fn expected(refusal: &str) -> Keys {
    let (_, list) = refusal
        .split_once("unknown field `zz`, expected ")
        .unwrap_or_else(|| panic!("no refusal of zz: {refusal}"));
    quoted(list.lines().next().unwrap())
}

fn of_vm(text: &str) -> Keys {
    let text = format!("name = \"a\"\nkernel = \"k\"\n{text}");
    expected(
        &steadyvm_vmm::configuration::Configuration::parse(&text, "vm.toml")
            .unwrap_err()
            .to_string(),
    )
}

const ONE: &str = "[host]\npcpus = 1\nscheduler = \"pedf\"\n";

#[test]
fn vm_toml_has_every_key_and_no_other() {
    let page = page("vm.toml.md");
    for (heading, text) in [
        ("Top level", "zz = 1"),
        ("`[[disk]]`", "[[disk]]\nzz = 1"),
        ("`[[net]]`", "[[net]]\nzz = 1"),
        ("`[channel]`", "[channel]\nzz = 1"),
        ("`[sockets]`", "[sockets]\nzz = 1"),
    ] {
        assert_eq!(described(&page, heading), of_vm(text), "{heading}");
    }
}

/// Names of fields at any depth. Names that are data, those of VMs, are not among them.
fn names(value: &Value, data: &[&str], found: &mut Keys) {
    match value {
        Value::Object(fields) => {
            for (name, inner) in fields {
                if !data.contains(&name.as_str()) {
                    found.insert(name.clone());
                }
                names(inner, data, found);
            }
        }
        Value::Array(items) => items.iter().for_each(|item| names(item, data, found)),
        _ => {}
    }
}

/// Every name in a document stands in its section.
fn is_described(heading: &str, value: &Value, data: &[&str]) {
    let known = quoted(section(&page("json.md"), heading));
    let mut found = Keys::new();
    names(value, data, &mut found);
    let missing: Vec<_> = found.difference(&known).collect();
    assert!(
        !found.is_empty() && missing.is_empty(),
        "{heading}: {missing:?}"
    );
}

const INFEASIBLE: &str = "[[vm]]\nname = \"a\"\nperiod = \"10ms\"\ntasks = [{ name = \"x\", c = \"9ms\", t = \"10ms\" }]\n\
    [[vm]]\nname = \"b\"\nperiod = \"10ms\"\ntasks = [{ name = \"y\", c = \"9ms\", t = \"10ms\" }]\n\
    [[service]]\nname = \"s\"\nvm = \"a\"\ntask = \"x\"\nlimit = \"1ms\"\nsend = { guest = \"1us\", nic = \"1us\" }\n";

#[test]
fn json_of_a_plan_is_described() {
    let request = plan::file::parse(&format!("{ONE}{INFEASIBLE}")).unwrap();
    let report = plan::run(&request).unwrap();
    assert!(!report.feasible && !report.explanations.is_empty());
    is_described(
        "`plan --json`",
        &serde_json::to_value(&report).unwrap(),
        &[],
    );
}

#[test]
fn json_of_capacity_is_described() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("steadyvm.toml");
    let vm = "[[vm]]\nname = \"a\"\nperiod = \"10ms\"\nbudget = \"1ms\"\n";
    fs::write(&file, format!("{ONE}enforce = \"auto\"\n{vm}")).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_steadyvm"));
    let output = command.args(["capacity", "--json"]).arg(&file).output();
    let value = serde_json::from_slice(&output.unwrap().stdout).unwrap();
    is_described("`capacity --json`", &value, &[]);
}

#[test]
fn json_of_budgets_is_described() {
    let mut standing = Standing::nothing();
    standing.vcpus.push(VcpuStanding {
        guest: Some(GuestReport { jobs: 1, misses: 0 }),
        ..VcpuStanding::default()
    });
    is_described(
        "`top --budgets --json`",
        &serde_json::to_value(&standing).unwrap(),
        &[],
    );
}

#[test]
fn json_of_results_is_described() {
    let over = Over {
        row: "a".into(),
        cell: "c".into(),
    };
    let interval = Interval {
        median: 1.0,
        low: Some(0.9),
        high: None,
    };
    let figure = Figure {
        row: "b".into(),
        cell: "c".into(),
        name: "p99".into(),
        unit: RATIO.into(),
        n: 1,
        value: Some(1.0),
        interval: Some(interval),
        over: Some(over),
        rounds: vec![Some(1.0)],
    };
    let curve = Curve {
        row: "a".into(),
        cell: "c".into(),
        name: "times".into(),
        unit: "us".into(),
        points: vec![(0.5, 1.0)],
    };
    let record = Record {
        schema_version: Version,
        experiment: "x".into(),
        settings: Settings::new(),
        rounds: 1,
        rows: vec!["a".into(), "b".into()],
        cells: vec!["c".into()],
        figures: vec![figure],
        curves: vec![curve],
        notes: vec!["n".into()],
    };
    is_described(
        "`results.json`",
        &serde_json::to_value(&record).unwrap(),
        &[],
    );
}

#[test]
fn json_of_status_is_described() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("steadyvm.toml");
    fs::write(
        &file,
        format!("{ONE}[net]\nbudget_packets = 299\n{INFEASIBLE}"),
    )
    .unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_steadyvm"))
        .arg("status")
        .arg(&file)
        .arg("--json")
        .arg(format!(
            "--state-dir={}",
            directory.path().join("state").display()
        ))
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    let value =
        serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {said}"));
    // What it has of the plan is described there.
    let mut known = quoted(section(&page("json.md"), "`plan --json`"));
    known.extend(["a", "b", "/proc/sys/net/core/netdev_budget"].map(str::to_owned));
    let data: Vec<&str> = known.iter().map(String::as_str).collect();
    is_described("`status --json`", &value, &data);
}
