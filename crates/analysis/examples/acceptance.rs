//! What each server is admitted on each host: counts of random VCPU sets, as a page.
//! `cargo run --release -p steadyvm-analysis --example acceptance > docs/results/acceptance.md`

#[path = "../benches/hosts/mod.rs"]
#[allow(dead_code)] // the benches use more of it
mod hosts;

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use steadyvm_analysis::{
    Work,
    host::{Host, HostScheduler, Vcpu, VcpuServer, admit, gfb, overhead::Overheads},
    task::Task,
};

const SETS: usize = 1_500;

const SERVERS: [(&str, VcpuServer); 4] = [
    ("cbs", VcpuServer::ConstantBandwidth),
    ("sporadic", VcpuServer::Sporadic),
    ("deferrable", VcpuServer::Deferrable),
    ("periodic", VcpuServer::Periodic),
];

const SCHEDULERS: [(&str, HostScheduler); 4] = [
    ("pedf", HostScheduler::PartitionedEarliestDeadline),
    ("gedf", HostScheduler::GlobalEarliestDeadline),
    ("pdm", HostScheduler::PartitionedDeadlineMonotonic),
    ("gdm", HostScheduler::GlobalDeadlineMonotonic),
];

/// `count` VCPUs that fill 30 to 100 % of `cpus` CPUs: shares by `UUniFast` (Bini and Buttazzo, 2005), none above
/// 90 %, periods of 1 to 100 ms.
fn set(rng: &mut ChaCha8Rng, cpus: u32, count: usize) -> Vec<(i64, i64)> {
    loop {
        let mut rest = f64::from(cpus) * rng.random_range(0.3..1.0);
        let mut shares = Vec::with_capacity(count);
        for left in (1..count).rev() {
            let next = rest * rng.random_range(0.0_f64..1.0).powf(1.0 / left as f64);
            shares.push(rest - next);
            rest = next;
        }
        shares.push(rest);
        if shares.iter().all(|share| (0.001..0.9).contains(share)) {
            let vcpu = |share: f64| {
                let period = rng.random_range(1_000_000..100_000_000_i64);
                ((period as f64 * share) as i64, period)
            };
            return shares.into_iter().map(vcpu).collect();
        }
    }
}

fn admitted(set: &[(i64, i64)], cpus: u32, scheduler: HostScheduler, server: VcpuServer) -> bool {
    let vcpus: Option<Vec<Vcpu>> = (set.iter().enumerate())
        .map(|(vm, &(budget, period))| Vcpu::new(vm, budget, period).ok())
        .collect();
    let host = Host::new(cpus, scheduler, server, Overheads::default());
    vcpus
        .zip(host.ok())
        .is_some_and(|(vcpus, host)| admit(&host, &vcpus, &mut Work::default()).is_feasible())
}

fn main() {
    println!(
        "# Acceptance by server and host\n\n\
         Made by `cargo run --release -p steadyvm-analysis --example acceptance > docs/results/acceptance.md`.\n\
         {SETS} random sets a row (UUniFast, 30 to 100 % of the CPUs, periods of 1 to 100 ms, seed 28), sets\n\
         admitted of them. `cbs` is the default server and what `SCHED_DEADLINE` enforces.\n"
    );
    println!(
        "| CPUs | VCPUs | host | cbs | sporadic | deferrable | periodic |\n|---|---|---|---|---|---|---|"
    );
    let mut rows = Vec::new();
    for (cpus, count) in [(2, 4), (4, 8), (8, 16)] {
        let mut rng = ChaCha8Rng::seed_from_u64(28);
        let sets: Vec<Vec<(i64, i64)>> = (0..SETS).map(|_| set(&mut rng, cpus, count)).collect();
        for (name, scheduler) in SCHEDULERS {
            print!("| {cpus} | {count} | {name} |");
            for (_, server) in SERVERS {
                let accepted = sets
                    .iter()
                    .filter(|set| admitted(set, cpus, scheduler, server))
                    .count();
                print!(" {accepted} |");
            }
            println!();
        }
        let gedf = HostScheduler::GlobalEarliestDeadline;
        let pedf = HostScheduler::PartitionedEarliestDeadline;
        let cbs = VcpuServer::ConstantBandwidth;
        let on = |set: &&Vec<(i64, i64)>, scheduler, server| admitted(set, cpus, scheduler, server);
        let before = sets
            .iter()
            .filter(|set| on(set, gedf, VcpuServer::Periodic))
            .count();
        let plain = sets.iter().filter(|set| dense(set, cpus)).count();
        let after = sets.iter().filter(|set| on(set, gedf, cbs)).count();
        let lost: Vec<_> = sets
            .iter()
            .filter(|set| on(set, gedf, VcpuServer::Periodic) && !on(set, gedf, cbs))
            .collect();
        let pinned = lost.iter().filter(|set| on(set, pedf, cbs)).count();
        rows.push((cpus, count, before, plain, after, lost.len(), pinned));
    }
    println!(
        "\n## cbs on gedf, before and after\n\n\
         Before: tests for periodic servers were used for `cbs`. Density: what the plain density test (Goossens, Funk\n\
         and Baruah) leaves. After: density with some VCPUs counted as whole CPUs. Every loss has one reason: a guest\n\
         that sleeps in its budget and wakes again executes up to its deadline, or gets a new one early, so neither\n\
         slack (response times) nor at most one budget in a period (interference) can be relied on.\n\n\
         | CPUs | VCPUs | before | density | after | lost | of these held by pedf |\n|---|---|---|---|---|---|---|"
    );
    for (cpus, count, before, plain, after, lost, pinned) in rows {
        println!("| {cpus} | {count} | {before} | {plain} | {after} | {lost} | {pinned} |");
    }
    speed();
}

