//! A packet of a real-time card behind the preempted poll of another card, by kernel. The README in this folder
//! says why.

mod packets;
mod station;

use crate::by_setting::BySetting;
use crate::engine::Figures;
use crate::engine::answer::{count, groups};
use crate::engine::latency::{Count, Latencies, Words};
use crate::engine::results::Record;
use crate::experiment::{Experiment, Options, Outcome, Rows, Setting, check_settings};
use packets::{causes, is_polled_by_others, kept_us, timeline};
use station::{InversionStation, Sample};
use std::fmt::{self, Write as _};
use steadyvm_lab::Result;
use steadyvm_lab::artifact::UserSpace;
use steadyvm_lab::laboratory::{HostKernel, Laboratory};
use steadyvm_lab::progress::Observer;
use steadyvm_report::{Answer, Grid, Picture, duration_words, headers, text};
use steadyvm_trace::receive_path::WorstPacket;

const NAME: &str = "inversion";
/// What the answer counts.
const LATE: &str = "packets late behind the poll, beside a stream and a thread that computes";
/// So many of a row's causes are shown.
const CAUSES: usize = 6;

/// What is compared.
const SETTINGS: &[Setting] = &[
    setting("6.12-rt", HostKernel::V6_12Rt),
    setting("7.3-rt", HostKernel::V7_3Rt),
    Setting {
        bulk_in_threads: true,
        ..setting("7.3-rt-threaded", HostKernel::V7_3Rt)
    },
    setting("7.3-rt-patched", HostKernel::V7_3RtPatched),
];

/// The experiment.
pub const EXPERIMENT: Experiment = Experiment {
    words: Words {
        name: NAME,
        introduction: "Requests to a service on the host (FIFO 90) over the real-time card, whose interrupt thread has \
             FIFO 80. A TCP stream comes in over the bulk card, whose thread has FIFO 50 on the same CPU. A thread \
             of FIFO 60 computes there for 15 of every 60 ms, or does not.",
        reading: &[
            "A packet's time is from its card's hard interrupt to the wake-up of the service, by the kernel's \
             tracepoints (steadyvm explain). n is the number of packets with an interrupt of their own, warm-up \
             included; lost: requests without a reply in 2 s.",
            "late: the card's own thread had run and slept when the FIFO 60 thread ran, and the packet was polled \
             after that. by others: another thread than the card's polled it.",
            "Percentiles are nearest-rank, of all rounds. /first: over the first row's under the same condition, \
             with a 95 % interval.",
        ],
        paper: None,
    },
    about: "A real-time card's packets behind another card's preempted poll, by kernel",
    answer,
    rows: Rows::Settings(SETTINGS),
    user_space: UserSpace::Lab,
    check: |options| check_settings(NAME, options),
    run,
};

const fn setting(name: &'static str, kernel: HostKernel) -> Setting {
    Setting {
        name,
        kernel,
        bulk_in_threads: false,
    }
}

/// How many packets are late beside both, and the longest way in.
fn answer(record: &Record) -> Answer {
    let cell = |beside: Beside| format!("hard interrupt to wake-up, {beside}");
    let busiest = cell(Beside::StreamAndSpinner);
    let late = |row: &String| count(row, LATE, record.at(row, &busiest).figure("late"));
    let cells = CELLS.map(|it| (cell(it), it.to_string()));
    let cells = cells.each_ref().map(|(cell, words)| (&**cell, &**words));
    Answer {
        question: "Are packets late behind another card's preempted poll?".to_owned(),
        findings: record.rows.iter().map(late).collect(),
        picture: Picture {
            title: "99th percentile from hard interrupt to wake-up; shorter is better".to_owned(),
            groups: groups(record, &cells, "p99", duration_words),
        },
    }
}

/// A row: its host has this setting.
#[derive(Debug, Clone, Copy)]
struct Row(Setting);

impl fmt::Display for Row {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(self.0.name)
    }
}

/// What runs beside the service.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Beside {
    /// A TCP stream at full speed into the bulk card.
    Stream,
    /// The same and a thread between the cards' threads.
    StreamAndSpinner,
}

/// The conditions, in the order of measuring.
const CELLS: [Beside; 2] = [Beside::Stream, Beside::StreamAndSpinner];

impl fmt::Display for Beside {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(match self {
            Self::Stream => "beside a stream",
            Self::StreamAndSpinner => "beside a stream and a FIFO 60 thread",
        })
    }
}

fn plan(options: &Options) -> BySetting<'_, Row, Beside, InversionStation, Sample> {
    BySetting::new(
        options,
        |it| Some(Row(*it)),
        &CELLS,
        |laboratory, row, cpu, _| InversionStation::boot(laboratory, row, cpu),
        |station, cell, turn| station.measure(cell, &turn.load()),
    )
}

fn run(laboratory: &Laboratory, options: &Options, observer: &dyn Observer) -> Result<Outcome> {
    let taken = plan(options).run(laboratory, observer)?;
    let mut outcome = Outcome {
        latencies: Vec::new(),
        figures: Vec::new(),
        tables: Vec::new(),
        notes: Vec::new(),
        dropped_rounds: taken.measured.dropped_rounds.clone(),
        disturbance: taken.measured.disturbance,
    };
    let (mut slowest, mut figures) = (Vec::new(), Figures::default());
    for (cell, beside) in CELLS.into_iter().enumerate() {
        let mut table = causes_table(beside);
        for (number, &row) in taken.rows.iter().enumerate() {
            let samples = taken.of(number, cell);
            outcome.latencies.push(way_in(row, beside, &samples));
            add_causes(row, beside, &samples, &mut table, &mut figures);
            outcome.notes.extend(notes(row, beside, &samples));
            slowest.extend(slowest_late(row, beside, &samples));
        }
        outcome.tables.push(table);
    }
    outcome.tables.extend(slowest);
    outcome.figures = figures.all();
    for (row, beside, samples) in taken.each() {
        outcome.latencies.push(round_trips(row, beside, &samples));
    }
    Ok(outcome)
}

