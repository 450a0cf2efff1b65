#![allow(clippy::float_cmp)] // these are exact by construction

use super::condition::{Beside, Cell, Condition, Part};
use super::domains::VCPUS;
use super::place::{Domains, Sample};
use super::window::Window;
use super::work::{self, Spent, Work};
use super::*;
use crate::engine::Figures;
use crate::engine::Standstills;
use crate::engine::results::{Record, from_json};
use crate::engine::results_checks::{require_old_shape_refused, require_shown_from_json};
use crate::testbed::{Decisions, Mechanism};
use steadyvm_load::job::{Done, Ran};
use steadyvm_load::netrt::{ClientRun, Counters, EndedBy, Sample as Request};
use steadyvm_report::ReportMeta;

const PLAN: Plan = Plan {
    budget_us: 1250,
    period_us: 5000,
    bound_us: 11_000,
    execution_us: 1000,
};

/// A run of these rounds, each of which has a sample of each cell.
fn run(cells: Vec<Cell>, samples: Vec<Vec<Sample>>) -> Run {
    let disturbance = Disturbance {
        others: 0.0,
        stolen: 0.0,
        standstills: Standstills::default(),
    };
    Run {
        plan: Some(PLAN),
        cells,
        samples,
        dropped_rounds: Vec::new(),
        disturbance,
    }
}

/// Rounds of all cells.
fn rounds_of(rounds: u64, sample: impl Fn(Cell, u64) -> Sample) -> Run {
    let cells = Cell::of(&Part::ALL);
    let round = |round| {
        let numbered = cells.iter().zip(0..);
        let samples = numbered.map(|(cell, number)| sample(*cell, number + round * 3));
        samples.collect()
    };
    let samples = (0..rounds).map(round).collect();
    run(cells, samples)
}

fn window(shares_percent: &[f64]) -> Window {
    Window {
        passed_s: 2.0,
        shares_percent: shares_percent.to_vec(),
        context_switches_per_s: 500.0,
        interrupts_per_s: 900.0,
        idle_percent: 1.0,
    }
}

fn domains(ran: Vec<Ran>, shares_percent: &[f64]) -> Domains {
    Domains {
        ran,
        window: window(shares_percent),
        decisions: None,
    }
}

/// Jobs that are all released at once and take so many milliseconds.
fn jobs(ms: &[u64]) -> Ran {
    let done = |ms: &u64| Done {
        released_ns: 0,
        finished_ns: ms * 1_000_000,
    };
    Ran {
        done: ms.iter().map(done).collect(),
        waited_ns: 0,
    }
}

#[test]
fn a_share_is_of_its_windows_and_all_of_both_cpus() {
    let condition = Condition::Share(Beside::Computing(2));
    let mechanism = Mechanism::Ext;
    let sample = |shares: &[f64]| vec![Sample::Share(window(shares))];
    // The third round leaves the part out.
    let samples = vec![
        sample(&[40.0, 80.0, 70.0]),
        sample(&[41.0, 79.0, 80.0]),
        vec![Sample::LeftOut],
    ];
    let cell = Cell {
        mechanism,
        condition,
    };
    let record = assemble(&run(vec![cell], samples));
    let at = record.at("ext", "a VCPU beside 2");
    assert_eq!(at.rounds("share"), [40.0, 41.0]);
    let value = |name| at.value(name).unwrap();
    assert_eq!(
        [value("neighbours_least"), value("neighbours_most")],
        [70.0, 80.0]
    );
    assert!((value("together") - 97.5).abs() < 1e-9);
}

#[test]
fn a_quantum_has_its_misses_by_load_and_the_work_of_each_round() {
    // In the first round all jobs are in time; in the second all are late, and half the work is done.
    let cells = || Cell::of(&Part::ALL);
    let round = |ms: u64| -> Vec<Sample> {
        let sample = |_| Sample::Quantum(domains(vec![jobs(&[ms, ms])], &[48.0, 49.0]));
        cells().into_iter().map(sample).collect()
    };
    let record = assemble(&run(cells(), vec![round(100), round(400)]));
    for percent in [30, 40, 44, 48] {
        let cell = format!("quantum 1 ms, {percent} % asked");
        let at = record.at("ext", &cell);
        assert_eq!((at.count("misses"), at.count("jobs")), (2, 4));
    }
    let all = record.at("ext", "quantum 1 ms, all asked");
    assert_eq!(all.rounds("work"), [200.0, 50.0]);
    assert_eq!(all.rounds("both"), [97.0, 97.0]);
    let nothing = assemble(&run(cells(), Vec::new()));
    let least = nothing.at("ext", "quantum 0.25 ms, 30 % asked");
    assert_eq!((least.count("jobs"), least.rounds("work").len()), (0, 0));
}

