//! Figures over the rate of packets: a plot each, with a line a method.

use crate::nisp::udp::{Point, Results};
use crate::report::svg::{
    LinearScale, LogScale, Svg, escape, joined, legend, line_classes, tick_words,
};
use crate::rtca::RatioToBase;

const WIDTH: f64 = 400.0;
const HEIGHT: f64 = 260.0;
const LEFT: f64 = 62.0;
const RIGHT: f64 = WIDTH - 30.0;
const TOP: f64 = 16.0;
const BOTTOM: f64 = HEIGHT - 44.0;
/// Intervals of different methods at one rate stand this far from each other.
const BESIDE: f64 = 4.0;
/// Issue 4's target for levels.
const JITTER_TARGET: f64 = 1.5;

/// A figure over the rate.
struct Figure<'a> {
    title: String,
    value: &'a dyn Fn(&Point) -> Option<f64>,
    /// The ends of its interval.
    interval: fn(&Point) -> Option<(f64, f64)>,
    /// What a tick of its axis says.
    words: fn(f64) -> String,
    axis: Axis,
    /// A line to compare with, which the title names.
    mark: Option<f64>,
}

#[derive(Clone, Copy, PartialEq)]
enum Axis {
    /// From 0 to the largest figure, or to 1.
    Linear,
    /// Around the figures: for ratios.
    Logarithmic,
}

enum Scale {
    Linear(LinearScale),
    Logarithmic(LogScale),
}

impl<'a> Figure<'a> {
    /// Without intervals, from 0 up.
    fn from_zero(
        title: &str,
        words: fn(f64) -> String,
        value: &'a dyn Fn(&Point) -> Option<f64>,
    ) -> Self {
        Self {
            title: title.to_owned(),
            value,
            interval: |_| None,
            words,
            axis: Axis::Linear,
            mark: None,
        }
    }
}

/// A card a figure.
pub(super) fn cards(results: &Results) -> String {
    let legend = legend(results.methods.iter().map(|method| {
        let name = escape(&method.name);
        format!("<b>{name}</b>")
    }));
    let card = |figure: Figure| {
        let plot = plot(results, &figure);
        let title = escape(&figure.title);
        format!("<figure class=\"card\"><h3>{title}</h3>{plot}{legend}</figure>\n")
    };
    let ms = |us: f64| tick_words(us / 1e3) + " ms";
    let mean = card(Figure::from_zero("Mean response", ms, &|point| {
        Some(point.jobs.punctuality.response_mean_us)
    }));
    let p99 = card(Figure::from_zero(
        "99th percentile of responses",
        ms,
        &|point| Some(point.jobs.punctuality.response_p99_us),
    ));
    let deadlines = results.deadlines_us.iter().enumerate();
    let misses = joined(deadlines, |(index, &deadline_us)| {
        let deadline = ms(deadline_us as f64);
        card(Figure::from_zero(
            &format!("Jobs that missed the deadline of {deadline}"),
            |percent| tick_words(percent) + " %",
            &|point| {
                let ratio = point.jobs.punctuality.miss_ratios.get(index)?;
                Some(100.0 * ratio)
            },
        ))
    });
    let jitter = card(Figure {
        interval: |point| ends(point.jitter_sd_to_unloaded),
        axis: Axis::Logarithmic,
        mark: Some(JITTER_TARGET),
        ..Figure::from_zero(
            &format!("SD of jitter over unloaded (dashed: target {JITTER_TARGET})"),
            tick_words,
            &|point| Some(point.jitter_sd_to_unloaded?.estimate),
        )
    });
    let received = card(Figure::from_zero(
        "Received by the low-priority process, packets/s",
        tick_words,
        &|point| Some(point.received_packets_per_s),
    ));
    mean + &p99 + &misses + &jitter + &received
}