fn lost(samples: &[&Sample]) -> u64 {
    samples.iter().map(|it| it.netrt.counters.lost).sum()
}

fn every_packet<'s>(samples: &[&'s Sample]) -> impl Iterator<Item = &'s WorstPacket> {
    let reports: Vec<&'s Sample> = samples.to_vec();
    reports.into_iter().flat_map(|it| &it.report.worst)
}

/// From hard interrupts to wake-ups.
fn way_in(row: Row, beside: Beside, samples: &[&Sample]) -> Latencies {
    let late = every_packet(samples).filter(|it| kept_us(it).is_some());
    let by_others = every_packet(samples).filter(|it| is_polled_by_others(it));
    let counts = [("late", late.count()), ("by others", by_others.count())];
    Latencies {
        row: row.to_string(),
        cell: format!("hard interrupt to wake-up, {beside}"),
        rounds: samples
            .iter()
            .map(|it| it.report.samples_ns.clone())
            .collect(),
        lost: lost(samples),
        deadline_ns: None,
        counts: counts
            .map(|(name, samples)| Count {
                name,
                samples: samples as u64,
            })
            .into(),
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
        cell: format!("round trip, {beside}"),
        rounds: samples.iter().map(round).collect(),
        lost: lost(samples),
        counts: Vec::new(),
        deadline_ns: None,
    }
}

fn causes_table(beside: Beside) -> Grid {
    Grid {
        title: format!("what the CPU did, {beside}, µs"),
        words: 2,
        headers: headers(["", "cause", "packets", "mean", "max"]),
        rows: Vec::new(),
    }
}

fn add_causes(
    row: Row,
    beside: Beside,
    samples: &[&Sample],
    table: &mut Grid,
    figures: &mut Figures,
) {
    let found = causes(samples.iter().map(|it| &it.report));
    for cause in found.into_iter().take(CAUSES) {
        table.rows.push(vec![
            row.to_string(),
            cause.name.clone(),
            cause.packets.to_string(),
            text::figure(Some(cause.mean_us)),
            text::figure(Some(cause.max_us)),
        ]);
        figures.at(&row.to_string(), &format!("what the CPU did, {beside}"));
        for (name, value) in [("mean", cause.mean_us), ("max", cause.max_us)] {
            let name = format!("{}, {name}", cause.name);
            figures.value(&name, "us", cause.packets, value);
        }
    }
}

/// What the stream carried, and how long late packets were kept.
fn notes(row: Row, beside: Beside, samples: &[&Sample]) -> Vec<String> {
    let rounds = samples.len().max(1) as f64;
    let carried = samples.iter().map(|it| it.mbit_per_s).sum::<f64>() / rounds;
    let mut said = format!("{row}, {beside}: the stream carried {carried:.0} Mbit/s");
    let kept: Vec<f64> = every_packet(samples).filter_map(kept_us).collect();
    if !kept.is_empty() {
        let n = kept.len();
        let mean_ms = text::ms(kept.iter().sum::<f64>() / n as f64);
        let longest_ms = text::ms(kept.iter().copied().fold(0.0, f64::max));
        let _ = write!(
            said,
            "; the FIFO 60 thread kept {n} late packets for {mean_ms} ms in the mean, {longest_ms} ms at most"
        );
    }
    let lost: u64 = samples.iter().map(|it| it.report.lost_events).sum();
    let mut notes = vec![said];
    if lost > 0 {
        notes.push(format!(
            "{row}, {beside}: {lost} events were lost, and packets with them"
        ));
    }
    notes
}

/// The slowest late packet, event by event.
fn slowest_late(row: Row, beside: Beside, samples: &[&Sample]) -> Option<Grid> {
    let late = every_packet(samples).filter(|it| kept_us(it).is_some());
    let slowest = late.max_by(|one, other| one.total_us.total_cmp(&other.total_us))?;
    let title = format!("the slowest late packet of {row}, {beside}, µs after its hard interrupt");
    Some(timeline(title, slowest))
}

#[cfg(test)]
mod tests {
    use super::*;

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
    fn what_cannot_be_measured_is_refused_first() {
        (EXPERIMENT.check)(&options()).unwrap();
        for spoil in [
            |it: &mut Options| it.settings.clear(),
            |it: &mut Options| it.rounds = 0,
            |it: &mut Options| it.samples = 1,
        ] {
            let mut options = options();
            spoil(&mut options);
            assert!((EXPERIMENT.check)(&options).is_err(), "{options:?}");
        }
    }

    #[test]
    fn one_setting_has_the_bulk_card_in_threads_on_a_kernel_that_another_has_without() {
        let threaded = SETTINGS.iter().filter(|it| it.bulk_in_threads);
        let threaded: Vec<&Setting> = threaded.collect();
        assert_eq!(threaded.len(), 1);
        let same = SETTINGS.iter();
        let same = same.filter(|it| it.kernel == threaded[0].kernel);
        assert_eq!(same.count(), 2);
    }
}
