//! What PREEMPT_RT adds to a stock kernel with ranks, beside what keeps a stock kernel from switching. The README in this folder says
//! why.

mod disturbance;
mod station;

use crate::by_setting::BySetting;
use crate::engine::answer::Asked;
use crate::engine::latency::{Latencies, Words};
use crate::experiment::{Experiment, Options, Outcome, Rows, Setting, check_settings};
use disturbance::Disturbance;
use station::SectionsStation;
use std::fmt;
use steadyvm_host::Method;
use steadyvm_lab::Result;
use steadyvm_lab::artifact::UserSpace;
use steadyvm_lab::laboratory::{HostKernel, Laboratory};
use steadyvm_lab::progress::Observer;
use steadyvm_load::netrt::ClientRun;

const NAME: &str = "sections";

/// A row: a host's kernel, how it preempts, and the method of that kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Row {
    setting: Setting,
    method: Method,
    /// For the kernel's command line.
    words: &'static str,
}

const fn row(name: &'static str, kernel: HostKernel, method: Method, words: &'static str) -> Row {
    let setting = Setting {
        name,
        kernel,
        bulk_in_threads: false,
    };
    Row {
        setting,
        method,
        words,
    }
}

use HostKernel::{V6_12, V6_12Rt, V7_3, V7_3Rt};
use Method::{RtProfile, StockProfile};

const ROWS: [Row; 6] = [
    row("6.12", V6_12, StockProfile, ""),
    row("6.12-full", V6_12, StockProfile, "preempt=full"),
    row("6.12-rt", V6_12Rt, RtProfile, ""),
    row("7.3", V7_3, StockProfile, ""),
    row("7.3-full", V7_3, StockProfile, "preempt=full"),
    row("7.3-rt", V7_3Rt, RtProfile, ""),
];

const SETTINGS: &[Setting] = &[
    ROWS[0].setting,
    ROWS[1].setting,
    ROWS[2].setting,
    ROWS[3].setting,
    ROWS[4].setting,
    ROWS[5].setting,
];

const ASKED: Asked = Asked {
    question: "What does PREEMPT_RT add to a stock kernel with ranks?",
    figure: "p99",
    words: "p99 of a round trip",
    cells: &[
        ("alone", "alone"),
        ("beside a TCP stream", "beside a full stream"),
        (
            "beside lists of 10,000 sockets",
            "beside lists of 10,000 sockets",
        ),
        ("beside disk reads", "beside disk reads"),
        (
            "beside processes that come and go",
            "beside processes that come and go",
        ),
        (
            "beside a flood through 1,000 rules",
            "beside a flood through 1,000 firewall rules",
        ),
    ],
};

/// The experiment.
pub const EXPERIMENT: Experiment = Experiment {
    words: Words {
        name: NAME,
        introduction: "Requests to a service in a real-time VM with a card of its own, beside work of the host that keeps a kernel \
             from switching to a thread with a rank. Kernels are Debian's, unmodified.",
        reading: &[
            "6.12 and 7.3 have method stock-profile, on their default way of preemption and with preempt=full; 6.12-rt and 7.3-rt \
             have PREEMPT_RT and rt-profile.",
            "A round trip is timed outside. n is the number of requests that were answered; lost: requests without a \
             reply in 2 s. Percentiles are nearest-rank, of every counted sample of all rounds. /first: over the first row's \
             under the same condition, with a 95 % interval.",
            "Caches, interrupts of hardware (SMI) and power states are not emulated, so hardware may differ more or less.",
        ],
        paper: None,
    },
    about: "What PREEMPT_RT adds to a stock kernel with ranks, beside what keeps a kernel from switching",
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

fn plan(options: &Options) -> BySetting<'_, Row, Disturbance, SectionsStation, ClientRun> {
    BySetting::new(
        options,
        Row::of,
        &Disturbance::ALL,
        SectionsStation::boot,
        |station, cell, turn| station.measure(cell, &turn.load()),
    )
}

fn run(laboratory: &Laboratory, options: &Options, observer: &dyn Observer) -> Result<Outcome> {
    let taken = plan(options).run(laboratory, observer)?;
    let mut latencies = Vec::new();
    for (row, cell, runs) in taken.each() {
        latencies.push(round_trips(row, cell, &runs));
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

fn round_trips(row: Row, cell: Disturbance, runs: &[&ClientRun]) -> Latencies {
    let of = |run: &&ClientRun| run.samples.iter().map(|it| it.rtt_ns).collect();
    Latencies {
        row: row.to_string(),
        cell: cell.to_string(),
        rounds: runs.iter().map(of).collect(),
        lost: runs.iter().map(|run| run.counters.lost).sum(),
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
        let cells = Disturbance::ALL.map(|it| it.to_string());
        let asked: Vec<&str> = ASKED.cells.iter().map(|(cell, _)| *cell).collect();
        assert_eq!(cells.as_slice(), asked);
    }

    #[test]
    fn only_kernels_without_preempt_rt_have_the_stock_method() {
        for row in ROWS {
            let is_rt = row.setting.kernel.row().is_preempt_rt;
            assert_eq!(row.method == RtProfile, is_rt, "{row}");
            assert!(!is_rt || row.words.is_empty(), "{row}");
        }
    }
}
