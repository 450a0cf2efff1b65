//! Streams of Sampled Values into a relay VM, by kernel, way in and what is set, beside a TCP stream and a real-time neighbour.
//! The README in this folder says why.

mod arrivals;
mod cell;
mod contexts;
mod figures;
mod row;
mod station;

use crate::by_setting::BySetting;
use crate::engine::latency::{Latencies, Words};
use crate::engine::results::Record;
use crate::experiment::{Experiment, Options, Outcome, Rows, check_settings};
use cell::{CELLS, Cell};
use figures::Condition;
use row::{Row, SETTINGS, Set};
use station::{Layer2Station, Sample};
use steadyvm_lab::Result;
use steadyvm_lab::artifact::UserSpace;
use steadyvm_lab::laboratory::Laboratory;
use steadyvm_lab::progress::Observer;
use steadyvm_stats::bootstrap::BootstrapOptions;

const NAME: &str = "layer2";

/// The experiment.
pub const EXPERIMENT: Experiment = Experiment {
    words: Words {
        name: NAME,
        introduction: "Streams of Sampled Values (500 frames per second each) from outside to a subscriber in a relay VM, by one \
             card, alone, beside a TCP stream to another VM, and beside a neighbour VM that computes with FIFO 1 on both CPUs. \
             Kernels are Debian's, unmodified.",
        reading: &[
            "bridge: the VMs' taps are ports of a bridge with the card. ovs: of Open vSwitch, whose datapath is the kernel's. \
             macvtap: each VM has a macvtap above the card, and two of them want the streams. passthrough: the relay has a \
             function of the card itself. Rows without another word set nothing. steadyvm: the relay and its card have class rt. \
             threads: the same with threaded_napi. ranked: the same, and `ovs-vswitchd` has rank 85. dedicated: a CPU for the relay's path alone.",
            "A time is how much longer a frame took than the fastest of the same measurement, from sending outside to the \
             subscriber in the VM: both ends have a clock of their own. Where no frame was fast, all are shown too fast.",
            "n is the number of frames that came; lost: those that did not. gap: the longest time without a frame of a stream, from the first's sending on. \
             normal: the share of frames that a thread without a rank handed to the VM's device, by the kernel's tracepoints. \
             disorder: frames that came after a later one.",
            "Percentiles are nearest-rank, of all rounds. /first: over the first row's under the same condition. p99/stock: over \
             the row of kernel 7.3 (of passthrough 7.3-rt) with the same way in and nothing set; with a 95 % interval.",
        ],
        paper: None,
    },
    about: "Sampled Values into a relay VM beside a stream and a real-time neighbour, by kernel and way",
    answer: figures::answer,
    rows: Rows::Settings(SETTINGS),
    user_space: UserSpace::Services,
    check: |options| check_settings(NAME, options),
    run,
};

fn plan(options: &Options) -> BySetting<'_, Row, Cell, Layer2Station, Sample> {
    BySetting::new(
        options,
        Row::of,
        &CELLS,
        Layer2Station::boot,
        |station, cell, turn| station.measure(cell, turn.samples),
    )
}

fn run(laboratory: &Laboratory, options: &Options, observer: &dyn Observer) -> Result<Outcome> {
    let taken = plan(options).run(laboratory, observer)?;
    let (mut all, mut notes) = (Vec::new(), Vec::new());
    for (row, cell, samples) in taken.each() {
        notes.extend(unsent(row, cell, &samples));
        notes.extend(by_normal_threads(row, cell, &samples));
        all.push(condition(row, cell, &samples));
    }
    let figures = figures::figures(&all, BootstrapOptions::default());
    let latencies: Vec<Latencies> = all.into_iter().map(|it| it.latencies).collect();
    let tables = figures::tables(&Record {
        rows: taken.rows.iter().map(ToString::to_string).collect(),
        cells: CELLS.iter().map(ToString::to_string).collect(),
        figures: figures.clone(),
        ..Record::default()
    });
    Ok(Outcome {
        latencies,
        figures,
        tables,
        notes,
        dropped_rounds: taken.measured.dropped_rounds,
        disturbance: taken.measured.disturbance,
    })
}

