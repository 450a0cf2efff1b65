//! results.json of the experiment. A figure that does not exist is `null`.

use super::condition::{Beside, Cell, Condition, Mechanism, Part};
use super::domains::VCPUS;
use super::mechanism::Decisions;
use super::place::{Domains, Sample};
use super::quantum::{self, Asked, Quantum, QuantumResult};
use super::window::Window;
use super::work::{self, WorkResult};
use super::{Plan, Run};
use serde::{Deserialize, Serialize};
use steadyvm_load::netrt::ClientRun;
use steadyvm_stats::Summary;

/// The version of the shape below.
pub const SCHEMA_VERSION: u32 = 1;

/// results.json.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Results {
    /// [`SCHEMA_VERSION`].
    pub schema_version: u32,
    /// Rounds.
    pub rounds: u64,
    /// Table 4.2.
    pub shares: Vec<ShareResult>,
    /// Tables 4.3, 2.2 and 2.1.
    pub domains: Vec<DomainsResult>,
    /// `NetRT` inside a budget.
    pub netrt: Vec<NetRtResult>,
    /// What the service was granted and promised.
    pub plan: Option<Plan>,
    /// Figure 2.4.
    #[serde(default)]
    pub quanta: Vec<QuantumResult>,
    /// CPU time lost to scheduling.
    #[serde(default)]
    pub work: Vec<WorkResult>,
    /// What a reader must know.
    #[serde(default)]
    pub notes: Vec<String>,
}

/// The share of one RT VCPU; a window a round.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ShareResult {
    /// Who schedules.
    pub mechanism: Mechanism,
    /// Whether it is a real VM's VCPU; else a thread of the host.
    pub is_vm: bool,
    /// What computes beside it.
    pub beside: Beside,
    /// Of each window, per cent of a CPU.
    pub shares_percent: Vec<f64>,
    /// The least and the most that a neighbour had in a window, per cent of a CPU.
    pub neighbours_percent: Option<(f64, f64)>,
    /// What it and the neighbours had together in the mean, per cent of the host's CPUs.
    pub together_percent: f64,
}

/// Jobs of the domains, all rounds.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DomainsResult {
    /// Who schedules.
    pub mechanism: Mechanism,
    /// What computes beside them.
    pub beside: Beside,
    /// Whether domain 2 asked for three times its budget.
    pub overloaded: bool,
    /// Domains 1 to 3.
    pub domains: Vec<MissesResult>,
    /// What all neighbours had together in the mean, per cent of the host's CPUs.
    pub neighbours_percent: f64,
    /// The host's context switches per second, of each window.
    pub context_switches_per_s: Vec<f64>,
    /// How long decisions of the `ext` scheduler took.
    pub decisions: Option<Decisions>,
    /// How long was measured, in seconds.
    pub measured_s: f64,
}

/// A domain's jobs.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct MissesResult {
    /// Jobs.
    pub jobs: u64,
    /// Of them, those that were done after their deadline.
    pub misses: u64,
    /// The longest response over the deadline: 1 is just in time.
    pub worst_response: f64,
}

/// Round trips, all rounds; in microseconds.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct NetRtResult {
    /// Who schedules.
    pub mechanism: Mechanism,
    /// What computes beside the VM.
    pub beside: Beside,
    /// Counted round trips.
    pub n: u64,
    /// Requests without a reply in time.
    pub lost: u64,
    /// Their median.
    pub p50_us: Option<f64>,
    /// Their 99th percentile.
    pub p99_us: Option<f64>,
    /// The longest.
    pub max_us: Option<f64>,
    /// How many took longer than the plan's bound.
    pub over_bound: u64,
}

/// The lab's CPUs of a host.
const CPUS: f64 = 2.0;

