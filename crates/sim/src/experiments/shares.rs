//! Figure 2.5 (section 2.5.5): soft real-time performance of five domains on one CPU, by their shares.

use std::fmt::Write;

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use steadyvm_sched_policy::{CpuSet, Host, Kind, Order, Parameters};

use crate::{
    simulate,
    system::{Guest, GuestOrder, Overheads, System, Task, Vcpu},
};

const MS: u64 = 1_000_000;
/// Five minutes, as in the paper.
const DURATION_NS: u64 = 300_000 * MS;
/// Task sets a load; the paper has one.
const SETS: u64 = 20;
pub(super) const BUDGETS_MS: [u64; 5] = [2, 4, 6, 8, 10];
/// Table 2.3.
pub(super) const CASES: [(&str, [u64; 5]); 3] = [
    ("decreasing", [4, 20, 40, 80, 200]),
    ("even", [10, 20, 30, 40, 50]),
    ("increasing", [40, 40, 40, 40, 20]),
];
const KINDS: [Kind; 6] = [
    Kind::Deferrable,
    Kind::Sporadic,
    Kind::Polling,
    Kind::Periodic,
    Kind::WorkConserving,
    Kind::CapacityReclaiming,
];

pub(super) fn run(seed: u64) -> String {
    let mut text = format!(
        "# Deadline misses by shares (Figure 2.5)\n\n\
         Command: `steadyvm simulate --experiment shares --seed {seed}`. n = {SETS} task sets a load, 300 s of simulated time \
         each, quantum 1 ms, no overheads. Figures are percent of jobs late, over all sets.\n\n\
         What differs from the paper: {SETS} sets a load in place of one; no overheads; no credit and SEDF schedulers; our \
         own seeds. A polling server discards its budget at its period's start if it has no work, where RT-Xen keeps it \
         until the VCPU has run. Execution times are 5 to 10 ms; periods are rounded up to whole milliseconds.\n"
    );
    // Writing to a string does not fail.
    for (case, periods) in CASES {
        let _ = write!(text, "\n## Shares {case}\n\n| load % |");
        for kind in KINDS {
            let _ = write!(text, " {} |", kind.word());
        }
        let _ = writeln!(text, "\n|{}", "---|".repeat(KINDS.len() + 1));
        for load in (30..=100).step_by(5) {
            let _ = write!(text, "| {load} |");
            for kind in KINDS {
                let (mut late, mut due) = (0, 0);
                for set in 0..SETS {
                    let system = system(kind, &periods, load, seed * 10_000 + load * 100 + set);
                    if let Ok(outcome) = simulate(&system, 1, DURATION_NS) {
                        late += outcome.late();
                        due += outcome.due();
                    }
                }
                let _ = write!(text, " {:.2} |", 100.0 * late as f64 / due.max(1) as f64);
            }
            text.push('\n');
        }
    }
    text.push_str(
        "\n## Statements of the paper\n\n\
         - No misses up to a load of 50 % under any of the four servers.\n\
         - Deferrable: best in overload in all three cases; capacity (below 5 % of misses) near 85 to 90 %.\n\
         - Periodic (PTPS): worst of the four in overload.\n\
         - Sections 2.6 and 2.7: CRPS <= WCPS <= PTPS in misses.\n",
    );
    text
}

/// The five tasks of a domain that loads `share` of a CPU: (cost, period) in ms.
pub(super) fn tasks(random: &mut ChaCha8Rng, share: f64) -> Vec<(u64, u64)> {
    let costs: Vec<f64> = (0..5)
        .map(|_| f64::from(random.random_range(5..=10)))
        .collect();
    let parts: Vec<f64> = (0..5).map(|_| random.random_range(0.1..1.0)).collect();
    let whole: f64 = parts.iter().sum();
    let task = |(cost, part): (&f64, &f64)| {
        let period = (cost / (share * part / whole)).ceil().max(*cost) as u64;
        (*cost as u64, period)
    };
    costs.iter().zip(&parts).map(task).collect()
}

/// Five tasks a domain: a cost of 5 to 10 ms each, the domain's share times the load spread at random.
fn system(kind: Kind, periods_ms: &[u64; 5], load: u64, seed: u64) -> System {
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    let guests =
        BUDGETS_MS
            .iter()
            .zip(periods_ms)
            .enumerate()
            .filter_map(|(domain, (&budget, &period))| {
                let share = budget as f64 / period as f64 * load as f64 / 100.0;
                let tasks = tasks(&mut random, share).into_iter().enumerate();
                let tasks = tasks.map(|(number, (cost, period))| {
                    Task::periodic(number.to_string(), cost * MS, period * MS)
                });
                let parameters = Parameters::new(kind, budget * MS, period * MS).ok()?;
                Some(Guest {
                    name: format!("domain {}", domain + 1),
                    order: GuestOrder::DeadlineMonotonic,
                    vcpus: vec![Vcpu {
                        parameters: parameters.with_priority(domain as u32),
                        cpus: CpuSet::first(1),
                    }],
                    tasks: tasks.collect(),
                })
            });
    System {
        host: Host::new(Order::Explicit, true, MS),
        cpus: 1,
        overheads: Overheads::default(),
        guests: guests.collect(),
    }
}
