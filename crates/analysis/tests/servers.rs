//! Tasks in servers, EDP interfaces, multi-supply functions and best periods: simulated or searched.
// Helpers of tests unwrap, too.
#![allow(clippy::unwrap_used)]

mod simulator;

use rand::{Rng, SeedableRng, seq::IndexedRandom};
use rand_chacha::ChaCha8Rng;
use simulator::{Policy, Simulated, late_supply, meets_deadlines, synchronous};
use steadyvm_analysis::{
    Task, Time, Work,
    guest::{
        edf,
        multi_supply::{self, GlobalScheduler},
        partitioned::LocalScheduler,
    },
    host::overhead::Overheads,
    interface::{
        GuestScheduler, InterfaceKind,
        best_period::{PeriodRange, best},
        minimal, minimal_edp,
    },
    latency::{LatencyBound, ReceivePath},
    server::{
        self, Server, ServerKind,
        tasks::{ServedTask, response_time},
    },
    supply::{ExplicitDeadlinePeriodic, MultiSupply, PeriodicResource},
};

/// The slots that periodic servers, highest priority first, give the last one.
fn supply_of_last(servers: &[Server], phases: &[Time], slots: Time) -> Vec<usize> {
    let mut left = vec![0; servers.len()];
    (0..slots)
        .map(|slot| {
            for (i, server) in servers.iter().enumerate() {
                if slot >= phases[i] && (slot - phases[i]) % server.period() == 0 {
                    left[i] = server.capacity();
                }
            }
            let running = left.iter().position(|&capacity| capacity > 0);
            if let Some(i) = running {
                left[i] -= 1;
            }
            usize::from(running == Some(servers.len() - 1))
        })
        .collect()
}

/// Bounds of bound and unbound tasks hold in simulated periodic servers (PTPS).
#[test]
fn responses_in_periodic_servers_hold() {
    let mut rng = ChaCha8Rng::seed_from_u64(11);
    let mut checked = [0, 0];
    while checked.iter().any(|&count| count < 2_000) {
        let servers: Vec<Server> = (0..rng.random_range(1..=3))
            .map(|_| {
                let period = *[4, 5, 6, 8, 10].choose(&mut rng).unwrap();
                let capacity = rng.random_range(1..=period / 2);
                Server::new(capacity, period, ServerKind::Periodic).unwrap()
            })
            .collect();
        if !server::test(&servers, &mut Work::default()).is_schedulable() {
            continue;
        }
        let last = servers.len() - 1;
        let home = servers[last];
        let bound = rng.random();
        let served: Vec<ServedTask> = (0..rng.random_range(1..=3))
            .map(|_| {
                let period = home.period() * rng.random_range(4..=9);
                let task = Task::implicit(rng.random_range(1..=4), period).unwrap();
                ServedTask { task, bound }
            })
            .collect();
        let bounds: Option<Vec<Time>> = (0..served.len())
            .map(|i| response_time(&servers, last, &served, i, &mut Work::default()).unwrap())
            .collect();
        let Some(bounds) = bounds else { continue };
        checked[usize::from(bound)] += 1;
        for _ in 0..4 {
            let slots = 400;
            let phases: Vec<Time> = servers
                .iter()
                .map(|server| rng.random_range(0..server.period()))
                .collect();
            let supply = supply_of_last(&servers, &phases, slots);
            let late = if bound {
                0
            } else {
                rng.random_range(0..home.period())
            };
            let jobs: Vec<Simulated> = served
                .iter()
                .zip(&bounds)
                .map(|(served, &deadline)| {
                    let first = phases[last] + late;
                    let releases = synchronous(served.task.period(), first, slots);
                    Simulated {
                        execution: served.task.execution(),
                        deadline,
                        releases,
                    }
                })
                .collect();
            let holds = meets_deadlines(&jobs, Policy::DeadlineMonotonic, &supply);
            assert!(
                holds,
                "{servers:?} {served:?} {bounds:?} {phases:?} late {late}"
            );
        }
    }
}

#[test]
fn kinds_of_servers_differ_as_stated() {
    let work = &mut Work::default();
    let response = |kind, bound, work: &mut Work| {
        let servers = [
            Server::new(2, 10, kind).unwrap(),
            Server::new(3, 12, kind).unwrap(),
        ];
        let task = ServedTask {
            task: Task::implicit(3, 100).unwrap(),
            bound,
        };
        response_time(&servers, 1, &[task], 0, work)
            .unwrap()
            .unwrap()
    };
    // One load in one period of the server, 2 of the higher server in front; unbound 12 - 3 before.
    assert_eq!(response(ServerKind::Periodic, true, work), 5);
    assert_eq!(response(ServerKind::Periodic, false, work), 14);
    for kind in [ServerKind::WorkConserving, ServerKind::CapacityReclaiming] {
        assert_eq!(response(kind, true, work), 5);
        assert_eq!(response(kind, false, work), 14);
    }
    assert_eq!(response(ServerKind::Sporadic, true, work), 14);
    assert_eq!(response(ServerKind::Polling, true, work), 17);
    // The higher deferrable server comes twice: 3 + 2 + 2, and 9 before.
    assert_eq!(response(ServerKind::Deferrable, true, work), 16);
}

