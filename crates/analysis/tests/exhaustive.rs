//! Least interfaces equal exhaustive search on all small integer systems.
//!
//! Bounds: one VCPU, all pairs of tasks with periods up to 6 and all VCPU periods up to 5; global guests,
//! all pairs with D = T up to 5 and random triples with D <= T up to 8, all VCPU periods up to 4. The
//! search evaluates each theorem as written, at every whole instant, and tries every budget from 1 up.
// Helpers of tests unwrap, too.
#![allow(clippy::unwrap_used)]

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use steadyvm_analysis::{
    Amount, Task, Time, Work,
    guest::partitioned::LocalScheduler,
    interface::{GuestScheduler, InterfaceKind, minimal, minimal_prm},
    supply::{MultiprocessorPeriodic, PeriodicResource, Replenishment, Supply},
};

type Parameters = (Time, Time, Time);

fn library(tasks: &[Parameters]) -> Vec<Task> {
    tasks
        .iter()
        .map(|&(c, d, t)| Task::new(c, d, t).unwrap())
        .collect()
}

fn all_tasks(longest: Time) -> Vec<Parameters> {
    let mut tasks = Vec::new();
    for t in 1..=longest {
        for d in 1..=t {
            tasks.extend((1..=d).map(|c| (c, d, t)));
        }
    }
    tasks
}

fn edf_holds(tasks: &[Parameters], supply: &impl Supply, horizon: Time) -> bool {
    (1..=horizon).all(|at| {
        let demand: Time = tasks.iter().map(|&(c, d, t)| (at + t - d) / t * c).sum();
        Amount::from(demand) <= supply.supply(at)
    })
}

fn dm_holds(tasks: &[Parameters], supply: &impl Supply) -> bool {
    let mut sorted = tasks.to_vec();
    sorted.sort_by_key(|&(_, d, _)| d);
    sorted.iter().enumerate().all(|(level, &(c, d, _))| {
        (1..=d).any(|at| {
            let higher: Time = sorted[..level]
                .iter()
                .map(|&(c, _, t)| (at + t - 1) / t * c)
                .sum();
            Amount::from(c + higher) <= supply.supply(at)
        })
    })
}

#[test]
fn one_vcpu() {
    let all = all_tasks(6);
    let mut systems = 0;
    for (i, &first) in all.iter().enumerate() {
        for &second in &all[i..] {
            let tasks = [first, second];
            for period in 1..=5 {
                // Two hyperperiods of tasks and supply and the blackouts.
                let horizon = 2 * 60 + 4 * period;
                for scheduler in [
                    LocalScheduler::EarliestDeadline,
                    LocalScheduler::DeadlineMonotonic,
                ] {
                    for replenishment in [Replenishment::AtOnce, Replenishment::InPieces] {
                        let searched = (1..=period).find(|&budget| {
                            let vcpu = PeriodicResource::new(period, budget).unwrap();
                            let supply = vcpu.replenished(replenishment);
                            match scheduler {
                                LocalScheduler::EarliestDeadline => {
                                    edf_holds(&tasks, &supply, horizon)
                                }
                                LocalScheduler::DeadlineMonotonic => dm_holds(&tasks, &supply),
                            }
                        });
                        let tasks = library(&tasks);
                        let work = &mut Work::default();
                        let found = minimal_prm(&tasks, scheduler, period, replenishment, work);
                        let found = found.ok().map(|interface| {
                            assert!(interface.exact);
                            interface.budget
                        });
                        let context = format!("{tasks:?} {scheduler:?} {period} {replenishment:?}");
                        assert_eq!(found, searched, "{context}");
                        systems += 1;
                    }
                }
            }
        }
    }
    assert!(systems > 30_000, "{systems}");
}

/// Suspension is no demand for a processor below, but jitter:
/// `C_i + S_i + sum ceil((w + D_j - C_j) / T_j) C_j`.
fn suspending_dm_holds(tasks: &[(Parameters, Time)], supply: &impl Supply) -> bool {
    let mut sorted = tasks.to_vec();
    sorted.sort_by_key(|&((_, d, _), _)| d);
    sorted.iter().enumerate().all(|(level, &((c, d, _), s))| {
        (1..=d).any(|at| {
            let higher = sorted[..level].iter().map(|&((c, d, t), s)| {
                let jitter = if s == 0 { 0 } else { d - c };
                (at + jitter + t - 1) / t * c
            });
            Amount::from(c + s + higher.sum::<Time>()) <= supply.supply(at)
        })
    })
}

#[test]
fn suspending_tasks_of_one_vcpu() {
    let mut below_utilization = 0;
    for (one, two, three) in (0..1_000).map(|n| (n % 10, n / 10 % 10, n / 100)) {
        let tasks = [
            ((1, 14, 14), one),
            ((1, 19, 20), two),
            ((2, 30, 30), 2 * three),
        ];
        let suspending: Vec<Task> = tasks
            .iter()
            .map(|&((c, d, t), s)| Task::new(c, d, t).unwrap().with_suspension(s).unwrap())
            .collect();
        for period in 1..=6 {
            let searched = (1..=period).find(|&budget| {
                suspending_dm_holds(&tasks, &PeriodicResource::new(period, budget).unwrap())
            });
            let scheduler = LocalScheduler::DeadlineMonotonic;
            let found = minimal_prm(
                &suspending,
                scheduler,
                period,
                Replenishment::AtOnce,
                &mut Work::default(),
            );
            let found = found.ok().map(|interface| {
                assert!(interface.exact);
                interface.budget
            });
            assert_eq!(found, searched, "{tasks:?} {period}");
            let counted = suspending.iter().map(|task| {
                let utilization = task.utilization();
                utilization.numerator as f64 / utilization.denominator as f64
            });
            let counted = counted.sum::<f64>() * period as f64;
            below_utilization +=
                usize::from(found.is_some_and(|budget| (budget as f64) < counted.floor()));
        }
    }
    // What took suspension for demand asked for more.
    assert!(below_utilization > 50, "{below_utilization}");
}