fn condition(row: Row, cell: Cell, samples: &[&Sample]) -> Condition {
    let streams = |sample: &&Sample| sample.report.streams.clone();
    let all = samples.iter().flat_map(streams);
    let received: u64 = all.clone().map(|it| it.received).sum();
    // What has no room outside was sent, too: its number is missing.
    let sent: u64 = samples
        .iter()
        .map(|it| it.published.sent + it.published.refused)
        .sum();
    let rounds: Vec<Vec<u64>> = samples
        .iter()
        .map(|it| arrivals::delays_ns(&it.arrivals))
        .collect();
    let longest = |(sample, delays): (&&Sample, &Vec<u64>)| {
        let gap_ns =
            arrivals::longest_gap_ns(cell.streams, sample.sending, &sample.arrivals, delays);
        gap_ns as f64 / 1e3
    };
    let longest_gaps_us = samples.iter().zip(&rounds).map(longest).collect();
    let handings = samples.iter().flat_map(|it| &it.handings);
    let by_normal = handings
        .clone()
        .filter(|it| it.is_by_a_normal_thread(row.preempt_rt()));
    Condition {
        row,
        latencies: Latencies {
            row: row.to_string(),
            cell: cell.to_string(),
            rounds,
            lost: sent.saturating_sub(received),
            counts: Vec::new(),
            deadline_ns: None,
        },
        sent,
        longest_gaps_us,
        out_of_order: all.map(|it| it.out_of_order).sum(),
        handed: (
            handings.map(|it| it.frames).sum(),
            by_normal.map(|it| it.frames).sum(),
        ),
        streams: samples.iter().filter_map(|it| it.mbit_per_s).collect(),
    }
}

/// What a reader must know of the sender, where this machine kept it from its schedule.
fn unsent(row: Row, cell: Cell, samples: &[&Sample]) -> Option<String> {
    let latest_us = samples.iter().map(|it| it.published.latest_us);
    let latest_us = latest_us.fold(0.0, f64::max);
    let refused: u64 = samples.iter().map(|it| it.published.refused).sum();
    (refused > 0 || latest_us > LATE_US).then(|| {
        format!(
            "{row}, {cell}: outside, {refused} frames had no room, and the latest was sent {:.1} ms late",
            latest_us / 1e3
        )
    })
}

/// Which normal threads handed frames on where something is set that is to prevent it.
fn by_normal_threads(row: Row, cell: Cell, samples: &[&Sample]) -> Option<String> {
    if row.set == Set::Nothing {
        return None;
    }
    let handings = samples.iter().flat_map(|it| &it.handings);
    let threads = contexts::normal_threads(handings, row.preempt_rt());
    let said = threads.iter().take(NAMED_THREADS);
    let said: Vec<String> = said
        .map(|(name, frames)| format!("{name} {frames}"))
        .collect();
    (!said.is_empty()).then(|| {
        format!(
            "{row}, {cell}: normal threads that handed frames on: {}",
            said.join(", ")
        )
    })
}

/// So many of them are named.
const NAMED_THREADS: usize = 4;
/// A sender that is later than this makes gaps of its own.
const LATE_US: f64 = 2_000.0;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::rounds::Plan as _;
    use steadyvm_load::layer2::{Mark, Published, Tally};

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
    fn the_plan_has_the_chosen_rows_and_every_condition() {
        let chosen = Options {
            settings: vec![SETTINGS[10], SETTINGS[1]],
            ..options()
        };
        let plan = plan(&chosen);
        let names: Vec<String> = plan.rows().iter().map(ToString::to_string).collect();
        assert_eq!(names, ["7.3-rt-macvtap-steadyvm", "7.3-macvtap"]);
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

    #[test]
    fn what_never_came_is_lost_also_before_the_first_and_after_the_last() {
        let mut tally = Tally::default();
        for sequence in [3, 4, 6] {
            let mark = Mark {
                sequence,
                sent_ns: 0,
            };
            tally.note("steadyvm01", mark, sequence * 1_000_000);
        }
        let sample = Sample {
            published: Published {
                sent: 9,
                refused: 1,
                latest_us: 7_000.0,
                ..Published::default()
            },
            sending: (0, 9_000_000),
            report: tally.report(),
            arrivals: Vec::new(),
            handings: Vec::new(),
            mbit_per_s: None,
        };
        let row = Row::of(&SETTINGS[0]).unwrap();
        let condition = condition(row, CELLS[0], &[&sample, &sample]);
        assert_eq!((condition.sent, condition.latencies.lost), (20, 14));
        assert_eq!(condition.longest_gaps_us, [9000.0, 9000.0]);
        let note = unsent(row, CELLS[0], &[&sample]).unwrap();
        assert!(note.contains("1 frames had no room") && note.contains("7.0 ms late"));
    }
}
