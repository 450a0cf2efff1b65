//! Cases of the review of 2026-11-25, one by one: each was answered wrongly, or not at all.
#![allow(clippy::unwrap_used)]

use serde_json::{Value, json};
use steadyvm_analysis::plan::{self, InputError, Report};

fn toml(text: &str) -> Result<Report, InputError> {
    plan::file::parse(text).and_then(|request| plan::run(&request))
}

fn of_json(request: &Value) -> Result<Report, InputError> {
    plan::json::parse(&request.to_string()).and_then(|request| plan::run(&request))
}

/// A1: the default server on a global EDF host. The suggestion is to pin.
#[test]
fn constant_bandwidth_servers_on_global_edf() {
    let vm = |name: &str, period: i64, tasks: &[(i64, i64)]| {
        let tasks: Vec<Value> = (tasks.iter())
            .map(|&(c, d)| json!({"c": c, "d": d, "t": 100}))
            .collect();
        json!({"name": name, "scheduler": "edf", "interface": "prm", "period": period, "tasks": tasks})
    };
    let vms = [
        vm("victim", 8, &[(7, 9), (7, 100)]),
        vm("b", 8, &[(1, 13), (2, 13)]),
        vm("c", 14, &[(2, 24), (2, 24)]),
    ];
    let on = |scheduler: &str, server: &str| {
        let host = json!({"pcpus": 2, "scheduler": scheduler, "server": server});
        of_json(&json!({"vms": vms, "host": host})).unwrap()
    };
    let refused = on("gedf", "cbs");
    let budgets: Vec<i64> = refused.vms.iter().map(|vm| vm.vcpus[0].budget).collect();
    assert_eq!(budgets, [7, 3, 4]);
    assert!(!refused.feasible);
    let pinned = |change: &String| change.contains("under pedf");
    assert!(
        refused.suggestions.iter().any(pinned),
        "{:?}",
        refused.suggestions
    );
    assert!(on("pedf", "cbs").feasible && on("gedf", "periodic").feasible);
}

/// A2: packets that the receive path delays by up to 4 ms come as little as 6 ms apart.
#[test]
fn the_receive_paths_variation_is_release_jitter() {
    let text = |packet: &str| {
        format!(
            r#"
[host]
pcpus = 1
scheduler = "pedf"
[[vm]]
name = "a"
scheduler = "dm"
period = "1ms"
tasks = [ {{ name = "answer", c = "4ms", d = "9ms", t = "10ms" }}, {{ name = "log", c = "5ms", t = "10ms" }} ]
[[service]]
name = "answer"
vm = "a"
task = "answer"
receive = {{ {packet} }}
"#
        )
    };
    let report = toml(&text("interrupt = \"4ms\"")).unwrap();
    assert!(!report.feasible);
    assert_eq!(
        report.explanations[0].task.as_deref(),
        Some("log"),
        "{report:?}"
    );
    assert!(toml(&text("interrupt = \"0ms\"")).unwrap().feasible);
}

/// A2: the guest's wake-up and the way back are terms of the bound, and shorten the deadline.
#[test]
fn both_ways_are_in_the_bound() {
    let report = toml(
        "[[service]]\nvm = \"web\"\nc = \"1ms\"\nt = \"10ms\"\nlimit = \"5ms\"\nwake = \"300us\"\nsend = \"200us\"\n\
         receive = { interrupt = \"50us\", packet = \"10us\", ahead = 4 }",
    )
    .unwrap();
    assert!(report.feasible, "{report:?}");
    let service = &report.services[0];
    assert_eq!(
        (service.guest_wakeup, service.send_path),
        (Some(300_000), Some(200_000))
    );
    assert_eq!(service.receive_path, Some(50_000 + 6 * 10_000));
    assert_eq!(service.bound, Some(5_000_000));
    // Due when the rest of the limit is what comes after: 5 - 0.11 - 0.2 ms. The wake-up is in the budget.
    assert_eq!(report.vms[0].vcpus[0].deadline, 4_690_000);
    assert_eq!(report.vms[0].vcpus[0].budget, 1_300_000);
}

