//! The report of the experiment of RTCA.

use super::svg::{LogScale, Svg, duration_words, escape, joined, legend, line_classes};
use super::{ReportMeta, introduced};
use crate::rtca::ratio_words;
use crate::rtca::{ConfigurationResult, CostResult, Interference, LevelResult, Results};
use crate::table::figure;
use std::fmt::Write;

const WIDTH: f64 = 400.0;
const HEIGHT: f64 = 250.0;
const LEFT: f64 = 62.0;
const RIGHT: f64 = WIDTH - 30.0;
const TOP: f64 = 12.0;
const BOTTOM: f64 = HEIGHT - 34.0;

/// The report as HTML: plots over the levels of interference, and the tables.
pub fn render_rtca(results: &Results, meta: &ReportMeta) -> String {
    let introduction = format!(
        "Round trips and throughput between two high-priority endpoints while none, one, two or three \
         others send: {}.",
        results.endpoints.title()
    );
    let mut page = introduced(meta, &introduction, &results.notes);
    let _ = write!(
        page,
        "<h2>Over the levels of interference</h2>\n<div class=\"grid\">\n{}</div>\n",
        cards(results)
    );
    page += &round_trips(results);
    page += &throughput(results);
    page += "<h2>How to read this</h2>\n<p class=\"quiet\">A method alone takes the kernel’s plain path; \
             method:N is one that takes at most N packets of one endpoint before it looks for a more urgent \
             one. Percentiles are nearest-rank, of every counted sample of all rounds. Intervals are 95 %: \
             hierarchical bootstrap over paired rounds and blocks of consecutive samples, widened for the \
             small number of rounds.</p>\n</main>\n</body>\n</html>\n";
    page
}

fn cards(results: &Results) -> String {
    let names = results.configurations.iter();
    let legend = legend(names.map(|it| format!("<b>{}</b>", escape(&it.name))));
    let card = |title: &str, words: fn(f64) -> String, value: fn(&LevelResult) -> Option<f64>| {
        format!(
            "<figure class=\"card\"><h3>{title}</h3>{}{legend}</figure>\n",
            plot(results, title, words, value)
        )
    };
    let rate = |mbit_per_s: f64| format!("{mbit_per_s:.0}");
    card("Median round trip", duration_words, |it| it.median_us)
        + &card("95th percentile of round trips", duration_words, |it| {
            it.p95_us
        })
        + &card("Throughput, Mbit/s", rate, |it| it.mbit_per_s)
        + &card("Packets/s of the others during round trips", rate, |it| {
            it.round_trips_cost.others_packets_per_s
        })
}

/// A line a configuration over the levels, on a logarithmic scale.
fn plot(
    results: &Results,
    title: &str,
    words: fn(f64) -> String,
    value: fn(&LevelResult) -> Option<f64>,
) -> String {
    let mut svg = Svg::new(WIDTH, HEIGHT, title);
    let levels = || results.configurations.iter().flat_map(|it| &it.levels);
    let values: Vec<f64> = levels()
        .filter_map(value)
        .filter(|value| *value > 0.0)
        .collect();
    let Some(lowest) = values.iter().copied().reduce(f64::min) else {
        svg.text("quiet", (LEFT, TOP + 20.0), "nothing measured");
        return svg.finish();
    };
    let highest = values.iter().copied().fold(lowest, f64::max);
    let y = LogScale::new((0.8 * lowest, 1.25 * highest), (BOTTOM, TOP));
    for tick in y.ticks() {
        svg.line("gridline", (LEFT, y.at(tick)), (RIGHT, y.at(tick)));
        svg.text("quiet end", (LEFT - 6.0, y.at(tick) + 4.0), &words(tick));
    }
    let x = |level: Interference| {
        let share = level.senders() as f64 / (Interference::ALL.len() - 1) as f64;
        LEFT + 24.0 + share * (RIGHT - LEFT - 48.0)
    };
    for level in Interference::ALL {
        svg.text("quiet middle", (x(level), BOTTOM + 18.0), level.title());
    }
    for (index, configuration) in results.configurations.iter().enumerate() {
        let points: Vec<(f64, f64)> = configuration
            .levels
            .iter()
            .filter_map(|it| {
                let value = value(it).filter(|value| *value > 0.0)?;
                Some((x(it.interference), y.at(value)))
            })
            .collect();
        svg.polyline(&format!("curve {}", line_classes(index)), &points);
        for point in points {
            svg.dot(&format!("f{}", index % 6), point, 3.5);
        }
    }
    svg.finish()
}

fn round_trips(results: &Results) -> String {
    table(
        "Round trips",
        &[
            "n",
            "lost",
            "median, µs",
            "p75",
            "p95",
            "max",
            "median / Base",
            "p95 / Base",
        ],
        results,
        |level| {
            vec![
                level.n.to_string(),
                level.lost.to_string(),
                figure(level.median_us),
                figure(level.p75_us),
                figure(level.p95_us),
                figure(level.max_us),
                ratio_words(level.median_to_base),
                ratio_words(level.p95_to_base),
            ]
        },
    )
}

fn throughput(results: &Results) -> String {
    table(
        "Throughput between the two, and the cost",
        &[
            "Mbit/s",
            "/ Base",
            "CPU %, round trips",
            "others/s",
            "/ first",
            "CPU %, stream",
            "others/s",
            "/ first",
        ],
        results,
        |level| {
            let mut cells = vec![
                figure(level.mbit_per_s),
                ratio_words(level.mbit_per_s_to_base),
            ];
            for cost in [&level.round_trips_cost, &level.stream_cost] {
                cells.extend(cost_cells(cost));
            }
            cells
        },
    )
}

fn cost_cells(cost: &CostResult) -> [String; 3] {
    [
        figure(cost.cpu_busy_fraction.map(|share| 100.0 * share)),
        figure(cost.others_packets_per_s),
        ratio_words(cost.others_to_first),
    ]
}

fn table(
    title: &str,
    headers: &[&str],
    results: &Results,
    cells: impl Fn(&LevelResult) -> Vec<String>,
) -> String {
    let headers = joined(headers, |name| format!("<th>{name}</th>"));
    let rows = joined(&results.configurations, |configuration| {
        rows_of(configuration, &cells)
    });
    format!(
        "<h2>{title}</h2>\n<div class=\"scroll\" tabindex=\"0\"><table><thead><tr><th></th>\
         <th>interference</th>{headers}</tr></thead><tbody>{rows}</tbody></table></div>\n"
    )
}

fn rows_of(
    configuration: &ConfigurationResult,
    cells: &impl Fn(&LevelResult) -> Vec<String>,
) -> String {
    joined(&configuration.levels, |level| {
        let cells = joined(cells(level), |cell| format!("<td>{}</td>", escape(&cell)));
        format!(
            "<tr><th scope=\"row\">{}</th><td>{}</td>{cells}</tr>",
            escape(&configuration.name),
            level.interference.title()
        )
    })
}
