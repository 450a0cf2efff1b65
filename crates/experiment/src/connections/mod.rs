//! A guest's TCP connections to itself: its own stack beside outsourced sockets. The README in this folder says why.

mod station;

use crate::engine::answer::Asked as Question;
use crate::engine::latency::{Latencies, Words};
use crate::engine::rounds::{self, Measured, Plan, share};
use crate::experiment::{Experiment, Options, Outcome, Rows};
use station::ConnectionsStation;
use std::fmt;
use steadyvm_lab::artifact::UserSpace;
use steadyvm_lab::laboratory::{HostKernel, Laboratory};
use steadyvm_lab::progress::Observer;
use steadyvm_lab::{Error, Result};
use steadyvm_load::connections::Asked;

const NAME: &str = "connections";
const KERNEL: HostKernel = HostKernel::V6_12Rt;

/// Where a guest's sockets are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Row {
    /// In the guest's own kernel.
    OwnStack,
    /// In the host's.
    Outsourced,
    /// The same, with requests of up to 1 MiB of payload.
    OutsourcedLarge,
    /// The same, in a namespace whose TCP buffers begin with 512 KiB each.
    OutsourcedBuffers,
    /// In the host's, by QEMU and a server of the guest's sockets.
    OutsourcedQemu,
}

impl Row {
    const ALL: [Self; 5] = [
        Self::OwnStack,
        Self::Outsourced,
        Self::OutsourcedLarge,
        Self::OutsourcedBuffers,
        Self::OutsourcedQemu,
    ];
}

impl fmt::Display for Row {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(match self {
            Self::OwnStack => "own stack",
            Self::Outsourced => "outsourced",
            Self::OutsourcedLarge => "outsourced-large",
            Self::OutsourcedBuffers => "outsourced-buffers",
            Self::OutsourcedQemu => "outsourced-qemu",
        })
    }
}

/// What is asked of the connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Shape {
    name: &'static str,
    bytes: u32,
    open: usize,
}

const fn shape(name: &'static str, bytes: u32, open: usize) -> Shape {
    Shape { name, bytes, open }
}

/// Both ends of the many are descriptors of one process, which has 1,024.
const SHAPES: [Shape; 4] = [
    shape("a new connection each", 1, 0),
    shape("one connection", 64, 1),
    shape("400 connections", 64, 400),
    shape("1 MiB each", 1 << 20, 1),
];

impl fmt::Display for Shape {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(self.name)
    }
}

const QUESTION: Question = Question {
    question: "What do a guest's connections to itself cost by outsourced sockets?",
    figure: "p50",
    words: "median time of a request",
    cells: &[
        ("a new connection each", "with a new connection each"),
        ("one connection", "on one connection"),
        ("400 connections", "on 400 connections in turn"),
        ("1 MiB each", "of 1 MiB"),
    ],
};

/// The experiment.
pub const EXPERIMENT: Experiment = Experiment {
    words: Words {
        name: NAME,
        introduction: "Guests in one emulated host take turns: one of steadyvm up with its own network stack, and others with outsourced \
             sockets, of steadyvm up and of QEMU. A program in each sends requests to itself over 127.0.0.1. Nothing has a \
             real-time priority.",
        reading: &[
            "outsourced-large: a request has up to 1 MiB of payload (the module's request_kib; 64 KiB else). outsourced-buffers: the \
             same, and TCP's buffers of the VM's namespace begin with 512 KiB.",
            "a new connection each: connect, one byte, its answer, close. one connection: 64 bytes and their answer. 400 \
             connections: the same on all of them in turn, whose server waits by epoll. 1 MiB each: that much and its answer.",
            "An outsourced socket's 127.0.0.1 is of the VM's network namespace on the host: each call of client and server leaves \
             the guest, which its own stack never does.",
        ],
        paper: None,
    },
    about: "A guest's TCP connections to itself: its own stack beside outsourced sockets",
    answer: |record| QUESTION.of_times(record),
    rows: Rows::Own {
        compared: "stacks",
        kernel: KERNEL,
        samples: "1000",
    },
    user_space: UserSpace::Lab,
    check,
    run,
};

