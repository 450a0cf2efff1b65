//! What is shown of the record: the tables, and in the report plots over the rates.

use super::figures::{ALONE, RECEIVED, rates_of};
use super::rates;
use crate::engine::Page;
use crate::engine::results::{At, Record};
use crate::nisp::jobs::{TIME_HEADERS, missed_share_of, misses_of, time_cell, time_cells};
use crate::nisp::{deadlines, milliseconds, setting_us};
use steadyvm_report::text::ratio_words;
use steadyvm_report::{Grid, headers, page};

/// What the columns mean, a sentence each.
const READING: [&str; 4] = [
    "A peak is the most that the low-priority process received at any rate, next to jobs of no length; it \
     is looked for once. alone/s: what it received next to such jobs in the rounds, at the rate of the best \
     peak: the mean. /first: over the first method's, with a 95 % interval.",
    "Times are in ms and of all jobs of all rounds: mean, SD, p99 and max of the response, from release \
     to finish; wait: how long of it the job waited for the CPU, in the mean (the rest are interrupts and \
     the job itself); jitter: SD of the time between two finishes.",
    "sent/s and recv/s are packets a second that the source sent and the low-priority process received, \
     CPU % the busy share of all CPUs, each the mean of the rounds.",
    "After > and a deadline: how many jobs missed it, and their share of n. /unloaded: over the same \
     method without packets; recv/first: received, over the first method at the same rate; both with a \
     95 % interval.",
];

/// The tables, at most 100 columns wide with names of no more than 12, and the plots.
pub fn page(record: &Record) -> Page {
    let best: f64 = record.setting("peak_packets_per_s").unwrap_or(f64::NAN);
    let plots = page::cards("Over the rates", &rates::cards(record));
    Page {
        introduction: format!(
            "A job of {} ms every {} ms at high priority; MMPP-2 bursts of UDP packets for a low-priority \
             process on the same CPU, at mean rates up to {best:.0} packets/s. Deadlines: {} ms. Rounds: {}.",
            milliseconds(setting_us(record, "execution_us")),
            milliseconds(setting_us(record, "period_us")),
            deadlines(record),
            record.rounds
        ),
        plots: plots
            + "<p class=\"quiet\">Figures are of all rounds; bars at the jitter are 95 % intervals, cut at the \
               plot’s edges.</p>\n",
        grids: grids(record).into(),
        reading: &READING,
        notes: record.notes.clone(),
    }
}

/// What is received without jobs, the jobs' times, and what is held against something.
fn grids(record: &Record) -> [Grid; 3] {
    let rates = rates_of(record);
    let rows = |row: &dyn Fn(At) -> Vec<String>| {
        let of = |name| rates.iter().map(move |(_, cell)| record.at(name, cell));
        record.rows.iter().flat_map(|it| of(it)).map(row).collect()
    };
    let deadlines_us: Vec<u64> = record.setting("deadlines_us").unwrap_or_default();
    let late = deadlines_us.iter();
    let late = late.map(|&deadline| format!("> {} ms", milliseconds(deadline)));
    let compared = headers(["mean/unloaded", "jitter/unloaded", "recv/first"]);
    let of_jobs = ["", "sent/s", "recv/s", "CPU %"]
        .iter()
        .chain(&TIME_HEADERS);
    [
        Grid {
            title: "Without jobs".to_owned(),
            words: 1,
            headers: headers(["", "peak/s", "alone/s", "/first"]),
            rows: (record.rows.iter())
                .map(|name| alone_row(record.at(name, ALONE)))
                .collect(),
        },
        Grid {
            title: "Jobs".to_owned(),
            words: 1,
            headers: of_jobs
                .chain(&["jitter"])
                .map(|&it| it.to_owned())
                .collect(),
            rows: rows(&jobs_row),
        },
        Grid {
            title: "Missed deadlines, and ratios".to_owned(),
            words: 1,
            headers: headers(["", "sent/s"])
                .into_iter()
                .chain(late)
                .chain(compared)
                .collect(),
            rows: rows(&|at| ratios_row(at, &deadlines_us)),
        },
    ]
}

fn alone_row(at: At) -> Vec<String> {
    vec![
        at.row.to_owned(),
        whole(at, "peak"),
        whole(at, RECEIVED),
        ratio_words(at.ratio(RECEIVED)),
    ]
}

fn jobs_row(at: At) -> Vec<String> {
    let busy = at.value("cpu_busy");
    let busy = busy.map_or_else(|| "-".to_owned(), |share| format!("{:.1}", 100.0 * share));
    let packets = [
        at.row.to_owned(),
        whole(at, "sent"),
        whole(at, RECEIVED),
        busy,
    ];
    let jitter = std::iter::once(time_cell(at, "jitter_sd"));
    packets
        .into_iter()
        .chain(time_cells(at))
        .chain(jitter)
        .collect()
}

fn ratios_row(at: At, deadlines_us: &[u64]) -> Vec<String> {
    let late = deadlines_us.iter().map(|&deadline_us| {
        let missed = at.count(&misses_of(deadline_us));
        let of_all = at.value(&missed_share_of(deadline_us));
        format!("{missed} {}", of_all.map_or_else(|| "-".to_owned(), share))
    });
    let compared = ["response_mean", "jitter_sd", RECEIVED];
    let rate = [at.row.to_owned(), whole(at, "sent")];
    rate.into_iter()
        .chain(late)
        .chain(compared.map(|name| ratio_words(at.ratio(name))))
        .collect()
}

/// In at most five characters.
fn share(ratio: f64) -> String {
    match 100.0 * ratio {
        percent @ ..99.95 => format!("{percent:.1}%"),
        percent => format!("{percent:.0}%"),
    }
}

fn whole(at: At, name: &str) -> String {
    let value = at.value(name);
    value.map_or_else(
        || "-".to_owned(),
        |packets_per_s| format!("{packets_per_s:.0}"),
    )
}
