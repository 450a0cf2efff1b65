//! Soundness against every legal schedule: what the library accepts is never late, whatever the releases,
//! phases, jitters, suspensions and placements of budgets are. See `explorer`.

use crate::explorer::{Policy, Task, deferrable_promises, never_late};
use rand::{Rng, SeedableRng, seq::IndexedRandom};
use rand_chacha::ChaCha8Rng;
use steadyvm_analysis::{
    PriorityOrder, Time, Work,
    guest::partitioned::LocalScheduler,
    host::{Host, HostScheduler, Placement, Vcpu, VcpuServer, admit, overhead::Overheads},
    interface::{GuestScheduler, InterfaceKind, minimal, minimal_prm},
    supply::Replenishment,
};

/// States of one system; larger ones are passed over, and counted.
const MOST_STATES: usize = 200_000;

fn slots(time: Time) -> u8 {
    u8::try_from(time).unwrap()
}

/// The library's task and the explorer's.
fn both([c, d, t]: [Time; 3], jitter: Time, suspension: Time) -> (steadyvm_analysis::Task, Task) {
    let library = steadyvm_analysis::Task::new(c, d, t).unwrap();
    let library = library
        .with_suspension(suspension)
        .unwrap()
        .with_jitter(jitter)
        .unwrap();
    let explored = Task {
        execution: slots(c),
        deadline: slots(d),
        period: slots(t),
        jitter: slots(jitter),
        suspension: slots(suspension),
        barred: 0,
    };
    (library, explored)
}

/// Sorted as the library sorts by deadline.
fn by_deadline(tasks: &[(steadyvm_analysis::Task, Task)]) -> Vec<Task> {
    let library: Vec<steadyvm_analysis::Task> = tasks.iter().map(|&(task, _)| task).collect();
    let order = PriorityOrder::DeadlineMonotonic.order(&library);
    order.iter().map(|&index| tasks[index].1).collect()
}

/// One VCPU: EDF and fixed priorities, release jitter, self-suspension.
#[test]
fn tasks_on_one_vcpu_are_never_late() {
    let mut rng = ChaCha8Rng::seed_from_u64(41);
    let (mut checked, mut jitters, mut suspensions, mut tight) = (0, 0, 0, 0);
    while checked < 20_000 {
        let tasks: Vec<_> = (0..rng.random_range(2..=3))
            .map(|_| {
                let t = rng.random_range(2..=7);
                let c = rng.random_range(1..=(t / 2).max(1));
                let d = rng.random_range(c..=t);
                let jitter = rng.random_range(0..=(d - c).min(2));
                let suspension = rng.random_range(0..=(d - c - jitter).min(2));
                both([c, d, t], jitter, suspension)
            })
            .collect();
        let period = rng.random_range(1..=4);
        let library: Vec<_> = tasks.iter().map(|&(task, _)| task).collect();
        let (scheduler, policy, explored) = if rng.random_bool(0.3) {
            let explored = tasks.iter().map(|&(_, task)| task).collect();
            (
                LocalScheduler::EarliestDeadline,
                Policy::EarliestDeadline,
                explored,
            )
        } else {
            (
                LocalScheduler::DeadlineMonotonic,
                Policy::FixedPriority,
                by_deadline(&tasks),
            )
        };
        let Ok(interface) = minimal_prm(
            &library,
            scheduler,
            period,
            Replenishment::AtOnce,
            &mut Work::default(),
        ) else {
            continue;
        };
        let explore = |budget: Time| {
            never_late(
                &explored,
                policy,
                &[(slots(budget), slots(period))],
                MOST_STATES,
            )
        };
        let Some(held) = explore(interface.budget) else {
            continue;
        };
        assert!(
            held,
            "{explored:?} {policy:?} {} in {period}",
            interface.budget
        );
        checked += 1;
        jitters += usize::from(library.iter().any(|task| task.jitter() > 0));
        let suspends = library.iter().any(|task| task.suspension() > 0);
        suspensions += usize::from(suspends);
        // Without suspension the budget is the least there is.
        if !suspends && interface.budget > 1 {
            assert_ne!(
                explore(interface.budget - 1),
                Some(true),
                "{explored:?} {policy:?} {period}"
            );
            tight += 1;
        }
    }
    assert!(
        jitters > 5_000 && suspensions > 5_000 && tight > 1_000,
        "{jitters} {suspensions} {tight}"
    );
}

