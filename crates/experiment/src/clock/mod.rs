//! The clock that `ptp4l` disciplines on the host, beside what its VMs do. The README in this folder says why.

mod offsets;
mod station;

use crate::by_setting::BySetting;
use crate::engine::answer::Asked;
use crate::engine::latency::{Latencies, Words};
use crate::experiment::{Experiment, Options, Outcome, Rows, Setting, check_settings};
use crate::testbed::beside::Beside;
use station::{ClockStation, Sample};
use std::fmt;
use steadyvm_lab::Result;
use steadyvm_lab::artifact::UserSpace;
use steadyvm_lab::laboratory::{HostKernel, Laboratory};
use steadyvm_lab::progress::Observer;

const NAME: &str = "clock";

/// A row: a host's kernel, and whether the guide's file is in force.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Row {
    setting: Setting,
    has_file: bool,
}

const fn row(name: &'static str, kernel: HostKernel, has_file: bool) -> Row {
    let setting = Setting {
        name,
        kernel,
        bulk_in_threads: false,
    };
    Row { setting, has_file }
}

const ROWS: [Row; 4] = [
    row("7.3", HostKernel::V7_3, false),
    row("7.3-steadyvm", HostKernel::V7_3, true),
    row("7.3-rt", HostKernel::V7_3Rt, false),
    row("7.3-rt-steadyvm", HostKernel::V7_3Rt, true),
];

const SETTINGS: &[Setting] = &[
    ROWS[0].setting,
    ROWS[1].setting,
    ROWS[2].setting,
    ROWS[3].setting,
];

const CELLS: [Beside; 3] = [Beside::Nothing, Beside::Stream, Beside::Neighbour];

const ASKED: Asked = Asked {
    question: "Does a host's clock stay with its master beside its VMs?",
    figure: "p99",
    words: "p99 of the clock's offset",
    cells: &[
        ("alone", "alone"),
        ("beside a TCP stream", "beside a TCP stream"),
        ("beside a FIFO neighbour", "beside a FIFO neighbour"),
    ],
};

/// The experiment.
pub const EXPERIMENT: Experiment = Experiment {
    words: Words {
        name: NAME,
        introduction: "ptp4l (linuxptp) on the host follows a master outside by IEEE 1588 over Ethernet, with time stamps of software, \
             alone, beside a TCP stream to a VM by the same card, and beside a VM that computes with FIFO 1 on both CPUs. Kernels are \
             Debian's, unmodified.",
        reading: &[
            "steadyvm: the guide's file, which gives ptp4l.service rank 85 and the card class rt. Rows without it set nothing.",
            "A figure is the size of the offset that ptp4l tells, eight times per second. lost: those that it did not tell in the time.",
            "Time stamps are of software, so the figures have the way through the emulated card and its interrupt. A card's own time \
             stamps, which QEMU's igb models, do not have it.",
            "Percentiles are nearest-rank, of all rounds. /first: over the first row's under the same condition, with a 95 % interval.",
        ],
        paper: None,
    },
    about: "The clock that ptp4l disciplines on the host, beside what its VMs do",
    answer: |record| ASKED.of_times(record),
    rows: Rows::Settings(SETTINGS),
    user_space: UserSpace::Services,
    check: |options| check_settings(NAME, options),
    run,
};

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

fn plan(options: &Options) -> BySetting<'_, Row, Beside, ClockStation, Sample> {
    BySetting::new(
        options,
        Row::of,
        &CELLS,
        ClockStation::boot,
        |station, cell, turn| station.measure(cell, turn.samples),
    )
}

fn run(laboratory: &Laboratory, options: &Options, observer: &dyn Observer) -> Result<Outcome> {
    let taken = plan(options).run(laboratory, observer)?;
    let mut latencies = Vec::new();
    for (row, cell, samples) in taken.each() {
        latencies.push(offsets_of(row, cell, &samples));
    }
    Ok(Outcome {
        latencies,
        figures: Vec::new(),
        tables: Vec::new(),
        notes: Vec::new(),
        dropped_rounds: taken.measured.dropped_rounds,
        disturbance: taken.measured.disturbance,
    })
}

fn offsets_of(row: Row, cell: Beside, samples: &[&Sample]) -> Latencies {
    Latencies {
        row: row.to_string(),
        cell: cell.to_string(),
        rounds: samples.iter().map(|it| it.offsets_ns.clone()).collect(),
        lost: samples.iter().map(|it| it.missing).sum(),
        counts: Vec::new(),
        deadline_ns: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_setting_is_a_row_and_every_condition_is_answered() {
        assert!(SETTINGS.iter().all(|it| Row::of(it).is_some()));
        let cells: Vec<String> = CELLS.iter().map(ToString::to_string).collect();
        let asked: Vec<&str> = ASKED.cells.iter().map(|(cell, _)| *cell).collect();
        assert_eq!(cells, asked);
    }

    #[test]
    fn what_was_not_told_is_lost() {
        let sample = |offsets_ns: &[u64], missing| Sample {
            offsets_ns: offsets_ns.to_vec(),
            missing,
        };
        let samples = [sample(&[5, 6], 0), sample(&[7], 1)];
        let samples: Vec<&Sample> = samples.iter().collect();
        let found = offsets_of(ROWS[1], Beside::Stream, &samples);
        assert_eq!(found.rounds, [vec![5, 6], vec![7]]);
        assert_eq!(found.lost, 1);
        assert_eq!(
            (&*found.row, &*found.cell),
            ("7.3-steadyvm", "beside a TCP stream")
        );
    }
}