#[test]
fn explicit_deadline_budgets_equal_search() {
    let mut rng = ChaCha8Rng::seed_from_u64(12);
    for _ in 0..3_000 {
        let tasks: Vec<Task> = (0..2)
            .map(|_| {
                let period = rng.random_range(3..=12);
                Task::new(
                    rng.random_range(1..=period / 3),
                    rng.random_range(period / 2..=period),
                    period,
                )
                .unwrap()
            })
            .collect();
        let period = rng.random_range(1..=6);
        let deadline = rng.random_range(1..=period);
        let searched = (1..=deadline).find(|&budget| {
            let supply = ExplicitDeadlinePeriodic::new(period, budget, deadline).unwrap();
            edf::test(&tasks, &supply, &mut Work::default()).is_schedulable()
        });
        let scheduler = LocalScheduler::EarliestDeadline;
        let found = minimal_edp(&tasks, scheduler, period, deadline, &mut Work::default()).unwrap();
        assert_eq!(
            found.ok().map(|least| least.budget),
            searched,
            "{tasks:?} {period} {deadline}"
        );
    }
}

/// Global guests on VCPUs of different periods: accepted ones meet their deadlines.
#[test]
fn multi_supply_guests_hold() {
    let mut rng = ChaCha8Rng::seed_from_u64(13);
    let mut accepted = 0;
    while accepted < 3_000 {
        let mut parameters: Vec<(Time, Time)> = (0..rng.random_range(1..=4))
            .map(|_| {
                let period = rng.random_range(4..=12);
                (rng.random_range(1..=period / 2), period)
            })
            .collect();
        parameters.sort_by_key(|&(_, period)| period);
        let tasks: Vec<Task> = parameters
            .iter()
            .map(|&(c, t)| Task::implicit(c, t).unwrap())
            .collect();
        let vcpus: Vec<PeriodicResource> = (0..rng.random_range(1..=3))
            .map(|_| {
                let period = rng.random_range(1..=5);
                PeriodicResource::new(period, rng.random_range(1..=period)).unwrap()
            })
            .collect();
        let (scheduler, policy) = if rng.random() {
            (GlobalScheduler::EarliestDeadline, Policy::EarliestDeadline)
        } else {
            (GlobalScheduler::FixedPriority, Policy::DeadlineMonotonic)
        };
        let supply = MultiSupply::new(vcpus.clone()).unwrap();
        if !multi_supply::test(&tasks, scheduler, &supply).is_schedulable() {
            continue;
        }
        accepted += 1;
        let slots = 200;
        let mut total = vec![0; slots as usize];
        for vcpu in &vcpus {
            let pattern = late_supply(vcpu.period(), vcpu.budget(), slots);
            total
                .iter_mut()
                .zip(pattern)
                .for_each(|(sum, one)| *sum += one);
        }
        let first = rng.random_range(0..6);
        let jobs: Vec<Simulated> = parameters
            .iter()
            .map(|&(execution, period)| Simulated {
                execution,
                deadline: period,
                releases: synchronous(period, first, slots),
            })
            .collect();
        assert!(
            meets_deadlines(&jobs, policy, &total),
            "{parameters:?} {vcpus:?} {policy:?}"
        );
    }
}

#[test]
fn the_best_period_has_the_least_bandwidth() {
    let tasks = [
        Task::implicit(7, 50).unwrap(),
        Task::implicit(9, 75).unwrap(),
    ];
    let (scheduler, kind) = (
        GuestScheduler::EarliestDeadline,
        InterfaceKind::PeriodicResource,
    );
    let range = PeriodRange::new(2, 40, 1).unwrap();
    let run = |overheads: &Overheads| {
        let work = &mut Work::default();
        best(&tasks, scheduler, kind, range, None, overheads, work)
            .unwrap()
            .unwrap()
    };
    let found = run(&Overheads::default());
    for period in range.periods() {
        let work = &mut Work::default();
        if let Ok(other) = minimal(&tasks, scheduler, kind, period, None, work).unwrap() {
            assert!(
                found.budget * period <= other.budget * found.period,
                "{period}"
            );
        }
    }
    // Switches that cost something make longer periods better.
    let costly = run(&Overheads {
        context_switch: 1,
        ..Overheads::default()
    });
    assert!(costly.period > found.period, "{costly:?} {found:?}");
}

#[test]
fn latency_terms_add_up() {
    let path = ReceivePath {
        interrupt: 50,
        packet: 5,
        batch: 1,
        ahead: 4,
    };
    assert_eq!(path.bound(), Ok(80));
    let bound = LatencyBound::new(80, 300, 120);
    assert_eq!(
        (bound.blackout, bound.guest_response, bound.total()),
        (120, 180, 380)
    );
    assert!(ReceivePath { batch: -1, ..path }.bound().is_err());
    assert!(
        ReceivePath {
            packet: Time::MAX,
            ..path
        }
        .bound()
        .is_err()
    );
}