/// Several VCPUs: global EDF and global DM on MPR and DMPR, some tasks suspend themselves.
#[test]
fn global_guests_are_never_late() {
    let mut rng = ChaCha8Rng::seed_from_u64(42);
    let (mut checked, mut several, mut passed_over, mut suspending) = (0, 0, 0, 0);
    while checked < 2_000 {
        let tasks: Vec<_> = (0..rng.random_range(2..=4))
            .map(|_| {
                let t = rng.random_range(2..=4);
                let c = rng.random_range(1..=t);
                let d = rng.random_range(c..=t);
                let suspension = i64::from(d > c && rng.random_bool(0.2));
                suspending += usize::from(suspension > 0);
                both([c, d, t], 0, suspension)
            })
            .collect();
        let period = rng.random_range(1..=3);
        let library: Vec<_> = tasks.iter().map(|&(task, _)| task).collect();
        let (scheduler, policy, explored) = if rng.random_bool(0.7) {
            let explored = tasks.iter().map(|&(_, task)| task).collect();
            (
                GuestScheduler::GlobalEarliestDeadline,
                Policy::EarliestDeadline,
                explored,
            )
        } else {
            (
                GuestScheduler::DeadlineMonotonic,
                Policy::FixedPriority,
                by_deadline(&tasks),
            )
        };
        let kind = if rng.random() {
            InterfaceKind::Multiprocessor
        } else {
            InterfaceKind::DeterministicMultiprocessor
        };
        let work = &mut Work::default();
        let interface = minimal(&library, scheduler, kind, period, None, work)
            .unwrap()
            .unwrap();
        let vcpus: Vec<(u8, u8)> = interface
            .vcpu_budgets
            .iter()
            // A processor that is always supplied has no phase.
            .map(|&budget| {
                if budget == period {
                    (1, 1)
                } else {
                    (slots(budget), slots(period))
                }
            })
            .collect();
        if vcpus.len() > 3 {
            continue;
        }
        let Some(held) = never_late(&explored, policy, &vcpus, MOST_STATES) else {
            passed_over += 1;
            continue;
        };
        assert!(held, "{explored:?} {policy:?} {vcpus:?}");
        checked += 1;
        several += usize::from(vcpus.len() > 1);
    }
    assert!(
        several > 1_000 && passed_over < checked && suspending > 500,
        "{several} {passed_over} {suspending}"
    );
}

const SCHEDULERS: [(HostScheduler, Policy); 4] = [
    (
        HostScheduler::PartitionedEarliestDeadline,
        Policy::EarliestDeadline,
    ),
    (
        HostScheduler::PartitionedDeadlineMonotonic,
        Policy::FixedPriority,
    ),
    (
        HostScheduler::GlobalEarliestDeadline,
        Policy::EarliestDeadline,
    ),
    (
        HostScheduler::GlobalDeadlineMonotonic,
        Policy::FixedPriority,
    ),
];

/// All hosts of `count` VCPUs with periods up to `longest`, in rising order of period.
fn all_hosts(count: usize, longest: u8) -> Vec<Vec<(u8, u8)>> {
    let kinds: Vec<(u8, u8)> = (1..=longest)
        .flat_map(|period| (1..=period).map(move |budget| (budget, period)))
        .collect();
    let mut hosts: Vec<Vec<usize>> = vec![Vec::new()];
    for _ in 0..count {
        hosts = hosts
            .into_iter()
            .flat_map(|host| {
                (host.last().copied().unwrap_or(0)..kinds.len()).map(move |kind| {
                    let mut host = host.clone();
                    host.push(kind);
                    host
                })
            })
            .collect();
    }
    hosts
        .into_iter()
        .map(|host| host.into_iter().map(|kind| kinds[kind]).collect())
        .collect()
}

/// Where the library puts the VCPUs, if it admits them: for each the CPUs it may use.
fn placed(
    vcpus: &[(u8, u8)],
    masks: &[Option<Vec<u32>>],
    cpus: u32,
    scheduler: HostScheduler,
    server: VcpuServer,
) -> Option<Vec<Vec<u32>>> {
    let host = Host::new(cpus, scheduler, server, Overheads::default()).unwrap();
    let given: Vec<Vcpu> = vcpus
        .iter()
        .enumerate()
        .map(|(vm, &(budget, period))| {
            let vcpu = Vcpu::new(vm, budget.into(), period.into()).unwrap();
            match masks.get(vm) {
                Some(Some(mask)) => vcpu.on(mask.clone()).unwrap(),
                _ => vcpu,
            }
        })
        .collect();
    let placements = admit(&host, &given, &mut Work::default()).outcome.ok()?;
    let cpus = |placement| match placement {
        Placement::Dedicated(cpu) | Placement::Pinned(cpu) => vec![cpu],
        Placement::Shared(cpus) => cpus,
    };
    Some(placements.into_iter().map(cpus).collect())
}

fn holds(vcpus: &[(u8, u8)], places: &[Vec<u32>], cpus: u32, policy: Policy) -> Option<bool> {
    let tasks: Vec<Task> = vcpus
        .iter()
        .zip(places)
        .map(|(&(budget, period), cpus)| {
            let allowed = cpus.iter().fold(0_u8, |mask, cpu| mask | 1 << cpu);
            let task = both([budget, period, period].map(Time::from), 0, 0).1;
            Task {
                barred: !allowed,
                ..task
            }
        })
        .collect();
    never_late(&tasks, policy, &vec![(1, 1); cpus as usize], MOST_STATES)
}

