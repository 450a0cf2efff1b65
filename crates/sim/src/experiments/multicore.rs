//! Section 3.3.5: schedulability in theory and in simulation, 500 task sets on five CPUs.
//!
//! Sets (section 3.3.2): periods uniform in 350 to 850 ms, utilisations bimodal medium, total 1.1 to 4.9, 25 sets each,
//! tasks to four domains in turn. Interfaces of whole milliseconds.

use std::{fmt::Write, thread};

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use steadyvm_analysis::{
    Task as PlannedTask, Work,
    host::{self, HostScheduler, Placement, VcpuServer, overhead},
    interface::{GuestScheduler, InterfaceKind, minimal},
};
use steadyvm_report::picture::{Bar, Group};
use steadyvm_report::{Answer, Finding, Picture};
use steadyvm_sched_policy::{CpuSet, Host, Kind, Order, Parameters};

use super::Found;
use crate::{
    simulate,
    system::{Guest, GuestOrder, Overheads, Play, System, Task, Vcpu},
};

const MS: u64 = 1_000_000;
const CPUS: u32 = 5;
const SETS: u64 = 25;
const DURATION_NS: u64 = 60_000 * MS;
/// Harmonic VCPU periods of the four domains, ms: the paper says harmonic, not which.
type Periods = [i64; 4];
const PERIODS_MS: [Periods; 3] = [[16, 32, 64, 128], [32, 32, 32, 32], [10, 10, 10, 10]];

const HOSTS: [(&str, HostScheduler); 4] = [
    ("pEDF", HostScheduler::PartitionedEarliestDeadline),
    ("gEDF", HostScheduler::GlobalEarliestDeadline),
    ("pDM", HostScheduler::PartitionedDeadlineMonotonic),
    ("gDM", HostScheduler::GlobalDeadlineMonotonic),
];
const GUESTS: [(&str, GuestScheduler); 2] = [
    ("pEDF", GuestScheduler::PartitionedEarliestDeadline),
    ("gEDF", GuestScheduler::GlobalEarliestDeadline),
];
const SERVERS: [Kind; 2] = [Kind::Periodic, Kind::Deferrable];

/// What happened to one task set: by guest and host scheduler, and by server for the simulation.
#[derive(Clone, Default)]
struct Verdicts {
    theory: [[bool; 4]; 2],
    simulated: [[[bool; 4]; 2]; 2],
    /// Total VCPU bandwidth, by guest scheduler.
    bandwidth: [f64; 2],
    /// Accepted in theory and late in simulation, under the periodic server, which the theory is for.
    contradictions: u64,
}

pub(super) fn run(seed: u64) -> Found {
    let mut tables = DIFFERENCES.to_owned();
    let mut capacities = Vec::new();
    for periods in &PERIODS_MS {
        let (text, found) = part(seed, periods);
        tables += &text;
        capacities.push(found);
    }
    Found {
        answer: answer(&capacities),
        introduction: format!(
            "Figures 3.4 to 3.9: n = {SETS} task sets per row, 60 s of simulated time each, quantum 1 ms, no overheads. \
             Figures are fractions of task sets."
        ),
        tables,
    }
}

/// The highest utilisation up to which every set of a part is met, by host; pEDF guests, periodic servers.
type Capacities = [f64; 4];

/// The paper's, with gEDF.
const PAPERS_CAPACITY: f64 = 3.9;

fn answer(capacities: &[Capacities]) -> Answer {
    let parts = || PERIODS_MS.iter().zip(capacities);
    let words = |periods: &Periods| {
        let [first, .., last] = periods;
        if first == last {
            format!("VCPU periods of {first} ms")
        } else {
            format!("VCPU periods of {first} to {last} ms")
        }
    };
    let bound = |(periods, found): (&Periods, &Capacities)| Finding::Bound {
        of: words(periods),
        figure: "load up to which five CPUs under gEDF meet all sets".to_owned(),
        words: format!("{:.1}", found[1]),
        bound: Some((
            format!("{PAPERS_CAPACITY}, the dissertation's"),
            found[1] >= PAPERS_CAPACITY,
        )),
    };
    let group = |(periods, found): (&Periods, &Capacities)| Group {
        name: words(periods),
        bars: HOSTS
            .iter()
            .zip(found)
            .map(|((name, _), &load)| Bar::new(name, Some(load), |it| format!("{it:.1} of 5")))
            .collect(),
    };
    Answer {
        question: "How many tasks can five CPUs hold?".to_owned(),
        findings: parts().map(bound).collect(),
        picture: Picture {
            title: "CPUs in use up to which every task set is met; longer is better".to_owned(),
            groups: parts().map(group).collect(),
        },
    }
}