/// Theorem 1 as published, at every whole A up to the horizon, and no tie that hides a miss.
fn theorem_one(
    tasks: &[Parameters],
    supply: &impl Supply,
    processors: Time,
    horizon: Time,
) -> bool {
    (0..tasks.len()).all(|k| {
        let (c_k, d_k, _) = tasks[k];
        (0..=horizon).all(|ahead| {
            let at = ahead + d_k;
            let left = |short: Time| {
                let mut extras = Vec::new();
                let mut sum = processors * (c_k - short);
                for (i, &(c, d, t)) in tasks.iter().enumerate() {
                    let jobs = (at + t - d) / t;
                    let carry = c.min((at - jobs * t).max(0));
                    let (own, cut) = if i == k {
                        (c, ahead)
                    } else {
                        (0, at - c_k + short)
                    };
                    let without = (jobs * c - own).min(cut);
                    let with = (jobs * c + carry - own).min(cut);
                    sum += without;
                    extras.push(with - without);
                }
                extras.sort_unstable_by(|a, b| b.cmp(a));
                sum + extras.iter().take(processors as usize - 1).sum::<Time>()
            };
            let supplied = supply.supply(at);
            let tie = Amount::from(left(0)) == supplied && Amount::from(left(1)) >= supplied;
            Amount::from(left(0)) <= supplied && !tie
        })
    })
}

fn check_global(tasks: &[Parameters], period: Time, horizon: Time) {
    let searched = (1..=tasks.len() as Time).find_map(|vcpus| {
        (1..=vcpus * period)
            .find(|&budget| {
                let supply = MultiprocessorPeriodic::new(period, budget, vcpus as u32).unwrap();
                if vcpus == 1 {
                    edf_holds(tasks, &supply, horizon)
                } else {
                    let whole = budget == vcpus * period && vcpus as usize == tasks.len();
                    whole || theorem_one(tasks, &supply, vcpus, horizon)
                }
            })
            .map(|budget| (vcpus, budget))
    });
    let found = minimal(
        &library(tasks),
        GuestScheduler::GlobalEarliestDeadline,
        InterfaceKind::Multiprocessor,
        period,
        None,
        &mut Work::default(),
    );
    let found = found.unwrap().ok().map(|interface| {
        assert!(interface.exact);
        (interface.vcpu_budgets.len() as Time, interface.budget)
    });
    assert_eq!(found, searched, "{tasks:?} period {period}");
}

#[test]
fn global_guests_of_two_tasks() {
    let all: Vec<Parameters> = all_tasks(5)
        .into_iter()
        .filter(|&(_, d, t)| d == t)
        .collect();
    for (i, &first) in all.iter().enumerate() {
        for &second in &all[i..] {
            for period in 1..=4 {
                check_global(&[first, second], period, 160);
            }
        }
    }
}

#[test]
fn global_guests_of_three_tasks() {
    let all = all_tasks(8);
    let mut rng = ChaCha8Rng::seed_from_u64(5);
    for _ in 0..2_000 {
        let mut tasks = || all[rng.random_range(0..all.len())];
        let tasks = [tasks(), tasks(), tasks()];
        check_global(&tasks, rng.random_range(1..=4), 220);
    }
}

/// Every way to put the VCPUs on `cpus` CPUs, by utilisation alone.
fn packs(bandwidths: &[(Time, Time)], cpus: usize) -> bool {
    fn place(rest: &[(Time, Time)], loads: &mut [Time]) -> bool {
        let Some((&(budget, period), rest)) = rest.split_first() else {
            return true;
        };
        // 840 = lcm of 1..=8.
        let load = budget * 840 / period;
        (0..loads.len()).any(|cpu| {
            loads[cpu] += load;
            let done = loads[cpu] <= 840 && place(rest, loads);
            loads[cpu] -= load;
            done
        })
    }
    place(bandwidths, &mut vec![0; cpus])
}

#[test]
fn least_cpus_of_partitioned_edf_hosts() {
    use steadyvm_analysis::host::{
        Host, HostScheduler, Vcpu, VcpuServer, minimal_processors, overhead::Overheads,
    };
    let scheduler = HostScheduler::PartitionedEarliestDeadline;
    let host = Host::new(1, scheduler, VcpuServer::Periodic, Overheads::default()).unwrap();
    let mut rng = ChaCha8Rng::seed_from_u64(14);
    for _ in 0..5_000 {
        let bandwidths: Vec<(Time, Time)> = (0..rng.random_range(1..=7))
            .map(|_| {
                let period = rng.random_range(1..=8);
                (rng.random_range(1..=period), period)
            })
            .collect();
        let vcpus: Vec<Vcpu> = bandwidths
            .iter()
            .map(|&(b, p)| Vcpu::new(0, b, p).unwrap())
            .collect();
        let searched = (1..=bandwidths.len())
            .find(|&cpus| packs(&bandwidths, cpus))
            .unwrap();
        let found = minimal_processors(&host, &vcpus, &mut Work::default()).unwrap();
        assert_eq!(
            (found.count as usize, found.exact),
            (searched, true),
            "{bandwidths:?}"
        );
    }
}
