//! The table for a terminal, and the cells that it shares with the report.

use super::results::{MethodResult, Point, Results};
use crate::nisp::{deadlines, milliseconds};
use steadyvm_report::text::ms;
use steadyvm_report::text::ratio_words;
use steadyvm_report::{Grid, document, headers};

/// What the experiment did, as a sentence.
pub(crate) fn introduction(results: &Results) -> String {
    format!(
        "A job of {} ms every {} ms at high priority; MMPP-2 bursts of UDP packets for a low-priority \
         process on the same CPU, at mean rates up to {:.0} packets/s. Deadlines: {} ms. Rounds: {}.",
        milliseconds(results.execution_us),
        milliseconds(results.period_us),
        results.peak_packets_per_s,
        deadlines(&results.deadlines_us),
        results.rounds
    )
}

/// What the columns mean, a sentence each.
pub(crate) const READING: [&str; 4] = [
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

/// What is received without jobs, the jobs' times, and what is held against something.
pub(crate) fn grids(results: &Results) -> [Grid; 3] {
    let rows = |row: fn(&MethodResult, &Point) -> Vec<String>| {
        let methods = results.methods.iter();
        let rows = methods.flat_map(|method| method.points.iter().map(move |it| row(method, it)));
        rows.collect()
    };
    let late = results.deadlines_us.iter();
    let late = late.map(|&deadline| format!("> {} ms", milliseconds(deadline)));
    let compared = headers(["mean/unloaded", "jitter/unloaded", "recv/first"]);
    [
        Grid {
            title: "Without jobs".to_owned(),
            words: 1,
            headers: headers(["", "peak/s", "alone/s", "/first"]),
            rows: results.methods.iter().map(alone_row).collect(),
        },
        Grid {
            title: "Jobs".to_owned(),
            words: 1,
            headers: headers([
                "", "sent/s", "recv/s", "CPU %", "n", "mean", "SD", "p99", "max", "wait", "jitter",
            ]),
            rows: rows(jobs_row),
        },
        Grid {
            title: "Missed deadlines, and ratios".to_owned(),
            words: 1,
            headers: headers(["", "sent/s"])
                .into_iter()
                .chain(late)
                .chain(compared)
                .collect(),
            rows: rows(ratios_row),
        },
    ]
}

/// The table, at most 100 columns wide with names of no more than 12. Ends with a newline.
pub fn render(results: &Results) -> String {
    let introduction = introduction(results);
    document(&introduction, &grids(results), &READING, &results.notes)
}

fn alone_row(method: &MethodResult) -> Vec<String> {
    vec![
        method.name.clone(),
        whole(method.peak_packets_per_s),
        whole(method.alone_packets_per_s),
        ratio_words(method.alone_to_first),
    ]
}

fn jobs_row(method: &MethodResult, point: &Point) -> Vec<String> {
    let punctuality = &point.jobs.punctuality;
    vec![
        method.name.clone(),
        whole(point.sent_packets_per_s),
        whole(point.received_packets_per_s),
        format!("{:.1}", 100.0 * point.cpu_busy_fraction),
        punctuality.jobs.to_string(),
        ms(punctuality.response_mean_us),
        ms(punctuality.response_sd_us),
        ms(punctuality.response_p99_us),
        ms(punctuality.response_max_us),
        ms(point.jobs.waited_mean_us),
        ms(punctuality.jitter_sd_us),
    ]
}

fn ratios_row(method: &MethodResult, point: &Point) -> Vec<String> {
    let punctuality = &point.jobs.punctuality;
    let late = punctuality.misses.iter().zip(&punctuality.miss_ratios);
    let late = late.map(|(misses, &ratio)| format!("{misses} {}", share(ratio)));
    let compared = [
        point.response_mean_to_unloaded,
        point.jitter_sd_to_unloaded,
        point.received_to_first,
    ];
    let rate = [method.name.clone(), whole(point.sent_packets_per_s)];
    rate.into_iter()
        .chain(late)
        .chain(compared.map(ratio_words))
        .collect()
}

/// In at most five characters.
fn share(ratio: f64) -> String {
    match 100.0 * ratio {
        percent @ ..99.95 => format!("{percent:.1}%"),
        percent => format!("{percent:.0}%"),
    }
}

fn whole(packets_per_s: f64) -> String {
    format!("{packets_per_s:.0}")
}
