//! The first half of soundness: what the library accepts never misses in an explicit simulation.
//!
//! 150,000 single-VCPU interfaces (which are also shown minimal), 60,000 hosts and 40,000 global guests,
//! from fixed seeds.
// Helpers of tests unwrap, too.
#![allow(clippy::unwrap_used, clippy::single_match_else)]

mod simulator;

use rand::{Rng, SeedableRng, seq::IndexedRandom};
use rand_chacha::ChaCha8Rng;
use simulator::{Policy, Simulated, late_supply, meets_deadlines, synchronous};
use steadyvm_analysis::{
    Task, Work,
    guest::partitioned::LocalScheduler,
    host::{Host, HostScheduler, Placement, Vcpu, VcpuServer, admit, overhead::Overheads},
    interface::{GuestScheduler, InterfaceKind, minimal, minimal_prm},
};

const PERIODS: [i64; 8] = [2, 3, 4, 5, 6, 8, 10, 12];

/// (C, D, T) with lcm of the periods at most 120.
fn random_tasks(rng: &mut ChaCha8Rng, most: usize, heaviest: i64) -> Vec<(i64, i64, i64)> {
    (0..rng.random_range(1..=most))
        .map(|_| {
            let period = *PERIODS.choose(rng).unwrap();
            let execution = rng.random_range(1..=(period / heaviest).max(1));
            (execution, rng.random_range(execution..=period), period)
        })
        .collect()
}

fn library(tasks: &[(i64, i64, i64)]) -> Vec<Task> {
    tasks
        .iter()
        .map(|&(c, d, t)| Task::new(c, d, t).unwrap())
        .collect()
}

fn simulated(tasks: &[(i64, i64, i64)], releases: impl Fn(i64) -> Vec<i64>) -> Vec<Simulated> {
    tasks
        .iter()
        .map(|&(execution, deadline, period)| Simulated {
            execution,
            deadline,
            releases: releases(period),
        })
        .collect()
}

fn lcm(a: i64, b: i64) -> i64 {
    let (mut x, mut y) = (a, b);
    while y != 0 {
        (x, y) = (y, x % y);
    }
    a / x * b
}

/// Every deadline is met when the worst supply pattern and all releases coincide, for a hyperperiod of
/// tasks and supply together.
fn survives(tasks: &[(i64, i64, i64)], policy: Policy, period: i64, budget: i64) -> bool {
    let hyperperiod = tasks.iter().fold(period, |all, &(_, _, t)| lcm(all, t));
    let slots = hyperperiod + 2 * period + 12;
    let tasks = simulated(tasks, |task| synchronous(task, budget, slots));
    meets_deadlines(&tasks, policy, &late_supply(period, budget, slots))
}

#[test]
fn single_vcpu_interfaces_hold_and_are_minimal() {
    let mut rng = ChaCha8Rng::seed_from_u64(1);
    let (mut accepted, mut rejected) = (0, 0);
    while accepted + rejected < 150_000 {
        let tasks = random_tasks(&mut rng, 3, 2);
        let period = rng.random_range(1..=7);
        let (scheduler, policy) = if rng.random() {
            (LocalScheduler::EarliestDeadline, Policy::EarliestDeadline)
        } else {
            (LocalScheduler::DeadlineMonotonic, Policy::DeadlineMonotonic)
        };
        match minimal_prm(&library(&tasks), scheduler, period, &mut Work::default()) {
            Ok(interface) => {
                let budget = interface.budget;
                let context = format!("{tasks:?} {policy:?} {budget} in {period}");
                assert!(
                    survives(&tasks, policy, period, budget),
                    "accepted but misses: {context}"
                );
                assert!(
                    budget == 1 || !survives(&tasks, policy, period, budget - 1),
                    "one less would do: {context}"
                );
                accepted += 1;
            }
            Err(_) => {
                assert!(
                    !survives(&tasks, policy, period, period),
                    "{tasks:?} {policy:?}"
                );
                rejected += 1;
            }
        }
    }
    assert!(accepted > 20_000, "only {accepted} accepted");
}

