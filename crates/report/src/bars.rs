//! Figures as bars in groups, rounds as dots on them.

use crate::svg::{Svg, escape};
use crate::text::figure;
use crate::text::shortened;

const WIDTH: f64 = 400.0;
const LEFT: f64 = 118.0;
const RIGHT: f64 = WIDTH - 62.0;
const BAR_HEIGHT: f64 = 18.0;
const ROW_HEIGHT: f64 = 24.0;
const METHOD_GAP: f64 = 24.0;
/// Characters of a method's name that fit the width, wide ones too.
const NAME_CHARACTERS: usize = 36;

/// One bar.
pub struct Bar<'a> {
    /// What is to its left.
    pub name: &'static str,
    /// Its length.
    pub value: Option<f64>,
    /// The dots on it.
    pub rounds: &'a [f64],
}

/// A card with bars in groups that have a name each.
pub fn draw(groups: &[(&str, Vec<Bar>)], title: &str) -> String {
    let bars = groups.iter().map(|(_, bars)| bars.len()).sum::<usize>();
    let height = bars as f64 * ROW_HEIGHT + groups.len() as f64 * METHOD_GAP + 6.0;
    let values = || groups.iter().flat_map(|(_, bars)| bars);
    let largest = values()
        .flat_map(|bar| bar.value.into_iter().chain(bar.rounds.iter().copied()))
        .filter(|value| value.is_finite())
        .fold(1e-9, f64::max);
    let x = |value: f64| LEFT + (value / largest).clamp(0.0, 1.0) * (RIGHT - LEFT);

    let mut svg = Svg::new(WIDTH, height.max(40.0), title);
    let mut y = 0.0;
    for (index, (name, bars)) in groups.iter().enumerate() {
        y += METHOD_GAP;
        svg.text("strong", (0.0, y - 7.0), &shortened(name, NAME_CHARACTERS));
        for bar in bars {
            let middle = y + BAR_HEIGHT / 2.0;
            svg.text("quiet end", (LEFT - 8.0, middle + 4.0), bar.name);
            let value = bar.value.filter(|value| value.is_finite());
            if let Some(value) = value {
                let class = format!("f{}", index % 6);
                svg.bar(&class, (LEFT, y), x(value) - LEFT, BAR_HEIGHT);
            }
            let mut end = value.map_or(LEFT, x);
            for &round in bar.rounds.iter().filter(|it| it.is_finite()) {
                svg.dot("round", (x(round), middle), 3.0);
                end = end.max(x(round) + 3.0);
            }
            svg.text("", (end + 6.0, middle + 4.0), &figure(value));
            y += ROW_HEIGHT;
        }
    }
    let dots = if values().any(|bar| !bar.rounds.is_empty()) {
        "<p class=\"quiet\">Bars are means over rounds, dots the rounds.</p>"
    } else {
        "<p class=\"quiet\">Means over rounds.</p>"
    };
    format!(
        "<figure class=\"card\"><h3>{}</h3>{}{dots}</figure>\n",
        escape(title),
        svg.finish()
    )
}
