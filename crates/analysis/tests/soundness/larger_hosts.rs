//! What the other explorers leave out: four CPUs, hosts that decide at a quantum, masks of deferrable servers.
//!
//! More CPUs than these: docs/design/analysis.md, "What is explored and what is argued".

use rand::{Rng, SeedableRng, seq::IndexedRandom};
use rand_chacha::ChaCha8Rng;
use steadyvm_analysis::{
    Work,
    host::{self, Host, HostScheduler, Placement, VcpuServer, admit, overhead::Overheads},
};

use crate::{
    explorer::{self, deferrable_promises, masked_deferrable_promises},
    quantum_debts, quantum_explorer,
    server_explorer::{self, Kind, Policy},
    server_kinds::{Given, SCHEDULERS, admitted, kind},
};

const MOST_STATES: usize = 40_000;

fn vcpus(given: &[Given], places: &[u8]) -> Vec<server_explorer::Vcpu> {
    (given.iter().zip(places))
        .map(
            |(&(budget, deadline, period, _), &cpus)| server_explorer::Vcpu {
                budget,
                deadline,
                period,
                cpus,
            },
        )
        .collect()
}

/// A VCPU of a tiny period.
fn tiny(rng: &mut ChaCha8Rng) -> Given {
    let period = rng.random_range(2..=4);
    let budget = rng.random_range(1..period);
    let deadline = if rng.random_bool(0.8) {
        period
    } else {
        rng.random_range(budget..=period)
    };
    (budget, deadline, period, None)
}

/// Four CPUs and five VCPUs of at most two kinds under a global scheduler: what is admitted keeps every promise. The
/// explorer can fail: a set that is refused misses.
#[test]
fn four_cpus_hold() {
    let mut rng = ChaCha8Rng::seed_from_u64(64);
    let global = [SCHEDULERS[1], SCHEDULERS[3]];
    let servers = [
        VcpuServer::Periodic,
        VcpuServer::Sporadic,
        VcpuServer::ConstantBandwidth,
    ];
    let mut held = [[0; 2]; 3];
    for _ in 0..300 {
        let (row, column) = (rng.random_range(0..3), rng.random_range(0..2));
        if held[row][column] >= 6 {
            continue;
        }
        let first = rng.random_range(1..5);
        let (one, other) = (tiny(&mut rng), tiny(&mut rng));
        let given: Vec<Given> = (0..5)
            .map(|v| if v < first { one } else { other })
            .collect();
        let (scheduler, policy) = global[column];
        let kind = kind(servers[row], policy);
        let Some(places) = admitted(&given, 4, scheduler, servers[row]) else {
            continue;
        };
        let explored = server_explorer::holds(&vcpus(&given, &places), kind, policy, MOST_STATES);
        let server = servers[row];
        assert_ne!(explored, Some(false), "{given:?} {scheduler:?} {server:?}");
        held[row][column] += usize::from(explored == Some(true));
    }
    assert!(held.iter().flatten().all(|&count| count >= 3), "{held:?}");
    // Five that need a CPU each at once, and four CPUs.
    let crowd = [(3, 3, 4, None); 5];
    for (scheduler, policy) in global {
        assert!(admitted(&crowd, 4, scheduler, VcpuServer::Periodic).is_none());
        let all = vcpus(&crowd, &[0b1111; 5]);
        let explored = server_explorer::holds(&all, Kind::Job, policy, MOST_STATES);
        assert_eq!(explored, Some(false), "{scheduler:?}");
    }
}

/// Budget and period, and the CPUs that each VCPU got.
fn placed_deferrable(
    vcpus: &[(u8, u8)],
    masks: &[u8],
    cpus: u32,
    scheduler: HostScheduler,
) -> Option<Vec<u8>> {
    let host = Host::new(
        cpus,
        scheduler,
        VcpuServer::Deferrable,
        Overheads::default(),
    )
    .unwrap();
    let given: Vec<host::Vcpu> = (vcpus.iter().zip(masks).enumerate())
        .map(|(vm, (&(budget, period), &mask))| {
            let vcpu = host::Vcpu::new(vm, budget.into(), period.into()).unwrap();
            if mask == u8::MAX {
                return vcpu;
            }
            vcpu.on((0..8).filter(|cpu| mask >> cpu & 1 == 1).collect())
                .unwrap()
        })
        .collect();
    let bits = |placement| match placement {
        Placement::Dedicated(cpu) | Placement::Pinned(cpu) => 1 << cpu,
        Placement::Shared(cpus) => cpus.iter().fold(0, |set, cpu| set | 1 << cpu),
    };
    let placements = admit(&host, &given, &mut Work::default()).outcome.ok()?;
    Some(placements.into_iter().map(bits).collect())
}

