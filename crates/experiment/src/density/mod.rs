//! How many real-time VMs two CPUs hold, beside a stream: worst VM, fairness, what is admitted and what is held. The README
//! in this folder says why.

mod figures;
mod file;
mod station;

use crate::by_setting::BySetting;
use crate::engine::answer::Asked;
use crate::engine::latency::{Latencies, Words};
use crate::experiment::{Experiment, Options, Outcome, Rows, Setting, check_settings};
use file::Kept;
use station::{DensityStation, Sample};
use std::fmt;
use std::time::Duration;
use steadyvm_lab::Result;
use steadyvm_lab::artifact::UserSpace;
use steadyvm_lab::laboratory::{HostKernel, Laboratory};
use steadyvm_lab::progress::Observer;
use steadyvm_report::{Grid, headers};

const NAME: &str = "density";

/// Real-time VMs of a host.
const VMS: usize = 20;

/// A reply after this is late: the bound that the plan has for a service, where the row has budgets.
const BOUND: Duration = file::APART;

/// A row: a host's kernel, and what keeps its VMs apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Row {
    setting: Setting,
    kept: Kept,
}

const fn row(name: &'static str, kernel: HostKernel, kept: Kept) -> Row {
    let setting = Setting {
        name,
        kernel,
        bulk_in_threads: false,
    };
    Row { setting, kept }
}

const ROWS: [Row; 4] = [
    row("6.12", HostKernel::V6_12, Kept::Stock),
    row("6.12-ranks", HostKernel::V6_12, Kept::Ranks),
    row("6.12-rt-ranks", HostKernel::V6_12Rt, Kept::Ranks),
    row("6.12-rt-budgets", HostKernel::V6_12Rt, Kept::Budgets),
];

const SETTINGS: &[Setting] = &[
    ROWS[0].setting,
    ROWS[1].setting,
    ROWS[2].setting,
    ROWS[3].setting,
];

/// How many VMs are asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Asking(usize);

const CELLS: [Asking; 6] = [
    Asking(1),
    Asking(2),
    Asking(5),
    Asking(10),
    Asking(15),
    Asking(VMS),
];

impl fmt::Display for Asking {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(&format!("{} of {VMS} VMs", self.0))
    }
}

const ASKED: Asked = Asked {
    question: "How many real-time VMs do two CPUs hold?",
    figure: "p99",
    words: "p99 of a round trip",
    cells: &[
        ("1 of 20 VMs", "with one VM asked"),
        ("20 of 20 VMs", "with 20 VMs asked"),
    ],
};

/// The experiment.
pub const EXPERIMENT: Experiment = Experiment {
    words: Words {
        name: NAME,
        introduction: "Twenty real-time VMs with one VCPU each, and an ordinary VM that receives a TCP stream, on a host with two \
             CPUs. All run in every condition; some of them are asked, ten times per second each.",
        reading: &[
            "6.12: Debian's kernel as it is. ranks: a file that names the card and the VMs as class rt. budgets: the same, and \
             each VM's service with its work, at most once in 50 ms. For each VCPU of the VMs that it admits the plan reserves a \
             part of each 10 ms (SCHED_DEADLINE); the others have ranks.",
            "work: the VCPU's CPU time in the longest of 100 requests, one at a time, and a fifth more. The plan has the host's \
             costs as `steadyvm calibrate` measured them there.",
            "A round trip is timed outside; percentiles are nearest-rank, of every counted sample of all VMs and rounds. \
             misses: replies after 50 ms, or none within 2 s. The worst VM's p99 is the largest of the VMs' own; fairness is \
             that over the least.",
            "held: the most VMs of the conditions up to which no reply was late. admitted: the most VMs of this kind that \
             `steadyvm plan` accepts on the host. memory: what a monitor has beside its guest's memory (Pss: a page that \
             monitors share counts in parts).",
            "A reservation bounds a VCPU from below and from above. Beside idle CPUs it makes replies later than ranks do.",
        ],
        paper: Some(paper),
    },
    about: "How many real-time VMs two CPUs hold beside a stream, and how many the plan admits",
    answer: figures::answer,
    rows: Rows::Settings(SETTINGS),
    user_space: UserSpace::Lab,
    check: |options| check_settings(NAME, options),
    run,
};

/// Garcia, Shinjo and Pu, IEEE Access 2018: what the abstract says.
fn paper() -> Grid {
    Grid {
        title: "Garcia, Shinjo and Pu, IEEE Access 2018 (abstract), on hardware".to_owned(),
        words: 1,
        headers: headers(["", "CPUs", "real-time VMs", "per CPU", "others' throughput"]),
        rows: vec![
            ["outsourced sockets", "4", "40", "10", "maintained"]
                .map(str::to_owned)
                .into(),
        ],
    }
}

impl Row {
    fn of(setting: &Setting) -> Option<Self> {
        ROWS.into_iter().find(|row| row.setting == *setting)
    }
}

impl fmt::Display for Row {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(self.setting.name)
    }
}

fn plan(options: &Options) -> BySetting<'_, Row, Asking, DensityStation, Sample> {
    BySetting::new(
        options,
        Row::of,
        &CELLS,
        DensityStation::boot,
        |station, cell, turn| station.measure(cell, turn.seed, turn.samples),
    )
}

fn run(laboratory: &Laboratory, options: &Options, observer: &dyn Observer) -> Result<Outcome> {
    let taken = plan(options).run(laboratory, observer)?;
    let of =
        |(row, asking, samples): (Row, Asking, Vec<&Sample>)| round_trips(row, asking, &samples);
    let latencies = taken.each().map(of).collect();
    let by_row = taken.rows.iter().enumerate().map(|(number, row)| {
        let cells = (0..CELLS.len()).map(|cell| taken.of(number, cell));
        (row.setting.name, cells.collect())
    });
    let (figures, tables) = figures::of(by_row);
    Ok(Outcome {
        latencies,
        figures,
        tables,
        notes: Vec::new(),
        dropped_rounds: taken.measured.dropped_rounds,
        disturbance: taken.measured.disturbance,
    })
}

/// What the clients outside measured, of all VMs.
fn round_trips(row: Row, asking: Asking, samples: &[&Sample]) -> Latencies {
    let round = |sample: &&Sample| {
        let runs = sample.by_vm.iter().flat_map(|run| &run.samples);
        runs.map(|it| it.rtt_ns).collect()
    };
    let runs = samples.iter().flat_map(|sample| &sample.by_vm);
    Latencies {
        row: row.to_string(),
        cell: asking.to_string(),
        rounds: samples.iter().map(round).collect(),
        lost: runs.map(|run| run.counters.lost).sum(),
        counts: Vec::new(),
        deadline_ns: Some(BOUND.as_nanos() as u64),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_setting_is_a_row_and_every_condition_of_the_answer_is_measured() {
        assert!(SETTINGS.iter().all(|it| Row::of(it).is_some()));
        assert_eq!(SETTINGS.len(), ROWS.len());
        let cells: Vec<String> = CELLS.iter().map(ToString::to_string).collect();
        for (cell, _) in ASKED.cells {
            assert!(cells.iter().any(|it| it == cell), "{cell}");
        }
    }
}
