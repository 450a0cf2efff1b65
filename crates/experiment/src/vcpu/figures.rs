//! From what was measured to figures: a row a mechanism, a cell a condition.

use super::condition::{Cell, Condition, Part};
use super::domains::VCPUS;
use super::place::{Domains, Sample};
use super::quantum::{self, Asked};
use super::window::Window;
use super::work::{self, Spent};
use super::{Plan, Run};
use crate::engine::Figures;
use crate::engine::results::{Curve, Record, Version};
use crate::testbed::{Decisions, Mechanism};
use steadyvm_load::netrt::ClientRun;
use steadyvm_stats::{Summary, mean};

/// The experiment's name.
pub const NAME: &str = "vcpu";
/// The setting that holds what the service was granted and promised.
pub(super) const PLAN: &str = "plan";

/// What every mechanism has under a condition; the quantum is of `ext` alone.
pub fn required(condition: &str) -> &'static [&'static str] {
    match condition.split_whitespace().next() {
        Some("a") => &["share", "neighbours_least", "neighbours_most", "together"],
        Some("domains") => &[
            "domain_1.jobs",
            "domain_1.misses",
            "domain_1.worst_response",
            "domain_2.jobs",
            "domain_3.jobs",
            "neighbours",
            "context_switches",
        ],
        Some("NetRT") => &["n", "lost", "p50", "p99", "max", "over_bound"],
        Some("work") => &["done", "lost", "tasks", "loader", "idle", "interrupts"],
        _ => &[],
    }
}

/// Units: shares of one CPU, and of all of the host's.
const OF_A_CPU: &str = "% of a CPU";
const OF_ALL: &str = "% of all CPUs";
const PER_S: &str = "per second";
/// Domains 1 to 3.
pub(super) const DOMAINS: [usize; 3] = [1, 2, 3];
/// The lab's CPUs of a host.
const CPUS: f64 = 2.0;

/// Figures of what was measured.
pub fn assemble(run: &Run) -> Record {
    let mut made = Made::default();
    for (number, cell) in run.cells.iter().enumerate() {
        let samples: Vec<&Sample> = run.samples.iter().filter_map(|it| it.get(number)).collect();
        made.add(run, *cell, &samples);
    }
    // What one task on each CPU does is what the others' work is held against: it has no figure of its own.
    let mut cells: Vec<String> = Vec::new();
    for cell in run.cells.iter().map(|it| it.condition) {
        let name = cell.to_string();
        if cell != Condition::Work(work::ALONE) && !cells.contains(&name) {
            cells.push(name);
        }
    }
    let plan = run
        .plan
        .as_ref()
        .and_then(|it| serde_json::to_value(it).ok());
    Record {
        schema_version: Version,
        experiment: NAME.to_owned(),
        settings: plan
            .map(|plan| (PLAN.to_owned(), plan))
            .into_iter()
            .collect(),
        rounds: run.samples.len() as u64,
        rows: Mechanism::ALL.map(|it| it.title().to_owned()).into(),
        cells,
        figures: made.figures.all(),
        curves: made.curves,
        notes: Vec::new(),
    }
}

/// What is made of the samples.
#[derive(Default)]
struct Made {
    figures: Figures,
    curves: Vec<Curve>,
}

impl Made {
    /// What was measured in one cell, a sample each round.
    fn add(&mut self, run: &Run, cell: Cell, samples: &[&Sample]) {
        let name = cell.condition.to_string();
        self.figures.at(cell.mechanism.title(), &name);
        match cell.condition {
            Condition::Share(_) | Condition::VmShare(_) => self.add_share(&windows(samples)),
            Condition::Domains { .. } => self.add_domains(cell, &domains(samples)),
            Condition::NetRt(_) => self.add_netrt(run.plan, &requests(samples)),
            Condition::Quantum { asked, .. } => self.add_quantum(cell, asked, &domains(samples)),
            Condition::Work(work::ALONE) => {}
            Condition::Work(_) => self.add_work(cell.mechanism, run),
        }
    }

    /// The share of one RT VCPU, and what its neighbours had.
    fn add_share(&mut self, windows: &[&Window]) {
        let n = windows.len() as u64;
        let shares = windows.iter().filter_map(|it| it.shares_percent.first());
        self.each("share", OF_A_CPU, &shares.copied().collect::<Vec<_>>());
        let neighbours = || {
            windows
                .iter()
                .flat_map(|it| it.shares_percent.iter().skip(1))
        };
        let least = neighbours().copied().reduce(f64::min);
        let most = neighbours().copied().reduce(f64::max);
        self.figures.value("neighbours_least", OF_A_CPU, n, least);
        self.figures.value("neighbours_most", OF_A_CPU, n, most);
        let together = mean(windows.iter().map(|it| together(it)));
        self.figures.value("together", OF_ALL, n, together);
    }

