//! A real-time VM and a VM with a stream beside somebody who means harm, by attack, kernel and what is set. The README in this
//! folder says why.

mod account;
mod attack;
mod figures;
mod station;
mod targets;

use crate::by_setting::BySetting;
use crate::engine::latency::{Latencies, Words};
use crate::engine::results::Record;
use crate::experiment::{Experiment, Options, Outcome, Rows, Setting, check_settings};
use crate::testbed::one_card::{BOUNDED_FUNCTION, BOUNDED_XDP, FUNCTION, How, XDP};
use attack::{CELLS, Cell};
use figures::Condition;
use station::{AdversaryStation, Sample};
use std::fmt;
use steadyvm_host::Method;
use steadyvm_lab::Result;
use steadyvm_lab::artifact::UserSpace;
use steadyvm_lab::laboratory::{HostKernel, Laboratory};
use steadyvm_lab::progress::Observer;
use steadyvm_stats::bootstrap::BootstrapOptions;

const NAME: &str = "adversary";

/// A row: a host's kernel, and what is set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Row {
    setting: Setting,
    how: How,
}

const fn row(name: &'static str, kernel: HostKernel, how: How) -> Row {
    Row {
        setting: Setting {
            name,
            kernel,
            bulk_in_threads: false,
        },
        how,
    }
}