/// Figures of what was measured.
pub fn assemble(run: &Run) -> Results {
    let mut results = Results {
        schema_version: SCHEMA_VERSION,
        rounds: run.samples.len() as u64,
        shares: Vec::new(),
        domains: Vec::new(),
        netrt: Vec::new(),
        plan: run.plan,
        quanta: Vec::new(),
        work: Vec::new(),
        notes: Vec::new(),
    };
    let has = |part| run.cells.iter().any(|it| it.condition.part() == part);
    if has(Part::Quantum) {
        let of = |it| of_quantum(it, &run.cells, &run.samples);
        results.quanta = Quantum::ALL.map(of).into();
    }
    if has(Part::Work) {
        let of = |it| of_work(it, &run.cells, &run.samples);
        results.work = Mechanism::ALL.map(of).into();
    }
    for (number, cell) in run.cells.iter().enumerate() {
        let samples: Vec<&Sample> = run.samples.iter().filter_map(|it| it.get(number)).collect();
        match cell.condition {
            Condition::Share(beside) => {
                results
                    .shares
                    .push(share(cell.mechanism, false, beside, &samples));
            }
            Condition::VmShare(beside) => {
                results
                    .shares
                    .push(share(cell.mechanism, true, beside, &samples));
            }
            Condition::Domains { beside, overloaded } => {
                results
                    .domains
                    .push(domains(cell.mechanism, beside, overloaded, &samples));
            }
            Condition::NetRt(beside) => {
                results
                    .netrt
                    .push(netrt(cell.mechanism, beside, run.plan, &samples));
            }
            Condition::Quantum { .. } | Condition::Work(_) => {}
        }
    }
    results
}

fn share(mechanism: Mechanism, is_vm: bool, beside: Beside, samples: &[&Sample]) -> ShareResult {
    let windows: Vec<&Window> = samples
        .iter()
        .filter_map(|sample| match sample {
            Sample::Share(window) => Some(window),
            _ => None,
        })
        .collect();
    let neighbours: Vec<f64> = windows
        .iter()
        .flat_map(|it| it.shares_percent.iter().skip(1).copied())
        .collect();
    let together = |it: &&Window| it.shares_percent.iter().sum::<f64>() / CPUS;
    ShareResult {
        mechanism,
        is_vm,
        beside,
        shares_percent: windows
            .iter()
            .filter_map(|it| it.shares_percent.first().copied())
            .collect(),
        neighbours_percent: least_and_most(&neighbours),
        together_percent: mean(windows.iter().map(together)),
    }
}

fn domains(
    mechanism: Mechanism,
    beside: Beside,
    overloaded: bool,
    samples: &[&Sample],
) -> DomainsResult {
    let measured: Vec<&Domains> = samples
        .iter()
        .filter_map(|sample| match sample {
            Sample::Domains(domains) => Some(domains),
            _ => None,
        })
        .collect();
    let mut found = vec![MissesResult::default(); 3];
    for (vcpu, ran) in measured.iter().flat_map(|it| VCPUS.iter().zip(&it.ran)) {
        let domain = &mut found[vcpu.domain - 1];
        let deadline_ns = vcpu.task_period_us * 1000;
        for job in &ran.done {
            let response_ns = job.response_ns();
            domain.jobs += 1;
            domain.misses += u64::from(response_ns > deadline_ns);
            let over = response_ns as f64 / deadline_ns as f64;
            domain.worst_response = domain.worst_response.max(over);
        }
    }
    let mut decisions: Option<Decisions> = None;
    for it in measured.iter().filter_map(|it| it.decisions.as_ref()) {
        decisions.get_or_insert_default().merge(it);
    }
    let windows = || measured.iter().map(|it| &it.window);
    DomainsResult {
        mechanism,
        beside,
        overloaded,
        domains: found,
        neighbours_percent: mean(windows().map(|it| it.shares_percent.iter().sum::<f64>() / CPUS)),
        context_switches_per_s: windows().map(|it| it.context_switches_per_s).collect(),
        decisions,
        measured_s: windows().map(|it| it.passed_s).sum(),
    }
}