/// A chosen period: the least bandwidth has the shortest one, of which the fair server takes most.
#[test]
fn a_chosen_period_counts_what_the_fair_server_takes_of_it() {
    let text = |vms: usize, period: &str| {
        let vm = |number: usize| {
            let tasks = "tasks = [{ c = \"4.25ms\", t = \"50ms\" }]";
            format!("[[vm]]\nname = \"v{number}\"\ninterface = \"prm\"\n{period}\n{tasks}\n")
        };
        let vms: Vec<String> = (0..vms).map(vm).collect();
        let vms = vms.concat();
        format!("[host]\npcpus = 2\nscheduler = \"pedf\"\nenforce = \"deadline\"\n{vms}")
    };
    assert!(toml(&text(16, "period = \"10ms\"")).unwrap().feasible);
    assert!(toml(&text(16, "")).unwrap().feasible);
}

/// A3: a guest that wakes four times in a period costs four times the switches; the answer has both budgets.
#[test]
fn switches_are_counted_by_wake_up() {
    let plan = |wakeups: i64| {
        let vms = json!([
            {"name": "a", "tasks": [{"c": 1, "d": 20, "t": 20}], "interface": "prm", "scheduler": "edf", "period": 12},
            {"name": "v", "tasks": [{"c": 10, "d": 48, "t": 48}], "interface": "prm", "scheduler": "edf", "period": 24}
        ]);
        let overheads = json!({"context_switch": 1, "wakeups": wakeups});
        let host = json!({"pcpus": 1, "scheduler": "pedf", "overheads": overheads});
        of_json(&json!({"vms": vms, "host": host, "unit": "ns"})).unwrap()
    };
    let once = plan(1);
    assert!(once.feasible, "{once:?}");
    for vm in &once.vms {
        let vcpu = &vm.vcpus[0];
        let cost = vcpu.install.as_ref().unwrap().runtime_ns - vcpu.budget;
        // One start of its own; and the other's within the period: one within 12, two within 24.
        let others = if vm.name == "a" { 1 } else { 2 };
        assert_eq!(cost, 1 + others, "{}", vm.name);
    }
    assert!(!plan(4).feasible);
}

/// A4: what several VCPUs under a global scheduler need of the guest is said.
#[test]
fn several_vcpus_state_their_precondition() {
    let plan = |scheduler: &str, interface: &str| {
        toml(&format!(
            "[host]\npcpus = 4\nscheduler = \"pedf\"\n[[vm]]\nname = \"a\"\nscheduler = \"{scheduler}\"\n\
             interface = \"{interface}\"\nperiod = \"2ms\"\ntasks = [ {{ c = \"6ms\", t = \"10ms\" }}, \
             {{ c = \"6ms\", t = \"11ms\" }}, {{ c = \"6ms\", t = \"12ms\" }} ]"
        ))
        .unwrap()
    };
    let said = |report: &Report| report.notes.iter().any(|note| note.contains("pedf"));
    assert!(said(&plan("gedf", "mpr")) && !said(&plan("pedf", "prm")));
    // Refused on one VCPU: pinned tasks are what is suggested.
    let one = plan("edf", "prm");
    assert!(
        one.suggestions[0].contains("(pedf, prm)"),
        "{:?}",
        one.suggestions
    );
}

/// A5: "2 ms every 10 ms, answer within 5 ms" is a whole request.
#[test]
fn a_service_alone_is_a_request() {
    let text = "[[service]]\nvm = \"web\"\nc = \"2ms\"\nt = \"10ms\"\nlimit = \"5ms\"\n";
    let report = toml(text).unwrap();
    assert!(report.feasible, "{report:?}");
    let vcpu = &report.vms[0].vcpus[0];
    assert_eq!(
        (vcpu.budget, vcpu.deadline, vcpu.period),
        (2_000_000, 5_000_000, 10_000_000)
    );
    let chosen = report.vms[0].chosen.as_ref().unwrap();
    assert!(
        chosen.contains("wakes with the request") && chosen.contains("next: a periodic"),
        "{chosen}"
    );
    assert_eq!(report.services[0].bound, Some(5_000_000));
    let install = vcpu.install.as_ref().unwrap();
    assert_eq!(
        (install.runtime_ns, install.deadline_ns, &install.cpus[..]),
        // With a margin of 4 us: 1, and 1 for each tick that may find it at work.
        (2_004_000, 5_000_000, &[0][..])
    );
    // The same in JSON; and with a task and a period of its own the limit is its deadline.
    let json = json!({"services": [{"vm": "web", "c": 2, "t": 10, "limit": 5}]});
    assert_eq!(of_json(&json).unwrap().vms[0].vcpus[0].deadline, 5);
    let given = "[host]\npcpus = 1\nscheduler = \"pedf\"\n[[vm]]\nname = \"web\"\nperiod = \"1ms\"\n\
                 tasks = [ { name = \"x\", c = \"2ms\", t = \"10ms\" } ]\n\
                 [[service]]\nvm = \"web\"\ntask = \"x\"\nlimit = \"5ms\"\n";
    let report = toml(given).unwrap();
    assert!(
        report.feasible && report.services[0].bound.unwrap() <= 5_000_000,
        "{report:?}"
    );
    let impossible = toml(&text.replace("5ms", "1ms")).unwrap();
    assert!(
        impossible
            .explanations
            .iter()
            .any(|reason| reason.text.contains("no plan can")),
        "{impossible:?}"
    );
}

