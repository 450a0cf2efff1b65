//! What a guest does for a packet before its task, and after it, is work of its VCPU, and is in every bound.
#![allow(clippy::unwrap_used)]

use steadyvm_analysis::plan::{self, Report};

fn toml(text: &str) -> Report {
    plan::run(&plan::file::parse(text).unwrap()).unwrap()
}

fn answer_and_log(answer: &str, service: &str) -> Report {
    toml(&format!(
        "[host]\npcpus = 1\nscheduler = \"pedf\"\n[[vm]]\nname = \"a\"\nscheduler = \"dm\"\nperiod = \"1ms\"\n\
         tasks = [ {{ name = \"answer\", {answer} }}, {{ name = \"log\", c = \"5ms\", t = \"10ms\" }} ]\n\
         [[service]]\nname = \"answer\"\nvm = \"a\"\ntask = \"answer\"\n{service}\n"
    ))
}

/// Review 1.6: a wake-up of 4 ms, then none, brings two answers 6 ms apart: the log is late on a whole CPU.
#[test]
fn a_guest_that_needs_more_than_its_cpu_to_wake_is_refused() {
    let answer = "c = \"4ms\", t = \"10ms\"";
    let refused = answer_and_log(answer, "limit = \"13ms\"\nwake = \"4ms\"");
    assert!(!refused.feasible, "{refused:?}");
    assert!(answer_and_log(answer, "limit = \"13ms\"\nwake = \"1ms\"").feasible);
    // The same for what the guest does to send.
    let send = |time: &str| format!("limit = \"13ms\"\nsend = {{ guest = \"{time}\" }}");
    assert!(!answer_and_log(answer, &send("4ms")).feasible);
    assert!(answer_and_log(answer, &send("1ms")).feasible);
}

/// An interrupt of the less urgent answer comes before the more urgent log, once in each of the answer's periods.
#[test]
fn interrupts_come_before_more_urgent_tasks() {
    let log_due = |deadline: &str, wake: &str| {
        toml(&format!(
            "[host]\npcpus = 1\nscheduler = \"pedf\"\n[[vm]]\nname = \"a\"\nscheduler = \"dm\"\nperiod = \"1ms\"\n\
             tasks = [ {{ name = \"answer\", c = \"1ms\", t = \"20ms\" }}, \
             {{ name = \"log\", c = \"5ms\", d = \"{deadline}\", t = \"10ms\" }} ]\n\
             [[service]]\nname = \"answer\"\nvm = \"a\"\ntask = \"answer\"\nwake = \"{wake}\"\n"
        ))
        .feasible
    };
    assert!(log_due("5ms", "0ms") && !log_due("5ms", "2ms"));
    assert!(log_due("7ms", "2ms") && !log_due("6ms", "2ms"));
}

/// The terms add up to the bound, and with a limit that is just the bound the plan is feasible.
#[test]
fn the_wake_up_and_the_transmit_path_are_terms_of_the_bound() {
    let service = |limit: &str| {
        format!(
            "{limit}\nwake = \"1ms\"\nsend = {{ guest = \"500us\", host = \"200us\" }}\nreceive = {{ interrupt = \"300us\" }}"
        )
    };
    let report = answer_and_log("c = \"2ms\", t = \"10ms\"", &service(""));
    let found = &report.services[0];
    let terms = [
        found.receive_path,
        found.blackout,
        found.guest_response,
        found.guest_wakeup,
        found.send_path,
    ];
    let sum: i64 = terms.iter().map(|term| term.unwrap()).sum();
    assert_eq!(found.bound, Some(sum), "{found:?}");
    assert_eq!(
        (found.guest_wakeup, found.send_path),
        (Some(1_000_000), Some(700_000))
    );
    let limit = format!(
        "limit = \"{}us\"",
        found.bound.unwrap().div_euclid(1_000) + 1
    );
    assert!(answer_and_log("c = \"2ms\", t = \"10ms\"", &service(&limit)).feasible);
}
