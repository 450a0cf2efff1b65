//! Throughput and CPU time as bars, rounds as dots on them.

use super::svg::{Svg, escape, shortened};
use crate::results::{MethodResult, Results, Service};
use crate::table::figure;

const WIDTH: f64 = 400.0;
const LEFT: f64 = 118.0;
const RIGHT: f64 = WIDTH - 62.0;
const BAR_HEIGHT: f64 = 18.0;
const ROW_HEIGHT: f64 = 24.0;
const METHOD_GAP: f64 = 24.0;
/// Characters of a method's name that fit the width, wide ones too.
const NAME_CHARACTERS: usize = 36;

const BUSY: &str = "Host CPU time busy, % of all CPUs";

/// One bar.
pub(super) struct Bar<'a> {
    /// What is to its left.
    pub name: &'static str,
    /// Its length.
    pub value: Option<f64>,
    /// The dots on it.
    pub rounds: &'a [f64],
}

/// Two cards: what NetStream carried, and how busy the host was; the second alone without `NetStream`.
pub(super) fn cards(results: &Results) -> String {
    if results.service == Service::Own {
        return of_methods(results, BUSY, |method| {
            let percent = method.host.idle_cpu_busy_fraction.map(|it| it * 100.0);
            vec![Bar {
                name: "host",
                value: percent,
                rounds: &[],
            }]
        });
    }
    let throughput = of_methods(results, "NetStream received, Mbit/s", |method| {
        let stream = &method.netstream;
        vec![
            Bar {
                name: "full speed",
                value: stream.mbit_per_s,
                rounds: &stream.rounds_mbit_per_s,
            },
            Bar {
                name: "equal rate",
                value: stream.equal_mbit_per_s,
                rounds: &stream.rounds_equal_mbit_per_s,
            },
        ]
    });
    let busy = of_methods(results, BUSY, |method| {
        let percent = |fraction: Option<f64>| fraction.map(|it| it * 100.0);
        let host = &method.host;
        vec![
            Bar {
                name: "full speed",
                value: percent(host.cpu_busy_fraction),
                rounds: &[],
            },
            Bar {
                name: "equal rate",
                value: percent(host.equal_cpu_busy_fraction),
                rounds: &[],
            },
            Bar {
                name: "no NetStream",
                value: percent(host.idle_cpu_busy_fraction),
                rounds: &[],
            },
        ]
    });
    throughput + &busy
}

fn of_methods<'a>(
    results: &'a Results,
    title: &str,
    bars_of: impl Fn(&'a MethodResult) -> Vec<Bar<'a>>,
) -> String {
    let groups: Vec<(&str, Vec<Bar>)> = results
        .methods
        .iter()
        .map(|method| (&*method.name, bars_of(method)))
        .collect();
    draw(&groups, title)
}

/// A card with bars in groups that have a name each.
pub(super) fn draw(groups: &[(&str, Vec<Bar>)], title: &str) -> String {
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