fn deferrable_policy(policy: Policy) -> explorer::Policy {
    match policy {
        Policy::EarliestDeadline => explorer::Policy::EarliestDeadline,
        Policy::DeadlineMonotonic => explorer::Policy::FixedPriority,
    }
}

fn random_deferrable(rng: &mut ChaCha8Rng, count: usize, longest: u8) -> Vec<(u8, u8)> {
    let mut vcpus: Vec<(u8, u8)> = (0..count)
        .map(|_| {
            let period = rng.random_range(2..=longest);
            (rng.random_range(1..period), period)
        })
        .collect();
    vcpus.sort_by_key(|&(_, period)| period);
    vcpus
}

/// Deferrable VCPUs on three and four shared CPUs, sleeping and waking at will.
#[test]
fn deferrable_servers_on_more_cpus_hold() {
    let mut rng = ChaCha8Rng::seed_from_u64(65);
    let (mut held, mut missed) = ([[0; 2]; 2], 0);
    for _ in 0..400 {
        let row = rng.random_range(0..2);
        let cpus = [3_u32, 4][row];
        let given = random_deferrable(&mut rng, cpus as usize + 1, [4, 3][row]);
        let column = rng.random_range(0..2);
        let (scheduler, policy) = [SCHEDULERS[1], SCHEDULERS[3]][column];
        let policy = deferrable_policy(policy);
        let explored = || deferrable_promises(&given, policy, cpus as usize, 200_000);
        if placed_deferrable(&given, &[u8::MAX; 5], cpus, scheduler).is_some() {
            if held[row][column] < 5 {
                let explored = explored();
                assert_ne!(
                    explored,
                    Some(false),
                    "{given:?} on {cpus} CPUs {scheduler:?}"
                );
                held[row][column] += usize::from(explored == Some(true));
            }
        } else if missed < 3 && row == 0 {
            missed += usize::from(explored() == Some(false));
        }
    }
    assert!(held.iter().flatten().all(|&count| count >= 2), "{held:?}");
    assert!(missed > 0);
}

/// Deferrable VCPUs restricted to some of three CPUs.
#[test]
fn masked_deferrable_servers_hold() {
    let mut rng = ChaCha8Rng::seed_from_u64(66);
    let (mut held, mut missed) = ([0; 4], 0);
    for _ in 0..4_000 {
        let count = rng.random_range(2..=4);
        let given = random_deferrable(&mut rng, count, 4);
        let masks: Vec<u8> = given
            .iter()
            .map(|_| {
                *[0b1, 0b10, 0b11, 0b110, 0b101, 0b111]
                    .choose(&mut rng)
                    .unwrap()
            })
            .collect();
        let column = rng.random_range(0..4);
        let (scheduler, policy) = SCHEDULERS[column];
        let policy = deferrable_policy(policy);
        let explored =
            |places: &[u8]| masked_deferrable_promises(&given, places, policy, 3, 100_000);
        match placed_deferrable(&given, &masks, 3, scheduler) {
            Some(places) if held[column] < 40 => {
                let explored = explored(&places);
                assert_ne!(
                    explored,
                    Some(false),
                    "{given:?} {masks:?} {scheduler:?} {places:?}"
                );
                held[column] += usize::from(explored == Some(true));
            }
            None if missed < 5 && !scheduler.is_partitioned() => {
                missed += usize::from(explored(&masks) == Some(false));
            }
            _ => {}
        }
    }
    assert!(held.iter().all(|&count| count >= 20), "{held:?}");
    assert!(missed > 0);
}

/// Periodic (or polling) servers on hosts that decide every 2 or 3 slots: what is admitted with that quantum keeps
/// every promise; of what is admitted without it and refused with it, some miss.
#[test]
fn servers_at_a_quantum_hold() {
    servers_hold_at_a_quantum(VcpuServer::Periodic, 67, 12);
}

/// The same of deferrable ones, whose guests sleep and wake at will.
#[test]
fn deferrable_servers_at_a_quantum_hold() {
    servers_hold_at_a_quantum(VcpuServer::Deferrable, 68, 9);
}

