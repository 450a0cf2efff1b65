//! Figure 10 of RTCA: a task over two VMs next to eight that compute, while others send. The README in this folder says
//! what differs from the paper.

mod combination;
mod place;
mod task;

use crate::engine::answer::count;
use crate::engine::latency::{Latencies, Words};
use crate::engine::results::Record;
use crate::engine::rounds::{self, share};
use crate::experiment::{Experiment, Options, Outcome, Rows};
use crate::testbed::Interference;
use combination::{Cell, Combination, Path};
use place::{Place, Sample};
use std::sync::{Mutex, PoisonError};
use steadyvm_lab::artifact::UserSpace;
use steadyvm_lab::laboratory::{HostKernel, Laboratory};
use steadyvm_lab::progress::Observer;
use steadyvm_lab::{Error, Result};
use steadyvm_load::job::Done;
use steadyvm_report::picture::{Bar, Group};
use steadyvm_report::{Answer, Finding, Grid, Picture, headers};
use task::PERIOD_US;

const NAME: &str = "end-to-end";
/// What the answer counts.
const MISSED: &str = "jobs that miss their deadline while three others send";

/// The experiment.
pub const EXPERIMENT: Experiment = Experiment {
    words: Words {
        name: NAME,
        introduction: "A task over two VMs of one emulated host of two CPUs, beside eight threads that compute: it \
             computes for 20 ms in the first, 20 ms in the second and 20 ms in the first again, once in 100 ms, which is its \
             deadline. At Base nobody else sends; at Light, Medium and Heavy one, two and three other VMs send packets to \
             one another as fast as they go.",
        reading: &[
            "Rows: who schedules the two VMs' VCPUs (stock knows no budget; deadline and ext grant 60 ms in every 100), and \
             how packets are received (stock, or method rt-levels with a batch of 1 for the other VMs).",
            "A response is timed from the job's release until its last stage is done; late jobs delay no release and queue \
             up. Missed: later than the deadline, or lost.",
            "Percentiles are nearest-rank, of every job of all rounds. /first: over the first row's at the same level, with \
             a 95 % interval.",
        ],
        paper: Some(paper),
    },
    about: "Figure 10 of RTCA: a task over two VMs beside eight that compute, while others send",
    answer,
    rows: Rows::Own {
        compared: "combinations",
        kernel: HostKernel::V6_12RtPatched,
        samples: "300",
    },
    user_space: UserSpace::Lab,
    check,
    run,
};

/// What section VI-C says of figure 10, which prints no numbers, and the caption's row in ours.
fn paper() -> Grid {
    let row = |words: [&str; 6]| headers(words);
    Grid {
        title: "The paper's figure 10, on hardware, in its words: T1's response over its deadline"
            .to_owned(),
        words: 6,
        headers: headers(["", "ours", "Base", "Light", "Medium", "Heavy"]),
        rows: vec![
            row([
                "Credit + Original",
                "stock fair, stock path",
                "the worst",
                "the worst",
                "the worst",
                "the worst",
            ]),
            row([
                "Credit + RTCA",
                "stock fair, levels",
                "many misses",
                "",
                "",
                "",
            ]),
            row([
                "RT-Xen + Original",
                "deadline or ext, stock path",
                "",
                "",
                "",
                "misses",
            ]),
            row([
                "RT-Xen + RTCA",
                "deadline or ext, levels",
                "median < 0.6, none",
                "median < 0.6, none",
                "median < 0.6, none",
                "median < 0.6, none",
            ]),
        ],
    }
}

/// How many jobs miss at the most interference, and what the paper says of budgets and levels together.
fn answer(record: &Record) -> Answer {
    let levels = [Interference::Base, Interference::Heavy].map(Interference::title);
    let share = |row: &String, level: &str| {
        let misses = record.at(row, level).figure("misses")?;
        Some(100.0 * misses.value? / misses.n.max(1) as f64)
    };
    let group = |level: &str| Group {
        name: level.to_owned(),
        bars: (record.rows.iter())
            .map(|row| Bar::new(row, share(row, level), |it| format!("{it:.1} %")))
            .collect(),
    };
    let heavy = Interference::Heavy.title();
    let missed = |row: &String| count(row, MISSED, record.at(row, heavy).figure("misses"));
    let mut findings: Vec<Finding> = record.rows.iter().map(missed).collect();
    findings.extend(papers(record));
    Answer {
        question: "Do budgets and the receive path together keep a deadline over two VMs?"
            .to_owned(),
        findings,
        picture: Picture {
            title: "Jobs that miss their deadline; shorter is better".to_owned(),
            groups: levels.map(group).into(),
        },
    }
}

