//! Records that are right, and records that are wrong in one place each.

use super::*;
use crate::{Kind, Parameters};

const MS: u64 = 1_000_000;

fn event(time_ns: u64, kind: EventKind, server: u32, amount_ns: u64, key: u64) -> Event {
    let mut event = Event::from_bytes(&[]);
    event.time_ns = time_ns;
    event.kind = kind as u32;
    event.server = server;
    event.other = NO_SERVER;
    event.amount_ns = amount_ns;
    event.cpus = CpuSet::first(1);
    if kind == EventKind::Init {
        event.parameters = Parameters::new(Kind::Deferrable, 4 * MS, key).unwrap();
    } else {
        event.parameters = event.parameters.of_event(Order::EarliestDeadline, key);
    }
    event
}

/// Server 0 runs its 4 ms; server 1, of a later deadline, runs after it.
fn record() -> Record {
    use EventKind::{Init, Run, Stop, Wake};
    Record {
        host: Host::new(Order::EarliestDeadline, false, 0),
        events: vec![
            event(1, Init, 0, 0, 10 * MS),
            event(1, Init, 1, 0, 20 * MS),
            event(2, Wake, 0, 0, 0),
            event(2, Wake, 1, 0, 0),
            event(3, Run, 0, 4 * MS, 1 + 10 * MS),
            event(3 + 4 * MS, Stop, 0, 4 * MS, 0),
            event(4 + 4 * MS, Run, 1, 4 * MS, 1 + 20 * MS),
            event(4 + 6 * MS, Stop, 1, 2 * MS, 0),
        ],
    }
}

#[test]
fn a_record_of_the_policy_has_no_difference_and_each_wrong_one_is_found() {
    type Wrong = fn(&mut Vec<Event>);
    let replayed = record().replay(MS).unwrap();
    assert_eq!((replayed.events, replayed.decisions), (8, 2));
    assert_eq!((replayed.held_ns, replayed.interrupted_ns), (6 * MS, 0));
    let wrong: [(Wrong, &str); 7] = [
        (|events| events[4].amount_ns -= 1, "the policy 4000000 ns"),
        (
            |events| events[5].amount_ns += MS + 1,
            "it had the CPU for 4000000 ns",
        ),
        (
            |events| events[7].amount_ns = MS - 1,
            "it had the CPU for 2000000 ns",
        ),
        (
            |events| {
                events.retain(|event| event.server == 1);
                events[3].amount_ns -= MS;
            },
            "1000000 ns of that are accounted to none",
        ),
        (
            |events| {
                events.retain(|event| event.server == 1);
                events[3].amount_ns += MS / 10;
            },
            "charged 100000 ns beyond that",
        ),
        (
            |events| {
                events[5].time_ns += 2 * MS;
                events[5].amount_ns += 2 * MS;
                events.truncate(6);
            },
            "beyond its budget",
        ),
        (
            |events| {
                // The one of the later deadline runs first.
                events.remove(5);
                events.remove(4);
            },
            "while server 0 waits",
        ),
    ];
    for (make_wrong, says) in wrong {
        let mut record = record();
        make_wrong(&mut record.events);
        let error = record.replay(MS).unwrap_err().to_string();
        assert!(error.contains(says), "{error}");
    }
}

/// A CPU reads the order, the order changes, and only then the CPU records what it read; or the other way about.
#[test]
fn a_key_is_of_an_order_that_is_in_force_within_the_reaction() {
    let changed = |host_ns: u64, run: usize, used: Order| {
        let mut record = record();
        let mut host = event(host_ns, EventKind::Host, NO_SERVER, 0, 0);
        host.parameters = host.parameters.of_event(Order::Explicit, 0);
        let key = if used == Order::Explicit {
            0
        } else {
            1 + 20 * MS
        };
        record.events[run].parameters = record.events[run].parameters.of_event(used, key);
        record.events.push(host);
        record.events.sort_by_key(|event| event.time_ns);
        record.replay(MS).map(|replayed| replayed.decisions)
    };
    let run_ns = 4 + 4 * MS;
    for (host_ns, used) in [
        (run_ns + MS / 2, Order::Explicit),
        (run_ns - MS / 2, Order::EarliestDeadline),
        (run_ns - MS / 2, Order::Explicit),
    ] {
        assert_eq!(changed(host_ns, 6, used).unwrap(), 2);
    }
    for (host_ns, used) in [
        (run_ns + MS + 1, Order::Explicit),
        (run_ns - MS - 1, Order::EarliestDeadline),
        (run_ns, Order::RateMonotonic),
    ] {
        let error = changed(host_ns, 6, used).unwrap_err().to_string();
        assert!(error.contains("an order that is not the host's"), "{error}");
    }
}

/// Server 0 idles its 4 ms away on the only CPU; server 1 runs there meanwhile, if server 0's kind lends.
fn lent(kind: Kind, budget_of_borrower_ns: u64) -> Vec<Event> {
    use EventKind::{Hold, Init, Release, Run, Stop, Wake};
    let mut events = vec![
        event(1, Init, 0, 0, 10 * MS),
        event(1, Init, 1, 0, 20 * MS),
        event(2, Wake, 1, 0, 0),
        event(3, Hold, 0, 0, 0),
        event(4, Run, 1, budget_of_borrower_ns, 1 + 20 * MS),
        event(3 + 4 * MS, Release, 0, 4 * MS, 0),
        event(3 + 4 * MS, Stop, 1, 4 * MS - 1, 0),
    ];
    events[0].parameters = Parameters::new(kind, 4 * MS, 10 * MS).unwrap();
    events[1].parameters =
        Parameters::new(Kind::Deferrable, budget_of_borrower_ns, 20 * MS).unwrap();
    events[4].parameters = events[4].parameters.with_holder(kind);
    events[4].other = 0;
    events[6].other = 0;
    events
}