    /// Jobs of the domains, all rounds.
    fn add_domains(&mut self, cell: Cell, measured: &[&Domains]) {
        for domain in DOMAINS {
            let ran = measured.iter().flat_map(|it| VCPUS.iter().zip(&it.ran));
            let ran = ran.filter(|(vcpu, _)| vcpu.domain == domain);
            let (mut jobs, mut misses, mut worst) = (0, 0, 0.0_f64);
            for (vcpu, ran) in ran {
                let deadline_ns = vcpu.task_period_us * 1000;
                for response_ns in ran.done.iter().map(steadyvm_load::job::Done::response_ns) {
                    jobs += 1;
                    misses += u64::from(response_ns > deadline_ns);
                    worst = worst.max(response_ns as f64 / deadline_ns as f64);
                }
            }
            let name = |what: &str| of_domain(domain, what);
            self.figures.count(&name("jobs"), "jobs", jobs);
            self.figures
                .value(&name("misses"), "jobs", jobs, misses as f64);
            self.figures
                .value(&name("worst_response"), "deadlines", jobs, worst);
        }
        let windows: Vec<&Window> = measured.iter().map(|it| &it.window).collect();
        let neighbours = mean(windows.iter().map(|it| together(it)));
        let n = windows.len() as u64;
        self.figures
            .value("neighbours", OF_ALL, n, neighbours.unwrap_or(0.0));
        self.each_switches(&windows);
        self.add_decisions(cell, measured);
    }

    /// Round trips, all rounds.
    fn add_netrt(&mut self, plan: Option<Plan>, runs: &[&ClientRun]) {
        let trips = runs
            .iter()
            .flat_map(|run| run.samples.iter().map(|it| it.rtt_ns));
        let trips: Vec<u64> = trips.collect();
        let summary = Summary::of(&trips);
        let us = |of: fn(&Summary) -> u64| summary.as_ref().map(|it| of(it) as f64 / 1e3);
        let bound_ns = plan.map_or(u64::MAX, |plan| plan.bound_us * 1000);
        let over = trips.iter().filter(|trip| **trip > bound_ns).count();
        let n = trips.len() as u64;
        let lost: u64 = runs.iter().map(|run| run.counters.lost).sum();
        self.figures.count("n", "round trips", n);
        self.figures
            .value("lost", "requests", n + lost, lost as f64);
        self.figures.value("p50", "us", n, us(|it| it.p50_ns));
        self.figures.value("p99", "us", n, us(|it| it.p99_ns));
        self.figures.value("max", "us", n, us(|it| it.max_ns));
        self.figures
            .value("over_bound", "round trips", n, over as f64);
    }

    /// Late jobs where less is asked for than is granted, else the work that is done.
    fn add_quantum(&mut self, cell: Cell, asked: Asked, measured: &[&Domains]) {
        let measured = measured.iter().copied().filter(|it| !it.ran.is_empty());
        let measured: Vec<&Domains> = measured.collect();
        let ran = || measured.iter().filter_map(|it| it.ran.first());
        match asked {
            Asked::Percent(_) => {
                let rounds = ran().map(quantum::misses);
                let (misses, jobs) = rounds.fold((0, 0), |sum, it| (sum.0 + it.0, sum.1 + it.1));
                self.figures.count("jobs", "jobs", jobs);
                self.figures.value("misses", "jobs", jobs, misses as f64);
            }
            Asked::All => {
                let work: Vec<f64> = ran().filter_map(quantum::work_percent).collect();
                self.each("work", OF_A_CPU, &work);
                let both = measured
                    .iter()
                    .map(|it| it.window.shares_percent.iter().sum());
                self.each("both", OF_A_CPU, &both.collect::<Vec<f64>>());
                let windows: Vec<&Window> = measured.iter().map(|it| &it.window).collect();
                self.each_switches(&windows);
                self.add_decisions(cell, &measured);
            }
        }
    }

    /// What all tasks did together, over what one on each CPU did in the same round.
    fn add_work(&mut self, mechanism: Mechanism, run: &Run) {
        let (done, spent) = of_work(mechanism, run);
        self.each("done", "% of alone", &done);
        let lost = mean(done.iter().map(|done| 100.0 - done));
        self.figures
            .value("lost", "% of alone", done.len() as u64, lost);
        for (name, unit, of) in SPENT {
            self.each(name, unit, &spent.iter().map(of).collect::<Vec<_>>());
        }
    }

