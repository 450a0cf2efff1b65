//! Figure 2.5 (section 2.5.5): soft real-time performance of five domains on one CPU, by their shares.

use std::fmt::Write;

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use steadyvm_report::picture::{Bar, Group};
use steadyvm_report::{Answer, Finding, Picture};
use steadyvm_sched_policy::{CpuSet, Host, Kind, Order, Parameters};

use super::Found;
use super::verdict::{self, Statements};
use crate::{
    simulate,
    system::{Guest, GuestOrder, Overheads, Play, System, Task, Vcpu},
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

pub(super) fn run(seed: u64) -> Found {
    let mut text = format!(
        "What differs from the paper: {SETS} sets a load in place of one; no overheads; no credit and SEDF schedulers; our \
         own seeds. A polling server discards its budget at its period's start if it has no work, where RT-Xen keeps it \
         until the VCPU has run. Execution times are 5 to 10 ms; periods are rounded up to whole milliseconds.\n"
    );
    // Writing to a string does not fail.
    let mut figures = Vec::new();
    for (case, periods) in CASES {
        let _ = write!(text, "\n## Shares {case}\n\n| load % |");
        for kind in KINDS {
            let _ = write!(text, " {} |", kind.word());
        }
        let _ = writeln!(text, "\n|{}", "---|".repeat(KINDS.len() + 1));
        for load in (30..=100).step_by(5) {
            let _ = write!(text, "| {load} |");
            for kind in KINDS {
                let missed = misses(kind, &periods, load, seed);
                let _ = write!(text, " {missed:.2} |");
                figures.push(Figure {
                    case,
                    load,
                    kind,
                    missed,
                });
            }
            text.push('\n');
        }
    }
    let statements = verdicts(&figures);
    Found {
        answer: answer(&figures, &statements),
        introduction: format!(
            "Figure 2.5: n = {SETS} task sets per load, 300 s of simulated time each, quantum 1 ms, no overheads. Figures \
             are percent of jobs late, over all sets."
        ),
        tables: text + &statements.table(),
    }
}

/// Who has the fewest jobs late where a CPU is all asked for.
fn answer(figures: &[Figure], statements: &Statements) -> Answer {
    let at = |case: &str| {
        let of_case = figures
            .iter()
            .filter(|it| (it.case, it.load) == (case, 100));
        of_case.map(|it| (it.kind, it.missed)).collect::<Vec<_>>()
    };
    let fewest = CASES.iter().filter_map(|(case, _)| {
        let all = at(case).into_iter();
        let (kind, missed) = all.min_by(|a, b| a.1.total_cmp(&b.1))?;
        Some(Finding::Bound {
            of: format!("`{}` ({case} shares)", kind.word()),
            figure: "fewest jobs late at a load of 100 %".to_owned(),
            words: format!("{missed:.2} %"),
            bound: None,
        })
    });
    let group = |(case, _): &(&str, _)| Group {
        name: format!("{case} shares, load 100 %"),
        bars: (at(case).into_iter())
            .map(|(kind, missed)| Bar::new(kind.word(), Some(missed), |it| format!("{it:.2} %")))
            .collect(),
    };
    Answer {
        question: "Which server misses fewest deadlines?".to_owned(),
        findings: fewest.chain([statements.finding()]).collect(),
        picture: Picture {
            title: "Jobs that are late; shorter is better".to_owned(),
            groups: CASES.iter().map(group).collect(),
        },
    }
}

/// One figure of the page.
struct Figure {
    case: &'static str,
    load: u64,
    kind: Kind,
    /// Percent, as printed.
    missed: f64,
}

/// Percent of jobs late, over all sets of a load.
pub(super) fn misses(kind: Kind, periods: &[u64; 5], load: u64, seed: u64) -> f64 {
    let (mut late, mut due) = (0, 0);
    for set in 0..SETS {
        let system = system(kind, periods, load, seed * 10_000 + load * 100 + set);
        if let Ok(outcome) = simulate(&system, 1, DURATION_NS) {
            late += outcome.late();
            due += outcome.due();
        }
    }
    verdict::printed(100.0 * late as f64 / due.max(1) as f64)
}

/// The paper's statements, and what the figures say. Overload is a load of 100 %.
fn verdicts(figures: &[Figure]) -> Statements {
    let mut statements = Statements::new();
    let four = &KINDS[..4];
    let early: Vec<String> = (figures.iter())
        .filter(|found| found.load <= 50 && four.contains(&found.kind) && found.missed > 0.0)
        .map(|found| {
            let Figure {
                case,
                load,
                kind,
                missed,
            } = found;
            format!("{}, {case} shares: {missed:.2} % at {load}", kind.word())
        })
        .collect();
    let paper = "No misses up to a load of 50 % under any of the four servers";
    statements.say(paper, &early, "0 % each");
    let at = |case: &str, load: u64, kind: Kind| {
        let found =
            |figure: &&Figure| (figure.case, figure.load, figure.kind) == (case, load, kind);
        figures
            .iter()
            .find(found)
            .map_or(0.0, |figure| figure.missed)
    };
    // Whom of the four the one kind is not before (or behind).
    let beaten = |kind: Kind, best: bool| {
        let mut found = Vec::new();
        for (case, _) in CASES {
            let own = at(case, 100, kind);
            for &other in four {
                let missed = at(case, 100, other);
                if if best { missed < own } else { missed > own } {
                    let (word, sign) = (other.word(), if best { '<' } else { '>' });
                    found.push(format!("{case}: {word} {missed:.2} {sign} {own:.2}"));
                }
            }
        }
        found
    };
    let paper = "Deferrable: best of the four in overload, in all three cases (here at 100 %)";
    statements.say(paper, &beaten(Kind::Deferrable, true), "in all three");
    let limits = CASES.map(|(case, _)| {
        let loads = (30..=100).step_by(5);
        let below = loads.take_while(|&load| at(case, load, Kind::Deferrable) < 5.0);
        (case, below.last().unwrap_or(0))
    });
    let shown: Vec<String> = (limits.iter())
        .map(|(case, load)| format!("{case} {load} %"))
        .collect();
    let other = limits.iter().any(|(_, load)| !(85..=90).contains(load));
    let capacity = if other {
        vec![shown.join(", ")]
    } else {
        Vec::new()
    };
    let paper = "Deferrable: capacity (below 5 % of misses) near 85 to 90 %";
    statements.say(paper, &capacity, &shown.join(", "));
    let paper = "Periodic (PTPS): worst of the four in overload (here at 100 %)";
    statements.say(paper, &beaten(Kind::Periodic, false), "in all three");
    let mut order = Vec::new();
    for (case, _) in CASES {
        let pairs = (30..=100).step_by(5).flat_map(|load| {
            let [periodic, conserving, reclaiming] = [
                Kind::Periodic,
                Kind::WorkConserving,
                Kind::CapacityReclaiming,
            ]
            .map(|kind| at(case, load, kind));
            let crps = (reclaiming > conserving)
                .then(|| format!("CRPS {reclaiming:.2} > WCPS {conserving:.2} at {load}"));
            let wcps = (conserving > periodic)
                .then(|| format!("WCPS {conserving:.2} > PTPS {periodic:.2} at {load}"));
            [crps, wcps].into_iter().flatten()
        });
        let pairs: Vec<String> = pairs.collect();
        if !pairs.is_empty() {
            order.push(format!("{case} shares: {}", pairs.join(", ")));
        }
    }
    let paper = "Sections 2.6 and 2.7: CRPS <= WCPS <= PTPS in misses";
    statements.say(paper, &order, "at every load");
    statements
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
        play: Play::default(),
        guests: guests.collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The page's verdicts are those of its own figures.
    #[test]
    fn the_pages_verdicts_follow_from_its_figures() {
        let page = include_str!("../../../../docs/results/shares.md");
        let rows = verdict::rows(page, KINDS.len() + 1);
        assert_eq!(rows.len(), CASES.len() * 15);
        let mut figures = Vec::new();
        for (number, row) in rows.iter().enumerate() {
            for (kind, cell) in KINDS.into_iter().zip(&row[1..]) {
                figures.push(Figure {
                    case: CASES[number / 15].0,
                    load: row[0].parse().expect("a load"),
                    kind,
                    missed: cell.parse().expect("a figure"),
                });
            }
        }
        let statements = verdicts(&figures);
        verdict::require_answer(page, &answer(&figures, &statements));
        let expected = statements.table();
        assert!(page.contains(&expected), "{expected}");
        assert!(expected.contains("periodic, increasing shares: 3.31 % at 50"));
        assert!(expected.contains("polling 6.78 > 6.55"));
    }
}