/// The paper's figure has no miss where both are on: whether ours has one.
fn papers(record: &Record) -> Option<Finding> {
    let both = Combination::all().into_iter().filter(|it| it.has_both());
    let levels = Interference::ALL.map(Interference::title);
    let found: Vec<u64> = (both.map(|it| it.to_string()))
        .flat_map(|row| {
            levels.map(|level| Some(record.at(&row, level).figure("misses")?.value? as u64))
        })
        .collect::<Option<_>>()?;
    let statement = "no job misses with budgets and levels";
    Some(Finding::Statements {
        of: "the paper".to_owned(),
        all: 1,
        contradicted: (found.iter().any(|&missed| missed > 0))
            .then(|| statement.to_owned())
            .into_iter()
            .collect(),
    })
}

fn check(options: &Options) -> Result<()> {
    if options.rounds > 0 && options.samples >= options.rounds {
        return Ok(());
    }
    let wrong = "there must be at least one round, and one job per round";
    Err(Error::input(format!("measure {NAME}"), wrong)
        .what_to_do(format!("see steadyvm-lab experiment {NAME} --help")))
}

struct Alternate<'a> {
    options: &'a Options,
    cells: Vec<Cell>,
    /// The units of work of a stage: the same on all hosts.
    work: Mutex<Option<u64>>,
}

impl rounds::Plan for Alternate<'_> {
    type Row = Path;
    type Cell = Cell;
    type Station = Place;
    type Sample = Sample;

    fn rows(&self) -> &[Path] {
        &Path::ALL
    }

    fn cells(&self) -> &[Cell] {
        &self.cells
    }

    fn rounds(&self) -> u64 {
        self.options.rounds
    }

    fn boot(
        &self,
        laboratory: &Laboratory,
        row: Path,
        on_cpu: usize,
        observer: &dyn Observer,
    ) -> Result<Place> {
        Place::boot(laboratory, row, on_cpu, observer)
    }

    fn measure(&self, place: &mut Place, cell: Cell, round: u64) -> Result<Sample> {
        let jobs = share(self.options.samples, self.options.rounds, round);
        let mut work = self.work.lock().unwrap_or_else(PoisonError::into_inner);
        place.measure(cell, jobs, &mut work)
    }
}

fn run(laboratory: &Laboratory, options: &Options, observer: &dyn Observer) -> Result<Outcome> {
    let plan = Alternate {
        options,
        cells: Cell::all(),
        work: Mutex::new(None),
    };
    let measured = rounds::run(laboratory, &plan, observer)?;
    Ok(Outcome {
        latencies: latencies(&measured.samples),
        figures: Vec::new(),
        tables: Vec::new(),
        notes: notes(&measured.samples),
        dropped_rounds: measured.dropped_rounds,
        disturbance: measured.disturbance,
    })
}

/// A combination's samples at a level, a round each; `samples` are by host, round and cell.
fn of(samples: &[Vec<Vec<Sample>>], it: Combination, level: Interference) -> Vec<&Sample> {
    let Some((host, cell)) = it.place(level) else {
        return Vec::new();
    };
    let rounds = samples.get(host).into_iter().flatten();
    rounds.filter_map(|cells| cells.get(cell)).collect()
}

/// T1's response times by level.
fn latencies(samples: &[Vec<Vec<Sample>>]) -> Vec<Latencies> {
    let at = |level: Interference| {
        Combination::all().into_iter().map(move |it| {
            let found = of(samples, it, level);
            let responses =
                |sample: &&Sample| sample.ran.done.iter().map(Done::response_ns).collect();
            Latencies {
                row: it.to_string(),
                cell: level.title().to_owned(),
                rounds: found.iter().map(responses).collect(),
                lost: found.iter().map(|sample| sample.ran.lost).sum(),
                counts: Vec::new(),
                deadline_ns: Some(PERIOD_US * 1000),
            }
        })
    };
    Interference::ALL.into_iter().flat_map(at).collect()
}