fn netrt(
    mechanism: Mechanism,
    beside: Beside,
    plan: Option<Plan>,
    samples: &[&Sample],
) -> NetRtResult {
    let runs: Vec<&ClientRun> = samples
        .iter()
        .filter_map(|sample| match sample {
            Sample::NetRt(run) => Some(run),
            _ => None,
        })
        .collect();
    let trips: Vec<u64> = runs
        .iter()
        .flat_map(|run| run.samples.iter().map(|it| it.rtt_ns))
        .collect();
    let summary = Summary::of(&trips);
    let us = |of: fn(&Summary) -> u64| summary.as_ref().map(|it| of(it) as f64 / 1e3);
    let bound_ns = plan.map_or(u64::MAX, |plan| plan.bound_us * 1000);
    NetRtResult {
        mechanism,
        beside,
        n: trips.len() as u64,
        lost: runs.iter().map(|run| run.counters.lost).sum(),
        p50_us: us(|it| it.p50_ns),
        p99_us: us(|it| it.p99_ns),
        max_us: us(|it| it.max_ns),
        over_bound: trips.iter().filter(|trip| **trip > bound_ns).count() as u64,
    }
}

/// All that was measured with a quantum; `samples` are by round and cell of `cells`.
fn of_quantum(quantum: Quantum, cells: &[Cell], samples: &[Vec<Sample>]) -> QuantumResult {
    let mut result = QuantumResult {
        quantum,
        misses: Vec::new(),
        work_percent: Vec::new(),
        both_percent: Vec::new(),
        context_switches_per_s: Vec::new(),
        decisions: None,
    };
    for asked in Asked::ALL {
        let wanted = Condition::Quantum { quantum, asked };
        let number = cells.iter().position(|it| it.condition == wanted);
        let found = samples.iter().filter_map(|cells| cells.get(number?));
        let runs = found.filter_map(|sample| match sample {
            Sample::Quantum(it) => Some((it.ran.first()?, it)),
            _ => None,
        });
        match asked {
            Asked::Percent(percent) => {
                let of_round = |(ran, _)| quantum::misses(ran);
                let add = |(misses, jobs): (u64, u64), (more, of)| (misses + more, jobs + of);
                let (misses, jobs) = runs.map(of_round).fold((0, 0), add);
                result.misses.push((percent, misses, jobs));
            }
            Asked::All => {
                for (ran, it) in runs {
                    result.work_percent.extend(quantum::work_percent(ran));
                    let both = it.window.shares_percent.iter().sum();
                    result.both_percent.push(both);
                    let switches = it.window.context_switches_per_s;
                    result.context_switches_per_s.push(switches);
                    if let Some(decisions) = &it.decisions {
                        result.decisions.get_or_insert_default().merge(decisions);
                    }
                }
            }
        }
    }
    result
}

/// What all tasks did together; `samples` are by round and cell of `cells`.
fn of_work(mechanism: Mechanism, cells: &[Cell], samples: &[Vec<Sample>]) -> WorkResult {
    let number = |mechanism, tasks| {
        let condition = Condition::Work(tasks);
        let wanted = Cell {
            mechanism,
            condition,
        };
        cells.iter().position(|it| *it == wanted)
    };
    let (together, alone) = (
        number(mechanism, work::TOGETHER),
        number(Mechanism::Fair, work::ALONE),
    );
    let of = |round: &[Sample], number: Option<usize>| match round.get(number?)? {
        Sample::Work(work) => Some((work.done_percent?, work.spent)),
        _ => None,
    };
    let of_round = |round: &Vec<Sample>| {
        let ((done, spent), (all, _)) = (of(round, together)?, of(round, alone)?);
        Some((done / all * 100.0, spent))
    };
    let (done_percent, spent) = samples.iter().filter_map(of_round).unzip();
    WorkResult {
        mechanism,
        done_percent,
        spent,
    }
}

/// 0 without values.
fn mean(values: impl Iterator<Item = f64>) -> f64 {
    steadyvm_stats::mean(values).unwrap_or(0.0)
}

/// The least and the greatest, if there are any.
pub(super) fn least_and_most(values: &[f64]) -> Option<(f64, f64)> {
    let least = values.iter().copied().reduce(f64::min)?;
    let most = values.iter().copied().reduce(f64::max)?;
    Some((least, most))
}

#[cfg(test)]
mod tests {
    use super::work::{Spent, Work};
    use super::*;
    use steadyvm_load::job::{Done, Ran};

    fn window(shares_percent: &[f64]) -> Window {
        Window {
            passed_s: 2.0,
            shares_percent: shares_percent.to_vec(),
            context_switches_per_s: 500.0,
            interrupts_per_s: 900.0,
            idle_percent: 1.0,
        }
    }

