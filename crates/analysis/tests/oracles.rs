//! Cases with known answers: other tools, papers, the dissertation, brute force.
// Helpers of tests unwrap, too.
#![allow(clippy::unwrap_used)]

use steadyvm_analysis::{
    PriorityOrder, Task, Verdict, Work,
    guest::{edf, edf_response, fixed_priority, global_edf, partitioned::LocalScheduler},
    host::{self, Host, HostScheduler, Vcpu, VcpuServer, overhead::Overheads},
    interface::minimal_prm,
    server::{self, Server, ServerKind},
    supply::{Dedicated, MultiprocessorPeriodic, PeriodicResource, Replenishment, Supply},
};

fn tasks(parameters: &[(i64, i64)]) -> Vec<Task> {
    parameters
        .iter()
        .map(|&(c, t)| Task::implicit(c, t).unwrap())
        .collect()
}

fn constrained(parameters: &[(i64, i64, i64)]) -> Vec<Task> {
    parameters
        .iter()
        .map(|&(c, d, t)| Task::new(c, d, t).unwrap())
        .collect()
}

fn least(tasks: &[Task], scheduler: LocalScheduler, period: i64) -> i64 {
    minimal_prm(
        tasks,
        scheduler,
        period,
        Replenishment::AtOnce,
        &mut Work::default(),
    )
    .unwrap()
    .budget
}

/// CARTS gives the same budget, or one more exactly where supply meets demand without slack.
#[test]
fn all_182_carts_budgets() {
    let part1 = tasks(&[(22, 500), (31, 500), (29, 1000)]);
    let part3 = tasks(&[(17, 250), (50, 1000)]);
    let mut points = 0;
    for line in include_str!("data/carts-prm-dm.csv").lines().skip(1) {
        let fields: Vec<&str> = line.split(',').collect();
        let set = if fields[0] == "part1" { &part1 } else { &part3 };
        let (period, carts): (i64, i64) = (fields[1].parse().unwrap(), fields[2].parse().unwrap());
        let ours = least(set, LocalScheduler::DeadlineMonotonic, period);
        if carts != ours {
            assert_eq!(carts, ours + 1, "{line}: ours is {ours}");
            assert!(
                ties(set, period, ours),
                "{line}: ours is {ours}, and nothing ties"
            );
        }
        points += 1;
    }
    assert_eq!(points, 182);
    assert_eq!(least(&part3, LocalScheduler::DeadlineMonotonic, 48), 6);
    assert_eq!(least(&part3, LocalScheduler::DeadlineMonotonic, 56), 7);
}

/// Some task has no window in which supply exceeds demand: it passes by equality alone.
fn ties(set: &[Task], period: i64, budget: i64) -> bool {
    let resource = PeriodicResource::new(period, budget).unwrap();
    let order = PriorityOrder::DeadlineMonotonic.order(set);
    (0..order.len()).any(|level| {
        let task = &set[order[level]];
        !(1..=task.deadline()).any(|window| {
            let demand: i64 = order[..level]
                .iter()
                .map(|&i| (window + set[i].period() - 1) / set[i].period() * set[i].execution())
                .sum();
            resource.supply(window) > i128::from(demand + task.execution())
        })
    })
}

/// Real-valued budgets of the note, rounded up: Pi = 10 -> EDF 39/14, RM 7/2, and so on.
#[test]
fn periodic_resource_budgets() {
    let set = tasks(&[(7, 50), (9, 75)]);
    let scale = 1000; // integers fine enough to see the fractions
    let fine = tasks(&[(7 * scale, 50 * scale), (9 * scale, 75 * scale)]);
    let rational = |numerator: i64, denominator: i64| {
        let scaled = numerator * scale;
        (scaled + denominator - 1) / denominator
    };
    for (period, (edf_n, edf_d), (rm_n, rm_d)) in [
        (10, (39, 14), (7, 2)),
        (5, (39, 29), (23, 14)),
        (20, (49, 8), (23, 3)),
        (25, (8, 1), (23, 2)),
    ] {
        let up = |n: i64, d: i64| (n + d - 1) / d;
        assert_eq!(
            least(&set, LocalScheduler::EarliestDeadline, period),
            up(edf_n, edf_d)
        );
        assert_eq!(
            least(&set, LocalScheduler::DeadlineMonotonic, period),
            up(rm_n, rm_d)
        );
        let period = period * scale;
        assert_eq!(
            least(&fine, LocalScheduler::EarliestDeadline, period),
            rational(edf_n, edf_d)
        );
        assert_eq!(
            least(&fine, LocalScheduler::DeadlineMonotonic, period),
            rational(rm_n, rm_d)
        );
    }
}

#[test]
fn periodic_supply_values() {
    let resource = PeriodicResource::new(5, 3).unwrap();
    let values: Vec<i128> = [4, 5, 6, 7, 9, 10, 12, 15]
        .iter()
        .map(|&t| resource.supply(t))
        .collect();
    assert_eq!(values, [0, 1, 2, 3, 3, 4, 6, 7]);
}