/// A reservation begins with *the* request: two tasks, or a server that does not wake with it, cannot have one.
#[test]
fn reservations_are_for_one_task() {
    let plan = |server: &str, tasks: &str| {
        toml(&format!(
            "[host]\npcpus = 1\nscheduler = \"pedf\"\nserver = \"{server}\"\n[[vm]]\nname = \"a\"\n\
             interface = \"reservation\"\ntasks = [ {tasks} ]"
        ))
    };
    let (one, other) = (
        "{ c = \"1ms\", t = \"9ms\" }",
        "{ c = \"2ms\", t = \"8ms\" }",
    );
    assert!(plan("cbs", one).unwrap().feasible);
    for (server, tasks) in [
        ("cbs", format!("{one}, {other}")),
        ("deferrable", one.to_owned()),
    ] {
        let error = plan(server, &tasks).unwrap_err();
        assert!(error.message.contains("for one task"), "{error}");
    }
}

/// A6: what `SCHED_DEADLINE` does not take is refused, and what looks like a slip is called out.
#[test]
fn what_no_kernel_installs_is_said() {
    let plan = |period: &str, budget: &str| {
        toml(&format!(
            "[host]\npcpus = 1\nscheduler = \"pedf\"\nenforce = \"deadline\"\n[[vm]]\nname = \"a\"\n\
             period = {period}\nbudget = {budget}\n"
        ))
        .unwrap()
    };
    let why = |report: &Report| {
        report
            .explanations
            .iter()
            .map(|e| e.text.clone())
            .collect::<String>()
    };
    assert!(plan("\"10ms\"", "\"9ms\"").feasible);
    for (period, budget, word) in [
        ("\"10ms\"", "\"9.2ms\"", "95 % of a CPU"),
        ("\"50us\"", "\"10us\"", "period is 50 us"),
        ("\"5s\"", "\"1s\"", "period is 5 s"),
        ("\"10ms\"", "\"1us\"", "runtime is 1 us"),
    ] {
        let report = plan(period, budget);
        assert!(
            !report.feasible && why(&report).contains(word),
            "{word}: {report:?}"
        );
    }
    // A CPU of its own needs no reservation.
    assert!(plan("\"10ms\"", "\"10ms\"").feasible);
    let slip = plan("\"10ns\"", "\"3ns\"");
    assert!(
        slip.notes
            .iter()
            .any(|note| note.contains("is the unit right?")),
        "{slip:?}"
    );
    assert!(
        slip.notes
            .iter()
            .any(|note| note.contains("overheads are 0"))
    );
}