    #[test]
    fn a_share_is_of_its_windows_and_all_of_both_cpus() {
        let samples = [
            Sample::Share(window(&[40.0, 80.0, 70.0])),
            Sample::Share(window(&[41.0, 79.0, 80.0])),
        ];
        let samples: Vec<&Sample> = samples.iter().collect();
        let found = share(Mechanism::Ext, false, Beside::Computing(2), &samples);
        assert_eq!(found.shares_percent, [40.0, 41.0]);
        assert_eq!(found.neighbours_percent, Some((70.0, 80.0)));
        assert!((found.together_percent - 97.5).abs() < 1e-9);
    }

    #[test]
    fn a_quantum_has_its_misses_by_load_and_the_work_of_each_round() {
        // In the first round all jobs are in time; in the second all are late, and half the work is done.
        let round = |ms: u64| -> Vec<Sample> {
            let ran = Ran {
                done: vec![
                    Done {
                        released_ns: 0,
                        finished_ns: ms * 1_000_000,
                    };
                    2
                ],
                waited_ns: 0,
            };
            let sample = |_| {
                Sample::Quantum(Domains {
                    ran: vec![ran.clone()],
                    window: window(&[48.0, 49.0]),
                    decisions: None,
                })
            };
            Cell::of(&Part::ALL).into_iter().map(sample).collect()
        };
        let found = of_quantum(
            Quantum::ALL[2],
            &Cell::of(&Part::ALL),
            &[round(100), round(400)],
        );
        let expected: Vec<(u64, u64, u64)> = [30, 40, 44, 48].map(|percent| (percent, 2, 4)).into();
        assert_eq!(found.misses, expected);
        assert_eq!(found.work_percent, [200.0, 50.0]);
        assert_eq!(found.both_percent, [97.0, 97.0]);
        let nothing = of_quantum(Quantum::ALL[0], &Cell::of(&Part::ALL), &[]);
        assert_eq!(
            (nothing.misses[0], nothing.work_percent.len()),
            ((30, 0, 0), 0)
        );
    }

    #[test]
    fn work_is_of_the_same_rounds_work_alone() {
        let round = |alone: Option<f64>| -> Vec<Sample> {
            let work = |done_percent| {
                Sample::Work(Work {
                    done_percent,
                    spent: Spent::default(),
                })
            };
            let sample = |cell: Cell| match cell.condition {
                Condition::Work(work::ALONE) => work(alone),
                Condition::Work(_) if cell.mechanism == Mechanism::Ext => work(Some(90.0)),
                _ => work(Some(95.0)),
            };
            Cell::of(&Part::ALL).into_iter().map(sample).collect()
        };
        let cells = Cell::of(&Part::ALL);
        let rounds = [round(Some(100.0)), round(None), round(Some(120.0))];
        let found = of_work(Mechanism::Ext, &cells, &rounds);
        assert_eq!(found.done_percent, [90.0, 75.0]);
        assert_eq!(found.lost_percent(), Some(17.5));
        assert_eq!(
            of_work(Mechanism::Fair, &cells, &rounds[..1]).done_percent,
            [95.0]
        );
    }

    #[test]
    fn a_domain_has_the_misses_of_its_vcpus_against_their_tasks_periods() {
        // The second is late against 100 ms, not against 250.
        let ran = Ran {
            done: [90, 120]
                .map(|ms| Done {
                    released_ns: 0,
                    finished_ns: ms * 1_000_000,
                })
                .into(),
            waited_ns: 0,
        };
        let sample = Sample::Domains(Domains {
            ran: vec![ran; VCPUS.len()],
            window: window(&[50.0]),
            decisions: None,
        });
        let found = domains(Mechanism::Fair, Beside::Computing(1), false, &[&sample]);
        let misses: Vec<(u64, u64)> = found
            .domains
            .iter()
            .map(|it| (it.misses, it.jobs))
            .collect();
        assert_eq!(misses, [(1, 2), (2, 4), (0, 2)]);
        assert!((found.domains[0].worst_response - 1.2).abs() < 1e-9);
        assert!((found.neighbours_percent - 25.0).abs() < 1e-9);
        assert_eq!(found.decisions, None);
    }
}
