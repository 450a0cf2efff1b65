//! The clock that `ptp4l` disciplines on the host, beside what its VMs do. The README in this folder says why.

mod offsets;
mod station;

use crate::by_setting::BySetting;
use crate::engine::answer::{Asked, code, count};
use crate::engine::latency::{Latencies, Words};
use crate::engine::results::Record;
use crate::experiment::{Experiment, Options, Outcome, Rows, Setting, check_settings};
use crate::testbed::beside::Beside;
use station::{ClockStation, Sample};
use std::fmt;
use steadyvm_lab::Result;
use steadyvm_lab::artifact::UserSpace;
use steadyvm_lab::laboratory::{HostKernel, Laboratory};
use steadyvm_lab::progress::Observer;
use steadyvm_report::{Answer, Finding, duration_words};

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
            "Time stamps are of software, so the figures have the way through the emulated card and its interrupt, and with \
             steadyvm on a kernel without PREEMPT_RT the wake-up of the thread that polls. A card's own time stamps, which QEMU's \
             igb models, have neither.",
            "Percentiles are nearest-rank, of all rounds. /first: over the first row's under the same condition, with a 95 % interval.",
        ],
        paper: None,
    },
    about: "The clock that ptp4l disciplines on the host, beside what its VMs do",
    answer,
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

/// Beside the neighbour: offsets that were not told, and the percentile of those that were.
fn answer(record: &Record) -> Answer {
    let cell = Beside::Neighbour.to_string();
    let rows = record.rows.iter();
    let lost = rows.clone().map(|row| {
        let figure = record.at(row, &cell).figure("lost");
        count(
            row,
            "offsets that are not told beside a FIFO neighbour",
            figure,
        )
    });
    let p99 = rows.clone().filter_map(|row| {
        Some(Finding::Bound {
            of: code(row),
            figure: format!("{} there", ASKED.words),
            words: duration_words(record.at(row, &cell).value(ASKED.figure)?),
            bound: None,
        })
    });
    Answer {
        findings: lost.chain(p99).collect(),
        ..ASKED.of_times(record)
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
    use crate::engine::latency::assemble;
    use steadyvm_stats::bootstrap::BootstrapOptions;

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

    #[test]
    fn the_answer_has_what_was_not_told_and_what_was() {
        let of = |row, us: u64, missing| {
            let sample = Sample {
                offsets_ns: vec![us * 1000; 9],
                missing,
            };
            offsets_of(row, Beside::Neighbour, &[&sample])
        };
        let all = [of(ROWS[0], 20, 3), of(ROWS[1], 50, 0)];
        let said = answer(&assemble(NAME, &all, BootstrapOptions::default())).in_short();
        assert_eq!(
            said,
            "Offsets that are not told beside a FIFO neighbour: 3 of 12 with `7.3`, 0 of 9 with `7.3-steadyvm`; p99 of the \
             clock's offset there: 20 µs with `7.3` and 50 µs with `7.3-steadyvm`."
        );
    }
}
