//! Figures over the rate of packets: a plot each, with a line a method.

use crate::nisp::udp::{Point, Results};
use steadyvm_report::lines::{self, Axis, Lines, Over, Series};
use steadyvm_report::{joined, tick_words};

/// The project's target for levels.
const JITTER_TARGET: f64 = 1.5;

/// A card a figure.
pub(super) fn cards(results: &Results) -> String {
    let ms = |us: f64| tick_words(us / 1e3) + " ms";
    let mean = from_zero(results, "Mean response", ms, &|point| {
        Some(point.jobs.punctuality.response_mean_us)
    });
    let p99 = from_zero(results, "99th percentile of responses", ms, &|point| {
        Some(point.jobs.punctuality.response_p99_us)
    });
    let deadlines = results.deadlines_us.iter().enumerate();
    let misses = joined(deadlines, |(index, &deadline_us)| {
        let title = format!(
            "Jobs that missed the deadline of {}",
            ms(deadline_us as f64)
        );
        let percent = |percent: f64| tick_words(percent) + " %";
        let plot = from_zero(results, &title, percent, &|point| {
            let ratio = point.jobs.punctuality.miss_ratios.get(index)?;
            Some(100.0 * ratio)
        });
        plot.card()
    });
    let jitter = Lines {
        title: format!("SD of jitter over unloaded (dashed: target {JITTER_TARGET})"),
        axis: Axis::Logarithmic,
        mark: Some(JITTER_TARGET),
        series: series(results, &|point| {
            let ratio = point.jitter_sd_to_unloaded?;
            Some((ratio.estimate, ratio.interval()))
        }),
        ..from_zero(results, "", tick_words, &|_| None)
    };
    let title = "Received by the low-priority process, packets/s";
    let received = from_zero(results, title, tick_words, &|point| {
        Some(point.received_packets_per_s)
    });
    mean.card() + &p99.card() + &misses + &jitter.card() + &received.card()
}

/// Without intervals, from 0 up.
fn from_zero<'a>(
    results: &'a Results,
    title: &str,
    words: fn(f64) -> String,
    value: &dyn Fn(&Point) -> Option<f64>,
) -> Lines<'a> {
    Lines {
        title: title.to_owned(),
        over: Over::Numbers("asked of the source, packets/s"),
        axis: Axis::Linear,
        words,
        mark: None,
        series: series(results, &|point| Some((value(point)?, None))),
    }
}

/// A figure and the ends of its interval.
type Figure = (f64, Option<(f64, f64)>);

fn series<'a>(results: &'a Results, figure: &dyn Fn(&Point) -> Option<Figure>) -> Vec<Series<'a>> {
    let drawn = |point: &Point| {
        let (value, interval) = figure(point)?;
        Some(lines::Point {
            at: point.asked_packets_per_s,
            value,
            interval,
        })
    };
    let methods = results.methods.iter();
    methods
        .map(|method| Series {
            name: &method.name,
            points: method.points.iter().filter_map(drawn).collect(),
        })
        .collect()
}
