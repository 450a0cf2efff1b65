//! A page's picture: bars for each condition, as an SVG file of its own. It has its own background, so that it can be
//! read on any page, and follows a reader's dark colours.

use crate::svg::escape;
use crate::text::shortened;
use serde::Deserialize;
use std::fmt::Write as _;

const WIDTH: f64 = 760.0;
const LEFT: f64 = 190.0;
const RIGHT: f64 = WIDTH - 110.0;
const BAR: f64 = 18.0;
const ROW: f64 = 24.0;
const TITLE: f64 = 46.0;
const GROUP: f64 = 32.0;
const NAME_CHARACTERS: usize = 25;

const STYLE: &str = "text { font: 14px sans-serif; fill: #1d2329 } .title { font-weight: bold; font-size: 16px } \
    .group { font-weight: bold } .name { text-anchor: end } .paper { fill: #ffffff } \
    .c0 { fill: #0072b2 } .c1 { fill: #d55e00 } .c2 { fill: #009e73 } .c3 { fill: #a14d82 } .c4 { fill: #b07700 } \
    .c5 { fill: #2b8fc4 } @media (prefers-color-scheme: dark) { text { fill: #e6e9ec } .paper { fill: #14171a } \
    .c0 { fill: #56b4e9 } .c1 { fill: #ff8a4c } .c2 { fill: #2fd1a3 } .c3 { fill: #e6a0cc } .c4 { fill: #f0c145 } \
    .c5 { fill: #9ccff0 } }";

/// Bars in groups.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Picture {
    /// What the bars are, with the direction that is better: "99th percentile of round trips; shorter is better".
    pub title: String,
    /// A group for each condition.
    pub groups: Vec<Group>,
}

/// A condition.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Group {
    /// Its name.
    pub name: String,
    /// A few bars.
    pub bars: Vec<Bar>,
}

/// A bar.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Bar {
    /// What stands to its left. Bars of one name have one colour.
    pub name: String,
    /// Its length; `None` where it was not measured.
    pub value: Option<f64>,
    /// The value in words, to its right.
    pub words: String,
}

impl Bar {
    /// A bar of a value and its words, or of none.
    pub fn new(name: &str, value: Option<f64>, words: impl Fn(f64) -> String) -> Self {
        let value = value.filter(|value| value.is_finite() && *value >= 0.0);
        Self {
            name: name.to_owned(),
            value,
            words: value.map_or_else(|| "not measured".to_owned(), words),
        }
    }
}

impl Picture {
    /// What it shows, for those who cannot see it: every bar in words.
    pub fn description(&self) -> String {
        let groups = self.groups.iter().map(|group| {
            let bars = group
                .bars
                .iter()
                .map(|it| format!("{} {}", it.name, it.words));
            format!("{}: {}", group.name, bars.collect::<Vec<_>>().join(", "))
        });
        let groups: Vec<String> = groups.collect();
        if groups.is_empty() {
            return "Nothing was measured.".to_owned();
        }
        groups.join(". ") + "."
    }

    /// It as a file.
    pub fn svg(&self) -> String {
        let bars = || self.groups.iter().flat_map(|group| &group.bars);
        let largest = bars().filter_map(|bar| bar.value).fold(0.0, f64::max);
        let rows = bars().count() as f64 * ROW + self.groups.len() as f64 * GROUP;
        let height = TITLE + rows + 14.0;
        let (title, description) = (escape(&self.title), escape(&self.description()));
        let mut svg = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" role=\"img\" \
             aria-labelledby=\"title description\">\n<title id=\"title\">{title}</title>\n\
             <desc id=\"description\">{description}</desc>\n<style>{STYLE}</style>\n\
             <rect class=\"paper\" width=\"100%\" height=\"100%\"/>\n\
             <text class=\"title\" x=\"14\" y=\"28\">{title}</text>\n"
        );
        let names = self.names();
        let mut y = TITLE;
        for group in &self.groups {
            let name = escape(&group.name);
            // Writing to a string cannot fail.
            let _ = writeln!(
                svg,
                "<text class=\"group\" x=\"14\" y=\"{:.0}\">{name}</text>",
                y + GROUP - 12.0
            );
            y += GROUP;
            for bar in &group.bars {
                let colour = names.iter().position(|name| *name == bar.name);
                draw(&mut svg, bar, y, colour.unwrap_or(0) % 6, largest);
                y += ROW;
            }
        }
        svg + "</svg>\n"
    }

    /// The names of bars, each once.
    fn names(&self) -> Vec<&str> {
        let mut names: Vec<&str> = Vec::new();
        for bar in self.groups.iter().flat_map(|group| &group.bars) {
            if !names.contains(&&*bar.name) {
                names.push(&bar.name);
            }
        }
        names
    }
}

fn draw(svg: &mut String, bar: &Bar, y: f64, colour: usize, largest: f64) {
    let text = y + BAR - 4.0;
    let share = bar
        .value
        .map_or(0.0, |value| value / largest.max(f64::MIN_POSITIVE));
    let length = share.clamp(0.0, 1.0) * (RIGHT - LEFT);
    let name = escape(&shortened(&bar.name, NAME_CHARACTERS));
    let words = escape(&bar.words);
    // Writing to a string cannot fail.
    let _ = writeln!(
        svg,
        "<text class=\"name\" x=\"{:.0}\" y=\"{text:.0}\">{name}</text>\
         <rect class=\"c{colour}\" x=\"{LEFT:.0}\" y=\"{y:.0}\" width=\"{:.1}\" height=\"{BAR:.0}\" rx=\"2\"/>\
         <text x=\"{:.1}\" y=\"{text:.0}\">{words}</text>",
        LEFT - 10.0,
        length.max(1.0),
        LEFT + length + 8.0
    );
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn picture(values: &[Option<f64>]) -> Picture {
        let bar = |value: &Option<f64>| Bar::new("a<b", *value, |it| format!("{it} ms"));
        Picture {
            title: "p99 & more".to_owned(),
            groups: vec![Group {
                name: "beside".to_owned(),
                bars: values.iter().map(bar).collect(),
            }],
        }
    }

    #[test]
    fn it_says_in_words_what_it_shows() {
        let picture = picture(&[Some(1.5), None]);
        assert_eq!(
            picture.description(),
            "beside: a<b 1.5 ms, a<b not measured."
        );
        let svg = picture.svg();
        assert!(svg.contains("role=\"img\" aria-labelledby=\"title description\""));
        assert!(svg.contains("<title id=\"title\">p99 &amp; more</title>"));
        assert!(svg.contains("a&lt;b 1.5 ms, a&lt;b not measured."));
        assert!(svg.contains("prefers-color-scheme: dark") && svg.contains("class=\"paper\""));
        assert_eq!(Picture::default().description(), "Nothing was measured.");
    }

    proptest! {
        #[test]
        fn every_bar_is_inside_and_the_longest_is_the_largest(values in proptest::collection::vec(any::<f64>(), 1..9)) {
            let values: Vec<Option<f64>> = values.into_iter().map(Some).collect();
            let svg = picture(&values).svg();
            let widths = svg.split("width=\"").skip(2).map(|it| it.split('"').next().unwrap());
            let widths: Vec<f64> = widths.map(|it| it.parse().unwrap()).collect();
            prop_assert_eq!(widths.len(), values.len());
            prop_assert!(widths.iter().all(|it| (1.0..=RIGHT - LEFT).contains(it)), "{:?}", widths);
        }
    }
}