/// A random placement of each VCPU's budget in each period, VCPUs out of phase.
fn random_supply(rng: &mut ChaCha8Rng, budgets: &[i64], period: i64, slots: i64) -> Vec<usize> {
    let mut supply = vec![0; slots as usize];
    for &budget in budgets {
        let phase = rng.random_range(0..period);
        let late = rng.random_bool(0.7);
        let mut start = -phase;
        while start < slots {
            let first = start == -phase;
            let mut chosen: Vec<i64> = (start..start + period).collect();
            if !late {
                for i in (1..chosen.len()).rev() {
                    chosen.swap(i, rng.random_range(0..=i));
                }
            } else if !first {
                chosen.reverse();
            }
            for slot in chosen.into_iter().take(budget as usize) {
                if (0..slots).contains(&slot) {
                    supply[slot as usize] += 1;
                }
            }
            start += period;
        }
    }
    supply
}

/// Sporadic releases: mostly as early as allowed, sometimes later.
fn sporadic(rng: &mut ChaCha8Rng, period: i64, slots: i64) -> Vec<i64> {
    let mut release = rng.random_range(0..2 * period);
    let lazy = rng.random_bool(0.3);
    let mut releases = Vec::new();
    while release < slots {
        releases.push(release);
        release += period + if lazy { rng.random_range(0..=2) } else { 0 };
    }
    releases
}

#[test]
fn global_guests_hold() {
    let mut rng = ChaCha8Rng::seed_from_u64(2);
    let (mut accepted, mut several) = (0, 0);
    while accepted < 40_000 {
        let tasks = random_tasks(&mut rng, 5, 1);
        let period = rng.random_range(1..=6);
        let (scheduler, policy) = if rng.random_bool(0.7) {
            (
                GuestScheduler::GlobalEarliestDeadline,
                Policy::EarliestDeadline,
            )
        } else {
            (GuestScheduler::DeadlineMonotonic, Policy::DeadlineMonotonic)
        };
        let kind = if rng.random() {
            InterfaceKind::Multiprocessor
        } else {
            InterfaceKind::DeterministicMultiprocessor
        };
        let mut work = Work::default();
        let Ok(interface) =
            minimal(&library(&tasks), scheduler, kind, period, None, &mut work).unwrap()
        else {
            panic!("as many VCPUs as tasks always do: {tasks:?}");
        };
        accepted += 1;
        several += usize::from(interface.vcpu_budgets.len() > 1);
        for _ in 0..4 {
            let slots = 240;
            let supply = random_supply(&mut rng, &interface.vcpu_budgets, period, slots);
            let mut releases: Vec<Vec<i64>> = tasks
                .iter()
                .map(|&(_, _, t)| sporadic(&mut rng, t, slots))
                .collect();
            if rng.random_bool(0.3) {
                let first = rng.random_range(0..12);
                releases = tasks
                    .iter()
                    .map(|&(_, _, t)| synchronous(t, first, slots))
                    .collect();
            }
            let mut simulated = simulated(&tasks, |_| Vec::new());
            for (task, releases) in simulated.iter_mut().zip(releases) {
                task.releases = releases;
            }
            assert!(
                meets_deadlines(&simulated, policy, &supply),
                "{tasks:?} {policy:?} {interface:?} {supply:?} {simulated:?}"
            );
        }
    }
    assert!(several > 5_000, "only {several} on several VCPUs");
}

/// A VCPU on a simulated host.
struct Running {
    budget: i64,
    period: i64,
    phase: i64,
    cpus: Vec<u32>,
    left: i64,
    /// Ready in this slot.
    ready: bool,
    /// Offset in the period since when it has been ready without a break.
    ready_since: i64,
    used: i64,
}