fn replay(events: Vec<Event>) -> Result<Replayed, String> {
    let host = Host::new(Order::EarliestDeadline, false, 0);
    let record = Record { host, events };
    record.replay(MS).map_err(|error| error.to_string())
}

#[test]
fn a_server_without_work_holds_its_cpu_and_lends_it_as_its_kind_says() {
    for (kind, budget_ns) in [
        (Kind::WorkConserving, 4 * MS),
        (Kind::CapacityReclaiming, 4 * MS),
        // It runs for nothing: longer than its own budget.
        (Kind::CapacityReclaiming, MS),
    ] {
        let replayed = replay(lent(kind, budget_ns)).unwrap();
        assert_eq!(
            (replayed.holds, replayed.lent, replayed.decisions),
            (1, 1, 1)
        );
    }
    // Reclaimed capacity leaves the borrower's own budget to it.
    for (kind, left_ns) in [
        (Kind::WorkConserving, 1),
        (Kind::CapacityReclaiming, 4 * MS),
    ] {
        let mut events = lent(kind, 4 * MS);
        let own = event(4 + 4 * MS, EventKind::Run, 1, left_ns, 1 + 20 * MS);
        events.push(own);
        assert_eq!(replay(events).unwrap().decisions, 2);
    }
}

#[test]
fn a_loan_that_the_policy_does_not_know_is_found() {
    type Wrong = fn(&mut Vec<Event>);
    let wrong: [(Wrong, &str); 7] = [
        (
            |events| {
                events[0].parameters = Parameters::new(Kind::Periodic, 4 * MS, 10 * MS).unwrap();
                events[4].parameters = events[4].parameters.with_holder(Kind::Periodic);
            },
            "server 0 may not lend it",
        ),
        (
            |events| {
                events[4].parameters = events[4].parameters.with_holder(Kind::CapacityReclaiming);
            },
            "a kind that server 0 is not",
        ),
        (
            |events| {
                events[0].parameters = Parameters::new(Kind::Deferrable, 4 * MS, 10 * MS).unwrap();
            },
            "no budget to idle away",
        ),
        (
            |events| {
                events[4].other = NO_SERVER;
                events[6].other = NO_SERVER;
            },
            "which server 0 holds without work",
        ),
        (|events| events[5].amount_ns -= 1, "it held CPU 0 for"),
        (|events| events[6].other = NO_SERVER, "another server pays"),
        (
            |events| {
                // The idle one has the earlier deadline and holds nothing.
                events.remove(5);
                events.remove(3);
                events[3].other = NO_SERVER;
                events[4].other = NO_SERVER;
            },
            "while server 0 waits",
        ),
    ];
    for (make_wrong, says) in wrong {
        let mut events = lent(Kind::WorkConserving, 4 * MS);
        make_wrong(&mut events);
        let error = replay(events).unwrap_err();
        assert!(error.contains(says), "{error}");
    }
}

/// A CPU reads the holder's kind, the kind changes, and only then the CPU records whom it runs; or the other way about.
#[test]
fn a_loan_is_of_a_kind_that_is_in_force_within_the_reaction() {
    let changed = |change_ns: u64, used: Kind| {
        let mut events = lent(Kind::WorkConserving, 4 * MS);
        let mut change = event(change_ns, EventKind::Parameters, 0, 0, 0);
        change.parameters = Parameters::new(Kind::CapacityReclaiming, 4 * MS, 10 * MS).unwrap();
        let (since_ns, release) = (3, events.len() - 2);
        // What it held up to the change is accounted there.
        events[release].amount_ns -= change_ns.saturating_sub(since_ns);
        let stop = release + 1;
        events[4].parameters = events[4].parameters.with_holder(used);
        if used == Kind::CapacityReclaiming {
            let own = event(4 + 4 * MS, EventKind::Run, 1, 4 * MS, 1 + 20 * MS);
            events.push(own);
        }
        assert_eq!(events[stop].other, 0);
        events.push(change);
        events.sort_by_key(|event| event.time_ns);
        replay(events)
    };
    for (change_ns, used) in [
        (3, Kind::WorkConserving),
        (3, Kind::CapacityReclaiming),
        (4 + MS / 2, Kind::CapacityReclaiming),
    ] {
        assert_eq!(changed(change_ns, used).unwrap().lent, 1, "{used:?}");
    }
    let error = changed(5 + MS, Kind::CapacityReclaiming).unwrap_err();
    assert!(error.contains("a kind that server 0 is not"), "{error}");
}

#[test]
fn a_record_of_which_a_part_is_lost_is_not_replayed() {
    let mut record = record();
    record
        .events
        .push(event(3 + 5 * MS, EventKind::Lost, NO_SERVER, 7, 0));
    // Without what was lost the rest makes no sense.
    record.events.remove(4);
    assert_eq!(record.replay(MS), Err(ReplayError::Lost(7)));
}

#[test]
fn what_is_no_record_is_refused() {
    for bytes in [&b"SVMSCHED"[..], &[0; 64], b""] {
        assert!(matches!(
            Record::parse(bytes),
            Err(ReplayError::NotARecord(_))
        ));
    }
}
