//! Ratios with their intervals on a logarithmic axis, one card a pair of methods.

use super::svg::{LogScale, Svg, escape, tick_words};
use crate::results::{Phase, RatioResult, Results, Service};
use crate::table::{figure_words, ratio_words};
use std::fmt::Write;

const WIDTH: f64 = 400.0;
const LEFT: f64 = 142.0;
const RIGHT: f64 = WIDTH - 128.0;
const ROW_HEIGHT: f64 = 20.0;
const AXIS_HEIGHT: f64 = 24.0;

/// One card for each pair of methods that has ratios.
pub(super) fn cards(results: &Results) -> String {
    let mut cards = String::new();
    let mut pairs: Vec<(&str, &str)> = Vec::new();
    for ratio in &results.ratios {
        if !pairs.contains(&(&ratio.of, &ratio.to)) {
            pairs.push((&ratio.of, &ratio.to));
        }
    }
    let colour = |name: &str| {
        results
            .methods
            .iter()
            .position(|it| it.name == name)
            .unwrap_or(0)
            % 6
    };
    for (of, to) in pairs {
        let ratios: Vec<&RatioResult> = results
            .ratios
            .iter()
            .filter(|it| (&*it.of, &*it.to) == (of, to))
            .collect();
        let _ = writeln!(
            cards,
            "<figure class=\"card\"><h3>{} / {}</h3>{}</figure>",
            escape(of),
            escape(to),
            draw(&ratios, of, to, colour(of), results.service)
        );
    }
    cards
}

fn draw(ratios: &[&RatioResult], of: &str, to: &str, colour: usize, service: Service) -> String {
    let groups = grouped(ratios, service);
    let rows = ratios.len() + groups.len();
    let height = rows as f64 * ROW_HEIGHT + AXIS_HEIGHT + 6.0;
    let mut svg = Svg::new(
        WIDTH,
        height,
        &format!("Ratios of {of} to {to} with intervals"),
    );
    let x = LogScale::new(range(ratios), (LEFT, RIGHT));
    let bottom = height - AXIS_HEIGHT;
    for tick in spaced(&x) {
        svg.line("gridline", (x.at(tick), 4.0), (x.at(tick), bottom));
        svg.text(
            "quiet middle",
            (x.at(tick), bottom + 16.0),
            &tick_words(tick),
        );
    }
    svg.line("one", (x.at(1.0), 4.0), (x.at(1.0), bottom));
    svg.text("quiet middle", (x.at(1.0), bottom + 16.0), "1");

    let mut y = 0.0;
    for (title, ratios) in groups {
        y += ROW_HEIGHT;
        svg.text("strong", (0.0, y - 3.0), title);
        for ratio in ratios {
            y += ROW_HEIGHT;
            row(&mut svg, &x, y - ROW_HEIGHT / 2.0 + 2.0, ratio, colour);
        }
    }
    svg.finish()
}

fn row(svg: &mut Svg, x: &LogScale, y: f64, ratio: &RatioResult, colour: usize) {
    svg.text("quiet", (8.0, y + 4.0), figure_words(&ratio.figure));
    if let (Some(low), Some(high)) = (ratio.low, ratio.high) {
        svg.line(
            &format!("interval c{colour}"),
            (x.at(low), y),
            (x.at(high), y),
        );
    }
    let dot = if ratio.excludes_one() {
        format!("f{colour}")
    } else {
        format!("hollow c{colour}")
    };
    svg.dot(&dot, (x.at(ratio.median), y), 4.0);
    svg.text("", (RIGHT + 10.0, y + 4.0), &ratio_words(ratio));
}

