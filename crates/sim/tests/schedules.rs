//! Small systems whose schedule is known.

use steadyvm_sched_policy::{CpuSet, Host, Kind, Order, Parameters};
use steadyvm_sim::{
    Engine, Outcome, Recorder, simulate,
    system::{Guest, GuestOrder, Late, Overheads, Play, System, Task, Vcpu},
};

const MS: u64 = 1_000_000;

fn vcpu(kind: Kind, budget_ms: u64, period_ms: u64, priority: u32) -> Vcpu {
    let parameters = Parameters::new(kind, budget_ms * MS, period_ms * MS).expect("valid");
    Vcpu {
        parameters: parameters.with_priority(priority),
        cpus: CpuSet::first(1),
    }
}

fn tasks(list: &[(u64, u64)]) -> Vec<Task> {
    list.iter()
        .enumerate()
        .map(|(number, &(execution, period))| {
            Task::periodic(format!("{number}"), execution * MS, period * MS)
        })
        .collect()
}

fn guest(order: GuestOrder, vcpus: Vec<Vcpu>, tasks: Vec<Task>) -> Guest {
    Guest {
        name: "vm".to_owned(),
        order,
        vcpus,
        tasks,
    }
}

fn system(cpus: u32, order: Order, quantum_ns: u64, guests: Vec<Guest>) -> System {
    System {
        host: Host::new(order, false, quantum_ns),
        cpus,
        overheads: Overheads::default(),
        play: Play::default(),
        guests,
    }
}

fn run(system: &System, duration_ms: u64) -> Outcome {
    simulate(system, 1, duration_ms * MS).expect("valid")
}

fn responses_ms(outcome: &Outcome) -> Vec<u64> {
    outcome
        .tasks
        .iter()
        .map(|task| task.longest_response_ns / MS)
        .collect()
}

#[test]
fn a_whole_cpu_gives_the_published_response_times() {
    for (set, expected) in [
        (&[(1, 4), (1, 5), (3, 9), (3, 18)][..], &[1, 2, 7, 18][..]),
        (&[(40, 100), (60, 140)][..], &[40, 100][..]),
    ] {
        let guest = guest(
            GuestOrder::DeadlineMonotonic,
            vec![vcpu(Kind::Deferrable, 10, 10, 0)],
            tasks(set),
        );
        let outcome = run(&system(1, Order::EarliestDeadline, 0, vec![guest]), 2_000);
        assert_eq!(responses_ms(&outcome), expected);
        assert_eq!(outcome.late(), 0);
    }
}

/// The dissertation's example of back-to-back execution: a deferrable server's unused budget is there at once, a polling
/// server's is gone, a periodic server's has idled away.
#[test]
fn servers_differ_in_what_they_do_with_idle_budget() {
    // Budget 4 of 10; the job of 6 arrives at 5.
    for (kind, finish) in [
        (Kind::Deferrable, 5 + 4 + 1 + 2),
        (Kind::Sporadic, 5 + 4 + 6 + 2),
        (Kind::ConstantBandwidth, 5 + 4 + 6 + 2),
        (Kind::Polling, 10 + 4 + 6 + 2),
        (Kind::Periodic, 10 + 4 + 6 + 2),
        (Kind::WorkConserving, 10 + 4 + 6 + 2),
        (Kind::CapacityReclaiming, 10 + 4 + 6 + 2),
    ] {
        let mut task = Task::periodic("late", 6 * MS, 100 * MS);
        task.offset_ns = 5 * MS;
        let guest = guest(
            GuestOrder::EarliestDeadline,
            vec![vcpu(kind, 4, 10, 0)],
            vec![task],
        );
        let outcome = run(&system(1, Order::EarliestDeadline, 0, vec![guest]), 100);
        assert_eq!(responses_ms(&outcome), [finish - 5], "{kind:?}");
    }
}