#[test]
fn work_is_of_the_same_rounds_work_alone() {
    let cells = || Cell::of(&[Part::Work]);
    let round = |alone: Option<f64>| -> Vec<Sample> {
        let work = |done_percent| {
            Sample::Work(Work {
                done_percent,
                spent: Spent::default(),
            })
        };
        let sample = |cell: Cell| match cell.condition {
            Condition::Work(work::ALONE) => work(alone),
            _ if cell.mechanism == Mechanism::Ext => work(Some(90.0)),
            _ => work(Some(95.0)),
        };
        cells().into_iter().map(sample).collect()
    };
    let rounds = vec![round(Some(100.0)), round(None), round(Some(120.0))];
    let record = assemble(&run(cells(), rounds));
    let ext = record.at("ext", "work of 8 tasks");
    assert_eq!(ext.rounds("done"), [90.0, 75.0]);
    assert_eq!(ext.value("lost"), Some(17.5));
    let fair = record.at("stock fair", "work of 8 tasks");
    assert_eq!(fair.rounds("done")[0], 95.0);
    assert_eq!(record.cells, ["work of 8 tasks"]);
}

#[test]
fn a_domain_has_the_misses_of_its_vcpus_against_their_tasks_periods() {
    // The second is late against 100 ms, not against 250.
    let cell = Cell {
        mechanism: Mechanism::Fair,
        condition: Condition::Domains {
            beside: Beside::Computing(4),
            overloaded: false,
        },
    };
    let ran = vec![jobs(&[90, 120]); VCPUS.len()];
    let sample = Sample::Domains(domains(ran, &[50.0]));
    let record = assemble(&run(vec![cell], vec![vec![sample]]));
    let at = record.at("stock fair", "domains beside 4");
    let of = |domain| {
        let count = |what| at.count(&format!("domain_{domain}.{what}"));
        (count("misses"), count("jobs"))
    };
    assert_eq!([1, 2, 3].map(of), [(1, 2), (2, 4), (0, 2)]);
    assert!((at.value("domain_1.worst_response").unwrap() - 1.2).abs() < 1e-9);
    assert!((at.value("neighbours").unwrap() - 25.0).abs() < 1e-9);
    assert_eq!(at.value("decisions"), None);
}

/// Figures that are easily told apart.
fn record() -> Record {
    let mut figures = Figures::default();
    let beside = "beside 4";
    for what in ["a VCPU", "a VM"] {
        figures.at("ext", &format!("{what} {beside}"));
        figures.value("share", "% of a CPU", 2, 39.75);
        figures.rounds("share", [40.0, 39.5]);
    }
    figures.at("ext", "domains beside 4, one overloaded");
    for domain in 1..=3 {
        let name = |what: &str| format!("domain_{domain}.{what}");
        figures.count(&name("jobs"), "jobs", 80);
        figures.value(&name("misses"), "jobs", 80, 3.0);
        figures.value(&name("worst_response"), "deadlines", 80, 1.5);
    }
    figures.value("neighbours", "% of all CPUs", 2, 20.0);
    figures.value("context_switches", "per second", 2, 1000.0);
    figures.rounds("context_switches", [900.0, 1100.0]);
    figures.at("ext", "quantum 1 ms, 48 % asked");
    figures.count("jobs", "jobs", 20);
    figures.value("misses", "jobs", 20, 7.0);
    figures.at("ext", "quantum 1 ms, all asked");
    figures.value("work", "% of a CPU", 2, 45.0);
    figures.rounds("work", [44.0, 46.0]);
    figures.at("ext", "NetRT beside 4");
    figures.count("n", "round trips", 100);
    for (mechanism, lost, done) in [
        ("stock fair", 2.0, [97.0, 99.0]),
        ("ext", 3.0, [96.0, 98.0]),
    ] {
        figures.at(mechanism, "work of 8 tasks");
        figures.value("done", "% of alone", 2, 100.0 - lost);
        figures.rounds("done", done);
        figures.value("lost", "% of alone", 2, lost);
    }
    figures.value("tasks", "% of all CPUs", 2, 91.0);
    figures.value("loader", "% of all CPUs", 2, 3.5);
    Record {
        figures: figures.all(),
        ..assemble(&run(Cell::of(&Part::ALL), Vec::new()))
    }
}

#[test]
fn every_table_has_its_figures_and_fits() {
    let text = page(&record()).text();
    for part in [
        "39.75 [36.57, 42.93]",
        "VM beside 4",
        "3/80 [1.3, 10.5] (1.50)",
        "1000 [900, 1100]",
        "1250 us in every 5000 us planned for 1000 us a request, bound 11000 us",
        "45.0 [44.0, 46.0]",
        " 10.0 ",
        "at 48 %",
        "7/20",
        "97.00 [96.00, 98.00]",
        "91.00   3.50",
        "1.50",
    ] {
        assert!(text.contains(part), "{part}:\n{text}");
    }
    let too_long = text.lines().find(|line| line.chars().count() > 160);
    assert_eq!(too_long, None);
}

