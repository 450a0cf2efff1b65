//! VCPUs of equal deadlines under fixed priorities: the test's order is the installed one.
//!
//! Only deferrable servers depend on it: of two with one deadline, the upper one disturbs the lower one with two
//! budgets back to back. Priorities are installed by (deadline, number), whatever order VCPUs are packed in.
#![allow(clippy::unwrap_used)]

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use steadyvm_analysis::{
    Time, Work,
    host::{Host, HostScheduler, Vcpu, VcpuServer, minimal_processors, overhead::Overheads},
    plan,
};

/// Review 1.4: `b` is packed first, as it has a mask; `a` comes first where it counts.
#[test]
fn a_mask_does_not_change_who_comes_first() {
    let text = |mask: &str| {
        format!(
            "[host]\npcpus = 1\nscheduler = \"pdm\"\nserver = \"deferrable\"\n\
             [[vm]]\nname = \"a\"\nperiod = \"7ms\"\nbudget = \"3ms\"\n\
             [[vm]]\nname = \"b\"\nperiod = \"7ms\"\nbudget = \"2ms\"\n{mask}"
        )
    };
    for mask in ["", "cpus = [0]\n"] {
        let report = plan::run(&plan::file::parse(&text(mask)).unwrap()).unwrap();
        assert!(!report.feasible, "mask {mask:?}: {report:?}");
    }
}

#[derive(Clone, Debug)]
struct Server {
    budget: Time,
    period: Time,
    mask: Option<Vec<u32>>,
}

/// Response times as Davis and Burns (2005) write them, of deferrable servers that are given in order of number.
fn holds(cpu: &[&Server]) -> bool {
    let mut sorted = cpu.to_vec();
    sorted.sort_by_key(|server| server.period);
    (0..sorted.len()).all(|level| {
        let ready = |window: Time| {
            let above = sorted[..level].iter();
            let above =
                above.map(|x| (window + x.period - x.budget + x.period - 1) / x.period * x.budget);
            sorted[level].budget + above.sum::<Time>() <= window
        };
        (1..=sorted[level].period).any(ready)
    })
}

/// Whether some packing on `cpus` CPUs holds.
fn packs(servers: &[Server], cpus: u32) -> bool {
    let count = u64::from(cpus).pow(servers.len() as u32);
    (0..count).any(|mut code| {
        let mut homes = vec![Vec::new(); cpus as usize];
        for server in servers {
            let cpu = (code % u64::from(cpus)) as u32;
            code /= u64::from(cpus);
            if server
                .mask
                .as_ref()
                .is_some_and(|mask| !mask.contains(&cpu))
            {
                return false;
            }
            homes[cpu as usize].push(server);
        }
        homes.iter().all(|home| holds(home))
    })
}

/// Every packing is tried: `min_pcpus` is the least count, and is said to be (4,000 hosts, half of them with masks).
#[test]
fn least_cpus_of_deferrable_deadline_monotonic_hosts() {
    let scheduler = HostScheduler::PartitionedDeadlineMonotonic;
    let host = Host::new(1, scheduler, VcpuServer::Deferrable, Overheads::default()).unwrap();
    let mut rng = ChaCha8Rng::seed_from_u64(46);
    for round in 0..4_000 {
        let masked = round % 2 == 0;
        let servers: Vec<Server> = (0..rng.random_range(2..=5))
            .map(|_| {
                let period = [5, 7, 7, 10][rng.random_range(0..4)];
                let mask = (masked && rng.random_bool(0.4)).then(|| {
                    let mut mask = vec![rng.random_range(0..3)];
                    mask.extend(rng.random_bool(0.5).then(|| rng.random_range(0..3)));
                    mask
                });
                let budget = rng.random_range(1..period);
                Server {
                    budget,
                    period,
                    mask,
                }
            })
            .collect();
        let vcpus: Vec<Vcpu> = (servers.iter().enumerate())
            .map(|(vm, server)| {
                let vcpu = Vcpu::new(vm, server.budget, server.period).unwrap();
                match &server.mask {
                    Some(mask) => vcpu.on(mask.clone()).unwrap(),
                    None => vcpu,
                }
            })
            .collect();
        // Two that may use one CPU only may hold on no number of them.
        let searched = (1..=8).find(|&cpus| packs(&servers, cpus));
        let found = minimal_processors(&host, &vcpus, &mut Work::default());
        let found = found.map(|found| (found.count, found.exact));
        assert_eq!(found, searched.map(|count| (count, true)), "{servers:?}");
    }
}