/// What the others carried meanwhile, a sentence a combination.
fn notes(samples: &[Vec<Vec<Sample>>]) -> Vec<String> {
    let said = |it: Combination| {
        let rates = Interference::ALL.map(|level| {
            let found = of(samples, it, level);
            let rates = found.iter().map(|sample| sample.others_packets_per_s);
            let mean = steadyvm_stats::mean(rates).unwrap_or(0.0);
            format!("{mean:.0}")
        });
        format!(
            "{it}: the other VMs received {} packets per second from Base to Heavy",
            rates.join(", ")
        )
    };
    Combination::all().into_iter().map(said).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::latency::{assemble, grids, page};
    use crate::testbed::Mechanism;
    use steadyvm_load::end_to_end::Ran;
    use steadyvm_stats::bootstrap::BootstrapOptions;

    /// Each job takes 50 ms and as many more as its host's and cell's numbers say; at Heavy of the first host one is lost.
    fn samples() -> Vec<Vec<Vec<Sample>>> {
        let sample = |host: usize, cell: usize| Sample {
            ran: Ran {
                done: (0..10)
                    .map(|job| Done {
                        released_ns: job * 100_000_000,
                        finished_ns: job * 100_000_000
                            + (50 + 10 * cell as u64 - 50 * host as u64 * (cell as u64 / 10))
                                * 1_000_000,
                    })
                    .collect(),
                lost: u64::from(host == 0 && cell == 3),
            },
            others_packets_per_s: 1000.0 * (cell % 4) as f64,
        };
        let round = |host| {
            (0..Cell::all().len())
                .map(|cell| sample(host, cell))
                .collect()
        };
        (0..2)
            .map(|host| (0..3).map(|_| round(host)).collect())
            .collect()
    }

    #[test]
    fn a_combination_has_its_own_jobs_of_all_rounds() {
        let samples = samples();
        let all = latencies(&samples);
        assert_eq!(all.len(), 24);
        assert_eq!(
            (&*all[0].row, &*all[0].cell),
            ("stock fair, stock path", "Base")
        );
        let both = Combination {
            mechanism: Mechanism::Ext,
            path: Path::Levels,
        };
        let heavy = all.last().unwrap();
        assert_eq!((&*heavy.row, &*heavy.cell), (&*both.to_string(), "Heavy"));
        assert_eq!(heavy.rounds, vec![vec![110_000_000; 10]; 3]);
        let results = assemble(NAME, &all, BootstrapOptions::default());
        let missed = |row: &str| results.at(row, "Heavy").figure("misses").unwrap().clone();
        assert_eq!(missed("ext, levels").value, Some(30.0));
        assert_eq!(missed("stock fair, stock path").value, Some(3.0));
        assert_eq!(missed("stock fair, stock path").n, 33);
    }

    #[test]
    fn the_page_has_a_column_a_level_a_row_a_combination_and_the_papers_beside_it() {
        let samples = samples();
        let mut results = assemble(NAME, &latencies(&samples), BootstrapOptions::default());
        results.notes = notes(&samples);
        let grids = grids(&results);
        assert_eq!(grids.len(), 1 + Interference::ALL.len());
        assert_eq!(grids[0].headers, ["", "Base", "Light", "Medium", "Heavy"]);
        assert_eq!(grids[0].rows.len(), Combination::all().len());
        let text = page(&results, &EXPERIMENT.words, Vec::new()).text();
        for part in [
            "0.50 0.50 0/30 [0, 0]",
            "RT-Xen + RTCA",
            "received 0, 1000, 2000, 3000 packets",
        ] {
            assert!(text.contains(part), "{part}:\n{text}");
        }
        let widest = text.lines().map(|line| line.chars().count()).max();
        assert!(widest.unwrap() <= 160, "{widest:?}\n{text}");
    }

    #[test]
    fn without_a_sample_there_is_no_figure_and_no_panic() {
        let all = latencies(&[]);
        assert_eq!(all.len(), 24);
        let results = assemble(NAME, &all, BootstrapOptions::default());
        assert!(
            page(&results, &EXPERIMENT.words, Vec::new())
                .text()
                .contains('-')
        );
        assert_eq!(notes(&[]).len(), 6);
    }

    #[test]
    fn what_cannot_be_measured_is_refused_first() {
        let options = |samples, rounds| Options {
            methods: Vec::new(),
            settings: Vec::new(),
            samples,
            rounds,
            seed: 1,
        };
        check(&options(3, 3)).unwrap();
        for (samples, rounds) in [(0, 1), (2, 3), (3, 0)] {
            assert!(check(&options(samples, rounds)).is_err());
        }
    }
}