/// Where the kernel enforces, VCPUs are placed and counted by what it leaves of a CPU.
#[test]
fn placement_keeps_to_the_share_that_the_kernel_leaves() {
    use std::fmt::Write as _;
    let plan = |scheduler: &str, budgets_ms: &[u32]| {
        let mut text =
            format!("[host]\npcpus = 2\nscheduler = \"{scheduler}\"\nenforce = \"deadline\"\n");
        for (number, budget) in budgets_ms.iter().enumerate() {
            let _ = write!(
                text,
                "[[vm]]\nname = \"{number}\"\nperiod = \"100ms\"\nbudget = \"{budget}ms\"\n"
            );
        }
        toml(&text).unwrap()
    };
    // One CPU would hold both without the kernel.
    let apart = plan("pedf", &[40, 60]);
    assert!(apart.feasible, "{apart:?}");
    let cpus: Vec<_> = apart.vms.iter().map(|vm| &vm.vcpus[0].cpus).collect();
    assert_ne!(cpus[0], cpus[1]);
    assert_eq!(plan("pedf", &[40, 50]).min_pcpus, Some(1));
    for scheduler in ["pedf", "gedf"] {
        // 1.8 of 1.8 CPUs, and a tenth of one more.
        assert!(plan("pedf", &[50, 40, 60, 30]).feasible);
        let report = plan(scheduler, &[50, 40, 60, 30, 10]);
        assert!(
            !report.feasible && report.min_pcpus >= Some(3),
            "{report:?}"
        );
        let why = report.explanations.iter().map(|reason| &*reason.text);
        assert!(
            why.collect::<String>().contains("VCPUs may have 90 %"),
            "{report:?}"
        );
        for reason in &report.explanations {
            assert!(reason.demand > reason.supply, "{reason:?}");
        }
    }
    assert!(plan("gedf", &[90, 90]).feasible);
    // More than a CPU each has room only beside an empty one; a CPU of its own has none.
    let two = plan("gedf", &[95, 91]);
    assert!(!two.feasible && two.min_pcpus == Some(3), "{two:?}");
    assert_eq!(plan("pedf", &[95, 91]).min_pcpus, None);
}

/// `SCHED_DEADLINE` is EDF with constant-bandwidth servers: what else a plan is for, it does not keep.
#[test]
fn deadline_is_refused_what_it_is_not() {
    let plan = |scheduler: &str, server: &str, enforce: &str| {
        toml(&format!(
            "[host]\npcpus = 1\nscheduler = \"{scheduler}\"\nserver = \"{server}\"\nenforce = \"{enforce}\"\n\
             [[vm]]\nname = \"a\"\nperiod = \"10ms\"\nbudget = \"2ms\"\n"
        ))
    };
    for scheduler in ["pedf", "gedf", "pdm", "gdm"] {
        for server in ["cbs", "periodic", "sporadic", "deferrable"] {
            let what = format!("{scheduler} {server}");
            assert!(plan(scheduler, server, "ext").unwrap().feasible, "{what}");
            let refused = plan(scheduler, server, "deadline").map(|report| report.feasible);
            match (scheduler.ends_with("edf"), server) {
                (true, "cbs") => assert_eq!(refused, Ok(true)),
                (is_edf, _) => {
                    let error = refused.unwrap_err();
                    let place = if is_edf {
                        "host.server"
                    } else {
                        "host.scheduler"
                    };
                    assert_eq!(error.place, place, "{what}");
                    assert!(error.message.contains("enforce = \"ext\""), "{error}");
                }
            }
        }
    }
}

/// The fair server of a CPU runs before VCPUs for a piece of 1 ms at a time: who has less room than that waits too long.
#[test]
fn the_fair_server_is_a_term_of_the_test() {
    let plan = |scheduler: &str, enforce: &str, budget: &str, period: &str| {
        let text = format!(
            "[host]\npcpus = 1\nscheduler = \"{scheduler}\"\nenforce = \"{enforce}\"\n[[vm]]\nname = \"a\"\n\
             period = \"{period}\"\nbudget = \"{budget}\"\n[[vm]]\nname = \"b\"\nperiod = \"100ms\"\nbudget = \"1ms\"\n"
        );
        toml(&text).unwrap()
    };
    for scheduler in ["pedf", "gedf"] {
        for (budget, period, holds) in [
            ("800us", "1ms", false),
            ("7ms", "10ms", true),
            ("1ms", "4ms", true),
        ] {
            let report = plan(scheduler, "deadline", budget, period);
            assert_eq!(report.feasible, holds, "{scheduler} {budget}: {report:?}");
            assert!(
                plan(scheduler, "ext", budget, period).feasible,
                "{scheduler} {budget}"
            );
            if !holds {
                let why = &report.explanations[0];
                assert!(
                    why.demand > why.supply && why.text.contains("fair_server of [kernel]"),
                    "{why:?}"
                );
            }
        }
    }
}