fn plot(results: &Results, figure: &Figure) -> String {
    let mut svg = Svg::new(WIDTH, HEIGHT, &figure.title);
    let points = || results.methods.iter().flat_map(|method| &method.points);
    let rates = points().map(|point| point.asked_packets_per_s);
    let x = LinearScale::new(rates.fold(1.0, f64::max), (LEFT, RIGHT));
    let values: Vec<f64> = points().filter_map(|point| usable(figure, point)).collect();
    let Some(y) = scale(figure, &values) else {
        let middle = (f64::midpoint(LEFT, RIGHT), f64::midpoint(TOP, BOTTOM));
        svg.text("quiet middle", middle, "nothing measured");
        return svg.finish();
    };
    for tick in y.ticks() {
        svg.line("gridline", (LEFT, y.at(tick)), (RIGHT, y.at(tick)));
        let words = (figure.words)(tick);
        svg.text("quiet end", (LEFT - 6.0, y.at(tick) + 4.0), &words);
    }
    for tick in x.ticks() {
        let at = (x.at(tick), BOTTOM + 16.0);
        svg.line("gridline", (x.at(tick), TOP), (x.at(tick), BOTTOM));
        svg.text("quiet middle", at, &tick_words(tick));
    }
    let under = (f64::midpoint(LEFT, RIGHT), HEIGHT - 8.0);
    svg.text("quiet middle", under, "asked of the source, packets/s");
    if let Some(mark) = figure.mark {
        svg.line("one", (LEFT, y.at(mark)), (RIGHT, y.at(mark)));
    }
    for (index, method) in results.methods.iter().enumerate() {
        let beside = BESIDE * (index as f64 - (results.methods.len() as f64 - 1.0) / 2.0);
        let colour = index % 6;
        let shown = || {
            let points = method.points.iter();
            points.filter_map(|it| Some((it, x.at(it.asked_packets_per_s), usable(figure, it)?)))
        };
        for (point, x, _) in shown() {
            if let Some((low, high)) = (figure.interval)(point) {
                let (from, to) = ((x + beside, y.at(low)), (x + beside, y.at(high)));
                svg.line(&format!("interval c{colour}"), from, to);
            }
        }
        let drawn: Vec<(f64, f64)> = shown().map(|(_, x, value)| (x, y.at(value))).collect();
        svg.polyline(&format!("curve {}", line_classes(index)), &drawn);
        for at in drawn {
            svg.dot(&format!("f{colour}"), at, 3.5);
        }
    }
    svg.finish()
}

/// The figure at a point, if its axis has a place for it.
fn usable(figure: &Figure, point: &Point) -> Option<f64> {
    let value = (figure.value)(point).filter(|value| value.is_finite())?;
    (figure.axis == Axis::Linear || value > 0.0).then_some(value)
}

/// A scale that has room for these values; `None` if there are none.
fn scale(figure: &Figure, values: &[f64]) -> Option<Scale> {
    let first = *values.first()?;
    let mark = figure.mark.unwrap_or(first);
    let lowest = values.iter().copied().fold(first.min(mark), f64::min);
    let highest = values.iter().copied().fold(first.max(mark), f64::max);
    Some(match figure.axis {
        Axis::Linear => Scale::Linear(LinearScale::new((1.08 * highest).max(1.0), (BOTTOM, TOP))),
        Axis::Logarithmic => {
            let range = (0.7 * lowest, 1.4 * highest);
            Scale::Logarithmic(LogScale::new(range, (BOTTOM, TOP)))
        }
    })
}

impl Scale {
    fn at(&self, value: f64) -> f64 {
        match self {
            Self::Linear(scale) => scale.at(value),
            Self::Logarithmic(scale) => scale.at(value),
        }
    }

    fn ticks(&self) -> Vec<f64> {
        match self {
            Self::Linear(scale) => scale.ticks(),
            Self::Logarithmic(scale) => scale.ticks(),
        }
    }
}

fn ends(ratio: Option<RatioToBase>) -> Option<(f64, f64)> {
    ratio.and_then(|ratio| ratio.low.zip(ratio.high))
}