/// Simulates deferrable or periodic servers; false if a promise is broken.
fn host_holds(
    rng: &mut ChaCha8Rng,
    vcpus: &[(i64, i64)],
    placements: &[Placement],
    cpus: u32,
    policy: Policy,
    deferrable: bool,
) -> bool {
    let mut running: Vec<Running> = vcpus
        .iter()
        .zip(placements)
        .map(|(&(budget, period), placement)| Running {
            budget,
            period,
            phase: if rng.random_bool(0.5) {
                0
            } else {
                rng.random_range(0..period)
            },
            cpus: match placement {
                Placement::Dedicated(cpu) | Placement::Pinned(cpu) => vec![*cpu],
                Placement::Shared(cpus) => cpus.clone(),
            },
            left: budget,
            ready: true,
            ready_since: 0,
            used: 0,
        })
        .collect();
    for slot in 0..96 {
        for vcpu in &mut running {
            let offset = (slot + vcpu.phase) % vcpu.period;
            if offset == 0 || slot == 0 {
                // The first, cut period promises nothing: it starts with what still fits.
                vcpu.left = if slot == 0 && offset > 0 {
                    0
                } else {
                    vcpu.budget
                };
                vcpu.used = 0;
                vcpu.ready_since = offset;
            }
            if deferrable {
                let was = vcpu.ready;
                vcpu.ready = if was {
                    rng.random_bool(0.9)
                } else {
                    rng.random_bool(0.3)
                };
                if vcpu.ready && !was {
                    vcpu.ready_since = offset;
                }
            }
        }
        let mut order: Vec<usize> = (0..running.len()).collect();
        order.sort_by_key(|&i| {
            let vcpu = &running[i];
            match policy {
                Policy::EarliestDeadline => {
                    (slot + vcpu.period - (slot + vcpu.phase) % vcpu.period, i)
                }
                Policy::DeadlineMonotonic => (vcpu.period, i),
            }
        });
        let mut busy = vec![false; cpus as usize];
        for index in order {
            let vcpu = &mut running[index];
            if !vcpu.ready || vcpu.left == 0 {
                continue;
            }
            if let Some(&cpu) = vcpu.cpus.iter().find(|&&cpu| !busy[cpu as usize]) {
                busy[cpu as usize] = true;
                vcpu.left -= 1;
                vcpu.used += 1;
            }
        }
        for vcpu in &running {
            let offset = (slot + vcpu.phase) % vcpu.period;
            let cut = slot < vcpu.period && slot - offset < 0;
            if offset == vcpu.period - 1 && vcpu.ready && !cut {
                let owed = (vcpu.budget - vcpu.ready_since).max(0);
                if vcpu.used < owed {
                    return false;
                }
            }
        }
    }
    true
}

#[test]
fn hosts_hold() {
    const SCHEDULERS: [(HostScheduler, Policy); 4] = [
        (
            HostScheduler::PartitionedEarliestDeadline,
            Policy::EarliestDeadline,
        ),
        (
            HostScheduler::PartitionedDeadlineMonotonic,
            Policy::DeadlineMonotonic,
        ),
        (
            HostScheduler::GlobalEarliestDeadline,
            Policy::EarliestDeadline,
        ),
        (
            HostScheduler::GlobalDeadlineMonotonic,
            Policy::DeadlineMonotonic,
        ),
    ];
    let mut rng = ChaCha8Rng::seed_from_u64(3);
    let (mut accepted, mut by_kind) = (0, [0; 8]);
    while accepted < 60_000 {
        let cpus = rng.random_range(1..=3);
        let count = rng.random_range(1..=6);
        let vcpus: Vec<(i64, i64)> = (0..count)
            .map(|_| {
                let period = *[2, 3, 4, 6, 8, 12].choose(&mut rng).unwrap();
                (rng.random_range(1..=period), period)
            })
            .collect();
        let kind = rng.random_range(0..8);
        let (scheduler, policy) = SCHEDULERS[kind / 2];
        let server = if kind % 2 == 0 {
            VcpuServer::TaskLike
        } else {
            VcpuServer::Deferrable
        };
        let host = Host::new(cpus, scheduler, server, Overheads::default()).unwrap();
        let given: Vec<Vcpu> = vcpus
            .iter()
            .enumerate()
            .map(|(vm, &(budget, period))| Vcpu::new(vm, budget, period).unwrap())
            .collect();
        let Ok(placements) = admit(&host, &given, &mut Work::default()).outcome else {
            continue;
        };
        accepted += 1;
        by_kind[kind] += 1;
        for _ in 0..3 {
            let deferrable = server == VcpuServer::Deferrable;
            assert!(
                host_holds(&mut rng, &vcpus, &placements, cpus, policy, deferrable),
                "{vcpus:?} on {cpus} under {scheduler:?} {server:?}: {placements:?}"
            );
        }
    }
    assert!(by_kind.iter().all(|&count| count > 1_000), "{by_kind:?}");
}