const ROWS: [Row; 10] = [
    row("7.3", HostKernel::V7_3, How::Stock),
    row(
        "7.3-rt-tuned",
        HostKernel::V7_3Rt,
        How::Method(Method::Tuned),
    ),
    row("7.3-rt", HostKernel::V7_3Rt, How::Method(Method::PreemptRt)),
    row("7.3-rt-function", HostKernel::V7_3Rt, FUNCTION),
    row("7.3-rt-xdp", HostKernel::V7_3Rt, XDP),
    row(
        "7.3-rt-passthrough",
        HostKernel::V7_3Rt,
        How::Method(Method::VfRanked),
    ),
    row(
        "7.3-rt-function-budget",
        HostKernel::V7_3Rt,
        BOUNDED_FUNCTION,
    ),
    row(
        "7.3-rt-function-budgets",
        HostKernel::V7_3Rt,
        How::BoundedNeighbour("function"),
    ),
    row(
        "7.3-rt-functions-budgets",
        HostKernel::V7_3Rt,
        How::EveryVm("function"),
    ),
    row("7.3-rt-xdp-budget", HostKernel::V7_3Rt, BOUNDED_XDP),
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

/// The experiment.
pub const EXPERIMENT: Experiment = Experiment {
    words: Words {
        name: NAME,
        introduction: "Requests to a service in a real-time VM and a TCP stream to an ordinary VM, by one card, while somebody \
             outside or another VM attacks. Kernels are Debian's, unmodified.",
        reading: &[
            "7.3 sets nothing. 7.3-rt-tuned is tuned's real-time profile, a peer, which sets a CPU aside for the real-time VM. \
             7.3-rt has method preempt-rt. function: the card puts the real-time VM's packets into the queue of a virtual \
             function, which the host keeps. xdp: a program on the card hands them to the VM's tap. passthrough: the VM has a \
             function of the card itself. budget: the real-time VM's \
             packets may cost the host 2 ms of each 10 ms; a packet counts 200 us in the program. budgets: the neighbour's vhost \
             workers have 2 ms of each 10 ms, too. functions: each of the three VMs with a card has a function, the \
             neighbour's with a budget like the real-time VM's, and tc drops frames to groups and to everybody beyond 500 per \
             second before the bridge.",
            "Attacks from outside send 5,000 frames per second; the neighbours' are as fast as their VCPUs go. Attempts/s: \
             what the attacker's kernel was asked for. disk: writes of 4 KiB to a disk of the host that takes 100 us each. \
             sockets: up to 10,000 outsourced UDP sockets that send.",
            "charged: of the CPU time of all threads that poll, serve interrupts of network devices or softirqs, or work for vhost, \
             the part of those that `steadyvm status` counts for one VM.",
            "p99/without and stream/without: over the same row without an attack, with a 95 % interval. The stream's rate is of \
             the seconds of the attack.",
            "A round trip is timed outside. n is the number of requests that were answered; lost: requests without a \
             reply in 2 s. Percentiles are nearest-rank, of every counted sample of all rounds. /first: over the first row's \
             under the same attack.",
        ],
        paper: None,
    },
    about: "A real-time VM and a stream beside somebody who attacks, by attack, kernel and way",
    answer: figures::answer,
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

fn plan(options: &Options) -> BySetting<'_, Row, Cell, AdversaryStation, Sample> {
    BySetting::new(
        options,
        Row::of,
        &CELLS,
        AdversaryStation::boot,
        |station, cell, turn| station.measure(cell, &turn.load()),
    )
}

fn run(laboratory: &Laboratory, options: &Options, observer: &dyn Observer) -> Result<Outcome> {
    let taken = plan(options).run(laboratory, observer)?;
    let (mut all, mut notes) = (Vec::new(), Vec::new());
    for (row, cell, samples) in taken.each() {
        notes.extend(restless(row, cell, &samples));
        all.push(condition(row, cell, &samples));
    }
    for row in &taken.rows {
        let row = row.to_string();
        let of_row = all.iter().filter(|it| it.latencies.row == row);
        let threads = account::of_nobody(of_row.flat_map(|it| &it.accounts));
        notes.extend(
            threads.map(|it| format!("{row}: of the CPU time of packets, for no one VM: {it}")),
        );
    }
    let figures = figures::figures(&all, BootstrapOptions::default());
    let latencies: Vec<Latencies> = all.into_iter().map(|it| it.latencies).collect();
    let record = Record {
        rows: taken.rows.iter().map(ToString::to_string).collect(),
        cells: CELLS.iter().map(ToString::to_string).collect(),
        figures: figures.clone(),
        ..Record::default()
    };
    Ok(Outcome {
        latencies,
        figures,
        tables: vec![figures::table(&record), targets::grid(&record)],
        notes,
        dropped_rounds: taken.measured.dropped_rounds,
        disturbance: taken.measured.disturbance,
    })
}

/// What a reader must know of conditions that began while the attack before was not over.
fn restless(row: Row, cell: Cell, samples: &[&Sample]) -> Option<String> {
    let rounds = samples.iter().filter(|it| !it.was_quiet).count();
    (rounds > 0).then(|| {
        let all = samples.len();
        format!("{row}, {cell}: in {rounds} of {all} rounds the host had not become quiet in 20 s after the attack before")
    })
}

fn condition(row: Row, cell: Cell, samples: &[&Sample]) -> Condition {
    let round = |sample: &&Sample| {
        let samples = sample.netrt.samples.iter();
        samples.map(|it| it.rtt_ns).collect()
    };
    let attacked = samples.iter().filter_map(|it| it.attacked);
    Condition {
        latencies: Latencies {
            row: row.to_string(),
            cell: cell.to_string(),
            rounds: samples.iter().map(round).collect(),
            lost: samples.iter().map(|it| it.netrt.counters.lost).sum(),
            counts: Vec::new(),
            deadline_ns: None,
        },
        streams: samples.iter().map(|it| it.stream.clone()).collect(),
        attempts_per_s: attacked
            .map(|it| it.attempted as f64 / it.duration_s)
            .collect(),
        accounts: samples.iter().filter_map(|it| it.account.clone()).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::rounds::Plan as _;

    fn options() -> Options {
        Options {
            methods: Vec::new(),
            settings: SETTINGS.to_vec(),
            samples: 100,
            rounds: 2,
            seed: 1,
        }
    }

    #[test]
    fn every_setting_is_a_row() {
        assert!(SETTINGS.iter().all(|it| Row::of(it).is_some()));
        assert_eq!(ROWS[0].how, How::Stock);
    }

    #[test]
    fn the_plan_has_the_chosen_rows_and_every_attack() {
        let chosen = Options {
            settings: vec![SETTINGS[4], SETTINGS[0]],
            ..options()
        };
        let plan = plan(&chosen);
        let names: Vec<String> = plan.rows().iter().map(ToString::to_string).collect();
        assert_eq!(names, ["7.3-rt-xdp", "7.3"]);
        assert_eq!((plan.cells().len(), plan.rounds()), (CELLS.len(), 2));
    }

    #[test]
    fn what_cannot_be_measured_is_refused_first() {
        (EXPERIMENT.check)(&options()).unwrap();
        let none = Options {
            settings: Vec::new(),
            ..options()
        };
        assert!((EXPERIMENT.check)(&none).is_err());
    }
}
