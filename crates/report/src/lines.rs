//! Figures over what was asked for: a card with a line each for what is compared.

use crate::svg::{LinearScale, LogScale, Svg, escape, legend, line_classes, tick_words};

const WIDTH: f64 = 400.0;
const HEIGHT: f64 = 260.0;
const LEFT: f64 = 62.0;
const RIGHT: f64 = WIDTH - 30.0;
const TOP: f64 = 16.0;
const BOTTOM: f64 = HEIGHT - 44.0;
/// Intervals of different series at one place stand this far from each other.
const BESIDE: f64 = 4.0;
/// Air beside the first and the last of some places with names.
const MARGIN: f64 = 24.0;

/// A card.
pub struct Lines<'a> {
    /// What it shows.
    pub title: String,
    /// What is below it.
    pub over: Over<'a>,
    /// The scale of the figures.
    pub axis: Axis,
    /// What a tick of that scale says.
    pub words: fn(f64) -> String,
    /// A line to compare with, which the title names.
    pub mark: Option<f64>,
    /// A line each.
    pub series: Vec<Series<'a>>,
}

/// What figures are shown over.
#[derive(Clone, Copy)]
pub enum Over<'a> {
    /// Numbers from 0, of what this says.
    Numbers(&'a str),
    /// Places with names, numbered from 0.
    Places(&'a [&'a str]),
}

/// The scale of the figures.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Axis {
    /// From 0 to the largest figure, or to 1.
    Linear,
    /// Around the figures.
    Logarithmic,
}

/// A line.
pub struct Series<'a> {
    /// Its name.
    pub name: &'a str,
    /// From left to right.
    pub points: Vec<Point>,
}

/// A figure.
#[derive(Clone, Copy)]
pub struct Point {
    /// Where.
    pub at: f64,
    /// How large.
    pub value: f64,
    /// The ends of its interval.
    pub interval: Option<(f64, f64)>,
}

enum Scale {
    Linear(LinearScale),
    Logarithmic(LogScale),
}

impl Lines<'_> {
    /// It as HTML.
    pub fn card(&self) -> String {
        let names = self.series.iter();
        let legend = legend(names.map(|it| format!("<b>{}</b>", escape(it.name))));
        let (title, plot) = (escape(&self.title), self.plot());
        format!("<figure class=\"card\"><h3>{title}</h3>{plot}{legend}</figure>\n")
    }

    fn plot(&self) -> String {
        let mut svg = Svg::new(WIDTH, HEIGHT, &self.title);
        let Some(y) = self.scale() else {
            let middle = (f64::midpoint(LEFT, RIGHT), f64::midpoint(TOP, BOTTOM));
            svg.text("quiet middle", middle, "nothing measured");
            return svg.finish();
        };
        for tick in y.ticks() {
            svg.line("gridline", (LEFT, y.at(tick)), (RIGHT, y.at(tick)));
            svg.text(
                "quiet end",
                (LEFT - 6.0, y.at(tick) + 4.0),
                &(self.words)(tick),
            );
        }
        let x = self.horizontal(&mut svg);
        if let Some(mark) = self.mark {
            svg.line("one", (LEFT, y.at(mark)), (RIGHT, y.at(mark)));
        }
        for (index, series) in self.series.iter().enumerate() {
            let beside = BESIDE * (index as f64 - (self.series.len() as f64 - 1.0) / 2.0);
            let colour = index % 6;
            let shown = || series.points.iter().filter(|it| self.has_place_for(it));
            for point in shown() {
                if let Some((low, high)) = point.interval {
                    let x = x(point.at) + beside;
                    let class = format!("interval c{colour}");
                    svg.line(&class, (x, y.at(low)), (x, y.at(high)));
                }
            }
            let drawn: Vec<(f64, f64)> = shown().map(|it| (x(it.at), y.at(it.value))).collect();
            svg.polyline(&format!("curve {}", line_classes(index)), &drawn);
            for at in drawn {
                svg.dot(&format!("f{colour}"), at, 3.5);
            }
        }
        svg.finish()
    }

    /// Draws what is below, and gives where a place is.
    fn horizontal(&self, svg: &mut Svg) -> Box<dyn Fn(f64) -> f64> {
        match self.over {
            Over::Numbers(what) => {
                let x = LinearScale::new(
                    self.points().map(|it| it.at).fold(1.0, f64::max),
                    (LEFT, RIGHT),
                );
                for tick in x.ticks() {
                    svg.line("gridline", (x.at(tick), TOP), (x.at(tick), BOTTOM));
                    let at = (x.at(tick), BOTTOM + 16.0);
                    svg.text("quiet middle", at, &tick_words(tick));
                }
                let under = (f64::midpoint(LEFT, RIGHT), HEIGHT - 8.0);
                svg.text("quiet middle", under, what);
                Box::new(move |at| x.at(at))
            }
            Over::Places(names) => {
                let last = (names.len().max(2) - 1) as f64;
                let x = move |at: f64| LEFT + MARGIN + at / last * (RIGHT - LEFT - 2.0 * MARGIN);
                for (number, name) in names.iter().enumerate() {
                    svg.text("quiet middle", (x(number as f64), BOTTOM + 18.0), name);
                }
                Box::new(x)
            }
        }
    }

    fn points(&self) -> impl Iterator<Item = &Point> {
        self.series.iter().flat_map(|it| &it.points)
    }

    /// Whether the axis has a place for a figure.
    fn has_place_for(&self, point: &Point) -> bool {
        point.value.is_finite() && (self.axis == Axis::Linear || point.value > 0.0)
    }

    /// A scale that has room for all figures; `None` if there are none.
    fn scale(&self) -> Option<Scale> {
        let usable = || self.points().filter(|it| self.has_place_for(it));
        let values = || usable().map(|it| it.value).chain(self.mark);
        usable().next()?;
        let lowest = values().fold(f64::INFINITY, f64::min);
        let highest = values().fold(f64::NEG_INFINITY, f64::max);
        Some(match self.axis {
            Axis::Linear => {
                Scale::Linear(LinearScale::new((1.08 * highest).max(1.0), (BOTTOM, TOP)))
            }
            Axis::Logarithmic => {
                Scale::Logarithmic(LogScale::new((0.7 * lowest, 1.4 * highest), (BOTTOM, TOP)))
            }
        })
    }
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
