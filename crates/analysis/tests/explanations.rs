//! Every rejection explains itself: which task or VCPU, at which t, demand and supply. Random plans from
//! fixed seeds, and each kind of rejection once.
// Helpers of tests unwrap, too.
#![allow(clippy::unwrap_used)]

use rand::{Rng, SeedableRng, seq::IndexedRandom};
use rand_chacha::ChaCha8Rng;
use serde_json::{Value, json};
use steadyvm_analysis::plan::{self, Explanation, Report};

fn run(request: &Value) -> Option<Report> {
    // Some random settings contradict each other; that is an error with its place, tested elsewhere.
    plan::json::parse(&request.to_string())
        .and_then(|request| plan::run(&request))
        .ok()
}

/// A reason must have all of its parts.
fn explained(reason: &Explanation, request: &Value) {
    let context = format!("{request}: {reason:?}");
    assert!(reason.vm.is_some(), "{context}");
    assert!(reason.task.is_some() || reason.vcpu.is_some(), "{context}");
    assert!(reason.t.is_some_and(|t| t > 0), "{context}");
    let (demand, supply) = (reason.demand.unwrap(), reason.supply.unwrap());
    if reason.undecided {
        assert!(
            reason.text.contains("undecided, so the answer is no"),
            "{context}"
        );
        assert!(reason.text.contains("decidable"), "{context}");
    } else {
        assert!(demand > supply, "{context}");
    }
    for figure in [i128::from(reason.t.unwrap()), demand, supply] {
        assert!(reason.text.contains(&figure.to_string()), "{context}");
    }
}

fn random_vm(rng: &mut ChaCha8Rng, name: usize) -> Value {
    let tasks: Vec<Value> = (0..rng.random_range(1..=4))
        .map(|_| {
            let t = rng.random_range(2..=40);
            let c = rng.random_range(1..=t.min(1 + t * 3 / 4));
            json!({"c": c, "d": rng.random_range(c..=t), "t": t})
        })
        .collect();
    let scheduler = *["dm", "edf", "gedf", "pedf"].choose(rng).unwrap();
    let interface = *["prm", "mpr", "dmpr"].choose(rng).unwrap();
    let mut vm = json!({"name": format!("vm{name}"), "scheduler": scheduler, "interface": interface,
                        "period": rng.random_range(1..=12), "tasks": tasks});
    if rng.random_bool(0.4) {
        vm["vcpus"] = json!(rng.random_range(1..=3));
    }
    if rng.random_bool(0.3) {
        vm["budget"] = json!(rng.random_range(1..=12));
    }
    if rng.random_bool(0.3) {
        vm["cpus"] = json!([rng.random_range(0..4)]);
    }
    vm
}

#[test]
fn every_random_rejection_is_explained() {
    let mut rng = ChaCha8Rng::seed_from_u64(21);
    let (mut rejected, mut of_tasks, mut of_vcpus) = (0, 0, 0);
    while rejected < 12_000 {
        let vms: Vec<Value> = (0..rng.random_range(1..=4))
            .map(|name| random_vm(&mut rng, name))
            .collect();
        let mut host = json!({"pcpus": rng.random_range(1..=4),
                              "scheduler": *["pedf", "gedf", "pdm", "gdm"].choose(&mut rng).unwrap(),
                              "server": *["cbs", "deferrable"].choose(&mut rng).unwrap()});
        if rng.random_bool(0.3) {
            host["quantum"] = json!(rng.random_range(0..3));
            host["overheads"] = json!({"context_switch": 1});
        }
        let request = json!({"vms": vms, "host": host});
        let Some(report) = run(&request) else {
            continue;
        };
        if report.feasible {
            assert!(report.explanations.is_empty());
            continue;
        }
        rejected += 1;
        assert!(!report.explanations.is_empty(), "{request}");
        for reason in &report.explanations {
            explained(reason, &request);
            of_tasks += usize::from(reason.task.is_some());
            of_vcpus += usize::from(reason.vcpu.is_some());
        }
    }
    assert!(
        of_tasks > 1_000 && of_vcpus > 1_000,
        "{of_tasks} {of_vcpus}"
    );
}

