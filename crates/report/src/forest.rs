//! Ratios with their intervals on a logarithmic axis: a card each for what is compared.

use crate::svg::{LogScale, Svg, escape, tick_words};

const WIDTH: f64 = 400.0;
const LEFT: f64 = 142.0;
const RIGHT: f64 = WIDTH - 128.0;
const ROW_HEIGHT: f64 = 20.0;
const AXIS_HEIGHT: f64 = 24.0;

/// A card.
pub struct Forest<'a> {
    /// What is compared, above it.
    pub title: String,
    /// What it shows, for those who cannot see it.
    pub label: String,
    /// The number of the colour.
    pub colour: usize,
    /// Rows below titles.
    pub groups: Vec<(&'a str, Vec<Row<'a>>)>,
}

/// A ratio.
pub struct Row<'a> {
    /// Of which figure.
    pub name: &'a str,
    /// The ratio in words.
    pub words: String,
    /// Where its dot is.
    pub middle: f64,
    /// The ends of its interval.
    pub low: Option<f64>,
    /// The high end.
    pub high: Option<f64>,
}

impl Row<'_> {
    /// Whether the interval lies on one side of 1.
    fn excludes_one(&self) -> bool {
        self.low.is_some_and(|low| low > 1.0) || self.high.is_some_and(|high| high < 1.0)
    }
}

impl Forest<'_> {
    /// It as HTML.
    pub fn card(&self) -> String {
        let (title, plot) = (escape(&self.title), self.plot());
        format!("<figure class=\"card\"><h3>{title}</h3>{plot}</figure>\n")
    }

    fn plot(&self) -> String {
        let ratios: Vec<&Row> = self.groups.iter().flat_map(|(_, rows)| rows).collect();
        let rows = ratios.len() + self.groups.len();
        let height = rows as f64 * ROW_HEIGHT + AXIS_HEIGHT + 6.0;
        let mut svg = Svg::new(WIDTH, height, &self.label);
        let x = LogScale::new(range(&ratios), (LEFT, RIGHT));
        let bottom = height - AXIS_HEIGHT;
        for tick in spaced(&x) {
            svg.line("gridline", (x.at(tick), 4.0), (x.at(tick), bottom));
            let at = (x.at(tick), bottom + 16.0);
            svg.text("quiet middle", at, &tick_words(tick));
        }
        svg.line("one", (x.at(1.0), 4.0), (x.at(1.0), bottom));
        svg.text("quiet middle", (x.at(1.0), bottom + 16.0), "1");

        let mut y = 0.0;
        for (title, ratios) in &self.groups {
            y += ROW_HEIGHT;
            svg.text("strong", (0.0, y - 3.0), title);
            for ratio in ratios {
                y += ROW_HEIGHT;
                draw(
                    &mut svg,
                    &x,
                    y - ROW_HEIGHT / 2.0 + 2.0,
                    ratio,
                    self.colour % 6,
                );
            }
        }
        svg.finish()
    }
}

fn draw(svg: &mut Svg, x: &LogScale, y: f64, ratio: &Row, colour: usize) {
    svg.text("quiet", (8.0, y + 4.0), ratio.name);
    if let (Some(low), Some(high)) = (ratio.low, ratio.high) {
        let class = format!("interval c{colour}");
        svg.line(&class, (x.at(low), y), (x.at(high), y));
    }
    let dot = if ratio.excludes_one() {
        format!("f{colour}")
    } else {
        format!("hollow c{colour}")
    };
    svg.dot(&dot, (x.at(ratio.middle), y), 4.0);
    svg.text("", (RIGHT + 10.0, y + 4.0), &ratio.words);
}

/// All intervals and 1, with a little room.
fn range(ratios: &[&Row]) -> (f64, f64) {
    let ends = ratios
        .iter()
        .flat_map(|it| [it.low, it.high, Some(it.middle)])
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
}