fn part(seed: u64, periods: &Periods) -> (String, Capacities) {
    let totals: Vec<u32> = (0..20).map(|step| 11 + 2 * step).collect();
    let rows: Vec<Vec<Verdicts>> = thread::scope(|scope| {
        let workers = thread::available_parallelism().map_or(1, usize::from);
        let handles: Vec<_> = (0..workers)
            .map(|worker| {
                let totals = &totals;
                scope.spawn(move || {
                    let mine = totals
                        .iter()
                        .enumerate()
                        .filter(|(row, _)| row % workers == worker);
                    mine.map(|(row, &total)| {
                        let sets = (0..SETS).map(|set| {
                            judge(
                                periods,
                                &task_set(total, seed * 100_000 + u64::from(total) * 100 + set),
                            )
                        });
                        (row, sets.collect())
                    })
                    .collect::<Vec<(usize, Vec<Verdicts>)>>()
                })
            })
            .collect();
        let mut rows = vec![Vec::new(); totals.len()];
        for (row, sets) in handles
            .into_iter()
            .flat_map(|handle| handle.join().unwrap_or_default())
        {
            rows[row] = sets;
        }
        rows
    });
    let found = [0, 1, 2, 3].map(|host| capacity(&totals, &rows, &|it| it.simulated[0][0][host]));
    (page(&totals, &rows, periods), found)
}

/// The highest total up to which every set is met.
fn capacity(totals: &[u32], rows: &[Vec<Verdicts>], test: &dyn Fn(&Verdicts) -> bool) -> f64 {
    let met = (totals.iter().zip(rows)).take_while(|(_, row)| row.iter().all(test));
    let last = met.last();
    last.map_or(0.0, |(&total, _)| f64::from(total) / 10.0)
}

/// (execution, period) in ms, by domain. `total` is in tenths.
fn task_set(total: u32, seed: u64) -> [Vec<(i64, i64)>; 4] {
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    let total = f64::from(total) / 10.0;
    let mut domains = [const { Vec::new() }; 4];
    let (mut sum, mut number) = (0.0, 0);
    while sum < total - 0.001 {
        let drawn = if random.random_bool(2.0 / 3.0) {
            random.random_range(0.0001..0.5)
        } else {
            random.random_range(0.5..0.9)
        };
        // The last one pads the set to its total.
        let share = f64::min(drawn, total - sum);
        let period = random.random_range(350..=850_i64);
        let execution = ((share * period as f64).round() as i64).max(1);
        domains[number % 4].push((execution, period));
        number += 1;
        sum += share;
    }
    domains
}

fn judge(periods: &Periods, set: &[Vec<(i64, i64)>; 4]) -> Verdicts {
    let mut verdicts = Verdicts::default();
    for (guest, &(_, guest_scheduler)) in GUESTS.iter().enumerate() {
        let (guests, has_interfaces) = interfaces(periods, set, guest_scheduler);
        verdicts.bandwidth[guest] = guests
            .iter()
            .flat_map(|guest| &guest.vcpus)
            .map(|vcpu| vcpu.parameters.budget_ns() as f64 / vcpu.parameters.period_ns() as f64)
            .sum();
        for (row, &(_, scheduler)) in HOSTS.iter().enumerate() {
            let (system, admitted) = place(&guests, scheduler);
            let theory = has_interfaces && admitted;
            verdicts.theory[guest][row] = theory;
            for (server, &kind) in SERVERS.iter().enumerate() {
                let mut system = system.clone();
                for vcpu in system.guests.iter_mut().flat_map(|guest| &mut guest.vcpus) {
                    if let Ok(parameters) = vcpu.parameters.with_kind(kind) {
                        vcpu.parameters = parameters;
                    }
                }
                let met =
                    simulate(&system, 1, DURATION_NS).is_ok_and(|outcome| outcome.late() == 0);
                verdicts.simulated[guest][server][row] = met;
                verdicts.contradictions += u64::from(theory && !met && kind == Kind::Periodic);
            }
        }
    }
    verdicts
}