/// A reservation that is due before its period ends must not be used up on `SCHED_DEADLINE`: what is installed has a margin,
/// which counts. A scheduler of `sched_ext` keeps it as a sporadic server, which needs none.
#[test]
fn reservations_have_a_margin_where_the_kernel_keeps_them() {
    let plan = |scheduler: &str, enforce: &str, d: &str| {
        toml(&format!(
            "[host]\npcpus = 1\nscheduler = \"{scheduler}\"\n{enforce}\n[[vm]]\nname = \"a\"\ninterface = \"reservation\"\n\
             tasks = [{{ c = \"2ms\", d = \"{d}\", t = \"10ms\" }}]\n"
        ))
        .unwrap()
    };
    let install = |report: &Report| report.vms[0].vcpus[0].install.clone().unwrap();
    let (deadline, ext) = ("enforce = \"deadline\"", "enforce = \"ext\"");
    for scheduler in ["pedf", "gedf"] {
        for enforce in ["", deadline] {
            let report = plan(scheduler, enforce, "4ms");
            let found = install(&report);
            assert_eq!(
                (found.runtime_ns, found.margin_ns),
                (2_004_000, 4_000),
                "{enforce}"
            );
            assert_eq!(found.server, plan::ServerName::Cbs);
            assert!(
                report.notes.iter().any(|note| note.contains("costs two")),
                "{report:?}"
            );
            // Due with its period: a new one begins at the wake-up.
            assert_eq!(install(&plan(scheduler, enforce, "10ms")).margin_ns, 0);
        }
        let found = install(&plan(scheduler, ext, "4ms"));
        assert_eq!((found.runtime_ns, found.margin_ns), (2_000_000, 0));
        assert_eq!(found.server, plan::ServerName::Sporadic);
    }
    assert_eq!(install(&plan("pdm", "", "4ms")).margin_ns, 0);
    // No room for a margin: a CPU of its own.
    let full = plan("pedf", "", "2.001ms");
    assert!(full.feasible && full.vms[0].vcpus[0].dedicated, "{full:?}");
}

/// A7: other words of the answer.
#[test]
fn refusals_say_what_is_so() {
    let text = "[host]\npcpus = 1\nscheduler = \"pedf\"\n[[vm]]\nname = \"b\\u001b[31m\"\nbudget = \"9ms\"\n\
                period = \"10ms\"\n[[service]]\nvm = \"web\"\nc = \"2ms\"\nt = \"10ms\"\nlimit = \"5ms\"\n";
    let report = toml(text).unwrap();
    let printed = plan::text::render(&report, true);
    assert!(
        !report.feasible && !printed.contains("(within limit"),
        "{printed}"
    );
    assert!(
        !printed.contains('\u{1b}') && printed.contains("u{1b}"),
        "{printed}"
    );
    assert!(printed.contains("web: its reservation"), "{printed}");
    let quoted = toml("[host]\npcpus = \"4\"\nscheduler = \"pedf\"").unwrap_err();
    assert!(!quoted.message.contains("i64"), "{quoted}");
}

/// One interface: what a file says, JSON says; an error names the field.
#[test]
fn json_says_what_files_say() {
    let request = json!({
        "unit": "ns",
        "class": {"rt": {"period": {"from": 1_000_000, "to": 5_000_000, "step": 1_000_000}}},
        "vms": [
            {"name": "a", "class": "rt", "tasks": [{"name": "x", "c": 1_000_000, "t": 20_000_000, "suspension": 1}]},
            {"name": "b", "budget": 1_000_000, "period": 5_000_000},
            {"name": "c", "rt": false, "vcpus": 2}
        ],
        "services": [{"name": "s", "vm": "a", "task": "x", "limit": 19_000_000}],
        "host": {"pcpus": 1, "scheduler": "pedf", "server": "periodic", "method": "outsourcing"}
    });
    let report = of_json(&request).unwrap();
    assert!(report.feasible && report.services[0].met, "{report:?}");
    assert!(report.vms[1].vcpus[0].install.is_some());
    let mut wrong = request.clone();
    wrong["vms"][0]["tasks"][0]["c"] = json!({"ms": 1});
    let error = of_json(&wrong).unwrap_err();
    assert!(error.place.contains("tasks[0].c"), "{error}");
}

