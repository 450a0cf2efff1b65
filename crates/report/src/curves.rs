//! The two plots of a distribution: cumulative, and by percentile.

use crate::svg::{LogScale, Svg, duration_words, escape, legend, line_classes};
use crate::text::capitalised;

const WIDTH: f64 = 400.0;
const HEIGHT: f64 = 270.0;
const LEFT: f64 = 58.0;
const RIGHT: f64 = WIDTH - 14.0;
const TOP: f64 = 12.0;
const BOTTOM: f64 = HEIGHT - 44.0;

/// A distribution.
pub struct Curve<'a> {
    /// Its name.
    pub name: &'a str,
    /// What the legend says of it besides.
    pub about: String,
    /// How many values it is of.
    pub n: u64,
    /// Values in microseconds, each with the share of all that is not above it, in ascending order.
    pub points: Vec<(f64, f64)>,
}

/// Both plots as cards with legends. `what` names the values, `when` what was going on.
pub fn cards(curves: &[Curve], what: &str, when: &str) -> String {
    let legend = legend(curves.iter().map(|curve| {
        let (name, about) = (escape(curve.name), escape(&curve.about));
        format!("<span><b>{name}</b> {about}</span>")
    }));
    let (what_html, when_html) = (escape(&capitalised(what)), escape(when));
    format!(
        "<figure class=\"card\"><h3>Cumulative distribution, {when_html}</h3>{}{legend}</figure>\n\
         <figure class=\"card\"><h3>{what_html} by percentile, {when_html}</h3>{}{legend}</figure>\n",
        cumulative(curves, what, when),
        by_percentile(curves, what, when),
    )
}

/// Fraction of values not above x; x logarithmic.
fn cumulative(curves: &[Curve], what: &str, when: &str) -> String {
    let label = format!("Cumulative distribution of {what}s, {when}");
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
        &format!("{what} (log scale)"),
    );
    for (index, curve) in curves.iter().enumerate() {
        let points: Vec<(f64, f64)> = usable(curve)
            .map(|(us, fraction)| (x.at(us), y(fraction)))
            .collect();
        draw_curve(&mut svg, index, &points);
    }
    svg.finish()
}

/// Value over percentile, the percentile as 1/(1-p) on a logarithmic scale, as HdrHistogram's
/// plots: each decade to the right is one more nine. The maximum stands at p = 1 - 1/2n.
fn by_percentile(curves: &[Curve], what: &str, when: &str) -> String {
    let label = format!("{what}s by percentile, {when}");
    let mut svg = Svg::new(WIDTH, HEIGHT, &label);
    let Some(range) = range(curves) else {
        return nothing(svg);
    };
    let most = curves.iter().map(|curve| curve.n).max().unwrap_or(1).max(5) as f64;
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
    for (index, curve) in curves.iter().enumerate() {
        let at_maximum = 2.0 * curve.n as f64;
        let points: Vec<(f64, f64)> = usable(curve)
            .map(|(us, fraction)| {
                let inverse = 1.0 / (1.0 - fraction);
                (
                    x.at(if inverse.is_finite() {
                        inverse
                    } else {
                        at_maximum
                    }),
                    y.at(us),
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
        "nothing was measured",
    );
    svg.finish()
}

fn range(curves: &[Curve]) -> Option<(f64, f64)> {
    let times = || curves.iter().flat_map(usable).map(|(us, _)| us);
    let low = times().min_by(f64::total_cmp)?;
    let high = times().max_by(f64::total_cmp)?;
    Some((low * 0.95, high * 1.05))
}

fn usable(curve: &Curve) -> impl Iterator<Item = (f64, f64)> {
    curve
        .points
        .iter()
        .copied()
        .filter(|(us, fraction)| us.is_finite() && *us >= 0.0 && (0.0..=1.0).contains(fraction))
}
