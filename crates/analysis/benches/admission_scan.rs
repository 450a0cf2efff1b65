//! How long admission takes over whole ranges of hosts: of each kind 1,600 random hosts of 64 VCPUs, from
//! 20 % to 99 % full, each the best of five runs. `cargo bench -p steadyvm-analysis --bench admission_scan`
//! prints a row a kind and verdict, and a checksum of the verdicts, which no change of speed may alter.

mod hosts;

use std::{
    hint::black_box,
    time::{Duration, Instant},
};

use hosts::{even_vcpus, mixed_vcpus};
use steadyvm_analysis::{
    Work,
    host::{Host, HostScheduler, Vcpu, VcpuServer, admit, overhead::Overheads},
};

const RUNS: usize = 5;

type Make = fn(u64, u32, f64) -> Vec<Vcpu>;

const KINDS: [(&str, Make, u32); 8] = [
    ("mixed", mixed_vcpus, 32),
    ("mixed", mixed_vcpus, 16),
    ("mixed", mixed_vcpus, 8),
    ("mixed", mixed_vcpus, 4),
    ("even", even_vcpus, 32),
    ("even", even_vcpus, 16),
    ("even", even_vcpus, 8),
    ("even", even_vcpus, 4),
];

const SCHEDULERS: [(&str, HostScheduler); 2] = [
    ("gedf", HostScheduler::GlobalEarliestDeadline),
    ("gdm", HostScheduler::GlobalDeadlineMonotonic),
];

/// One host: whether it was accepted, and the shortest of the runs.
struct Answer {
    accepted: bool,
    shortest: Duration,
}

fn main() {
    println!("scheduler kind   cpus verdict   hosts    p50    p90    p99 slowest [us]");
    let mut checksum = 0_u64;
    for (name, scheduler) in SCHEDULERS {
        for (kind, make, cpus) in KINDS {
            let overheads = Overheads::default();
            let Ok(host) = Host::new(cpus, scheduler, VcpuServer::Periodic, overheads) else {
                continue;
            };
            let answers: Vec<Answer> = (20..100)
                .flat_map(|percent| (0..20).map(move |seed| (percent, seed)))
                .map(|(percent, seed)| answer(&host, &make(seed, cpus, f64::from(percent) / 100.0)))
                .collect();
            for Answer { accepted, .. } in &answers {
                checksum = checksum.rotate_left(1).wrapping_mul(3) ^ u64::from(*accepted);
            }
            for (accepted, verdict) in [(true, "accepted"), (false, "refused")] {
                let mut times: Vec<Duration> = answers
                    .iter()
                    .filter(|answer| answer.accepted == accepted)
                    .map(|answer| answer.shortest)
                    .collect();
                times.sort();
                print!(
                    "{name:<9} {kind:<6} {cpus:>4} {verdict:<8} {:>6}",
                    times.len()
                );
                for share in [0.5, 0.9, 0.99, 1.0] {
                    let rank = (times.len() as f64 * share).ceil() as usize;
                    let time = times
                        .get(rank.saturating_sub(1))
                        .copied()
                        .unwrap_or_default();
                    print!(" {:>6.1}", time.as_secs_f64() * 1e6);
                }
                println!();
            }
        }
    }
    println!("verdicts {checksum:016x}");
}

fn answer(host: &Host, vcpus: &[Vcpu]) -> Answer {
    let mut accepted = false;
    let shortest = (0..RUNS)
        .map(|_| {
            let start = Instant::now();
            accepted = admit(host, black_box(vcpus), &mut Work::default()).is_feasible();
            start.elapsed()
        })
        .min();
    Answer {
        accepted,
        shortest: shortest.unwrap_or_default(),
    }
}