/// Figure 2.6: the first server idles; what the second one gets.
#[test]
fn idle_budget_is_kept_lent_or_given() {
    let supply = |kind| {
        // The first server has 5 of 10 and never work; the second has 3 of 10 and always work.
        let never = Task {
            offset_ns: 1_000 * MS,
            ..Task::periodic("never", MS, 1_000 * MS)
        };
        let guests = vec![
            guest(
                GuestOrder::EarliestDeadline,
                vec![vcpu(kind, 5, 10, 0)],
                vec![never],
            ),
            guest(
                GuestOrder::EarliestDeadline,
                vec![vcpu(kind, 3, 10, 1)],
                Vec::new(),
            ),
        ];
        let mut recorder = Recorder::default();
        let system = system(1, Order::Explicit, 0, guests);
        let outcome = Engine::new(&system, 1, 100 * MS, &mut recorder)
            .expect("valid")
            .run();
        let first = recorder
            .stretches
            .iter()
            .find(|stretch| stretch.runner == Some(1))
            .expect("it runs");
        (outcome.vcpus[1].supplied_ns / MS, first.start_ns / MS)
    };
    // It waits for the first server's budget to idle away.
    assert_eq!(supply(Kind::Periodic), (30, 5));
    // It runs at once, on its own budget.
    assert_eq!(supply(Kind::WorkConserving), (30, 0));
    // It runs at once on the other's, then on its own.
    assert_eq!(supply(Kind::CapacityReclaiming), (80, 0));
    assert_eq!(supply(Kind::Deferrable), (30, 0));
}

#[test]
fn budgets_isolate_and_non_rt_vcpus_share_the_rest() {
    let best_effort = || Vcpu {
        parameters: Parameters::best_effort(Parameters::WEIGHT_ONE).expect("valid"),
        cpus: CpuSet::first(1),
    };
    let hog = |vcpu| guest(GuestOrder::EarliestDeadline, vec![vcpu], Vec::new());
    let guests = vec![
        hog(vcpu(Kind::Deferrable, 4, 10, 0)),
        hog(best_effort()),
        hog(best_effort()),
        hog(best_effort()),
    ];
    let outcome = run(&system(1, Order::EarliestDeadline, MS, guests), 10_000);
    let supplied: Vec<u64> = outcome
        .vcpus
        .iter()
        .map(|vcpu| vcpu.supplied_ns / MS)
        .collect();
    assert_eq!(supplied.iter().sum::<u64>(), 10_000);
    assert_eq!(supplied[0], 4_000);
    assert!(
        supplied[1..]
            .iter()
            .all(|&ms| (1_999..=2_001).contains(&ms)),
        "{supplied:?}"
    );
}

#[test]
fn a_global_host_runs_two_and_migrates() {
    // Two CPUs, three VCPUs of 2/3: only migration fits them.
    let shared = |priority| Vcpu {
        cpus: CpuSet::first(2),
        ..vcpu(Kind::Deferrable, 6, 9, priority)
    };
    let hog = |vcpu| guest(GuestOrder::EarliestDeadline, vec![vcpu], Vec::new());
    let guests = vec![hog(shared(0)), hog(shared(1)), hog(shared(2))];
    let outcome = run(&system(2, Order::EarliestDeadline, 0, guests), 900);
    let total: u64 = outcome.vcpus.iter().map(|vcpu| vcpu.supplied_ns / MS).sum();
    // Global EDF is not optimal: the third one's job of 6 starts at 6 and ends at 12, of which 9 are its period.
    assert!(total >= 1_500, "{total}");
    assert!(outcome.vcpus.iter().any(|vcpu| vcpu.migrations > 0));
}

#[test]
fn a_global_guest_uses_whichever_vcpu_runs() {
    // Two VCPUs of 5 in 10 on two CPUs; one task that needs 9 of 10 cannot do with one VCPU, nor two at once.
    let both = || Vcpu {
        cpus: CpuSet::first(2),
        ..vcpu(Kind::Deferrable, 5, 10, 0)
    };
    let one = guest(
        GuestOrder::EarliestDeadline,
        vec![both(), both()],
        tasks(&[(9, 10)]),
    );
    let outcome = run(&system(2, Order::EarliestDeadline, 0, vec![one]), 1_000);
    // Work moves from the VCPU whose budget is used up to the other.
    assert_eq!((outcome.late(), responses_ms(&outcome)), (0, vec![9]));
}

#[test]
fn a_quantum_delays_what_a_budget_does_and_overrun_is_paid_back() {
    let hog = |vcpu| guest(GuestOrder::EarliestDeadline, vec![vcpu], Vec::new());
    let coarse = run(
        &system(
            1,
            Order::EarliestDeadline,
            3 * MS,
            vec![hog(vcpu(Kind::Deferrable, 4, 12, 0))],
        ),
        12_000,
    );
    let supplied = coarse.vcpus[0].supplied_ns / MS;
    assert!((3_998..=4_002).contains(&supplied), "{supplied}");
}