fn fixed_priority_responses(set: &[Task]) -> Vec<i64> {
    (0..set.len())
        .map(|index| {
            fixed_priority::response_time(
                set,
                index,
                &Dedicated::new(1),
                1000,
                &mut Work::default(),
            )
            .unwrap()
            .unwrap()
        })
        .collect()
}

#[test]
fn fixed_priority_response_times() {
    assert_eq!(
        fixed_priority_responses(&tasks(&[(1, 4), (1, 5), (3, 9), (3, 18)])),
        [1, 2, 7, 18]
    );
    assert_eq!(
        fixed_priority_responses(&tasks(&[(40, 100), (60, 140)])),
        [40, 100]
    );
}

#[test]
fn edf_response_times() {
    let set = tasks(&[(2, 4), (3, 12)]);
    let responses: Vec<i64> = (0..2)
        .map(|index| {
            edf_response::response_time(&set, index, &Dedicated::new(1), &mut Work::default())
                .unwrap()
        })
        .collect();
    assert_eq!(responses, [2, 7]);
}

/// A public tool accepts this interface; demand 20 exceeds the supply at A = 0.
#[test]
fn mpr_case_accepted_by_another_tool_is_rejected() {
    let set = tasks(&[(6, 20), (1, 20), (4, 20), (3, 20)]);
    let resource = MultiprocessorPeriodic::new(5, 5, 2).unwrap();
    let Verdict::Unschedulable(violation) = global_edf::test(&set, &resource, &mut Work::default())
    else {
        panic!("accepted");
    };
    assert!(violation.demand > violation.supply, "{violation:?}");
    // The first task alone at A = 0: demand 8 + 2 * 6 = 20, supply 15 if Theta may be shared out in
    // fractions, 16 by whole VCPU budgets (3 and 2).
    assert_eq!(resource.divisible_supply(20), 15);
    assert_eq!(resource.supply(20), 16);
    assert_eq!(
        (
            violation.index,
            violation.at,
            violation.demand,
            violation.supply
        ),
        (0, 20, 20, 16)
    );
}

fn host(cpus: u32, scheduler: HostScheduler) -> Host {
    Host::new(cpus, scheduler, VcpuServer::Periodic, Overheads::default()).unwrap()
}

#[test]
fn density_fails_interference_passes() {
    let set = constrained(&[(20, 30, 30), (20, 30, 30), (5, 30, 30)]);
    assert!(!host::gfb::test(&set, 2));
    let vcpus: Vec<Vcpu> = [20, 20, 5]
        .iter()
        .map(|&budget| Vcpu::new(0, budget, 30).unwrap())
        .collect();
    let host = host(2, HostScheduler::GlobalEarliestDeadline);
    assert!(host::admit(&host, &vcpus, &mut Work::default()).is_feasible());
    assert!(host::bcl::passes(&host, &vcpus).unwrap());
}

#[test]
fn density_passes_baker_fails() {
    let set = constrained(&[(49, 100, 100), (49, 100, 100), (2, 50, 100)]);
    assert!(host::gfb::test(&set, 2));
    assert!(!host::baker::test(&set, 2));
    assert!(host::baker::test(&set, 3));
}

/// The dissertation's Table 2.3, "even" shares.
#[test]
fn server_response_times_of_the_dissertation() {
    let expected = [
        (ServerKind::Periodic, [2, 6, 14, 28, 76]),
        (ServerKind::Deferrable, [2, 8, 20, 56, 156]),
    ];
    for (kind, responses) in expected {
        let servers: Vec<Server> = [(2, 10), (4, 20), (6, 30), (8, 40), (10, 50)]
            .iter()
            .map(|&(capacity, period)| Server::new(capacity, period, kind).unwrap())
            .collect();
        for (index, response) in responses.into_iter().enumerate() {
            let found =
                server::response_time(&servers, index, 10_000, &mut Work::default()).unwrap();
            assert_eq!(found, Some(response), "{kind:?} server {index}");
        }
        assert!(!server::test(&servers, &mut Work::default()).is_schedulable());
    }
}

/// Two whole VCPUs of tasks C = 3, D = 4 pass the published form of Theorem 1 by equality, and miss.
#[test]
fn a_tie_of_the_published_theorem_is_no_yes() {
    let set = constrained(&[(3, 4, 10), (3, 4, 10), (3, 4, 10)]);
    assert!(!global_edf::test(&set, &Dedicated::new(2), &mut Work::default()).is_schedulable());
    assert!(global_edf::test(&set, &Dedicated::new(3), &mut Work::default()).is_schedulable());
    assert!(!edf::test(&set[..2], &Dedicated::new(1), &mut Work::default()).is_schedulable());
}