/// A VCPU that sleeps and wakes may be due later on these servers (crates/sched-policy/tests/models.rs).
#[test]
fn tasks_that_suspend_themselves_are_refused_where_servers_begin_anew() {
    let plan = |server: &str, suspension: u64| {
        let task = json!({"name": "x", "c": 1_000_000, "t": 20_000_000, "suspension": suspension});
        of_json(&json!({
            "unit": "ns",
            "vms": [{"name": "a", "period": 5_000_000, "tasks": [task]}],
            "host": {"pcpus": 1, "scheduler": "pedf", "server": server}
        }))
    };
    for server in ["cbs", "sporadic"] {
        assert!(plan(server, 0).unwrap().feasible);
        let error = plan(server, 1).unwrap_err().to_string();
        assert!(error.contains("task x suspends itself"), "{error}");
        assert!(error.contains("server = \"periodic\""), "{error}");
    }
    for server in ["periodic", "deferrable"] {
        assert!(plan(server, 1).unwrap().feasible);
    }
}

/// Another scheduler is named with what the VMs need there: `cbs` needs more under fixed priorities.
#[test]
fn another_scheduler_is_suggested_with_the_interfaces_that_it_needs() {
    // 2 in 4 each suffices on a periodic resource, and a sporadic server's interface is larger.
    let task = json!({"name": "x", "c": 2, "d": 6, "t": 12});
    let request = |scheduler: &str| {
        of_json(&json!({
            "vms": [
                {"name": "a", "period": 4, "interface": "prm", "tasks": [task]},
                {"name": "b", "period": 4, "interface": "prm", "tasks": [task]}
            ],
            "host": {"pcpus": 1, "scheduler": scheduler}
        }))
        .unwrap()
    };
    assert!(request("pedf").feasible);
    let refused = request("pdm");
    assert!(!refused.feasible);
    let suggested = |under: &str| {
        let mut all = refused.suggestions.iter();
        all.any(|text| text.contains(&format!("under {under}")))
    };
    assert!(suggested("pedf"), "{:?}", refused.suggestions);
}

/// A request with one part replaced.
type Wrap = fn(Value) -> Value;

/// Every field of the schema is read, with the words and whole numbers that it names.
#[test]
fn the_schema_and_the_reader_agree() {
    let schema: Value = serde_json::from_str(include_str!("../request.schema.json")).unwrap();
    // An object of `true`s: each field is known, and of another type.
    let fields = |of: &Value| -> Vec<String> {
        of["properties"]
            .as_object()
            .unwrap()
            .keys()
            .cloned()
            .collect()
    };
    let wrap: [(&str, Wrap); 5] = [
        ("flow", |value| json!({"flows": [value]})),
        ("host", |value| json!({"host": value})),
        ("vm", |value| json!({"vms": [value]})),
        ("task", |value| json!({"vms": [{"tasks": [value]}]})),
        ("service", |value| json!({"services": [value]})),
    ];
    let mut seen = 0;
    for (name, wrap) in wrap {
        for field in fields(&schema["$defs"][name]) {
            let error =
                of_json(&wrap(json!({ &field: Value::Null, "no such field": 1 }))).unwrap_err();
            // The reader names all the fields it knows.
            if error.message.contains("unknown field") {
                assert!(
                    error.message.contains(&format!("`{field}`")),
                    "{name}.{field}: {error}"
                );
                seen += 1;
            } else {
                assert!(error.place.contains(&field), "{name}.{field}: {error}");
            }
        }
    }
    assert!(seen > 10, "{seen}");
}