fn only_reason(request: &Value) -> Explanation {
    let report = run(request).unwrap();
    assert!(!report.feasible, "{request}");
    for reason in &report.explanations {
        explained(reason, request);
    }
    report.explanations[0].clone()
}

fn figures(reason: &Explanation) -> (i64, i128, i128) {
    (
        reason.t.unwrap(),
        reason.demand.unwrap(),
        reason.supply.unwrap(),
    )
}

fn tasks(parameters: &[(i64, i64)]) -> Vec<Value> {
    parameters
        .iter()
        .map(|&(c, t)| json!({"c": c, "d": t, "t": t}))
        .collect()
}

/// The figures of each kind, by hand.
#[test]
fn each_kind_has_its_witness() {
    let on = |vms: Value, pcpus: i64, scheduler: &str| json!({"vms": vms, "host": {"pcpus": pcpus, "scheduler": scheduler}});
    // A given budget too small: the note's case, 20 needed in 20 and 16 supplied.
    let set = tasks(&[(6, 20), (1, 20), (4, 20), (3, 20)]);
    let vm = json!([{"name": "a", "scheduler": "gedf", "interface": "mpr", "period": 5, "vcpus": 2,
                     "budget": 5, "tasks": set}]);
    let reason = only_reason(&on(vm, 2, "gedf"));
    assert_eq!(
        (reason.task.as_deref(), figures(&reason)),
        (Some("tasks[0]"), (20, 20, 16))
    );
    // Three tasks of 2 in 3 on two partitioned VCPUs.
    let vm = json!([{"name": "a", "scheduler": "pedf", "interface": "prm", "period": 3, "vcpus": 2,
                     "tasks": tasks(&[(2, 3), (2, 3), (2, 3)])}]);
    let reason = only_reason(&on(vm, 2, "pedf"));
    assert_eq!(
        (reason.task.as_deref(), figures(&reason)),
        (Some("tasks[2]"), (3, 4, 3))
    );
    // Two VCPUs that always run, both on CPU 0.
    let whole = |name: &str| {
        json!({"name": name, "scheduler": "edf", "interface": "prm", "period": 4, "cpus": [0],
               "tasks": tasks(&[(7, 7)])})
    };
    let reason = only_reason(&on(json!([whole("a"), whole("b")]), 2, "pedf"));
    assert_eq!((reason.vcpu, figures(&reason)), (Some(0), (4, 8, 4)));
    // Half a CPU on a CPU that is taken.
    let half = json!({"name": "b", "scheduler": "edf", "interface": "prm", "period": 4, "cpus": [0],
                      "tasks": tasks(&[(2, 100)])});
    let reason = only_reason(&on(json!([whole("a"), half]), 2, "gedf"));
    assert_eq!(
        (reason.vm.as_deref(), figures(&reason)),
        (Some("b"), (4, 5, 4))
    );
    // Overheads: 3 + 2 + quantum 3 in a period of 5.
    let vm = json!([{"name": "a", "scheduler": "edf", "interface": "prm", "period": 5,
                     "tasks": tasks(&[(3, 10)])}]);
    let mut request = on(vm, 1, "pedf");
    request["host"]["quantum"] = json!(3);
    request["host"]["overheads"] = json!({"context_switch": 1});
    let (t, demand, supply) = figures(&only_reason(&request));
    assert!(t == 5 && supply == 5 && demand > 5);
    // A tie of the interference test: two others can hold both CPUs for more than the slack.
    let vm = |name: &str| {
        json!({"name": name, "scheduler": "edf", "interface": "prm", "period": 3,
               "tasks": tasks(&[(20, 30)])})
    };
    let reason = only_reason(&on(json!([vm("a"), vm("b"), vm("c")]), 2, "gdm"));
    let (t, demand, supply) = figures(&reason);
    assert!(supply == 2 * i128::from(t) && demand > supply);
}