/// The guests with the VCPUs of their interfaces, not placed yet, and whether every domain has an interface. A domain
/// that has none gets as many whole VCPUs as its utilisation needs.
fn interfaces(
    periods: &Periods,
    set: &[Vec<(i64, i64)>; 4],
    scheduler: GuestScheduler,
) -> (Vec<Guest>, bool) {
    let mut all = true;
    let mut priority = 0;
    let guests = set
        .iter()
        .zip(*periods)
        .enumerate()
        .filter(|(_, (tasks, _))| !tasks.is_empty());
    let guests = guests.map(|(domain, (tasks, period))| {
        let planned: Vec<PlannedTask> = tasks
            .iter()
            .filter_map(|&(c, t)| PlannedTask::implicit(c, t).ok())
            .collect();
        let kind = if scheduler == GuestScheduler::GlobalEarliestDeadline {
            InterfaceKind::Multiprocessor
        } else {
            InterfaceKind::PeriodicResource
        };
        let found = minimal(
            &planned,
            scheduler,
            kind,
            period,
            None,
            &mut Work::new(Work::DEFAULT_STEPS),
        );
        let (budgets, partition) = if let Ok(Ok(interface)) = found {
            (interface.vcpu_budgets, interface.partition)
        } else {
            all = false;
            let total: f64 = tasks.iter().map(|&(c, t)| c as f64 / t as f64).sum();
            (vec![period; total.ceil() as usize], None)
        };
        let home = |task: usize| {
            let members = partition.as_ref()?;
            members.iter().position(|members| members.contains(&task))
        };
        let vcpus = budgets
            .iter()
            .filter(|&&budget| budget > 0)
            .filter_map(|&budget| {
                let ns = |ms: i64| ms.unsigned_abs() * MS;
                let parameters = Parameters::new(Kind::Periodic, ns(budget), ns(period)).ok()?;
                // Of equal periods the first comes first, as in the analysis.
                priority += 1;
                Some(Vcpu {
                    parameters: parameters.with_priority(priority),
                    cpus: CpuSet::first(CPUS),
                })
            });
        Guest {
            name: format!("domain {}", domain + 1),
            order: GuestOrder::EarliestDeadline,
            vcpus: vcpus.collect(),
            tasks: tasks
                .iter()
                .enumerate()
                .map(|(number, &(c, t))| Task {
                    vcpu: home(number),
                    ..Task::periodic(
                        number.to_string(),
                        c.unsigned_abs() * MS,
                        t.unsigned_abs() * MS,
                    )
                })
                .collect(),
        }
    });
    (guests.collect(), all)
}

/// The system under `scheduler`, and whether the host admits it. Without admission, a partitioned host packs as the paper
/// does: the fullest CPU that holds the VCPU, siblings apart if possible, else the emptiest CPU.
fn place(guests: &[Guest], scheduler: HostScheduler) -> (System, bool) {
    let mut guests = guests.to_vec();
    let vcpus: Vec<host::Vcpu> = guests
        .iter()
        .enumerate()
        .flat_map(|(number, guest)| guest.vcpus.iter().map(move |vcpu| (number, vcpu)))
        .filter_map(|(number, vcpu)| {
            let ms = |ns: u64| i64::try_from(ns / MS).ok();
            let (budget, period) = (
                ms(vcpu.parameters.budget_ns())?,
                ms(vcpu.parameters.period_ns())?,
            );
            host::Vcpu::new(number, budget, period).ok()
        })
        .collect();
    let host = host::Host::new(
        CPUS,
        scheduler,
        VcpuServer::Periodic,
        overhead::Overheads::default(),
    );
    let admission = host.map(|host| host::admit(&host, &vcpus, &mut Work::default()));
    let placements = admission.ok().and_then(|admission| admission.outcome.ok());
    let admitted = placements.is_some();
    let sets: Vec<CpuSet> = match placements {
        Some(placements) => placements
            .iter()
            .map(|placement| match placement {
                Placement::Dedicated(cpu) | Placement::Pinned(cpu) => CpuSet::from_iter([*cpu]),
                Placement::Shared(cpus) => cpus.iter().copied().collect(),
            })
            .collect(),
        None if scheduler.is_partitioned() => pack(&vcpus),
        None => vec![CpuSet::first(CPUS); vcpus.len()],
    };
    for (vcpu, cpus) in guests
        .iter_mut()
        .flat_map(|guest| &mut guest.vcpus)
        .zip(sets)
    {
        vcpu.cpus = cpus;
    }
    let order = match scheduler {
        HostScheduler::PartitionedEarliestDeadline | HostScheduler::GlobalEarliestDeadline => {
            Order::EarliestDeadline
        }
        _ => Order::DeadlineMonotonic,
    };
    let system = System {
        host: Host::new(order, scheduler.is_partitioned(), MS),
        cpus: CPUS,
        overheads: Overheads::default(),
        play: Play::default(),
        guests,
    };
    (system, admitted)
}