/// Runs of the speed table.
const RUNS: usize = 21;

/// How long 1,000 hosts of 64 VCPUs take, run by run.
fn speed() {
    println!(
        "\n## Speed\n\n\
         Admission of 64 VCPUs on 32 CPUs, 1,000 random hosts one after the other on one core (a host is 60 %, 75 % or\n\
         90 % full, in turn; server `cbs`), {RUNS} runs. Load average when it began: {}. Target: 50 ms for the 1,000, and\n\
         100 us for one. CPU time is the mean over the runs, from /proc/thread-self/schedstat: unlike the time by the\n\
         clock it does not count what other processes of the machine took.\n\n\
         | host | held | median [ms] | least | most | interquartile range | CPU time [ms] | of one host [us] |\n\
         |---|---|---|---|---|---|---|---|",
        load()
    );
    for (name, scheduler) in SCHEDULERS {
        let hosts: Vec<Vec<Vcpu>> = (0..1_000_u64)
            .map(|seed| hosts::even_vcpus(seed, 32, [0.6, 0.75, 0.9][(seed % 3) as usize]))
            .collect();
        let overheads = Overheads::default();
        let Ok(host) = Host::new(32, scheduler, VcpuServer::ConstantBandwidth, overheads) else {
            continue;
        };
        let mut held = 0;
        let before = cpu_time_ms();
        let mut times: Vec<f64> = (0..RUNS)
            .map(|_| {
                let started = std::time::Instant::now();
                held = (hosts.iter())
                    .filter(|vcpus| admit(&host, vcpus, &mut Work::default()).is_feasible())
                    .count();
                started.elapsed().as_secs_f64() * 1e3
            })
            .collect();
        let cpu_ms = (cpu_time_ms() - before) / RUNS as f64;
        times.sort_by(f64::total_cmp);
        let at = |share: f64| times[((RUNS - 1) as f64 * share) as usize];
        println!(
            "| {name} | {held} | {:.1} | {:.1} | {:.1} | {:.1} | {cpu_ms:.1} | {cpu_ms:.1} |",
            at(0.5),
            at(0.0),
            at(1.0),
            at(0.75) - at(0.25)
        );
    }
}

/// What the kernel counts for the calling thread, to a tick.
fn cpu_time_ms() -> f64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let run_ns = text
        .split(' ')
        .next()
        .and_then(|word| word.parse::<f64>().ok());
    run_ns.unwrap_or(f64::NAN) / 1e6
}

fn load() -> String {
    let text = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split(' ').next().unwrap_or("unknown").to_owned()
}

fn dense(set: &[(i64, i64)], cpus: u32) -> bool {
    let tasks: Option<Vec<Task>> = set
        .iter()
        .map(|&(budget, period)| Task::implicit(budget, period).ok())
        .collect();
    tasks.is_some_and(|tasks| tasks.len() <= cpus as usize || gfb::test(&tasks, cpus))
}