    /// How long decisions of the `ext` scheduler took in all rounds together, if it decided.
    fn add_decisions(&mut self, cell: Cell, measured: &[&Domains]) {
        let mut all: Option<Decisions> = None;
        for it in measured.iter().filter_map(|it| it.decisions.as_ref()) {
            all.get_or_insert_default().merge(it);
        }
        let Some(all) = all else { return };
        let (n, us) = (all.count(), |ns: u64| ns as f64 / 1e3);
        self.figures.count("decisions", "decisions", n);
        for (name, percent) in [("decision_p50", 50.0), ("decision_p99", 99.0)] {
            let value = all.percentile_ns(percent).map(us);
            self.figures.value(name, "us", n, value);
        }
        self.figures.value("decision_max", "us", n, us(all.max_ns));
        let decided_s = all.total_ns as f64 / 1e9;
        let measured_s: f64 = measured.iter().map(|it| it.window.passed_s).sum();
        self.figures.value("decided", "s", n, decided_s);
        self.figures
            .value("measured", "s", measured.len() as u64, measured_s);
        let share = decided_s / (CPUS * measured_s) * 100.0;
        self.figures.value("decisions_share", OF_ALL, n, share);
        let mut below = 0;
        let points = all.up_to_ns.iter().map(|&(end_ns, count)| {
            below += count;
            (below as f64 / n as f64, us(end_ns))
        });
        self.curves.push(Curve {
            row: cell.mechanism.title().to_owned(),
            cell: cell.condition.to_string(),
            name: "decision".to_owned(),
            unit: "us".to_owned(),
            points: points.collect(),
        });
    }

    fn each_switches(&mut self, windows: &[&Window]) {
        let switches = windows.iter().map(|it| it.context_switches_per_s);
        self.each("context_switches", PER_S, &switches.collect::<Vec<_>>());
    }

    /// The mean of a value a round, and the values.
    fn each(&mut self, name: &str, unit: &str, rounds: &[f64]) {
        let all = mean(rounds.iter().copied());
        self.figures.value(name, unit, rounds.len() as u64, all);
        self.figures.rounds(name, rounds.iter().copied());
    }
}

/// A part of where CPU time goes: its name, its unit, and which it is.
type SpentFigure = (&'static str, &'static str, fn(&Spent) -> f64);

/// All of them.
const SPENT: [SpentFigure; 6] = [
    ("tasks", OF_ALL, |it| it.tasks_percent),
    ("loader", OF_ALL, |it| it.loader_percent),
    ("idle", OF_ALL, |it| it.idle_percent),
    ("decisions_share", OF_ALL, |it| it.decisions_percent),
    ("context_switches", PER_S, |it| it.context_switches_per_s),
    ("interrupts", PER_S, |it| it.interrupts_per_s),
];

/// The name of a domain's figure.
pub(super) fn of_domain(domain: usize, what: &str) -> String {
    format!("domain_{domain}.{what}")
}

/// Whether a part of the experiment was measured.
pub(super) fn has(record: &Record, part: Part) -> bool {
    let mut conditions = Condition::of_part(part);
    conditions.any(|it| record.cells.contains(&it.to_string()))
}

/// What all had in a window, per cent of the host's CPUs.
fn together(window: &Window) -> f64 {
    window.shares_percent.iter().sum::<f64>() / CPUS
}

fn windows<'s>(samples: &[&'s Sample]) -> Vec<&'s Window> {
    let of = |sample: &&'s Sample| match sample {
        Sample::Share(window) => Some(window),
        _ => None,
    };
    samples.iter().filter_map(of).collect()
}

fn domains<'s>(samples: &[&'s Sample]) -> Vec<&'s Domains> {
    let of = |sample: &&'s Sample| match sample {
        Sample::Domains(it) | Sample::Quantum(it) => Some(it),
        _ => None,
    };
    samples.iter().filter_map(of).collect()
}

fn requests<'s>(samples: &[&'s Sample]) -> Vec<&'s ClientRun> {
    let of = |sample: &&'s Sample| match sample {
        Sample::NetRt(run) => Some(run),
        _ => None,
    };
    samples.iter().filter_map(of).collect()
}

/// Of each round in which both were measured: what was done, per cent of what one task on each CPU did under the stock
/// scheduler, and where the CPU time went.
fn of_work(mechanism: Mechanism, run: &Run) -> (Vec<f64>, Vec<Spent>) {
    let number = |mechanism, tasks| {
        let condition = Condition::Work(tasks);
        let wanted = Cell {
            mechanism,
            condition,
        };
        run.cells.iter().position(|it| *it == wanted)
    };
    let together = number(mechanism, work::TOGETHER);
    let alone = number(Mechanism::Fair, work::ALONE);
    let of = |round: &[Sample], number: Option<usize>| match round.get(number?)? {
        Sample::Work(work) => Some((work.done_percent?, work.spent)),
        _ => None,
    };
    let of_round = |round: &Vec<Sample>| {
        let ((done, spent), (all, _)) = (of(round, together)?, of(round, alone)?);
        Some((done / all * 100.0, spent))
    };
    run.samples.iter().filter_map(of_round).unzip()
}
