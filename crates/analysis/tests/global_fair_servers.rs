//! VCPUs under global EDF beside the fair servers of all CPUs: no accepted host is late, whenever the fair servers come.

#![allow(clippy::unwrap_used)] // a test fails by panicking

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use steadyvm_analysis::{
    Work,
    host::{FairServer, Host, HostScheduler, Vcpu, VcpuServer, admit, overhead::Overheads},
};

/// Budget and period of each VCPU, in steps.
type Set = Vec<(i64, i64)>;

fn draw(rng: &mut ChaCha8Rng) -> (u32, FairServer, Set) {
    let cpus = rng.random_range(1..=4);
    let runtime = rng.random_range(1..=3);
    let fair_server = FairServer {
        runtime,
        period: runtime * rng.random_range(4..=12),
    };
    let count = rng.random_range(1..=2 * cpus as usize + 1);
    let equal = rng.random_bool(0.5);
    let common = rng.random_range(3..=20);
    let vcpu = |rng: &mut ChaCha8Rng| {
        let period = if equal {
            common
        } else {
            rng.random_range(3..=20)
        };
        (rng.random_range(1..=period), period)
    };
    let set = (0..count).map(|_| vcpu(rng)).collect();
    (cpus, fair_server, set)
}

fn accepted(cpus: u32, set: &Set, fair_server: Option<FairServer>) -> bool {
    let scheduler = HostScheduler::GlobalEarliestDeadline;
    let server = VcpuServer::ConstantBandwidth;
    let host = Host::new(cpus, scheduler, server, Overheads::default())
        .unwrap()
        .with_fair_server(fair_server);
    let vcpus: Vec<Vcpu> = (set.iter().enumerate())
        .map(|(vm, &(budget, period))| Vcpu::new(vm, budget, period).unwrap())
        .collect();
    // A VCPU that always runs has a CPU that no analysis of EDF is about.
    set.iter().all(|(budget, period)| budget < period)
        && admit(&host, &vcpus, &mut Work::default()).is_feasible()
}

/// Plays sporadic jobs under global EDF, in whole steps. A fair server has its CPU before all VCPUs for a piece, and not
/// again before its period is over. True if a job was late.
fn is_late(cpus: u32, set: &Set, fair_server: FairServer, rng: &mut ChaCha8Rng) -> bool {
    const STEPS: i64 = 600;
    // Jobs: left, deadline, next release.
    let mut jobs: Vec<(i64, i64, i64)> = set.iter().map(|_| (0, 0, 0)).collect();
    // Fair servers: end of the piece, next possible begin.
    let mut servers: Vec<(i64, i64)> = vec![(0, 0); cpus as usize];
    let eager = rng.random_bool(0.5);
    let (together, gaps) = (rng.random_bool(0.7), rng.random_range(0..4));
    for now in 0..STEPS {
        for (job, &(budget, period)) in jobs.iter_mut().zip(set) {
            if job.0 > 0 && job.1 <= now {
                return true;
            }
            if job.0 == 0 && job.2 <= now {
                *job = (
                    budget,
                    now + period,
                    now + period + rng.random_range(0..=gaps),
                );
            }
        }
        let wanted = jobs.iter().filter(|job| job.0 > 0).count() as u32;
        let all = (eager && wanted >= cpus) || rng.random_bool(0.1);
        for server in &mut servers {
            let begins = if together { all } else { rng.random_bool(0.2) };
            if server.1 <= now && begins {
                *server = (now + fair_server.runtime, now + fair_server.period);
            }
        }
        let free = servers.iter().filter(|server| server.0 <= now).count();
        let mut ready: Vec<usize> = (0..jobs.len()).filter(|&job| jobs[job].0 > 0).collect();
        ready.sort_by_key(|&job| (jobs[job].1, job));
        for &job in ready.iter().take(free) {
            jobs[job].0 -= 1;
        }
    }
    false
}

#[test]
fn an_accepted_global_host_is_never_late_beside_its_fair_servers() {
    const SETS: usize = 30_000;
    let mut rng = ChaCha8Rng::seed_from_u64(46);
    let (mut held, mut late_without) = (0, 0);
    for _ in 0..SETS {
        let (cpus, fair_server, set) = draw(&mut rng);
        let with = accepted(cpus, &set, Some(fair_server));
        if !with && !accepted(cpus, &set, None) {
            continue;
        }
        let late = (0..6).any(|_| is_late(cpus, &set, fair_server, &mut rng));
        if with {
            held += 1;
            assert!(!late, "{cpus} CPUs, {fair_server:?}, {set:?}");
        } else {
            late_without += usize::from(late);
        }
    }
    // The search finds both: hosts that hold, and hosts that only the term refuses and that are late.
    assert!(held > 2_000 && late_without > 500, "{held}, {late_without}");
}

/// What `steadyvm capacity` says of a global host, and Nova's filter sells, holds: VCPUs of at most half of the 90 %, with
/// periods of at least ten pieces, up to the sum of the claims.
#[test]
fn a_global_host_starts_what_is_sold_of_it() {
    let fair_server = FairServer::IN_SHORT_PIECES;
    let mut rng = ChaCha8Rng::seed_from_u64(47);
    for _ in 0..2_000 {
        let cpus = rng.random_range(1..=16_u32);
        // Millionths of a CPU.
        let (limit, largest) = (900_000_i64, 500_000_i64);
        let inventory = i64::from(cpus) * 1_000_000 - i64::from(cpus - 1) * largest;
        let (mut claimed, mut set) = (0, Vec::new());
        loop {
            let period = rng.random_range(10_000_000..100_000_000_i64);
            let most = period / 1_000_000 * limit / 1_000_000 * largest;
            let budget = rng.random_range(most / 8..=most);
            let claim = (i128::from(budget) * 1_000_000_000_000)
                .div_euclid(i128::from(period) * i128::from(limit)) as i64
                + 1;
            if claimed + claim > inventory {
                break;
            }
            claimed += claim;
            set.push((budget, period));
        }
        assert!(
            accepted(cpus, &set, Some(fair_server)),
            "{cpus} CPUs, {set:?}"
        );
    }
}
