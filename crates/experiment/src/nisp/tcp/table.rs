//! The table for a terminal, and the cells that it shares with the report.

use super::results::{MethodResult, Results, StreamResult};
use crate::nisp::{JobsResult, deadlines, milliseconds};
use steadyvm_report::text::figure;
use steadyvm_report::text::ms;
use steadyvm_report::text::ratio_words;
use steadyvm_report::{Grid, document, headers};
use steadyvm_stats::bootstrap::Ratio;

/// What the experiment did, as a sentence.
pub(crate) fn introduction(results: &Results) -> String {
    format!(
        "A job of {} ms every {} ms at high priority, without and with a TCP stream at full speed for a \
         low-priority process on the same CPU. Deadlines: {} ms. Rounds: {}.",
        milliseconds(results.execution_us),
        milliseconds(results.period_us),
        deadlines(&results.deadlines_us),
        results.rounds
    )
}

/// What the columns mean, a sentence each.
pub(crate) const READING: [&str; 3] = [
    "Times are in ms and of all jobs of all rounds: mean, SD, p99 and max of the response, from release \
     to finish; wait: how long of it the job waited for the CPU, in the mean; misses: % at each \
     deadline; jitter: SD of the time between two finishes; /unloaded: over that without the stream.",
    "The stream is one connection a round: before the jobs, during them, after them; 1st second: the \
     first of those after them. Mbit/s is what the low-priority process received; /before: over that \
     before the jobs, with a 95 % interval.",
    "Segments are the sender's, in all rounds: again: sent again, and in % of all; probes: for a \
     lost tail, with old data or new; timeouts: times that the retransmission timer ran out.",
];

/// The jobs' figures and the stream's.
pub(crate) fn grids(results: &Results) -> [Grid; 2] {
    let methods = || results.methods.iter();
    [
        Grid {
            title: "Jobs".to_owned(),
            words: 2,
            headers: headers([
                "",
                "",
                "n",
                "mean",
                "SD",
                "p99",
                "max",
                "wait",
                "misses",
                "jitter",
                "/unloaded",
            ]),
            rows: methods().flat_map(jobs_rows).collect(),
        },
        Grid {
            title: "Stream".to_owned(),
            words: 2,
            headers: headers([
                "", "", "Mbit/s", "/before", "segments", "again", "again %", "probes", "timeouts",
            ]),
            rows: methods().flat_map(stream_rows).collect(),
        },
    ]
}

/// The table, at most 100 columns wide with names of no more than 16. Ends with a newline.
pub fn render(results: &Results) -> String {
    let introduction = introduction(results);
    document(&introduction, &grids(results), &READING, &results.notes)
}

fn jobs_rows(method: &MethodResult) -> [Vec<String>; 2] {
    [
        jobs_row(method, "unloaded", &method.unloaded, None),
        jobs_row(
            method,
            "loaded",
            &method.loaded,
            method.jitter_sd_to_unloaded,
        ),
    ]
}

fn jobs_row(
    method: &MethodResult,
    load: &str,
    jobs: &JobsResult,
    jitter: Option<f64>,
) -> Vec<String> {
    let punctuality = &jobs.punctuality;
    let misses = punctuality.miss_ratios.iter();
    let misses: Vec<String> = misses
        .map(|ratio| format!("{:.1}", 100.0 * ratio))
        .collect();
    vec![
        method.name.clone(),
        load.to_owned(),
        punctuality.jobs.to_string(),
        ms(punctuality.response_mean_us),
        ms(punctuality.response_sd_us),
        ms(punctuality.response_p99_us),
        ms(punctuality.response_max_us),
        ms(jobs.waited_mean_us),
        misses.join(" "),
        ms(punctuality.jitter_sd_us),
        jitter.map_or_else(|| "-".to_owned(), |ratio| format!("{ratio:.2}")),
    ]
}

fn stream_rows(method: &MethodResult) -> Vec<Vec<String>> {
    let row = |phase: &str, mbit_per_s, ratio: Option<Ratio>, counted: [String; 5]| {
        let what = [method.name.clone(), phase.to_owned()];
        let carried = [figure(mbit_per_s), ratio_words(ratio)];
        what.into_iter().chain(carried).chain(counted).collect()
    };
    let phase = |name: &str, stream: &StreamResult, ratio| {
        row(name, stream.mbit_per_s, ratio, counted(stream))
    };
    let (first, first_ratio) = (
        method.first_second_mbit_per_s,
        method.first_second_to_before,
    );
    vec![
        phase("before", &method.before, None),
        phase("during", &method.during, method.during_to_before),
        phase("after", &method.after, method.after_to_before),
        row("1st second", first, first_ratio, Default::default()),
    ]
}

fn counted(stream: &StreamResult) -> [String; 5] {
    let segments = &stream.segments;
    let percent = stream.retransmitted_fraction.map(|share| 100.0 * share);
    [
        segments.segments.to_string(),
        segments.retransmitted.to_string(),
        percent.map_or_else(|| "-".to_owned(), |percent| format!("{percent:.3}")),
        segments.loss_probes.to_string(),
        segments.timeouts.to_string(),
    ]
}