/// Where the allowed work ends first, the answer is no, and says what it is.
#[test]
fn undecided_plans_say_no_and_why() {
    // Global DM of so many tasks takes too many windows to look at.
    let tasks: Vec<Value> = (0..3_000)
        .map(|i| {
            let t = 100_000_000 + i * 33_331;
            json!({"c": t / 3_001, "d": t * 9 / 10, "t": t})
        })
        .collect();
    let vm = json!({"name": "a", "scheduler": "dm", "interface": "mpr", "period": 10_000, "vcpus": 2,
                    "tasks": tasks});
    let reason = only_reason(&json!({"vms": [vm], "host": {"pcpus": 2, "scheduler": "gedf"}}));
    assert!(reason.undecided && reason.task.is_some(), "{reason:?}");
    assert!(reason.text.contains("allowance of work"), "{reason:?}");
    // So many deferrable VCPUs cannot all be packed.
    let vms: Vec<Value> = (0..6_000)
        .map(|i| {
            json!({"name": format!("vm{i}"), "scheduler": "edf", "interface": "prm",
                   "period": 5 + i % 26, "tasks": [{"c": 1 + i % 9, "d": 50 + i % 50, "t": 100}]})
        })
        .collect();
    let host = json!({"pcpus": 3_000, "scheduler": "pedf", "server": "deferrable"});
    let reason = only_reason(&json!({"vms": vms, "host": host}));
    assert!(reason.undecided && reason.vcpu.is_some(), "{reason:?}");
}

const SERVICE: &str = r#"
[host]
pcpus = 1
scheduler = "pedf"
method = "METHOD"
[[vm]]
name = "a"
scheduler = "dm"
period = "10ms"
tasks = [ { name = "netrt", c = "1ms", d = "40ms", t = "50ms" } ]
[[service]]
name = "echo"
vm = "a"
task = "netrt"
LIMIT
"#;

fn service(method: &str, limit: &str) -> Report {
    let text = SERVICE.replace("METHOD", method).replace("LIMIT", limit);
    plan::file::parse(&text)
        .and_then(|request| plan::run(&request))
        .unwrap()
}

/// A service that misses its limit, or has no bound, names its task, the window, demand and supply.
#[test]
fn services_explain_themselves() {
    for method in [
        "rt-levels",
        "profile-sockets",
        "outsourcing",
        "levels-sockets",
    ] {
        assert!(service(method, "limit = \"40ms\"").feasible, "{method}");
    }
    // Its deadline is the limit: a budget of 8 ms in every 10 has a blackout of 4.
    let short = service("outsourcing", "limit = \"5ms\"");
    assert!(
        short.feasible && short.services[0].bound == Some(5_000_000),
        "{short:?}"
    );
    assert_eq!(short.vms[0].vcpus[0].budget, 8_000_000);
    let impossible = service("outsourcing", "limit = \"900us\"");
    let [reason] = &impossible.explanations[..] else {
        panic!("{impossible:?}");
    };
    assert!(!impossible.feasible && reason.task.as_deref() == Some("netrt"));
    assert!(reason.text.contains("no plan can do this"), "{reason:?}");
    let figures = (reason.t, reason.demand, reason.supply);
    assert_eq!(figures, (Some(900_000), Some(1_000_000), Some(900_000)));
    for (limit, window) in [("", 40_000_000), ("limit = \"7ms\"", 7_000_000)] {
        let unbounded = service("vanilla", limit);
        let [reason] = &unbounded.explanations[..] else {
            panic!("{unbounded:?}");
        };
        assert!(!unbounded.feasible && unbounded.services[0].bound.is_none());
        assert_eq!(reason.task.as_deref(), Some("netrt"));
        let figures = (reason.t, reason.demand, reason.supply);
        assert_eq!(figures, (Some(window), Some(1_000_000), Some(0)));
        assert!(reason.text.contains("vanilla"));
    }
}
