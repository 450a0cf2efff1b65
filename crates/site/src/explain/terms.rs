//! A plan's bound of a service, term by term, next to what a recording shows.
//!
//! Rule: a term is over if its longest measured time is more than the plan allows. A term of which the host sees no
//! begin or no end has no figures, and says why. Pure.

use serde::Serialize;
use steadyvm_analysis::plan::{Report, ServiceReport};
use steadyvm_trace::receive_path::{Figures, Legs};

/// The terms of one service.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Comparison {
    /// Its name.
    pub service: String,
    /// Its VM.
    pub vm: String,
    /// In the order of the way.
    pub terms: Vec<Term>,
    /// Something was measured, and no term is over.
    pub within: bool,
}

/// A term of the bound.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Term {
    /// Its name in the plan.
    #[serde(rename = "term")]
    pub name: &'static str,
    /// What the plan allows; `None` if the plan has no bound.
    pub planned_us: Option<f64>,
    /// What was measured; `None` if the host cannot see it.
    pub measured: Option<Figures>,
    /// What it is made of, or why it is not seen.
    pub parts: Vec<Part>,
    /// Why there are no figures, or what they do not contain.
    pub not_seen: &'static str,
    /// The longest measured time is more than the plan allows.
    pub over: bool,
}

/// A measured part of a term.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Part {
    /// What.
    pub part: &'static str,
    /// How long.
    #[serde(flatten)]
    pub figures: Figures,
}

/// The service that is meant, or why it is not told which.
pub fn service<'a>(plan: &'a Report, name: Option<&str>) -> Result<&'a ServiceReport, String> {
    let names: Vec<&str> = plan.services.iter().map(|it| it.name.as_str()).collect();
    match (name, &plan.services[..]) {
        (_, []) => {
            Err("the plan has no [[service]], so there is no bound to compare with; add one".into())
        }
        (None, [only]) => Ok(only),
        (None, _) => Err(format!(
            "the plan has {} services; name one with --service: {}",
            names.len(),
            names.join(", ")
        )),
        (Some(name), services) => match services.iter().find(|it| it.name == name) {
            Some(found) => Ok(found),
            None => Err(format!(
                "the plan has no service \"{name}\"; name one of: {}",
                names.join(", ")
            )),
        },
    }
}

/// What a plan allows each part of a service's way that a host can measure, time; none: the plan has no bound.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Allowed {
    /// From the wire to the VCPU's wake-up.
    pub receive: Option<i64>,
    /// The VCPU's wait for a CPU.
    pub blackout: Option<i64>,
    /// From the VCPU's first instruction to the kick of its card.
    pub guest: Option<i64>,
    /// From there to the card's driver.
    pub back: Option<i64>,
    /// All of it.
    pub whole: Option<i64>,
    /// Of the guest's part, what it takes to send.
    pub transmit: i64,
    /// From the driver to the wire, which is in none of these.
    pub nic: i64,
}

impl Allowed {
    /// Of a service of a plan.
    pub fn of(service: &ServiceReport) -> Self {
        let of_send = |what: &str| -> i64 {
            let send = service.stages.iter().filter(|stage| stage.name == "send");
            let terms = send.flat_map(|stage| &stage.terms);
            let meant = terms.filter(|term| term.what == what);
            meant.map(|term| term.time).sum()
        };
        let (transmit, nic) = (of_send("guest transmit"), of_send("NIC"));
        let guest = add(service.guest_response, service.guest_wakeup);
        Self {
            receive: service.receive_path,
            blackout: service.blackout,
            guest: guest.map(|time| time + transmit),
            back: service.send_path.map(|time| time - transmit - nic),
            whole: service.bound.map(|bound| bound - nic),
            transmit,
            nic,
        }
    }
}

/// Both, side by side.
pub fn compare(service: &ServiceReport, legs: &Legs) -> Comparison {
    let Allowed {
        transmit,
        nic,
        guest,
        back,
        whole,
        ..
    } = Allowed::of(service);
    let unseen = |term, planned: Option<i64>, not_seen| Term {
        name: term,
        planned_us: planned.map(microseconds),
        measured: None,
        parts: Vec::new(),
        not_seen,
        over: false,
    };
    let seen =
        |term, planned: Option<i64>, measured: Figures, parts: &[(&'static str, Figures)]| {
            let planned_us = planned.map(microseconds);
            let over =
                matches!((planned_us, measured.max_us), (Some(most), Some(max)) if max > most);
            Term {
                name: term,
                planned_us,
                measured: Some(measured),
                parts: parts
                    .iter()
                    .map(|&(part, figures)| Part { part, figures })
                    .collect(),
                not_seen: "",
                over,
            }
        };
    let terms = vec![
        unseen(
            "wire to hard interrupt",
            None,
            "the card copies the packet and may delay its interrupt before the host knows of it; the plan has no \
             term for it",
        ),
        seen(
            "receive path",
            service.receive_path,
            legs.receive,
            &[
                ("hard interrupt to the worker's wake-up", legs.interrupt),
                ("the worker waits for a CPU", legs.carrier_wait),
                ("the worker carries the packet", legs.carry),
            ],
        ),
        seen("VCPU blackout", service.blackout, legs.vcpu_wait, &[]),
        seen(
            "guest: response, wake-up, transmit",
            guest,
            legs.guest,
            &[("of it other threads ran instead", legs.preempted)],
        ),
        unseen(
            "  guest wake-up alone",
            service.guest_wakeup,
            "the host sees that the VCPU runs, not which thread of the guest; it is within the line above",
        ),
        unseen(
            "  guest transmit alone",
            service.send_path.map(|_| transmit),
            "the host sees its end, the kick of the card, and not its begin; it is within the guest's line",
        ),
        seen(
            "way back: vhost send",
            back,
            legs.back,
            &[
                ("kick to the worker's first instruction", legs.sender_wait),
                ("until the card's driver has the packet", legs.send),
            ],
        ),
        unseen(
            "way back: NIC",
            service.send_path.map(|_| nic),
            "when the packet is on the wire only the card knows; capture at the client to see it",
        ),
        seen("in all, to the card's driver", whole, legs.whole, &[]),
    ];
    let is_measured = |term: &Term| term.measured.is_some_and(|it| it.n > 0);
    let within = terms.iter().any(is_measured) && !terms.iter().any(|term| term.over);
    Comparison {
        service: service.name.clone(),
        vm: service.vm.clone(),
        terms,
        within,
    }
}

const fn add(one: Option<i64>, other: Option<i64>) -> Option<i64> {
    match (one, other) {
        (Some(one), Some(other)) => Some(one.saturating_add(other)),
        _ => None,
    }
}

fn microseconds(ns: i64) -> f64 {
    ns as f64 / 1e3
}
