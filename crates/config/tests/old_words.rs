//! Each word that files had before 1.0 is refused with its line, and with the line to write instead.

#![allow(clippy::unwrap_used)] // helpers of tests

use steadyvm_config::{File, Simulate, untyped};

/// A file with old words, and for each: its line, its name, and what to write.
type Case<'t> = (&'t str, &'t [(u32, &'t str, &'t str)]);

const CASES: [Case<'_>; 22] = [
    ("[sched]", &[(1, "sched", "enforce = \"auto\" into [host]")]),
    (
        "[sched]\nmechanism = \"ext\"",
        &[(2, "sched.mechanism", "enforce = \"ext\" into [host]")],
    ),
    (
        "[sched]\nmechanism = 'none'\nserver = 'polling'",
        &[
            (2, "sched.mechanism", "enforce = 'none' into [host]"),
            (3, "sched.server", "server = 'polling' into [host]"),
        ],
    ),
    (
        "[sched]\nmechanism = \"ext\"\norder = \"deadline-monotonic\"\nqueue = \"partitioned\"",
        &[
            (2, "sched.mechanism", "enforce = \"ext\" into [host]"),
            (3, "sched.order", "scheduler = \"pdm\" into [host]"),
            (4, "sched.queue", "scheduler = \"pdm\" into [host]"),
        ],
    ),
    (
        "[host]\nscheduler = \"pedf\"\n[sched]\norder = \"explicit\"",
        &[
            (3, "sched", "enforce = \"auto\" into [host]"),
            (4, "sched.order", "scheduler = \"pfp\" into [host]"),
        ],
    ),
    (
        "[sched]\norder = \"rate-monotonic\"",
        &[
            (1, "sched", "enforce = \"auto\" into [host]"),
            (2, "sched.order", "scheduler = \"grm\" into [host]"),
        ],
    ),
    (
        "[sched]\nmechanism = \"ext\"\nquantum_us = 1000",
        &[
            (2, "sched.mechanism", "enforce = \"ext\" into [host]"),
            (3, "sched.quantum_us", "quantum = \"1ms\" into [host]"),
        ],
    ),
    (
        "[sched]\nmechanism = \"ext\"\n[sched.vm.web]\nbudget_us = 2000\nperiod_us = 10_000\ndeadline_us = 5_500\n\
         server = \"cbs\"\npriority = 3\ncpus = [1, 2]",
        &[
            (2, "sched.mechanism", "enforce = \"ext\" into [host]"),
            (3, "sched.vm.web", "name = \"web\" into [[vm]]"),
            (
                4,
                "sched.vm.web.budget_us",
                "budget = \"2ms\" into the [[vm]] of \"web\"",
            ),
            (
                5,
                "sched.vm.web.period_us",
                "period = \"10ms\" into the [[vm]] of \"web\"",
            ),
            (
                6,
                "sched.vm.web.deadline_us",
                "deadline = \"5.5ms\" into the [[vm]] of \"web\"",
            ),
            (7, "sched.vm.web.server", "server = \"cbs\" into [host]"),
            (
                8,
                "sched.vm.web.priority",
                "priority = 3 into the [[vm]] of \"web\"",
            ),
            (
                9,
                "sched.vm.web.cpus",
                "cpus = [1, 2] into the [[vm]] of \"web\"",
            ),
        ],
    ),
    (
        "[host.overheads]\nquantum = \"74us\"\nscheduler = \"3us\"",
        &[
            (
                2,
                "host.overheads.quantum",
                "quantum = \"74us\" into [host]",
            ),
            (
                3,
                "host.overheads.scheduler",
                "decision = \"3us\" into [host.overheads]",
            ),
        ],
    ),
    (
        "[[host]]\nname = \"a\"\noverheads = { scheduler = \"3us\" }",
        &[(
            3,
            "host.overheads.scheduler",
            "decision = \"3us\" into [host.overheads]",
        )],
    ),
    (
        "[net]\nksoftirqd = \"normal\"\nrcu = 76\ntimers = 76\ndevice_irq = 77",
        &[
            (2, "net.ksoftirqd", "ksoftirqd = \"normal\" into [kernel]"),
            (3, "net.rcu", "rcu = 76 into [kernel]"),
            (4, "net.timers", "timers = 76 into [kernel]"),
            (5, "net.device_irq", "device_irq = 77 into [kernel]"),
        ],
    ),
    (
        "[net]\nfair_server_us = 1500\nbudget_us = 2000",
        &[
            (
                2,
                "net.fair_server_us",
                "fair_server = \"1.5ms\" into [kernel]",
            ),
            (3, "net.budget_us", "budget_time = \"2ms\" into [net]"),
        ],
    ),
    ("[class.rt.net]", &[(1, "class.rt.net", "[class.rt]")]),
    (
        "[class.rt.net]\nirq = 80\nnapi = 78\nthreaded_napi = true\ncpus = [1]\nvhost = 75\nvcpu = 70\nio = 71\nmain = 72\n\
         tap_qdisc = \"prio\"\ntap_batch = 1",
        &[
            (2, "class.rt.net.irq", "irq = 80 into [class.rt]"),
            (3, "class.rt.net.napi", "napi = 78 into [class.rt]"),
            (
                4,
                "class.rt.net.threaded_napi",
                "threaded_napi = true into [class.rt]",
            ),
            (5, "class.rt.net.cpus", "path_cpus = [1] into [class.rt]"),
            (6, "class.rt.net.vhost", "vhost = 75 into [class.rt]"),
            (7, "class.rt.net.vcpu", "vcpu = 70 into [class.rt]"),
            (8, "class.rt.net.io", "io = 71 into [class.rt]"),
            (9, "class.rt.net.main", "main = 72 into [class.rt]"),
            (
                10,
                "class.rt.net.tap_qdisc",
                "tap_qdisc = \"prio\" into [class.rt]",
            ),
            (
                11,
                "class.rt.net.tap_batch",
                "tap_batch = 1 into [class.rt]",
            ),
        ],
    ),
    (
        "[class.own]\nnet = { irq = 3 }",
        &[(2, "class.own.net.irq", "irq = 3 into [class.own]")],
    ),
    (
        "[[vm]]\ntasks = [{ c = \"1ms\", t = \"9ms\", j = \"2us\" },\n  { c = \"1ms\", t = \"9ms\", s = \"3us\" }]",
        &[
            (2, "vm.tasks.j", "jitter = \"2us\" into the task"),
            (3, "vm.tasks.s", "suspension = \"3us\" into the task"),
        ],
    ),
    (
        "[class.c]\ntasks = [{ j = \"2us\" }]",
        &[(2, "class.c.tasks.j", "jitter = \"2us\" into the task")],
    ),
    (
        "[simulate]\nseed = 1",
        &[(
            1,
            "simulate",
            "for steadyvm simulate FILE --with simulate.toml",
        )],
    ),
    (
        "[host]\nscheduler = \"pedf\"\n[simulate]\norder = \"dm\"",
        &[
            (
                3,
                "simulate",
                "for steadyvm simulate FILE --with simulate.toml",
            ),
            (
                4,
                "simulate.order",
                "scheduler = \"pdm\" into simulate.toml",
            ),
        ],
    ),
    (
        "[random]\nsets = 1",
        &[(1, "random", "for steadyvm plan FILE --random")],
    ),
    (
        "schema_version = 1\nunit = \"ns\"",
        &[
            (
                1,
                "schema_version",
                "leave it out (schema_version is of requests in JSON)",
            ),
            (2, "unit", "leave it out (unit is of requests in JSON)"),
        ],
    ),
    (
        "[[vms]]\n[[services]]\n[[flows]]",
        &[
            (1, "vms", "[[vm]]"),
            (2, "services", "[[service]]"),
            (3, "flows", "[[flow]]"),
        ],
    ),
];

