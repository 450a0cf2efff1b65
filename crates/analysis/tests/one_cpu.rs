//! On one CPU a global scheduler is the partitioned one, and is tested as that.
#![allow(clippy::unwrap_used)]

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use serde_json::json;
use steadyvm_analysis::{
    Work,
    host::{Host, HostScheduler, Vcpu, VcpuServer, admit, overhead::Overheads},
    plan,
};

const SERVERS: [VcpuServer; 4] = [
    VcpuServer::Periodic,
    VcpuServer::Sporadic,
    VcpuServer::ConstantBandwidth,
    VcpuServer::Deferrable,
];

fn holds(vcpus: &[Vcpu], cpus: u32, scheduler: HostScheduler, server: VcpuServer) -> bool {
    let overheads = Overheads {
        quantum: i64::from(vcpus.len().is_multiple_of(2)),
        ..Overheads::default()
    };
    let host = Host::new(cpus, scheduler, server, overheads).unwrap();
    admit(&host, vcpus, &mut Work::default()).is_feasible()
}

fn random(rng: &mut ChaCha8Rng, mask: Option<u32>) -> Vec<Vcpu> {
    (0..rng.random_range(2..=4))
        .map(|vm| {
            let period = rng.random_range(6..=40);
            let budget = rng.random_range(1..=period / 3);
            let deadline = if rng.random_bool(0.6) {
                period
            } else {
                rng.random_range(period / 2..=period)
            };
            let vcpu = Vcpu::new(vm, budget, period)
                .unwrap()
                .due(deadline)
                .unwrap();
            match mask {
                Some(cpu) => vcpu.on(vec![cpu]).unwrap(),
                None => vcpu,
            }
        })
        .collect()
}

/// Review, section 4: the same sets were 1,168 under pDM and 751 under gDM. With masks: a cluster of one CPU of three.
#[test]
fn a_cluster_of_one_cpu_is_tested_as_one() {
    use HostScheduler::{
        GlobalDeadlineMonotonic, GlobalEarliestDeadline, PartitionedDeadlineMonotonic,
        PartitionedEarliestDeadline,
    };
    let mut rng = ChaCha8Rng::seed_from_u64(4);
    let (mut held, mut refused) = (0, 0);
    for round in 0..3_000 {
        let (cpus, mask) = if round % 3 == 0 {
            (3, Some(1))
        } else {
            (1, None)
        };
        let vcpus = random(&mut rng, mask);
        for server in SERVERS {
            for (apart, together) in [
                (PartitionedEarliestDeadline, GlobalEarliestDeadline),
                (PartitionedDeadlineMonotonic, GlobalDeadlineMonotonic),
            ] {
                let expected = holds(&vcpus, cpus, apart, server);
                assert_eq!(
                    holds(&vcpus, cpus, together, server),
                    expected,
                    "{vcpus:?} {server:?}"
                );
                held += usize::from(expected);
                refused += usize::from(!expected);
            }
        }
    }
    assert!(
        held > 3_000 && refused > 3_000,
        "{held} held, {refused} refused"
    );
}

/// Under EDF deferrable servers are held by the demand with jitter, or by the interference.
#[test]
fn deferrable_servers_take_the_better_of_two_tests() {
    let deferrable = |vcpus: &[(i64, i64)]| {
        let vcpus: Vec<Vcpu> = (vcpus.iter().enumerate())
            .map(|(vm, &(budget, period))| Vcpu::new(vm, budget, period).unwrap())
            .collect();
        let host = |server| {
            let scheduler = HostScheduler::PartitionedEarliestDeadline;
            Host::new(1, scheduler, server, Overheads::default()).unwrap()
        };
        admit(&host(VcpuServer::Deferrable), &vcpus, &mut Work::default()).is_feasible()
    };
    // Demand with jitter says 16 in 15: two budgets of each, back to back. Interference: in the 8 of the first at most 4
    // of the second, in the 11 of the second 4 and 3 of the first.
    assert!(deferrable(&[(4, 8), (4, 11)]));
    assert!(!deferrable(&[(4, 8), (5, 11)]));
}

/// The answer without a report is the report's.
#[test]
fn holds_is_the_reports_answer() {
    let mut rng = ChaCha8Rng::seed_from_u64(5);
    let (mut yes, mut no) = (0, 0);
    for _ in 0..2_000 {
        let vms: Vec<_> = (0..rng.random_range(1..=8))
            .map(|vm| {
                let period = rng.random_range(200_000..=400_000_i64);
                let budget = rng.random_range(50_000..=period / 2);
                if rng.random_bool(0.5) {
                    json!({"name": format!("v{vm}"), "period": period, "budget": budget})
                } else {
                    let task = json!({"name": "t", "c": budget / 3, "t": period});
                    json!({"name": format!("v{vm}"), "interface": "prm", "period": 150_000, "tasks": [task]})
                }
            })
            .collect();
        let services = vms
            .iter()
            .filter(|vm| vm["tasks"].is_array() && rng.random_bool(0.3));
        let services: Vec<_> = services
            .map(|vm| json!({"vm": vm["name"], "task": "t", "limit": 300_000}))
            .collect();
        let pick = |rng: &mut ChaCha8Rng, words: &[&str]| {
            words[rng.random_range(0..words.len())].to_owned()
        };
        let mut host = json!({
            "pcpus": rng.random_range(1..=4),
            "scheduler": pick(&mut rng, &["pedf", "pdm", "gedf", "gdm"]),
            "server": pick(&mut rng, &["cbs", "periodic", "deferrable", "sporadic"]),
        });
        if rng.random_bool(0.3) {
            host["enforce"] = json!("deadline");
            host["scheduler"] = json!(pick(&mut rng, &["pedf", "gedf"]));
            host["server"] = json!("cbs");
        }
        let request = json!({"host": host, "vms": vms, "services": services, "unit": "ns"});
        let request = plan::json::parse(&request.to_string()).unwrap();
        let report = plan::run(&request).unwrap();
        assert_eq!(
            plan::holds(&request).unwrap(),
            report.feasible,
            "{report:?}"
        );
        yes += usize::from(report.feasible);
        no += usize::from(!report.feasible);
    }
    assert!(yes > 300 && no > 300, "{yes} yes, {no} no");
}
