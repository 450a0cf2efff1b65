//! `isolate = false`: reservations whose guests are believed demand no more than sporadic tasks.
//!
//! Brute force: the demand bound function of Baruah, Mok and Rosier (RTSS 1990), summed at every instant up to a bound on
//! the first miss.

#![allow(clippy::unwrap_used)] // a test's helper fails by panicking, as the test itself does

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use steadyvm_analysis::{
    host::{Host, HostScheduler, Vcpu, VcpuServer, admit, overhead::Overheads},
    work::Work,
};

/// Q, D, T.
type Reservation = (i64, i64, i64);

fn host(cpus: u32, isolated: bool) -> Host {
    Host::new(
        cpus,
        HostScheduler::PartitionedEarliestDeadline,
        VcpuServer::ConstantBandwidth,
        Overheads::default(),
    )
    .unwrap()
    .with_isolation(isolated)
}

fn accepts(host: &Host, vcpus: &[Vcpu]) -> bool {
    admit(host, vcpus, &mut Work::default()).is_feasible()
}

fn vcpus(of: &[Reservation]) -> Vec<Vcpu> {
    (0..)
        .zip(of)
        .map(|(vm, &(budget, deadline, period))| {
            let vcpu = Vcpu::new(vm, budget, period).unwrap();
            vcpu.due(deadline).unwrap().reserved()
        })
        .collect()
}

fn holds(of: &[Reservation]) -> bool {
    let load: f64 = of.iter().map(|&(q, _, t)| q as f64 / t as f64).sum();
    if load > 1.0 + 1e-12 {
        return false;
    }
    // With a load of 1 demand repeats with the periods.
    let periods: i64 = of.iter().map(|&(_, _, t)| t).fold(1, |all, t| {
        let gcd = |mut a: i64, mut b: i64| {
            while b > 0 {
                (a, b) = (b, a % b);
            }
            a
        };
        all / gcd(all, t) * t
    });
    (1..=2 * periods).all(|window| {
        let demand = |&(q, d, t): &Reservation| {
            if window < d {
                0
            } else {
                (window - d) / t * q + q
            }
        };
        of.iter().map(demand).sum::<i64>() <= window
    })
}

fn random(random: &mut ChaCha8Rng) -> Vec<Reservation> {
    let count = random.random_range(2..=5);
    (0..count)
        .map(|_| {
            let period = [4, 6, 8, 12, 16][random.random_range(0..5)];
            let budget = random.random_range(1..=period / 2);
            (budget, random.random_range(budget..=period), period)
        })
        .collect()
}

#[test]
fn on_one_cpu_the_demand_of_sporadic_tasks_decides() {
    let mut rng = ChaCha8Rng::seed_from_u64(47);
    let (mut more, mut fewer, mut held) = (0, 0, 0);
    for _ in 0..20_000 {
        let set = random(&mut rng);
        let vcpus = vcpus(&set);
        let believed = accepts(&host(1, false), &vcpus);
        assert_eq!(believed, holds(&set), "{set:?}");
        let isolated = accepts(&host(1, true), &vcpus);
        held += u32::from(believed);
        more += u32::from(believed && !isolated);
        fewer += u32::from(isolated && !believed);
    }
    assert_eq!(fewer, 0);
    // Of those that hold more than a fifth are refused with isolation.
    assert!(held > 2_000 && 5 * more > held, "{more} of {held}");
}

#[test]
fn a_cpu_with_another_vcpu_is_tested_as_with_isolation() {
    let mut rng = ChaCha8Rng::seed_from_u64(48);
    let mut refused = 0;
    for _ in 0..5_000 {
        let mut vcpus = vcpus(&random(&mut rng));
        vcpus.push(Vcpu::new(9, 1, 8).unwrap());
        let [believed, isolated] =
            [false, true].map(|isolated| accepts(&host(1, isolated), &vcpus));
        assert_eq!(believed, isolated);
        refused += u32::from(!isolated);
    }
    assert!((500..4_900).contains(&refused), "{refused}");
}
