//! Soundness of admission: hosts that are accepted keep every VCPU's promise in an explicit simulation.
//!
//! 60,000 hosts, half with deferrable VCPUs, and 8,000 with CPU masks, from fixed seeds.

use crate::simulator::{Policy, Simulated, meets_deadlines};
use rand::{Rng, SeedableRng, seq::IndexedRandom};
use rand_chacha::ChaCha8Rng;
use steadyvm_analysis::{
    Work,
    host::{Host, HostScheduler, Placement, Vcpu, VcpuServer, admit, overhead::Overheads},
};

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
            VcpuServer::Periodic
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
        let host = Host::new(cpus, scheduler, VcpuServer::Periodic, Overheads::default()).unwrap();
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
    assert!(feasible(VcpuServer::Periodic));
    assert!(!feasible(VcpuServer::Deferrable));
    let job = |execution, deadline, releases: &[i64]| Simulated {
        execution,
        deadline,
        releases: releases.to_vec(),
    };
    let jobs = [job(10, 26, &[4]), job(6, 6, &[4]), job(6, 10, &[10, 20])];
    assert!(!meets_deadlines(&jobs, Policy::EarliestDeadline, &[1; 30]));
}