fn pack(vcpus: &[host::Vcpu]) -> Vec<CpuSet> {
    let mut loads = [0.0_f64; CPUS as usize];
    let mut members: [Vec<usize>; CPUS as usize] = Default::default();
    vcpus
        .iter()
        .map(|vcpu| {
            let share = vcpu.budget() as f64 / vcpu.period() as f64;
            let fits = (0..loads.len()).filter(|&cpu| loads[cpu] + share <= 1.0 + 1e-9);
            let best = fits.max_by(|&a, &b| {
                let rank = |cpu: usize| !members[cpu].contains(&vcpu.vm());
                rank(a).cmp(&rank(b)).then(loads[a].total_cmp(&loads[b]))
            });
            let emptiest = (0..loads.len()).min_by(|&a, &b| loads[a].total_cmp(&loads[b]));
            let cpu = best.or(emptiest).unwrap_or(0);
            loads[cpu] += share;
            members[cpu].push(vcpu.vm());
            CpuSet::from_iter([cpu as u32])
        })
        .collect()
}

const DIFFERENCES: &str = "What differs from the paper: it says that VCPU periods are harmonic, not which, so there are three parts here; \
         execution times are whole milliseconds; the simulator has no overheads, no domain 0 and no credit scheduler; a \
         global guest's jobs run on whichever of its VCPUs run, as the theory assumes and Linux does not; the seeds are \
         ours.\n";

fn page(totals: &[u32], rows: &[Vec<Verdicts>], periods: &Periods) -> String {
    let [first, second, third, fourth] = periods;
    let mut text = format!("\n## VCPU periods of {first}, {second}, {third}, {fourth} ms\n");
    let fraction = |row: &[Verdicts], test: &dyn Fn(&Verdicts) -> bool| {
        row.iter().filter(|verdicts| test(verdicts)).count() as f64 / row.len().max(1) as f64
    };
    // Writing to a string does not fail.
    for (guest, (guest_name, _)) in GUESTS.iter().enumerate() {
        let part = if guest == 0 { "a" } else { "b" };
        let _ = write!(
            text,
            "\n### Figures 3.5({part}), 3.6({part}), 3.8, 3.9: {guest_name} in the guests\n\n| U |"
        );
        for (kind, hosts) in [
            ("theory", HOSTS),
            ("periodic", HOSTS),
            ("deferrable", HOSTS),
        ] {
            for (host, _) in hosts {
                let _ = write!(text, " {kind} {host} |");
            }
        }
        let _ = writeln!(text, "\n|{}", "---|".repeat(13));
        for (total, row) in totals.iter().zip(rows) {
            let _ = write!(text, "| {:.1} |", f64::from(*total) / 10.0);
            for host in 0..4 {
                let _ = write!(
                    text,
                    " {:.2} |",
                    fraction(row, &|verdicts| verdicts.theory[guest][host])
                );
            }
            for server in 0..2 {
                for host in 0..4 {
                    let _ = write!(
                        text,
                        " {:.2} |",
                        fraction(row, &|verdicts| verdicts.simulated[guest][server][host])
                    );
                }
            }
            text.push('\n');
        }
    }
    let _ = writeln!(
        text,
        "\n### Figure 3.7: mean total VCPU bandwidth\n\n| U | pEDF guests | gEDF guests |\n|---|---|---|"
    );
    for (total, row) in totals.iter().zip(rows) {
        let mean = |guest: usize| {
            row.iter()
                .map(|verdicts| verdicts.bandwidth[guest])
                .sum::<f64>()
                / row.len().max(1) as f64
        };
        let _ = writeln!(
            text,
            "| {:.1} | {:.2} | {:.2} |",
            f64::from(*total) / 10.0,
            mean(0),
            mean(1)
        );
    }
    text + &agreement(totals, rows)
}