#[test]
fn a_window_is_a_line() {
    let table = windows_table(&record());
    assert_eq!(table.lines().count(), 5);
    assert!(table.contains("ext,VM beside 4,2,39.5\n"), "{table}");
}

#[test]
fn the_tables_follow_from_results_json_alone_and_the_old_shape_is_refused() {
    let record = assemble(&rounds_of(3, sample));
    require_shown_from_json(&record, required, |it| {
        page(it).text() + &page(it).html(&ReportMeta::default()) + &windows_table(it)
    });
    let old = r#"{"schema_version":1,"rounds":2,"shares":[],"domains":[],"netrt":[],"plan":null}"#;
    require_old_shape_refused(old);
    let decisions = record.curves.iter().find(|it| it.cell == "domains alone");
    let points = &decisions.unwrap().points;
    assert_eq!((points.len(), points[2].0), (3, 1.0));
    assert!(from_json("{}").is_err());
}

#[test]
fn one_part_alone_has_its_own_tables_and_nothing_measured_has_none() {
    let tables = |parts: &[Part]| {
        page(&assemble(&run(Cell::of(parts), Vec::new())))
            .grids
            .len()
    };
    let of_parts = Part::ALL.map(|part| tables(&[part]));
    assert_eq!(of_parts, [2, 4, 1, 2, 2]);
    assert_eq!((tables(&Part::ALL), tables(&[])), (11, 0));
}

fn made_window(threads: usize, seed: u64) -> Window {
    Window {
        passed_s: 2.0 + seed as f64 / 100.0,
        shares_percent: (0..threads as u64)
            .map(|it| 40.0 + ((it * 7 + seed * 3) % 11) as f64 / 4.0)
            .collect(),
        context_switches_per_s: 500.0 + seed as f64,
        interrupts_per_s: 900.0 + seed as f64 * 2.0,
        idle_percent: 1.0 + seed as f64 / 8.0,
    }
}

fn made_jobs(jobs: u64, period_ms: u64, seed: u64) -> Ran {
    Ran {
        done: (0..jobs)
            .map(|job| Done {
                released_ns: job * period_ms * 1_000_000,
                finished_ns: (job * period_ms + 30 + (job * 17 + seed * 13) % 97) * 1_000_000,
            })
            .collect(),
        waited_ns: 0,
    }
}

/// A sample that differs from every other one of its kind.
fn sample(cell: Cell, seed: u64) -> Sample {
    let decisions = (cell.mechanism == Mechanism::Ext).then(|| Decisions {
        up_to_ns: vec![(2000, 90 + seed), (4000, 9), (8000, 1)],
        max_ns: 7000 + seed,
        total_ns: 200_000 + seed,
    });
    match cell.condition {
        Condition::Share(beside) | Condition::VmShare(beside) => {
            Sample::Share(made_window(1 + beside.computing(), seed))
        }
        Condition::Domains { beside, .. } => Sample::Domains(Domains {
            ran: VCPUS
                .iter()
                .map(|it| made_jobs(20, it.task_period_us / 1000, seed))
                .collect(),
            window: made_window(beside.computing(), seed),
            decisions,
        }),
        Condition::NetRt(_) => Sample::NetRt(ClientRun {
            samples: (0..200)
                .map(|sequence| Request {
                    sequence,
                    sent_ns: 0,
                    rtt_ns: 1_000_000 * (1 + (sequence * 7 + seed) % 13),
                })
                .collect(),
            counters: Counters {
                lost: seed % 3,
                ..Counters::default()
            },
            ended_by: EndedBy::Done,
            duration_ns: 1,
        }),
        Condition::Work(tasks) => Sample::Work(Work {
            done_percent: (!seed.is_multiple_of(7))
                .then_some(90.0 + (seed % 5) as f64 + if tasks == work::ALONE { 6.0 } else { 0.0 }),
            spent: Spent::of(&made_window(tasks + 2, seed), tasks, decisions.as_ref()),
        }),
        Condition::Quantum { .. } => Sample::Quantum(Domains {
            ran: vec![made_jobs(10, 100, seed)],
            window: made_window(2, seed),
            decisions,
        }),
    }
}

/// Pages in docs/results are not written anew with each change of the code: they keep this form.
#[test]
fn what_is_printed_keeps_its_form() {
    let mut results = assemble(&rounds_of(3, sample));
    results.notes.push("a note".into());
    let written = include_str!("../../tests/pages/vcpu.txt");
    assert_eq!(page(&results).text(), written);
}
