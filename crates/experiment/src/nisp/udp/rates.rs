//! Figures over the rate of packets: a plot each, with a line a method.

use super::figures::{RECEIVED, rates_of};
use crate::engine::results::{At, Record};
use crate::nisp::jobs::missed_share_of;
use steadyvm_report::lines::{self, Axis, Lines, Over, Series};
use steadyvm_report::{joined, tick_words};

/// The project's target for levels.
const JITTER_TARGET: f64 = 1.5;

/// A card a figure.
pub(super) fn cards(record: &Record) -> String {
    let ms = |us: f64| tick_words(us / 1e3) + " ms";
    let mean = from_zero(record, "Mean response", ms, &|at| at.value("response_mean"));
    let p99 = from_zero(record, "99th percentile of responses", ms, &|at| {
        at.value("response_p99")
    });
    let deadlines_us: Vec<u64> = record.setting("deadlines_us").unwrap_or_default();
    let misses = joined(deadlines_us, |deadline_us| {
        let title = format!(
            "Jobs that missed the deadline of {}",
            ms(deadline_us as f64)
        );
        let percent = |percent: f64| tick_words(percent) + " %";
        let plot = from_zero(record, &title, percent, &|at| {
            Some(100.0 * at.value(&missed_share_of(deadline_us))?)
        });
        plot.card()
    });
    let jitter = Lines {
        title: format!("SD of jitter over unloaded (dashed: target {JITTER_TARGET})"),
        axis: Axis::Logarithmic,
        mark: Some(JITTER_TARGET),
        series: series(record, &|at| {
            let ratio = at.ratio("jitter_sd")?;
            Some((ratio.estimate, ratio.interval()))
        }),
        ..from_zero(record, "", tick_words, &|_| None)
    };
    let title = "Received by the low-priority process, packets/s";
    let received = from_zero(record, title, tick_words, &|at| at.value(RECEIVED));
    mean.card() + &p99.card() + &misses + &jitter.card() + &received.card()
}

/// Without intervals, from 0 up.
fn from_zero<'a>(
    record: &'a Record,
    title: &str,
    words: fn(f64) -> String,
    value: &dyn Fn(At) -> Option<f64>,
) -> Lines<'a> {
    Lines {
        title: title.to_owned(),
        over: Over::Numbers("asked of the source, packets/s"),
        axis: Axis::Linear,
        words,
        mark: None,
        series: series(record, &|at| Some((value(at)?, None))),
    }
}

/// A figure and the ends of its interval.
type Figure = (f64, Option<(f64, f64)>);

fn series<'a>(record: &'a Record, figure: &dyn Fn(At) -> Option<Figure>) -> Vec<Series<'a>> {
    let rates = rates_of(record);
    let methods = record.rows.iter();
    methods
        .map(|name| {
            let drawn = |(asked_packets_per_s, cell): &(f64, String)| {
                let (value, interval) = figure(record.at(name, cell))?;
                Some(lines::Point {
                    at: *asked_packets_per_s,
                    value,
                    interval,
                })
            };
            Series {
                name,
                points: rates.iter().filter_map(drawn).collect(),
            }
        })
        .collect()
}
