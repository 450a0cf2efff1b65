//! One card for a real-time VM and a VM with a stream, by kernel and by the way to the real-time VM. The README in this
//! folder says why.

mod pollers;
mod station;
mod targets;

use crate::by_setting::BySetting;
use crate::engine::Figures;
use crate::engine::answer::Asked;
use crate::engine::latency::{Latencies, Words};
use crate::engine::results::Record;
use crate::experiment::{Experiment, Options, Outcome, Rows, Setting, check_settings};
use crate::service::{Beside, CELLS};
use crate::testbed::one_card::{FUNCTION, How, Polls, XDP};
use pollers::Handed;
use station::{Sample, SharedCardStation};
use std::fmt;
use steadyvm_host::Method;
use steadyvm_lab::Result;
use steadyvm_lab::artifact::UserSpace;
use steadyvm_lab::laboratory::{HostKernel, Laboratory};
use steadyvm_lab::progress::Observer;
use steadyvm_report::{Grid, headers};
use steadyvm_stats::bootstrap::BootstrapOptions;
use targets::Condition;

const NAME: &str = "shared-card";

const STOCK_PROFILE: How = How::Method(Method::StockProfile);

/// A row: a host's kernel, its cards, and what is set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Row {
    setting: Setting,
    /// Whether the real-time VM has a card of its own.
    own_card: bool,
    how: How,
}

const fn row(name: &'static str, kernel: HostKernel, how: How) -> Row {
    Row {
        setting: Setting {
            name,
            kernel,
            bulk_in_threads: false,
        },
        own_card: false,
        how,
    }
}

const ROWS: [Row; 18] = [
    row("6.12", HostKernel::V6_12, How::Stock),
    row("6.12-profile", HostKernel::V6_12, STOCK_PROFILE),
    row("6.12-function", HostKernel::V6_12, FUNCTION),
    row("6.12-xdp", HostKernel::V6_12, XDP),
    row(
        "6.12-rt",
        HostKernel::V6_12Rt,
        How::Method(Method::PreemptRt),
    ),
    row("6.12-rt-function", HostKernel::V6_12Rt, FUNCTION),
    row("7.3", HostKernel::V7_3, How::Stock),
    row("7.3-profile", HostKernel::V7_3, STOCK_PROFILE),
    row("7.3-function", HostKernel::V7_3, FUNCTION),
    row("7.3-rt", HostKernel::V7_3Rt, How::Method(Method::PreemptRt)),
    row(
        "7.3-rt-tuned",
        HostKernel::V7_3Rt,
        How::Method(Method::Tuned),
    ),
    row("7.3-rt-function", HostKernel::V7_3Rt, FUNCTION),
    row(
        "7.3-rt-function-ranked",
        HostKernel::V7_3Rt,
        How::RankedCard("function", Polls::CardByNapi),
    ),
    row(
        "7.3-rt-function-irq",
        HostKernel::V7_3Rt,
        How::RankedCard("function", Polls::ByInterrupts),
    ),
    row(
        "7.3-rt-function-split",
        HostKernel::V7_3Rt,
        How::RankedCard("function", Polls::VmByNapi),
    ),
    row("7.3-rt-xdp", HostKernel::V7_3Rt, XDP),
    row(
        "7.3-rt-passthrough",
        HostKernel::V7_3Rt,
        How::Method(Method::VfRanked),
    ),
    Row {
        own_card: true,
        ..row(
            "7.3-rt-own-card",
            HostKernel::V7_3Rt,
            How::Method(Method::RtProfile),
        )
    },
];

const SETTINGS: &[Setting] = &{
    let mut settings = [ROWS[0].setting; ROWS.len()];
    let mut number = 1;
    while number < ROWS.len() {
        settings[number] = ROWS[number].setting;
        number += 1;
    }
    settings
};

const ASKED: Asked = Asked {
    question: "Does a real-time VM need a card of its own?",
    figure: "p99",
    words: "p99 of a round trip",
    cells: &[
        ("round trip, no NetStream", "without a stream"),
        (
            "round trip, beside NetStream at full speed",
            "beside a full stream",
        ),
    ],
};