/// VCPUs restricted to random CPUs keep their promises, too.
#[test]
fn masked_hosts_hold() {
    let mut rng = ChaCha8Rng::seed_from_u64(4);
    let (mut accepted, mut by_kind) = (0, [0; 4]);
    while accepted < 8_000 {
        let cpus = rng.random_range(2..=3);
        let vcpus: Vec<(i64, i64)> = (0..rng.random_range(2..=6))
            .map(|_| {
                let period = *[2, 3, 4, 6, 8, 12].choose(&mut rng).unwrap();
                (rng.random_range(1..=period), period)
            })
            .collect();
        let given: Vec<Vcpu> = vcpus
            .iter()
            .enumerate()
            .map(|(vm, &(budget, period))| {
                let vcpu = Vcpu::new(vm, budget, period).unwrap();
                let mask: Vec<u32> = (0..cpus).filter(|_| rng.random_bool(0.6)).collect();
                if mask.is_empty() {
                    vcpu
                } else {
                    vcpu.on(mask).unwrap()
                }
            })
            .collect();
        let kind = rng.random_range(0..4);
        let (scheduler, policy) = [
            (
                HostScheduler::PartitionedEarliestDeadline,
                Policy::EarliestDeadline,
            ),
            (
                HostScheduler::GlobalEarliestDeadline,
                Policy::EarliestDeadline,
            ),
            (
                HostScheduler::PartitionedDeadlineMonotonic,
                Policy::DeadlineMonotonic,
            ),
            (
                HostScheduler::GlobalDeadlineMonotonic,
                Policy::DeadlineMonotonic,
            ),
        ][kind];
        let host = Host::new(cpus, scheduler, VcpuServer::TaskLike, Overheads::default()).unwrap();
        let Ok(placements) = admit(&host, &given, &mut Work::default()).outcome else {
            continue;
        };
        accepted += 1;
        by_kind[kind] += 1;
        for _ in 0..3 {
            assert!(
                host_holds(&mut rng, &vcpus, &placements, cpus, policy, false),
                "{given:?} on {cpus} under {scheduler:?}: {placements:?}"
            );
        }
    }
    assert!(by_kind.iter().all(|&count| count > 500), "{by_kind:?}");
}

/// Release jitter under EDF: the first jobs arrive as late, the next as early as they may, all in the
/// longest blackout.
#[test]
fn late_releases_hold() {
    let mut rng = ChaCha8Rng::seed_from_u64(5);
    let mut accepted = 0;
    while accepted < 10_000 {
        let tasks: Vec<(Task, i64)> = random_tasks(&mut rng, 3, 2)
            .iter()
            .map(|&(c, d, t)| {
                let jitter = rng.random_range(0..=d - c);
                (
                    Task::new(c, d, t).unwrap().with_jitter(jitter).unwrap(),
                    jitter,
                )
            })
            .collect();
        let period = rng.random_range(1..=7);
        let library: Vec<Task> = tasks.iter().map(|&(task, _)| task).collect();
        let edf = LocalScheduler::EarliestDeadline;
        let Ok(interface) = minimal_prm(&library, edf, period, &mut Work::default()) else {
            continue;
        };
        accepted += 1;
        let (budget, slots) = (interface.budget, 300);
        let jobs: Vec<Simulated> = tasks
            .iter()
            .flat_map(|&(task, jitter)| {
                let next = budget + task.period() - jitter;
                [
                    (task.deadline() - jitter, vec![budget]),
                    (task.deadline(), synchronous(task.period(), next, slots)),
                ]
                .map(|(deadline, releases)| Simulated {
                    execution: task.execution(),
                    deadline,
                    releases,
                })
            })
            .collect();
        let supply = late_supply(period, budget, slots);
        assert!(
            meets_deadlines(&jobs, Policy::EarliestDeadline, &supply),
            "{tasks:?} {budget} in {period}"
        );
    }
}

/// The gap this closes: by utilisation these two fit one CPU. As deferrable servers they do not: the
/// second sleeps until slot 4 of its period and then runs whole budgets in 4..10, 10..16 and 20..26.
#[test]
fn deferrable_vcpus_that_break_a_promise_are_refused() {
    let given = [Vcpu::new(0, 10, 26).unwrap(), Vcpu::new(1, 6, 10).unwrap()];
    let scheduler = HostScheduler::PartitionedEarliestDeadline;
    let feasible = |server| {
        let host = Host::new(1, scheduler, server, Overheads::default()).unwrap();
        admit(&host, &given, &mut Work::default()).is_feasible()
    };
    assert!(feasible(VcpuServer::TaskLike));
    assert!(!feasible(VcpuServer::Deferrable));
    let job = |execution, deadline, releases: &[i64]| Simulated {
        execution,
        deadline,
        releases: releases.to_vec(),
    };
    let jobs = [job(10, 26, &[4]), job(6, 6, &[4]), job(6, 10, &[10, 20])];
    assert!(!meets_deadlines(&jobs, Policy::EarliestDeadline, &[1; 30]));
}