/// A budget's rest that begins in the middle of a quantum keeps its CPU until the quantum's end.
#[test]
fn deferrable_servers_that_miss_at_a_quantum_are_refused() {
    let overheads = Overheads {
        quantum: 2,
        ..Overheads::default()
    };
    let scheduler = HostScheduler::GlobalDeadlineMonotonic;
    let host = Host::new(1, scheduler, VcpuServer::Deferrable, overheads).unwrap();
    let asked =
        [(2, 4), (2, 9)].map(|(budget, period)| host::Vcpu::new(0, budget, period).unwrap());
    assert!(admit(&host, &asked, &mut Work::default()).outcome.is_err());
    let given = vcpus(&[(2, 4, 4, None), (2, 9, 9, None)], &[1, 1]);
    let policy = Policy::DeadlineMonotonic;
    let explored = quantum_explorer::deferrable_holds(&given, policy, 2, 1 << 20);
    assert_eq!(explored, Some(false));
}

fn servers_hold_at_a_quantum(server: VcpuServer, seed: u64, longest: u8) {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let (mut held, mut needed) = ([0; 4], 0);
    for _ in 0..6_000 {
        let quantum = rng.random_range(2..=3_u8);
        let cpus = rng.random_range(1..=2);
        let given: Vec<(u8, u8)> = (0..rng.random_range(1..=3))
            .map(|_| {
                let period = rng.random_range(4..=longest);
                (rng.random_range(1..=period / 2), period)
            })
            .collect();
        let column = rng.random_range(0..4);
        let (scheduler, policy) = SCHEDULERS[column];
        let places = |quantum: u8| {
            let overheads = Overheads {
                quantum: quantum.into(),
                ..Overheads::default()
            };
            let host = Host::new(cpus, scheduler, server, overheads).unwrap();
            let vcpus: Vec<host::Vcpu> = (given.iter().enumerate())
                .map(|(vm, &(budget, period))| {
                    host::Vcpu::new(vm, budget.into(), period.into()).unwrap()
                })
                .collect();
            let placements = admit(&host, &vcpus, &mut Work::default()).outcome.ok()?;
            let bits = |placement| match placement {
                Placement::Dedicated(cpu) | Placement::Pinned(cpu) => 1 << cpu,
                Placement::Shared(cpus) => cpus.iter().fold(0, |set, cpu| set | 1 << cpu),
            };
            let installed = vcpus.iter().map(|vcpu| vcpu.cost(host.overheads()));
            let installed: Vec<u8> = installed.map(|cost| cost.try_into().unwrap()).collect();
            let places: Vec<u8> = placements.into_iter().map(bits).collect();
            Some((places, installed))
        };
        let with_debts = |places: &[u8], installed: &[u8]| {
            let installed: Vec<Given> = (given.iter().zip(installed))
                .map(|(&(_, t), &q)| (q, t, t, None))
                .collect();
            let promised: Vec<u8> = given.iter().map(|&(q, _)| q).collect();
            let sleeps = server == VcpuServer::Deferrable;
            let vcpus = vcpus(&installed, places);
            quantum_debts::holds(&vcpus, &promised, sleeps, policy, quantum, MOST_STATES)
        };
        let explored = |places: &[u8]| {
            let given: Vec<Given> = given.iter().map(|&(q, t)| (q, t, t, None)).collect();
            let explore = match server {
                VcpuServer::Deferrable => quantum_explorer::deferrable_holds,
                _ => quantum_explorer::holds,
            };
            explore(&vcpus(&given, places), policy, quantum, MOST_STATES)
        };
        match (places(quantum), places(0)) {
            (Some((places, installed)), _) if held[column] < 25 => {
                let explored = explored(&places);
                let with_debts = with_debts(&places, &installed);
                for explored in [explored, with_debts] {
                    assert_ne!(
                        explored,
                        Some(false),
                        "{given:?} every {quantum} on {cpus} CPUs {scheduler:?} {places:?} {installed:?}"
                    );
                }
                held[column] += usize::from(explored == Some(true));
            }
            (None, Some((places, _))) if needed < 10 => {
                needed += usize::from(explored(&places) == Some(false));
            }
            _ => {}
        }
    }
    assert!(held.iter().all(|&count| count >= 15), "{held:?}");
    assert!(needed >= 5, "{needed}");
}
