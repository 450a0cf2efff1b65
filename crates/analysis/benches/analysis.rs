//! Speed of the calls that tools make most. `cargo bench -p steadyvm-analysis`.
// The macro at the end makes a public function.
#![allow(missing_docs)]

mod hosts;

use std::hint::black_box;

use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};
use hosts::{even_vcpus, mixed_vcpus};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use steadyvm_analysis::{
    Task, Work,
    guest::partitioned::LocalScheduler,
    host::{Host, HostScheduler, Vcpu, VcpuServer, admit, minimal_processors, overhead::Overheads},
    interface::{GuestScheduler, InterfaceKind, minimal, minimal_prm},
    supply::Replenishment,
};

/// CARTS's part 1, minimal DM budgets for every period of 10 to 100.
fn carts(criterion: &mut Criterion) {
    let tasks: Vec<Task> = [(22, 500), (31, 500), (29, 1000)]
        .iter()
        .filter_map(|&(c, t)| Task::implicit(c, t).ok())
        .collect();
    criterion.bench_function("carts_91_periods", |bencher| {
        bencher.iter(|| {
            let scheduler = LocalScheduler::DeadlineMonotonic;
            let budgets = (10..=100)
                .filter_map(|period| {
                    minimal_prm(
                        black_box(&tasks),
                        scheduler,
                        period,
                        Replenishment::AtOnce,
                        &mut Work::default(),
                    )
                    .ok()
                })
                .map(|interface| interface.budget);
            budgets.sum::<i64>()
        });
    });
}

const HOSTS: [(&str, HostScheduler); 4] = [
    ("pedf", HostScheduler::PartitionedEarliestDeadline),
    ("pdm", HostScheduler::PartitionedDeadlineMonotonic),
    ("gedf", HostScheduler::GlobalEarliestDeadline),
    ("gdm", HostScheduler::GlobalDeadlineMonotonic),
];

fn admission(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("admission_64_vcpus");
    for (name, scheduler) in HOSTS {
        // Global DM accepts less.
        let light = if name == "gdm" { 0.25 } else { 0.5 };
        for (kind, share) in [("accepted", light), ("refused", 1.1)] {
            let Ok(host) = Host::new(
                32,
                scheduler,
                VcpuServer::ConstantBandwidth,
                Overheads::default(),
            ) else {
                continue;
            };
            let vcpus = even_vcpus(7, 32, share);
            let feasible = admit(&host, &vcpus, &mut Work::default()).is_feasible();
            assert_eq!(feasible, kind == "accepted", "{name}");
            group.bench_with_input(BenchmarkId::new(name, kind), &vcpus, |bencher, vcpus| {
                bencher.iter(|| admit(&host, black_box(vcpus), &mut Work::default()).is_feasible());
            });
        }
    }
    group.finish();
}

/// Hosts that neither density nor interference decides: of 1,600 from 20 % to 99 % full, the one whose
/// admission takes the most steps, among those accepted and among those refused.
fn response_times(criterion: &mut Criterion) {
    type Make = fn(u64, u32, f64) -> Vec<Vcpu>;
    let mut group = criterion.benchmark_group("response_times_64_vcpus");
    for (name, scheduler) in &HOSTS[2..] {
        let kinds: [(&str, u32, Make); 2] = [("even", 32, even_vcpus), ("mixed", 16, mixed_vcpus)];
        for (kind, cpus, make) in kinds {
            let Ok(host) = Host::new(
                cpus,
                *scheduler,
                VcpuServer::ConstantBandwidth,
                Overheads::default(),
            ) else {
                continue;
            };
            let mut slowest: [Option<(u64, u32, Vec<Vcpu>)>; 2] = [None, None];
            for percent in 20..100 {
                for seed in 0..20 {
                    let vcpus = make(seed, cpus, f64::from(percent) / 100.0);
                    let mut work = Work::default();
                    let feasible = admit(&host, &vcpus, &mut work).is_feasible();
                    let steps = Work::DEFAULT_STEPS - work.left();
                    let slot = &mut slowest[usize::from(!feasible)];
                    if steps > slot.as_ref().map_or(0, |&(most, ..)| most) {
                        *slot = Some((steps, percent, vcpus));
                    }
                }
            }
            for (found, verdict) in slowest.into_iter().zip(["accepted", "refused"]) {
                let Some((_, percent, vcpus)) = found else {
                    continue;
                };
                let name = format!("{name}/{kind}/{verdict}");
                let id = BenchmarkId::new(name, format!("{percent}_percent"));
                group.bench_with_input(id, &vcpus, |bencher, vcpus| {
                    bencher.iter(|| {
                        admit(&host, black_box(vcpus), &mut Work::default()).is_feasible()
                    });
                });
            }
        }
    }
    group.finish();
}

fn cluster(criterion: &mut Criterion) {
    let overheads = Overheads::default();
    let scheduler = HostScheduler::PartitionedEarliestDeadline;
    let Ok(host) = Host::new(32, scheduler, VcpuServer::ConstantBandwidth, overheads) else {
        return;
    };
    let hosts: Vec<Vec<Vcpu>> = (0..1_000).map(|seed| even_vcpus(seed, 32, 0.7)).collect();
    criterion.bench_function("cluster_1000_hosts_64_vcpus", |bencher| {
        bencher.iter(|| {
            hosts
                .iter()
                .filter(|vcpus| admit(&host, black_box(vcpus), &mut Work::default()).is_feasible())
                .count()
        });
    });
    criterion.bench_function("least_cpus_64_vcpus", |bencher| {
        bencher.iter(|| minimal_processors(&host, black_box(&hosts[0]), &mut Work::default()));
    });
}

/// Growth with the number of tasks: the least interface of n tasks in nanoseconds.
fn growth(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("least_interface");
    group.sample_size(10);
    for count in [4, 16, 64, 256] {
        let mut rng = ChaCha8Rng::seed_from_u64(8);
        let tasks: Vec<Task> = (0..count)
            .filter_map(|_| {
                let period = rng.random_range(20..=200) * 1_000_000;
                Task::new(period * 6 / (count * 10), period * 9 / 10, period).ok()
            })
            .collect();
        for (name, scheduler, kind) in [
            (
                "edf",
                GuestScheduler::EarliestDeadline,
                InterfaceKind::PeriodicResource,
            ),
            (
                "dm",
                GuestScheduler::DeadlineMonotonic,
                InterfaceKind::PeriodicResource,
            ),
        ] {
            group.bench_with_input(BenchmarkId::new(name, count), &tasks, |bencher, tasks| {
                bencher.iter(|| {
                    minimal(
                        tasks,
                        scheduler,
                        kind,
                        5_000_000,
                        None,
                        &mut Work::default(),
                    )
                });
            });
        }
    }
    group.finish();
}

criterion_group!(benches, carts, admission, response_times, cluster, growth);
criterion_main!(benches);
