//! What is shown of the record: the tables, and in the report a plot of what the stream carried.

use super::figures::{AFTER, BEFORE, DURING, FIRST_SECOND, LOADED, THROUGHPUT, UNLOADED};
use crate::engine::Page;
use crate::engine::results::{At, Record};
use crate::nisp::jobs::{TIME_HEADERS, missed_share_of, time_cell, time_cells};
use crate::nisp::{deadlines, milliseconds, setting_us};
use steadyvm_report::bars::{Bar, draw};
use steadyvm_report::text::{figure, ratio_words};
use steadyvm_report::{Grid, headers, page};

/// What the columns mean, a sentence each.
const READING: [&str; 3] = [
    "Times are in ms and of all jobs of all rounds: mean, SD, p99 and max of the response, from release \
     to finish; wait: how long of it the job waited for the CPU, in the mean; misses: % at each \
     deadline; jitter: SD of the time between two finishes; /unloaded: over that without the stream.",
    "The stream is one connection a round: before the jobs, during them, after them; 1st second: the \
     first of those after them. Mbit/s is what the low-priority process received; /before: over that \
     before the jobs, with a 95 % interval.",
    "Segments are the sender's, in all rounds: again: sent again, and in % of all; probes: for a \
     lost tail, with old data or new; timeouts: times that the retransmission timer ran out.",
];

/// The tables, at most 100 columns wide with names of no more than 16, and the plot.
pub fn page(record: &Record) -> Page {
    Page {
        introduction: format!(
            "A job of {} ms every {} ms at high priority, without and with a TCP stream at full speed for a \
             low-priority process on the same CPU. Deadlines: {} ms. Rounds: {}.",
            milliseconds(setting_us(record, "execution_us")),
            milliseconds(setting_us(record, "period_us")),
            deadlines(record),
            record.rounds
        ),
        plots: page::cards("What the stream carried", &throughput(record)),
        grids: vec![jobs(record), stream(record)],
        reading: &READING,
        notes: record.notes.clone(),
    }
}

fn throughput(record: &Record) -> String {
    let phases = [
        ("before the jobs", BEFORE),
        ("during them", DURING),
        ("after them", AFTER),
    ];
    let of = |row| phases.map(|(_, phase)| record.at(row, phase));
    let rounds: Vec<[Vec<f64>; 3]> = (record.rows.iter())
        .map(|row| of(row).map(|at| at.rounds(THROUGHPUT)))
        .collect();
    let groups = record.rows.iter().zip(&rounds).map(|(row, rounds)| {
        let bars = phases.iter().zip(of(row)).zip(rounds);
        let bars = bars.map(|(((name, _), at), rounds)| Bar {
            name,
            value: at.value(THROUGHPUT),
            rounds,
        });
        (&**row, bars.collect())
    });
    let groups: Vec<(&str, Vec<Bar>)> = groups.collect();
    draw(&groups, "Received by the low-priority process, Mbit/s")
}

fn jobs(record: &Record) -> Grid {
    let deadlines_us: Vec<u64> = record.setting("deadlines_us").unwrap_or_default();
    let row = |at: At| {
        let misses = deadlines_us.iter().map(|&deadline_us| {
            let share = at.value(&missed_share_of(deadline_us));
            share.map_or_else(|| "-".to_owned(), |share| format!("{:.1}", 100.0 * share))
        });
        let misses: Vec<String> = misses.collect();
        let jitter = at.over("jitter_sd").and_then(|it| it.value);
        let names = [at.row, at.cell].map(str::to_owned);
        let last = [
            misses.join(" "),
            time_cell(at, "jitter_sd"),
            jitter.map_or_else(|| "-".to_owned(), |ratio| format!("{ratio:.2}")),
        ];
        names
            .into_iter()
            .chain(time_cells(at))
            .chain(last)
            .collect()
    };
    let of = |name| [UNLOADED, LOADED].map(|load| record.at(name, load));
    let headers = ["", ""].iter().chain(&TIME_HEADERS);
    let headers = headers.chain(&["misses", "jitter", "/unloaded"]);
    Grid {
        title: "Jobs".to_owned(),
        words: 2,
        headers: headers.map(|&name| name.to_owned()).collect(),
        rows: record.rows.iter().flat_map(|it| of(it)).map(row).collect(),
    }
}

fn stream(record: &Record) -> Grid {
    let of = |name| [BEFORE, DURING, AFTER, FIRST_SECOND].map(|phase| record.at(name, phase));
    let row = |at: At| {
        let phase = if at.cell == FIRST_SECOND {
            "1st second"
        } else {
            at.cell
        };
        let carried = [
            figure(at.value(THROUGHPUT)),
            ratio_words(at.ratio(THROUGHPUT)),
        ];
        let names = [at.row, phase].map(str::to_owned);
        names
            .into_iter()
            .chain(carried)
            .chain(counted(at))
            .collect()
    };
    Grid {
        title: "Stream".to_owned(),
        words: 2,
        headers: headers([
            "", "", "Mbit/s", "/before", "segments", "again", "again %", "probes", "timeouts",
        ]),
        rows: record.rows.iter().flat_map(|it| of(it)).map(row).collect(),
    }
}

/// What the sender counted; nothing of a part of a phase.
fn counted(at: At) -> [String; 5] {
    if at.cell == FIRST_SECOND {
        return Default::default();
    }
    let percent = at.value("retransmitted_share").map(|share| 100.0 * share);
    [
        at.count("segments").to_string(),
        at.count("retransmitted").to_string(),
        percent.map_or_else(|| "-".to_owned(), |percent| format!("{percent:.3}")),
        at.count("loss_probes").to_string(),
        at.count("timeouts").to_string(),
    ]
}