/// D: reservations that wake with the request take half of what the best periodic resource takes in the mean,
/// over the review's five services (C, D, T in us, 32 us of costs).
#[test]
fn reservations_take_half_of_the_best_periodic_resource() {
    let services = [
        (2_000, 5_000, 10_000),
        (300, 4_000, 5_000),
        (500, 1_000, 10_000),
        (2_000, 10_000, 10_000),
        (200, 500, 1_000),
    ];
    let mut ratios = Vec::new();
    for (c, d, t) in services {
        let bandwidth = |interface: &str| {
            let period = if interface == "prm" {
                "period = { from = \"50us\", to = \"10ms\", step = \"50us\" }"
            } else {
                ""
            };
            let report = toml(&format!(
                "[host]\npcpus = 1\nscheduler = \"pedf\"\n[host.overheads]\ncontext_switch = \"6us\"\n\
                 cache_reload = \"20us\"\n[[vm]]\nname = \"a\"\ninterface = \"{interface}\"\n{period}\n\
                 tasks = [ {{ c = \"{c}us\", d = \"{d}us\", t = \"{t}us\" }} ]"
            ))
            .unwrap();
            let vcpu = &report.vms[0].vcpus[0];
            let runtime = vcpu
                .install
                .as_ref()
                .map_or(vcpu.budget + 32_000, |install| install.runtime_ns);
            runtime as f64 / vcpu.period as f64
        };
        let (reservation, resource, best) = (
            bandwidth("reservation"),
            bandwidth("prm"),
            bandwidth("best"),
        );
        assert!(
            best <= resource.min(reservation) + 1e-9,
            "{c} {d} {t}: {best} {resource} {reservation}"
        );
        ratios.push(reservation / resource);
    }
    let mean = ratios.iter().sum::<f64>() / ratios.len() as f64;
    println!("{ratios:?}, mean {mean:.3}");
    assert!(mean <= 0.5, "{ratios:?}");
}

/// A3: without a number, every release may wake the guest of a server that may sleep; a periodic server idles on.
#[test]
fn switches_are_counted_from_the_tasks() {
    let plan = |server: &str, vm: Value| {
        let overheads = json!({"context_switch": 10, "cache_reload": 5});
        let host =
            json!({"pcpus": 4, "scheduler": "pedf", "server": server, "overheads": overheads});
        of_json(&json!({"vms": [vm], "host": host, "unit": "ns"})).unwrap()
    };
    let costs = |report: &Report| -> Vec<i64> {
        let vcpus = &report.vms[0].vcpus;
        vcpus
            .iter()
            .map(|vcpu| vcpu.install.as_ref().unwrap().runtime_ns - vcpu.budget)
            .collect()
    };
    let tasks = json!([{"c": 10, "t": 2_000}, {"c": 100, "t": 10_000, "jitter": 1_000}]);
    let one = json!({"name": "a", "scheduler": "edf", "interface": "prm", "period": 4_000, "tasks": tasks});
    // Each start: a switch and a reload. Nobody else is on its CPU.
    // Two releases of the one, one of the other, and the budget's own return.
    assert_eq!(costs(&plan("cbs", one.clone())), [4 * 15]);
    assert_eq!(costs(&plan("periodic", one.clone())), [15]);
    // Tasks pinned to VCPUs wake their own only.
    let heavy = json!([{"c": 600, "t": 2_000}, {"c": 6_000, "t": 10_000}, {"c": 500, "t": 1_000}]);
    let pinned = json!({"name": "a", "period": 1_000, "interface": "prm", "tasks": heavy});
    let report = plan("cbs", pinned);
    assert!(
        report.feasible && report.vms[0].vcpus.len() > 1,
        "{report:?}"
    );
    assert!(
        costs(&report).iter().all(|&cost| cost <= 3 * 15),
        "{report:?}"
    );
    // Given budgets: nothing is known of the guest, and that is said.
    let given = plan("cbs", json!({"name": "a", "budget": 100, "period": 4_000}));
    assert_eq!(costs(&given), [15]);
    let unknown = |note: &String| note.contains("how often its guest wakes is unknown");
    assert!(given.notes.iter().any(unknown), "{:?}", given.notes);
    // A request that wakes its reservation wakes it once.
    let reserved =
        json!({"name": "a", "interface": "reservation", "tasks": [{"c": 100, "t": 4_000}]});
    assert_eq!(costs(&plan("cbs", reserved)), [15]);
}