fn check(options: &Options) -> Result<()> {
    if options.rounds > 0 && options.samples >= options.rounds {
        return Ok(());
    }
    let wrong = "there must be at least one round, and one request per round";
    Err(Error::input(format!("measure {NAME}"), wrong)
        .what_to_do(format!("see steadyvm-lab experiment {NAME} --help")))
}

struct Connections<'a> {
    options: &'a Options,
}

impl Plan for Connections<'_> {
    type Row = Row;
    type Cell = Shape;
    type Station = ConnectionsStation;
    /// Nanoseconds of each request.
    type Sample = Vec<u64>;

    fn rows(&self) -> &[Row] {
        &Row::ALL
    }

    fn cells(&self) -> &[Shape] {
        &SHAPES
    }

    fn rounds(&self) -> u64 {
        self.options.rounds
    }

    fn boot(
        &self,
        laboratory: &Laboratory,
        _: Row,
        on_cpu: usize,
        observer: &dyn Observer,
    ) -> Result<ConnectionsStation> {
        ConnectionsStation::boot(laboratory, on_cpu, observer)
    }

    /// All on one.
    fn host_of(&self, _: usize) -> usize {
        0
    }

    fn turn_to(&self, station: &mut ConnectionsStation, row: Row) {
        station.turn_to(row);
    }

    fn measure(
        &self,
        station: &mut ConnectionsStation,
        cell: Shape,
        round: u64,
    ) -> Result<Vec<u64>> {
        station.measure(&Asked {
            requests: share(self.options.samples, self.options.rounds, round),
            bytes: cell.bytes,
            open: cell.open,
        })
    }
}

fn run(laboratory: &Laboratory, options: &Options, observer: &dyn Observer) -> Result<Outcome> {
    let measured: Measured<Vec<u64>> = rounds::run(laboratory, &Connections { options }, observer)?;
    Ok(Outcome {
        latencies: latencies(&measured.samples),
        figures: Vec::new(),
        tables: Vec::new(),
        notes: Vec::new(),
        dropped_rounds: measured.dropped_rounds,
        disturbance: measured.disturbance,
    })
}

/// Of samples by row, round and cell.
fn latencies(samples: &[Vec<Vec<Vec<u64>>>]) -> Vec<Latencies> {
    let mut all = Vec::new();
    for (cell, shape) in SHAPES.iter().enumerate() {
        for (row, rounds) in Row::ALL.iter().zip(samples) {
            let of_cell = rounds.iter().filter_map(|cells| cells.get(cell).cloned());
            all.push(Latencies {
                row: row.to_string(),
                cell: shape.to_string(),
                rounds: of_cell.collect(),
                lost: 0,
                counts: Vec::new(),
                deadline_ns: None,
            });
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::latency::assemble;
    use steadyvm_stats::bootstrap::BootstrapOptions;

    #[test]
    fn each_row_has_its_requests_of_all_rounds_and_the_answer_every_shape() {
        // A request of row r, round n and cell c takes 1000 * (r + 1) + 100 * n + c nanoseconds.
        let sample = |row: u64, round: u64, cell: u64| vec![1000 * (row + 1) + 100 * round + cell];
        let cells = |row, round| {
            (0..SHAPES.len() as u64)
                .map(|cell| sample(row, round, cell))
                .collect()
        };
        let rounds = |row| (0..3).map(|round| cells(row, round)).collect();
        let samples: Vec<Vec<Vec<Vec<u64>>>> = (0..Row::ALL.len() as u64).map(rounds).collect();
        let all = latencies(&samples);
        assert_eq!(all.len(), Row::ALL.len() * SHAPES.len());
        assert_eq!(all[1].row, "outsourced");
        assert_eq!(all[1].rounds, [[2000], [2100], [2200]]);
        assert_eq!(all[19].rounds, [[5003], [5103], [5203]]);
        let record = assemble(NAME, &all, BootstrapOptions::default());
        for (cell, _) in QUESTION.cells {
            assert!(
                record.at("outsourced", cell).value("p50").is_some(),
                "{cell}"
            );
        }
        let drawn = (EXPERIMENT.answer)(&record).picture.groups;
        let drawn: Vec<&str> = drawn.iter().map(|it| &*it.name).collect();
        let asked: Vec<&str> = QUESTION.cells.iter().map(|(_, words)| *words).collect();
        assert_eq!(drawn, asked);
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