#[test]
fn an_old_word_is_an_error_with_its_line_and_the_new_line() {
    for (text, expected) in CASES {
        let said = File::parse("f.toml", text).unwrap_err().to_string();
        let lines: Vec<&str> = said.lines().collect();
        assert_eq!(lines.len(), expected.len(), "{text}\n{said}");
        for (number, (at, old, new)) in expected.iter().enumerate() {
            let line = lines[number];
            let (place, what) = line.split_once(": ").unwrap();
            let file = if number == 0 { "f.toml " } else { "  " };
            assert!(place.starts_with(&format!("{file}line {at}")), "{said}");
            assert!(what.starts_with(&format!("{old} is ")), "{said}");
            assert!(what.contains(new), "{line}\n{new}");
        }
    }
}

/// What a sweep or a cluster reads without a type has no old word either.
#[test]
fn a_text_of_another_shape_has_no_old_word() {
    let said = untyped::<serde_json::Value>("[sched]")
        .unwrap_err()
        .to_string();
    assert!(said.contains("sched is an old word"), "{said}");
}

/// A table that was `[simulate]` may come with its old word.
#[test]
fn simulate_toml_says_the_new_word_too() {
    let said = Simulate::parse("f.toml", "order = \"dm\"")
        .unwrap_err()
        .to_string();
    assert!(
        said.starts_with("f.toml line 1 column 1: unknown field `order`")
            && said.contains("scheduler = "),
        "{said}"
    );
}

/// What a new line says, the file takes.
#[test]
fn the_new_words_are_read() {
    let text = "[host]\nenforce = \"ext\"\nscheduler = \"pdm\"\nserver = 'polling'\nquantum = \"1ms\"\n\
                [host.overheads]\ndecision = \"3us\"\n\
                [[vm]]\nname = \"web\"\nbudget = \"2ms\"\nperiod = \"10ms\"\ndeadline = \"5.5ms\"\npriority = 3\ncpus = [1, 2]\n\
                [kernel]\nksoftirqd = \"normal\"\nrcu = 76\ntimers = 76\ndevice_irq = 77\nfair_server = \"1.5ms\"\n\
                [net]\nbudget_time = \"2ms\"\n\
                [class.rt]\nirq = 80\nnapi = 78\nthreaded_napi = true\npath_cpus = [1]\nvhost = 75\nvcpu = 70\nio = 71\n\
                main = 72\ntap_qdisc = \"prio\"\ntap_batch = 1\n\
                tasks = [{ c = \"1ms\", t = \"9ms\", jitter = \"2us\", suspension = \"3us\" }]\n";
    let file = File::parse("f.toml", text).unwrap();
    assert_eq!(file.vm_names().collect::<Vec<_>>(), ["web"]);
    Simulate::parse("simulate.toml", "seed = 1\nscheduler = \"pdm\"").unwrap();
}