/// The paper's statements, each beside what was found.
fn agreement(totals: &[u32], rows: &[Vec<Verdicts>]) -> String {
    let capacity = |test: &dyn Fn(&Verdicts) -> bool| capacity(totals, rows, test);
    let count = |test: &dyn Fn(&Verdicts) -> bool| {
        rows.iter()
            .flatten()
            .filter(|verdicts| test(verdicts))
            .count()
    };
    let theory = |guest: usize, host: usize| count(&|verdicts| verdicts.theory[guest][host]);
    let simulated = |guest: usize, server: usize, host: usize| {
        count(&|verdicts| verdicts.simulated[guest][server][host])
    };
    let contradictions: u64 = rows
        .iter()
        .flatten()
        .map(|verdicts| verdicts.contradictions)
        .sum();
    let mut text = "\n### Statements of the paper\n\nCounts are task sets of 500.\n\n| paper | here |\n|---|---|\n".to_owned();
    let mut row = |paper: &str, here: String| {
        // Writing to a string does not fail.
        let _ = writeln!(text, "| {paper} | {here} |");
    };
    row(
        "3.4: no set misses up to U = 3.9 (gEDF, periodic servers, pEDF guests)",
        format!("up to {:.1}", capacity(&|v| v.simulated[0][0][1])),
    );
    row(
        "3.4: the same with gDM",
        format!("up to {:.1}", capacity(&|v| v.simulated[0][0][3])),
    );
    row(
        "3.5(a): pEDF = pDM >= gDM >= gEDF",
        format!(
            "{}, {}, {}, {}",
            theory(0, 0),
            theory(0, 2),
            theory(0, 3),
            theory(0, 1)
        ),
    );
    row(
        "3.5(b): the same with gEDF guests",
        format!(
            "{}, {}, {}, {}",
            theory(1, 0),
            theory(1, 2),
            theory(1, 3),
            theory(1, 1)
        ),
    );
    row(
        "3.5(c): (pEDF, pEDF) >= (gEDF, pEDF) >= (pEDF, gEDF) >= (gEDF, gEDF)",
        format!(
            "{}, {}, {}, {}",
            theory(0, 0),
            theory(1, 0),
            theory(0, 1),
            theory(1, 1)
        ),
    );
    row(
        "3.6: what theory accepts is met (periodic servers)",
        format!("{contradictions} contradictions"),
    );
    row(
        "3.6(c): gEDF hosts >= pEDF hosts, pEDF guests",
        format!("{}, {}", simulated(0, 0, 1), simulated(0, 0, 0)),
    );
    row(
        "3.6(c): gEDF hosts >= pEDF hosts, gEDF guests",
        format!("{}, {}", simulated(1, 0, 1), simulated(1, 0, 0)),
    );
    row(
        "3.6(c): pEDF guests >= gEDF guests, on gEDF",
        format!("{}, {}", simulated(0, 0, 1), simulated(1, 0, 1)),
    );
    row(
        "3.8(b): with gEDF guests, gEDF with deferrable servers is best (then gEDF periodic, pEDF deferrable, pEDF periodic)",
        format!(
            "{}, {}, {}, {}",
            simulated(1, 1, 1),
            simulated(1, 0, 1),
            simulated(1, 1, 0),
            simulated(1, 0, 0)
        ),
    );
    row(
        "3.9: the same with DM",
        format!(
            "{}, {}, {}, {}",
            simulated(1, 1, 3),
            simulated(1, 0, 3),
            simulated(1, 1, 2),
            simulated(1, 0, 2)
        ),
    );
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiments::verdict;

    /// What the page says in short follows from its own rows.
    #[test]
    fn the_pages_sentence_follows_from_its_figures() {
        let page = include_str!("../../../../docs/results/multicore.md");
        let rows = verdict::rows(page, 13);
        assert_eq!(rows.len(), 2 * 20 * PERIODS_MS.len());
        // Of each part the first 20 rows are of pEDF guests; the columns from the fifth are of periodic servers.
        let capacities = rows.chunks(40).map(|part| {
            [5, 6, 7, 8].map(|column| {
                let met = part[..20].iter().take_while(|row| row[column] == "1.00");
                met.last()
                    .map_or(0.0, |row| row[0].parse().expect("a load"))
            })
        });
        verdict::require_answer(page, &answer(&capacities.collect::<Vec<_>>()));
    }
}
