//! The first half of soundness: what the library accepts never misses in an explicit simulation.
//!
//! 150,000 single-VCPU interfaces (which are also shown minimal), 40,000 global guests and 10,000 sets with
//! release jitter, from fixed seeds. Hosts: `hosts.rs`.

use crate::simulator::{Policy, Simulated, late_supply, meets_deadlines, synchronous};
use rand::{Rng, SeedableRng, seq::IndexedRandom};
use rand_chacha::ChaCha8Rng;
use steadyvm_analysis::{
    Task, Work,
    guest::partitioned::LocalScheduler,
    interface::{GuestScheduler, InterfaceKind, minimal, minimal_prm},
    supply::Replenishment,
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
    single_vcpu_interfaces(150_000);
}

/// `STEADYVM_SYSTEMS=1000000 cargo test --release -p steadyvm-analysis --test soundness -- --ignored
/// many_single_vcpu_interfaces`.
#[test]
#[ignore = "runs as many systems as STEADYVM_SYSTEMS says"]
fn many_single_vcpu_interfaces() {
    single_vcpu_interfaces(std::env::var("STEADYVM_SYSTEMS").unwrap().parse().unwrap());
}

/// Every one holds, and misses with one unit of budget less.
fn single_vcpu_interfaces(systems: usize) {
    let mut rng = ChaCha8Rng::seed_from_u64(1);
    let (mut accepted, mut rejected) = (0, 0);
    while accepted + rejected < systems {
        let tasks = random_tasks(&mut rng, 3, 2);
        let period = rng.random_range(1..=7);
        let (scheduler, policy) = if rng.random() {
            (LocalScheduler::EarliestDeadline, Policy::EarliestDeadline)
        } else {
            (LocalScheduler::DeadlineMonotonic, Policy::DeadlineMonotonic)
        };
        let Ok(interface) = minimal_prm(
            &library(&tasks),
            scheduler,
            period,
            Replenishment::AtOnce,
            &mut Work::default(),
        ) else {
            assert!(
                !survives(&tasks, policy, period, period),
                "{tasks:?} {policy:?}"
            );
            rejected += 1;
            continue;
        };
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
        let Ok(interface) = minimal_prm(
            &library,
            edf,
            period,
            Replenishment::AtOnce,
            &mut Work::default(),
        ) else {
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
