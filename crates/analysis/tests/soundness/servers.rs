//! Tasks in servers, EDP interfaces, multi-supply functions and best periods: simulated or searched.

use crate::simulator::{Policy, Simulated, late_supply, meets_deadlines, synchronous};
use std::collections::VecDeque;

use rand::{Rng, SeedableRng, seq::IndexedRandom};
use rand_chacha::ChaCha8Rng;
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

/// A server of the simulation.
struct Running {
    server: Server,
    phase: Time,
    left: Time,
    /// Sporadic: since when it has had work and capacity, and what it has used of it.
    active: Option<(Time, Time)>,
    /// Sporadic: capacity that was used, and when it comes back.
    coming_back: VecDeque<(Time, Time)>,
    /// There is work for it.
    pending: bool,
}

impl Running {
    fn new(server: Server, phase: Time) -> Self {
        let sporadic = server.kind() == ServerKind::Sporadic;
        Self {
            server,
            phase,
            left: if sporadic { server.capacity() } else { 0 },
            active: None,
            coming_back: VecDeque::new(),
            pending: false,
        }
    }

    fn replenish(&mut self, slot: Time) {
        if self.server.kind() == ServerKind::Sporadic {
            while let Some(&(_, used)) = self.coming_back.front().filter(|&&(back, _)| back <= slot)
            {
                self.coming_back.pop_front();
                self.left += used;
            }
            if self.active.is_none() && self.pending && self.left > 0 {
                self.active = Some((slot, 0));
            }
        } else if slot >= self.phase && (slot - self.phase) % self.server.period() == 0 {
            self.left = self.server.capacity();
        }
        if self.server.kind() == ServerKind::Polling && !self.pending {
            self.left = 0;
        }
    }

    fn wants_to_run(&self) -> bool {
        self.left > 0 && (self.pending || self.server.kind() == ServerKind::Periodic)
    }

    fn run(&mut self) {
        self.left -= 1;
        if let Some((_, used)) = &mut self.active {
            *used += 1;
        }
    }

    /// After a slot: a sporadic server without work or capacity is no longer active.
    fn rest(&mut self) {
        if let Some((since, used)) = self.active.filter(|_| self.left == 0 || !self.pending) {
            self.coming_back
                .push_back((since + self.server.period(), used));
            self.active = None;
        }
    }
}

/// A job of a served task.
struct Pending {
    task: usize,
    left: Time,
    due: Time,
}

/// Servers, highest priority first, run tasks (highest priority first) in the last one; the others have
/// work at random. True if every job ends within its task's bound.
fn responses_hold(
    rng: &mut ChaCha8Rng,
    mut servers: Vec<Running>,
    served: &[ServedTask],
    bounds: &[Time],
    firsts: &[Time],
) -> bool {
    let last = servers.len() - 1;
    let mut jobs: Vec<Pending> = Vec::new();
    for slot in 0..150 {
        for (task, served) in served.iter().enumerate() {
            if slot >= firsts[task] && (slot - firsts[task]) % served.task.period() == 0 {
                jobs.push(Pending {
                    task,
                    left: served.task.execution(),
                    due: slot + bounds[task],
                });
            }
        }
        jobs.sort_by_key(|job| (job.task, job.due));
        for higher in &mut servers[..last] {
            higher.pending = rng.random_bool(if higher.pending { 0.9 } else { 0.4 });
        }
        servers[last].pending = !jobs.is_empty();
        for server in &mut servers {
            server.replenish(slot);
        }
        if let Some(number) = servers.iter().position(Running::wants_to_run) {
            servers[number].run();
            if number == last && !jobs.is_empty() {
                jobs[0].left -= 1;
                if jobs[0].left == 0 {
                    jobs.remove(0);
                }
            }
        }
        servers[last].pending = !jobs.is_empty();
        for server in &mut servers {
            server.rest();
        }
        if jobs.iter().any(|job| job.due <= slot + 1) {
            return false;
        }
    }
    true
}

/// Bounds of tasks in every kind of server hold in simulation: bound ones (periodic servers) and unbound
/// ones, in all phases of two servers and of the first releases.
#[test]
fn responses_in_servers_hold() {
    const KINDS: [ServerKind; 4] = [
        ServerKind::Periodic,
        ServerKind::Deferrable,
        ServerKind::Polling,
        ServerKind::Sporadic,
    ];
    let mut rng = ChaCha8Rng::seed_from_u64(11);
    // By kind; the last: bound to a periodic server.
    let mut checked = [0; 5];
    while checked.iter().any(|&count| count < 400) {
        let kind = *KINDS.choose(&mut rng).unwrap();
        let bound = kind == ServerKind::Periodic && rng.random();
        let servers: Vec<Server> = (0..rng.random_range(1..=2))
            .map(|_| {
                let period = rng.random_range(3..=7);
                Server::new(rng.random_range(1..=period / 2), period, kind).unwrap()
            })
            .collect();
        if !server::test(&servers, &mut Work::default()).is_schedulable() {
            continue;
        }
        let last = servers.len() - 1;
        let home = servers[last];
        let served: Vec<ServedTask> = (0..rng.random_range(1..=2))
            .map(|_| {
                let period = if bound {
                    home.period() * rng.random_range(3..=6)
                } else {
                    rng.random_range(15..=40)
                };
                let task = Task::implicit(rng.random_range(1..=4), period).unwrap();
                ServedTask { task, bound }
            })
            .collect();
        let bounds: Option<Vec<Time>> = (0..served.len())
            .map(|i| response_time(&servers, last, &served, i, &mut Work::default()).unwrap())
            .collect();
        let Some(bounds) = bounds else { continue };
        let number = KINDS.iter().position(|&other| other == kind).unwrap();
        checked[if bound { 4 } else { number }] += 1;
        let higher_phases = if last > 0 { servers[0].period() } else { 1 };
        for phase in 0..higher_phases {
            for late in 0..if bound { 1 } else { home.period() } {
                // The home server starts when the other has its first full period.
                let home_phase = servers[0].period();
                let running = servers.iter().enumerate().map(|(number, &server)| {
                    Running::new(server, if number == last { home_phase } else { phase })
                });
                let running: Vec<Running> = running.collect();
                let first = home_phase + late;
                let firsts: Vec<Time> = served
                    .iter()
                    .map(|_| first + if bound { 0 } else { rng.random_range(0..2) })
                    .collect();
                assert!(
                    responses_hold(&mut rng, running, &served, &bounds, &firsts),
                    "{servers:?} {served:?} {bounds:?} phase {phase} late {late}"
                );
            }
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
