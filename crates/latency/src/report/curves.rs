//! The two plots of a distribution: cumulative, and by percentile.

use super::svg::{LogScale, Svg, duration_words, escape, legend, line_classes};
use crate::results::{DistributionPoint, LatencyResult, MethodResult, Phase, Results};

const WIDTH: f64 = 400.0;
const HEIGHT: f64 = 270.0;
const LEFT: f64 = 58.0;
const RIGHT: f64 = WIDTH - 14.0;
const TOP: f64 = 12.0;
const BOTTOM: f64 = HEIGHT - 44.0;

/// Both plots of one phase, as cards with legends.
pub(super) fn cards(results: &Results, phase: Phase) -> String {
    let curves: Vec<&LatencyResult> = results
        .methods
        .iter()
        .map(|method| method.latency(phase))
        .collect();
    let legend = legend(results.methods.iter().map(|it| label(it, phase)));
    let phase_title = results.service.phase_title(phase);
    let title = escape(phase_title);
    format!(
        "<figure class=\"card\"><h3>Cumulative distribution, {title}</h3>{}{legend}</figure>\n\
         <figure class=\"card\"><h3>Round trip by percentile, {title}</h3>{}{legend}</figure>\n",
        cumulative(&curves, phase_title),
        by_percentile(&curves, phase_title),
    )
}

fn label(method: &MethodResult, phase: Phase) -> String {
    let latency = method.latency(phase);
    format!(
        "<span><b>{}</b> n = {}, lost {}, max {}</span>",
        escape(&method.name),
        latency.n,
        latency.lost,
        latency.max_us.map_or("-".to_owned(), duration_words),
    )
}

/// Fraction of round trips not above x; x logarithmic.
fn cumulative(curves: &[&LatencyResult], phase_title: &str) -> String {
    let label = format!("Cumulative distribution of NetRT round trips, {phase_title}");
    let mut svg = Svg::new(WIDTH, HEIGHT, &label);
    let Some(range) = range(curves) else {
        return nothing(svg);
    };
    let x = LogScale::new(range, (LEFT, RIGHT));
    let y = |fraction: f64| BOTTOM - fraction.clamp(0.0, 1.0) * (BOTTOM - TOP);
    for percent in [0, 25, 50, 75, 100] {
        let at = y(f64::from(percent) / 100.0);
        svg.line("gridline", (LEFT, at), (RIGHT, at));
        svg.text("quiet end", (LEFT - 6.0, at + 4.0), &format!("{percent} %"));
    }
    for tick in x.ticks() {
        svg.line("gridline", (x.at(tick), TOP), (x.at(tick), BOTTOM));
        svg.text(
            "quiet middle",
            (x.at(tick), BOTTOM + 16.0),
            &duration_words(tick),
        );
    }
    svg.text(
        "quiet middle",
        (f64::midpoint(LEFT, RIGHT), HEIGHT - 8.0),
        "round trip (log scale)",
    );
    for (index, latency) in curves.iter().enumerate() {
        let points: Vec<(f64, f64)> = usable(latency)
            .map(|point| (x.at(point.us), y(point.fraction)))
            .collect();
        draw_curve(&mut svg, index, &points);
    }
    svg.finish()
}

/// Round trip over percentile, the percentile as 1/(1-p) on a logarithmic scale, as HdrHistogram's
/// plots: each decade to the right is one more nine. The maximum stands at p = 1 - 1/2n.
fn by_percentile(curves: &[&LatencyResult], phase_title: &str) -> String {
    let label = format!("NetRT round trips by percentile, {phase_title}");
    let mut svg = Svg::new(WIDTH, HEIGHT, &label);
    let Some(range) = range(curves) else {
        return nothing(svg);
    };
    let most = curves
        .iter()
        .map(|latency| latency.n)
        .max()
        .unwrap_or(1)
        .max(5) as f64;
    let x = LogScale::new((1.0, 2.0 * most), (LEFT, RIGHT - 6.0));
    let y = LogScale::new(range, (BOTTOM, TOP));
    for tick in y.ticks() {
        svg.line("gridline", (LEFT, y.at(tick)), (RIGHT, y.at(tick)));
        svg.text(
            "quiet end",
            (LEFT - 6.0, y.at(tick) + 4.0),
            &duration_words(tick),
        );
    }
    let percentiles = ["0", "90", "99", "99.9", "99.99", "99.999", "99.9999"];
    for (nines, name) in percentiles.iter().enumerate() {
        let inverse = 10_f64.powi(nines as i32);
        if inverse <= 2.0 * most {
            svg.line("gridline", (x.at(inverse), TOP), (x.at(inverse), BOTTOM));
            svg.text(
                "quiet middle",
                (x.at(inverse), BOTTOM + 16.0),
                &format!("{name} %"),
            );
        }
    }
    let caption = "percentile (each decade one more nine); dot: maximum";
    svg.text(
        "quiet middle",
        (f64::midpoint(LEFT, RIGHT), HEIGHT - 8.0),
        caption,
    );
    for (index, latency) in curves.iter().enumerate() {
        let at_maximum = 2.0 * latency.n as f64;
        let points: Vec<(f64, f64)> = usable(latency)
            .map(|point| {
                let inverse = 1.0 / (1.0 - point.fraction);
                (
                    x.at(if inverse.is_finite() {
                        inverse
                    } else {
                        at_maximum
                    }),
                    y.at(point.us),
                )
            })
            .collect();
        draw_curve(&mut svg, index, &points);
    }
    svg.finish()
}

fn draw_curve(svg: &mut Svg, index: usize, points: &[(f64, f64)]) {
    svg.polyline(&format!("curve {}", line_classes(index)), points);
    if let Some(&maximum) = points.last() {
        svg.dot(&format!("f{}", index % 6), maximum, 4.0);
    }
}

fn nothing(mut svg: Svg) -> String {
    svg.text(
        "quiet middle",
        (WIDTH / 2.0, HEIGHT / 2.0),
        "no round trips were measured",
    );
    svg.finish()
}

fn range(curves: &[&LatencyResult]) -> Option<(f64, f64)> {
    let times = || {
        curves
            .iter()
            .flat_map(|latency| usable(latency))
            .map(|point| point.us)
    };
    let low = times().min_by(f64::total_cmp)?;
    let high = times().max_by(f64::total_cmp)?;
    Some((low * 0.95, high * 1.05))
}

fn usable(latency: &LatencyResult) -> impl Iterator<Item = &DistributionPoint> {
    latency.distribution.iter().filter(|point| {
        point.us.is_finite() && point.us >= 0.0 && (0.0..=1.0).contains(&point.fraction)
    })
}