#[test]
fn overheads_delay_who_runs_next() {
    let hog = |vcpu| guest(GuestOrder::EarliestDeadline, vec![vcpu], Vec::new());
    let one = guest(
        GuestOrder::EarliestDeadline,
        vec![vcpu(Kind::Deferrable, 5, 10, 0)],
        tasks(&[(2, 10)]),
    );
    let mut system = system(
        1,
        Order::EarliestDeadline,
        0,
        vec![one, hog(vcpu(Kind::Deferrable, 5, 20, 1))],
    );
    assert_eq!(run(&system, 1_000).tasks[0].longest_response_ns, 2 * MS);
    system.overheads.context_switch_ns = 3_000;
    system.overheads.decision_ns = 2_000;
    assert_eq!(
        run(&system, 1_000).tasks[0].longest_response_ns,
        2 * MS + 5_000
    );
}

#[test]
fn the_same_seed_gives_the_same() {
    let mut random = tasks(&[(3, 20), (5, 30)]);
    for task in &mut random {
        task.execution_factor_percent = 10;
        task.longest_gap_percent = 150;
        task.jitter_ns = MS;
    }
    let system = system(
        1,
        Order::EarliestDeadline,
        0,
        vec![guest(
            GuestOrder::EarliestDeadline,
            vec![vcpu(Kind::Sporadic, 5, 10, 0)],
            random,
        )],
    );
    let of = |seed| simulate(&system, seed, 5_000 * MS).expect("valid");
    assert_eq!(of(1), of(1));
    assert_ne!(of(1), of(2));
}

fn dropping(mut system: System) -> System {
    system.play.late = Late::Drop;
    system
}

/// Two tasks of 6 in 10 on one CPU. The second gets 4 of 6 in each period; what goes on delays the next.
#[test]
fn a_late_job_goes_on_or_is_dropped() {
    let overloaded = |order| {
        let whole = vec![vcpu(Kind::Deferrable, 10, 10, 0)];
        let guest = guest(order, whole, tasks(&[(6, 10), (6, 10)]));
        system(1, Order::EarliestDeadline, 0, vec![guest])
    };
    let late = |outcome: &Outcome| {
        outcome
            .tasks
            .iter()
            .map(|task| (task.late(), task.due()))
            .collect::<Vec<_>>()
    };

    let monotonic = dropping(overloaded(GuestOrder::DeadlineMonotonic));
    // The job whose deadline is the end has not finished at it, and is neither.
    assert_eq!(late(&run(&monotonic, 1_005)), [(0, 100), (100, 100)]);
    let supplied = run(&monotonic, 1_000).vcpus[0].supplied_ns;
    assert_eq!(
        supplied,
        1_000 * MS,
        "what is dropped has run up to its deadline"
    );

    // EDF shares the misses out when they are dropped, and lets both tasks sink when they go on.
    let dropped = run(&dropping(overloaded(GuestOrder::EarliestDeadline)), 1_005);
    assert_eq!(dropped.late(), 100, "{:?}", late(&dropped));
    let goes_on = run(&overloaded(GuestOrder::EarliestDeadline), 1_005);
    assert!(goes_on.late() > 190, "{:?}", late(&goes_on));
}

/// A job that ends at its deadline is not late, whether it has slept or waited before.
#[test]
fn what_ends_at_its_deadline_is_not_dropped() {
    let whole = vec![vcpu(Kind::Deferrable, 10, 10, 0)];
    let full = guest(
        GuestOrder::EarliestDeadline,
        whole.clone(),
        tasks(&[(4, 10), (6, 10)]),
    );
    let full = dropping(system(1, Order::EarliestDeadline, 0, vec![full]));
    assert_eq!(run(&full, 1_000).late(), 0);
    let mut asleep = tasks(&[(10, 20)]);
    asleep[0].suspension_ns = 10 * MS;
    let asleep = dropping(system(
        1,
        Order::EarliestDeadline,
        0,
        vec![guest(GuestOrder::EarliestDeadline, whole, asleep)],
    ));
    let outcome = run(&asleep, 1_000);
    assert_eq!((outcome.late(), outcome.due()), (0, 50));
}

/// A job that sleeps beyond its deadline is dropped as well, and the next one begins.
#[test]
fn a_job_is_dropped_in_its_sleep() {
    let whole = vec![vcpu(Kind::Deferrable, 10, 10, 0)];
    let mut task = tasks(&[(2, 20)]);
    task[0].suspension_ns = 1_000 * MS;
    let asleep = guest(GuestOrder::EarliestDeadline, whole, task);
    let asleep = dropping(system(1, Order::EarliestDeadline, 0, vec![asleep]));
    let outcome = run(&asleep, 2_010);
    assert_eq!(outcome.due(), 100);
    // 0 to 1,000 ms of sleep fit into 18 ms once or twice in a hundred.
    assert!((85..100).contains(&outcome.late()), "{}", outcome.late());
}