/// All hosts of 2 CPUs with up to 4 VCPUs of periods up to 4 (3 VCPUs: up to 5).
#[test]
fn all_small_hosts_hold() {
    let (mut by_scheduler, mut systems) = ([0; 4], 0);
    for (count, longest) in [(1, 5), (2, 5), (3, 5), (4, 4)] {
        for vcpus in all_hosts(count, longest) {
            for (kind, &(scheduler, policy)) in SCHEDULERS.iter().enumerate() {
                systems += 1;
                let Some(places) = placed(&vcpus, &[], 2, scheduler, VcpuServer::Periodic) else {
                    continue;
                };
                let held = holds(&vcpus, &places, 2, policy).unwrap();
                assert!(held, "{vcpus:?} {scheduler:?} {places:?}");
                by_scheduler[kind] += 1;
            }
        }
    }
    assert!(
        systems > 5_000 && by_scheduler.iter().all(|&n| n > 300),
        "{systems} {by_scheduler:?}"
    );
}

/// VCPUs restricted to some of 3 CPUs.
#[test]
fn masked_hosts_hold() {
    let mut rng = ChaCha8Rng::seed_from_u64(43);
    let mut checked = 0;
    while checked < 5_000 {
        let mut vcpus: Vec<(u8, u8)> = (0..rng.random_range(2..=4))
            .map(|_| {
                let period = rng.random_range(2..=4);
                (rng.random_range(1..=period), period)
            })
            .collect();
        vcpus.sort_by_key(|&(_, period)| period);
        let masks: Vec<Option<Vec<u32>>> = vcpus
            .iter()
            .map(|_| Some((0..3).filter(|_| rng.random_bool(0.6)).collect()))
            .map(|mask: Option<Vec<u32>>| mask.filter(|mask| !mask.is_empty()))
            .collect();
        let &(scheduler, policy) = SCHEDULERS.choose(&mut rng).unwrap();
        let Some(places) = placed(&vcpus, &masks, 3, scheduler, VcpuServer::Periodic) else {
            continue;
        };
        let held = holds(&vcpus, &places, 3, policy).unwrap();
        assert!(held, "{vcpus:?} {masks:?} {scheduler:?} {places:?}");
        checked += 1;
    }
}

/// All hosts of deferrable VCPUs: 1 CPU with up to 3 of periods up to 5, 2 CPUs with up to 4 of up to 3.
#[test]
fn all_small_deferrable_hosts_hold() {
    let mut by_scheduler = [0; 4];
    for (cpus, count, longest) in [
        (1, 1, 6),
        (1, 2, 6),
        (1, 3, 4),
        (2, 2, 4),
        (2, 3, 4),
        (2, 4, 3),
    ] {
        for vcpus in all_hosts(count, longest) {
            for (kind, &(scheduler, policy)) in SCHEDULERS.iter().enumerate() {
                let Some(places) = placed(&vcpus, &[], cpus, scheduler, VcpuServer::Deferrable)
                else {
                    continue;
                };
                // Each CPU, or all those that are shared, by itself.
                let mut groups: Vec<Vec<u32>> = places.clone();
                groups.sort();
                groups.dedup();
                for group in groups {
                    let members: Vec<(u8, u8)> = vcpus
                        .iter()
                        .zip(&places)
                        .filter(|&(_, cpus)| *cpus == group)
                        .map(|(&vcpu, _)| vcpu)
                        .collect();
                    let held = deferrable_promises(&members, policy, group.len(), MOST_STATES);
                    assert!(held.unwrap(), "{vcpus:?} {scheduler:?} {places:?}");
                }
                by_scheduler[kind] += 1;
            }
        }
    }
    assert!(by_scheduler.iter().all(|&n| n > 100), "{by_scheduler:?}");
}

/// The explorer itself tells late from on time.
#[test]
fn the_explorer_finds_misses() {
    let task = |c, d, t| both([c, d, t], 0, 0).1;
    let edf = Policy::EarliestDeadline;
    // A budget of 2 in 4 supplies 2 in 6, and nothing in 4.
    assert_eq!(
        never_late(&[task(2, 6, 6)], edf, &[(2, 4)], 1_000),
        Some(true)
    );
    assert_eq!(
        never_late(&[task(2, 5, 6)], edf, &[(2, 4)], 1_000),
        Some(false)
    );
    // Dhall: two light tasks and one long one on two processors.
    let dhall = [task(1, 2, 2), task(1, 2, 2), task(3, 3, 3)];
    let two = [(1, 1), (1, 1)];
    assert_eq!(
        never_late(&dhall, Policy::FixedPriority, &two, 10_000),
        Some(false)
    );
    // Suspension: the higher task comes late once and then in time.
    let suspending = Task {
        suspension: 2,
        ..task(1, 5, 5)
    };
    let one = [(1, 1)];
    let below = |d| {
        never_late(
            &[suspending, task(3, d, 12)],
            Policy::FixedPriority,
            &one,
            10_000,
        )
    };
    assert_eq!((below(4), below(5)), (Some(false), Some(true)));
    // By utilisation these fit one CPU; the second comes back to back, three times within 13.
    let back_to_back = [(5, 13), (3, 5)];
    assert_eq!(
        deferrable_promises(&back_to_back, edf, 1, 1_000_000),
        Some(false)
    );
    assert_eq!(
        deferrable_promises(&[(1, 3), (1, 3)], edf, 1, 10_000),
        Some(true)
    );
}