/// What a figure of the ratios, by its path in results.json, is about.
fn title_of(figure: &str, service: Service) -> &'static str {
    let key = figure.split_once('.').map_or("", |(key, _)| key);
    if service == Service::Own {
        return if key == Phase::Idle.key() {
            "NetRT round trips"
        } else {
            "CPU"
        };
    }
    for phase in Phase::ALL {
        let (netrt, wake_up) = match phase {
            Phase::Full => (
                "NetRT, NetStream at full speed",
                "Wake-up, NetStream at full speed",
            ),
            Phase::Equal => (
                "NetRT, NetStream at equal rate",
                "Wake-up, NetStream at equal rate",
            ),
            Phase::Idle => ("NetRT, no NetStream", "Wake-up, no NetStream"),
        };
        if key == phase.key() {
            return netrt;
        }
        if key == phase.wake_up_key() {
            return wake_up;
        }
    }
    "Traffic and CPU"
}

fn grouped<'a>(
    ratios: &[&'a RatioResult],
    service: Service,
) -> Vec<(&'static str, Vec<&'a RatioResult>)> {
    let mut groups: Vec<(&'static str, Vec<&RatioResult>)> = Vec::new();
    for &ratio in ratios {
        let title = title_of(&ratio.figure, service);
        match groups.last_mut() {
            Some((last, members)) if *last == title => members.push(ratio),
            _ => groups.push((title, vec![ratio])),
        }
    }
    groups
}

/// All intervals and 1, with a little room.
fn range(ratios: &[&RatioResult]) -> (f64, f64) {
    let ends = ratios
        .iter()
        .flat_map(|it| [it.low, it.high, Some(it.median)])
        .flatten();
    let (low, high) = ends
        .filter(|end| end.is_finite() && *end > 0.0)
        .fold((1.0_f64, 1.0_f64), |(low, high), end| {
            (low.min(end), high.max(end))
        });
    // Beyond a factor of 1,000 intervals are cut, or nothing else could be seen.
    ((low / 1.15).max(1e-3), (high * 1.15).min(1e3))
}

/// A label's width and some air, in the plot's units.
const LABEL_WIDTH: f64 = 24.0;

/// The ticks but 1 whose labels have room: those nearest to 1 first, each beside those before it.
fn spaced(x: &LogScale) -> Vec<f64> {
    let mut ticks = x.ticks();
    ticks.sort_by(|a, b| a.ln().abs().total_cmp(&b.ln().abs()));
    let mut kept = vec![1.0];
    for tick in ticks {
        let has_room = |other: &f64| (x.at(tick) - x.at(*other)).abs() > LABEL_WIDTH;
        if kept.iter().all(has_room) {
            kept.push(tick);
        }
    }
    kept.split_off(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_of_ticks_have_room() {
        for (low, high) in [
            (0.2, 3.5),
            (0.25, 3.3),
            (0.9, 1.1),
            (0.001, 1000.0),
            (0.5, 1.2),
        ] {
            let x = LogScale::new((low, high), (LEFT, RIGHT));
            let mut at: Vec<f64> = spaced(&x).into_iter().map(|tick| x.at(tick)).collect();
            at.push(x.at(1.0));
            at.sort_by(f64::total_cmp);
            assert!(
                at.windows(2).all(|two| two[1] - two[0] > LABEL_WIDTH),
                "{low} to {high}: {at:?}"
            );
        }
        // And none is dropped where all have it.
        let x = LogScale::new((0.05, 12.0), (LEFT, RIGHT));
        assert_eq!(spaced(&x), [0.1, 10.0]);
    }

    #[test]
    fn every_figure_stands_below_what_it_is_about() {
        for (figure, title) in [
            ("netrt.mean_us", "NetRT, NetStream at full speed"),
            ("netrt_idle.p99_us", "NetRT, no NetStream"),
            ("wake_up.sd_us", "Wake-up, NetStream at full speed"),
            ("wake_up_equal.p99_us", "Wake-up, NetStream at equal rate"),
            ("wake_up_idle.p50_us", "Wake-up, no NetStream"),
            ("host.cpu_busy_fraction", "Traffic and CPU"),
            ("netstream.mbit_per_s", "Traffic and CPU"),
        ] {
            assert_eq!(title_of(figure, Service::Vm), title, "{figure}");
        }
    }
}