/// A4: more than one VCPU and no scheduler said: tasks are pinned, which needs no help of the guest.
#[test]
fn guests_on_several_vcpus_are_partitioned_by_default() {
    let plan = |vm: &str| {
        toml(&format!(
            "[host]\npcpus = 4\nscheduler = \"pedf\"\n[[vm]]\nname = \"a\"\n{vm}\ntasks = [ {{ c = \"6ms\", t = \"10ms\" }}, \
             {{ c = \"6ms\", t = \"11ms\" }}, {{ c = \"6ms\", t = \"12ms\" }} ]"
        ))
        .unwrap()
    };
    for vm in [
        "",
        "period = \"2ms\"",
        "vcpus = 3",
        "vcpus = 3\nperiod = \"1ms\"",
    ] {
        let report = plan(vm);
        assert!(report.feasible, "{vm}: {report:?}");
        let vcpus = &report.vms[0].vcpus;
        assert!(
            vcpus.len() > 1 && vcpus.iter().all(|vcpu| !vcpu.tasks.is_empty()),
            "{vm}: {report:?}"
        );
        assert!(
            !report
                .notes
                .iter()
                .any(|note| note.contains("global scheduler"))
        );
    }
    // One VCPU is asked for: refused, as before.
    assert!(!plan("vcpus = 1").feasible);
}

/// What a reservation needs of the guest is said in the text and in JSON, with and without a unit.
#[test]
fn reservations_say_what_they_need_of_the_guest() {
    let said = |report: &Report| {
        let note = "holds only while nothing else wakes that VCPU";
        let json = serde_json::to_value(report).unwrap();
        let notes = json["notes"].to_string().contains(note);
        assert_eq!(notes, plan::text::render(report, false).contains(note));
        notes
    };
    let service = |more: Value| {
        let mut request = json!({"services": [{"vm": "web", "c": 2_000_000, "t": 10_000_000, "limit": 5_000_000}]});
        request
            .as_object_mut()
            .unwrap()
            .extend(more.as_object().unwrap().clone());
        of_json(&request).unwrap()
    };
    assert!(said(&service(json!({}))) && said(&service(json!({"unit": "ns"}))));
    let host = json!({"pcpus": 1, "scheduler": "pedf", "server": "periodic"});
    assert!(!said(&service(json!({"host": host}))));
}

/// Of a whole host, no budget can be one unit smaller: the plan that takes it is refused and names the VM.
#[test]
fn a_whole_host_with_one_unit_less_is_refused() {
    use rand::{Rng, SeedableRng};
    let mut rng = rand_chacha::ChaCha8Rng::seed_from_u64(6);
    let (mut hosts, mut smaller) = (0, 0);
    while hosts < 300 {
        let scheduler = ["pedf", "gedf", "pdm", "gdm"][rng.random_range(0..4)];
        let server = ["cbs", "periodic", "deferrable", "sporadic"][rng.random_range(0..4)];
        let cpus = rng.random_range(1..=3);
        let vms: Vec<Value> = (0..rng.random_range(2..=cpus + 2))
            .map(|vm| {
                let tasks: Vec<Value> = (0..rng.random_range(1..=3))
                    .map(|_| {
                        let t = rng.random_range(20..200);
                        json!({"c": rng.random_range(1..=t / 8), "d": rng.random_range(t / 2..=t), "t": t})
                    })
                    .collect();
                let guest = ["edf", "dm"][rng.random_range(0..2)];
                json!({"name": format!("vm{vm}"), "scheduler": guest, "interface": "prm",
                       "period": rng.random_range(4..20), "tasks": tasks})
            })
            .collect();
        let host = json!({"pcpus": cpus, "scheduler": scheduler, "server": server});
        let request = json!({"vms": vms, "host": host});
        let report = of_json(&request).unwrap();
        if !report.feasible {
            continue;
        }
        hosts += 1;
        let with = |vm: usize, budget: i64| {
            let mut request = request.clone();
            request["vms"][vm]["budget"] = budget.into();
            of_json(&request).unwrap()
        };
        for (vm, least) in report.vms.iter().enumerate() {
            let budget = least.interface.as_ref().unwrap().budget;
            assert!(with(vm, budget).feasible, "{request}");
            if budget == 1 {
                continue;
            }
            smaller += 1;
            let less = with(vm, budget - 1);
            assert!(!less.feasible, "{request}: VM {vm} with {}", budget - 1);
            let reason = &less.explanations[0];
            assert_eq!(reason.vm.as_ref(), Some(&least.name), "{reason:?}");
            assert!(
                reason.demand > reason.supply && !reason.undecided,
                "{reason:?}"
            );
        }
    }
    assert!(smaller > 500, "{smaller}");
}
