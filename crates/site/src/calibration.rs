//! What a plan of this host takes from its calibration.
//!
//! Rule: what a VCPU pays at each start counts with its 99th percentile. Its longest sample has an interruption of the host in
//! it, and would be counted at every start. What a request waits for once, its interrupt, counts with the longest: from the
//! timer to the thread that it wakes, and from there to a worker. A packet counts with its 99th percentile, as budgets hold many.

use std::path::Path;

use steadyvm_analysis::plan::Measured;
use steadyvm_calibration::Here;
use steadyvm_calibration::store::{DEFAULT_FILE, Found};
use steadyvm_host::Machine;

use crate::drift::now_unix_s;

/// The calibration of this host.
pub fn of_this_host() -> Found {
    let here = Here::of(&Machine::real());
    Found::here(Path::new(DEFAULT_FILE), &here, now_unix_s())
}

/// That of the host that a plan is for, in a file that the caller names.
pub fn of_another_host(file: &Path) -> Found {
    Found::elsewhere(file, now_unix_s())
}

/// What of it a plan counts.
pub fn measured(found: &Found) -> Measured {
    let Some(it) = found.valid() else {
        return Measured::default();
    };
    let time = |ns: u64| i64::try_from(ns).ok();
    let usual = |cost: Option<steadyvm_calibration::Cost>| cost.and_then(|it| time(it.p99_ns));
    let longest = |cost: Option<steadyvm_calibration::Cost>| cost.and_then(|it| time(it.max_ns));
    let waits = longest(it.timer).zip(longest(it.wake_up));
    Measured {
        context_switch: usual(it.context_switch),
        migration: usual(it.migration),
        cache_reload: usual(it.cache_reload),
        interrupt: waits.and_then(|(timer, worker)| timer.checked_add(worker)),
        packet: usual(it.packet),
    }
}

#[cfg(test)]
mod tests {
    use steadyvm_calibration::store::State;
    use steadyvm_calibration::{Calibration, Cost, Stale};

    use super::*;

    fn found(state: impl FnOnce(Box<Calibration>) -> State) -> Found {
        let cost = |unit: u64| {
            Some(Cost {
                samples: 100,
                median_ns: unit,
                p99_ns: 10 * unit,
                max_ns: 100 * unit,
            })
        };
        let calibration = Calibration {
            unix_s: 0,
            kernel: "6.12".into(),
            cpu: "A CPU".into(),
            seconds: 10,
            vms: 0,
            context_switch: cost(1),
            cache_reload: cost(2),
            working_set_kib: Some(1024),
            migration: None,
            wake_up: cost(3),
            timer: cost(4),
            interruption: cost(5),
            packet: cost(6),
            packet_unix_s: None,
        };
        Found {
            file: DEFAULT_FILE.into(),
            state: state(Box::new(calibration)),
        }
    }

    #[test]
    fn starts_count_as_they_usually_are_and_waits_at_their_longest() {
        let expected = Measured {
            context_switch: Some(10),
            migration: None,
            cache_reload: Some(20),
            interrupt: Some(700),
            packet: Some(60),
        };
        assert_eq!(measured(&found(State::Valid)), expected);
        let stale = |it| State::Stale(it, Stale::Date { days: 91 });
        assert_eq!(measured(&found(stale)), Measured::default());
        assert_eq!(measured(&found(|_| State::Missing)), Measured::default());
    }
}
