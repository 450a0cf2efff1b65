//! Ways in and out of services: against pyCPA, and what an answer says of them.
#![allow(clippy::unwrap_used)]

use serde_json::{Value, json};
use steadyvm_analysis::plan::{self, InputError, Report};

fn of_json(request: &Value) -> Result<Report, InputError> {
    plan::json::parse(&request.to_string()).and_then(|request| plan::run(&request))
}

/// Receive path, guest and way back of every service of ten chains equal pyCPA's (`tools/pycpa-chains`).
#[test]
fn ten_chains_equal_pycpa() {
    let data: Value = serde_json::from_str(include_str!("data/pycpa-chains.json")).unwrap();
    let chains = data["chains"].as_array().unwrap();
    assert_eq!(chains.len(), 10);
    let (mut services, mut delayed) = (0, 0);
    for chain in chains {
        let report = of_json(&chain["request"]).unwrap();
        assert!(report.feasible, "{:?}", report.explanations);
        for service in &report.services {
            let theirs = &chain["pycpa"][&service.name];
            let ours = json!({
                "receive": service.receive_path,
                "guest": service.blackout.unwrap() + service.guest_response.unwrap(),
                "send": service.send_path,
            });
            assert_eq!(&ours, theirs, "{} of {}", service.name, chain["request"]);
            services += 1;
            let ahead = service.stages[1].terms.len();
            delayed += usize::from(ahead > 5);
        }
    }
    assert!(services > 20 && delayed > 0, "{services} {delayed}");
}

fn shared(flow: &Value, limit: i64) -> Report {
    of_json(&json!({
        "host": {"pcpus": 1, "scheduler": "pedf"},
        "services": [{
            "vm": "web", "c": 1_000, "t": 10_000, "limit": limit, "wake": 30,
            "receive": {"on": "rx0", "level": 2, "packet": 4, "interrupt": 20, "least": 3},
            "send": {"guest": 5, "host": 7, "nic": 2, "on": "tx0", "level": 1, "packet": 6}
        }],
        "flows": [flow, {"name": "bulk", "on": "tx0", "level": 0, "packet": 12, "t": 50}]
    }))
    .unwrap()
}

/// What is ahead is computed from the traffic, each term is shown, and the terms add up.
#[test]
fn every_term_is_shown() {
    let burst =
        json!({"name": "burst", "on": "rx0", "level": 2, "packet": 2, "t": 100, "jitter": 350});
    let report = shared(&burst, 5_000);
    assert!(report.feasible, "{report:?}");
    let service = &report.services[0];
    let [there, back] = &service.stages[..] else {
        panic!("{service:?}")
    };
    // 20 interrupt and one packet of 4 in service, four of the burst, its own.
    assert_eq!(service.receive_path, Some(20 + 4 + 4 * 2 + 4));
    assert_eq!(service.send_path, Some(5 + 7 + 2 + 12 + 6));
    for stage in [there, back] {
        let sum: i64 = stage.terms.iter().map(|term| term.time).sum();
        assert_eq!(sum, stage.bound, "{stage:?}");
    }
    assert_eq!((there.on.as_deref(), there.least), (Some("rx0"), 3));
    assert_eq!(service.bound, Some(5_000));
    // Due when the rest of the limit is what comes after it, outside of the guest: release jitter is the path's
    // variation. What the guest does before and after the task is work of its VCPU.
    assert_eq!(report.vms[0].vcpus[0].deadline, 5_000 - 36 - (32 - 5));
    assert_eq!(report.vms[0].vcpus[0].budget, 1_000 + 30 + 5);
    let printed = plan::text::render(&report, true);
    for word in [
        "on path \"rx0\"",
        "burst 8",
        "vhost or outsourced send 7",
        "NIC 2",
        "the difference, 33, is release jitter",
    ] {
        assert!(printed.contains(word), "{word}: {printed}");
    }
    // Without the burst the service is served sooner.
    let thin = json!({"name": "burst", "on": "rx0", "level": 2, "packet": 2, "t": 100});
    assert_eq!(shared(&thin, 5_000).services[0].receive_path, Some(30));
}

/// A path that is full bounds nothing, and the reason names it.
#[test]
fn a_full_path_is_refused() {
    let full = json!({"name": "flood", "on": "rx0", "level": 3, "packet": 5, "t": 5});
    let report = shared(&full, 5_000);
    assert!(!report.feasible && report.services[0].bound.is_none());
    let reason = &report.explanations[0].text;
    assert!(
        reason.contains("\"rx0\" is loaded with 100 % or more"),
        "{reason}"
    );
    // A level below does not matter but for the packet in service.
    let below = json!({"name": "flood", "on": "rx0", "level": 1, "packet": 5, "t": 5});
    assert_eq!(shared(&below, 5_000).services[0].receive_path, Some(29));
}

#[test]
fn paths_that_make_no_sense_are_errors() {
    let with = |receive: Value, flow: Value| {
        of_json(&json!({
            "services": [{"vm": "web", "c": 1, "t": 10, "limit": 9, "receive": receive}],
            "flows": [flow]
        }))
        .unwrap_err()
        .to_string()
    };
    let flow = json!({"on": "rx0", "packet": 1, "t": 9});
    let queue = json!({"on": "rx0", "packet": 1});
    for (receive, flow, word) in [
        (
            json!({"on": "rx0", "packet": 1, "ahead": 3}),
            flow.clone(),
            "leave out ahead",
        ),
        (json!({"on": "rx0"}), flow.clone(), "greater than zero"),
        (
            json!({"on": "rx0", "packet": 1, "batch": 0}),
            flow.clone(),
            "the batch",
        ),
        (
            json!({"on": "rx0", "packet": 1, "least": 2}),
            flow,
            "more than its bound",
        ),
        (
            queue.clone(),
            json!({"on": "eth", "packet": 1, "t": 9}),
            "no service's",
        ),
        (queue, json!({"on": "rx0", "packet": 1, "t": 0}), "flow[0]"),
    ] {
        let error = with(receive, flow);
        assert!(error.contains(word), "{word}: {error}");
    }
}