/// The experiment.
pub const EXPERIMENT: Experiment = Experiment {
    words: Words {
        name: NAME,
        introduction: "Requests to a service in a real-time VM, alone and beside a TCP stream to another VM. Both VMs' packets \
             come by one card, and both taps are ports of its bridge; only the row own-card has two cards. Kernels are \
             Debian's, unmodified.",
        reading: &[
            "Rows without a word after the kernel set nothing (6.12, 7.3) or have method preempt-rt (6.12-rt, 7.3-rt). \
             profile: method stock-profile. function: the card puts the real-time VM's packets into the queue of a virtual \
             function, which the host keeps; the VM has virtio-net as before. xdp: a program on the card hands them to the \
             VM's tap. ranked, irq, split: the shared card's threads, and the stream's packets with them, have FIFO 40, below all of \
             the real-time VM's, and not the policy of normal threads; in irq and split its interrupts' threads poll, and in \
             split NAPI threads poll the function. tuned: tuned's real-time profile, a peer, which sets a CPU aside for the VM. passthrough: the VM has a \
             function of the card itself, and cannot migrate.",
            "A round trip is timed outside. n is the number of requests that were answered; lost: requests without a \
             reply in 2 s.",
            "by shared threads: packets that a thread handed to the real-time VM's tap which handed the stream's tap some, too. A \
             program (xdp) and a function in the VM pass both by.",
            "Percentiles are nearest-rank, of every counted sample of all rounds. /first: over the first row's under the \
             same condition, with a 95 % interval.",
        ],
        paper: None,
    },
    about: "A real-time VM's packets on a card that others use, too, by kernel and way",
    answer: |record| ASKED.of_times(record),
    rows: Rows::Settings(SETTINGS),
    user_space: UserSpace::Lab,
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

fn plan(options: &Options) -> BySetting<'_, Row, Beside, SharedCardStation, Sample> {
    BySetting::new(
        options,
        Row::of,
        &CELLS,
        SharedCardStation::boot,
        |station, cell, turn| station.measure(cell, &turn.load()),
    )
}

fn run(laboratory: &Laboratory, options: &Options, observer: &dyn Observer) -> Result<Outcome> {
    let taken = plan(options).run(laboratory, observer)?;
    let (mut latencies, mut notes) = (Vec::new(), Vec::new());
    let (mut figures, mut conditions) = (Figures::default(), Vec::new());
    for (row, beside, samples) in taken.each() {
        latencies.push(round_trips(row, beside, &samples));
        conditions.push(condition(row, beside, &samples));
        if beside == Beside::NetStream {
            notes.push(carried(row, &samples));
            let handed = Handed::sum(samples.iter().map(|it| it.handed));
            figures.at(row.setting.name, &cell_of(beside));
            figures.count(HANDED, "packets", handed.all);
            figures.value(SHARED, "packets", handed.all, handed.by_shared as f64);
        }
    }
    targets::add(&mut figures, &conditions, BootstrapOptions::default());
    let record = Record {
        rows: taken.rows.iter().map(ToString::to_string).collect(),
        figures: figures.all(),
        ..Record::default()
    };
    Ok(Outcome {
        latencies,
        tables: vec![pollers_grid(&record), targets::grid(&record)],
        figures: record.figures,
        notes,
        dropped_rounds: taken.measured.dropped_rounds,
        disturbance: taken.measured.disturbance,
    })
}

/// Its name in a record.
fn cell_of(beside: Beside) -> String {
    format!("round trip, {beside}")
}

fn condition(row: Row, beside: Beside, samples: &[&Sample]) -> Condition {
    Condition {
        row: row.setting.name,
        beside,
        rounds: round_trips(row, beside, samples).rounds,
        streams: samples.iter().filter_map(|it| it.mbit_per_s).collect(),
    }
}

/// Of packets that were handed to the real-time VM's tap.
const HANDED: &str = "handed";
const SHARED: &str = "by shared threads";

fn pollers_grid(record: &Record) -> Grid {
    let cell = cell_of(Beside::NetStream);
    let line = |row: &String| {
        let at = record.at(row, &cell);
        let counts = [HANDED, SHARED].map(|name| at.count(name).to_string());
        std::iter::once(row.clone()).chain(counts).collect()
    };
    Grid {
        title: "packets that the host handed to the real-time VM's tap beside NetStream".to_owned(),
        words: 1,
        headers: headers(["", HANDED, SHARED]),
        rows: record.rows.iter().map(line).collect(),
    }
}

/// What the client outside measured.
fn round_trips(row: Row, beside: Beside, samples: &[&Sample]) -> Latencies {
    let round = |sample: &&Sample| {
        let samples = sample.netrt.samples.iter();
        samples.map(|it| it.rtt_ns).collect()
    };
    Latencies {
        row: row.to_string(),
        cell: cell_of(beside),
        rounds: samples.iter().map(round).collect(),
        lost: samples.iter().map(|it| it.netrt.counters.lost).sum(),
        counts: Vec::new(),
        deadline_ns: None,
    }
}

fn carried(row: Row, samples: &[&Sample]) -> String {
    let rates: Vec<f64> = samples.iter().filter_map(|it| it.mbit_per_s).collect();
    let mean = rates.iter().sum::<f64>() / rates.len().max(1) as f64;
    let each: Vec<String> = rates.iter().map(|rate| format!("{rate:.0}")).collect();
    format!(
        "{row}: the stream carried {mean:.0} Mbit/s ({})",
        each.join(", ")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_setting_is_a_row() {
        assert!(SETTINGS.iter().all(|it| Row::of(it).is_some()));
        let own: Vec<Row> = ROWS.into_iter().filter(|row| row.own_card).collect();
        assert_eq!(own.len(), 1);
    }
}
