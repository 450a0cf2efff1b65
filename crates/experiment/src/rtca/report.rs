//! The report of the experiment of RTCA.

use crate::rtca::{ConfigurationResult, CostResult, Interference, LevelResult, Results};
use steadyvm_report::lines::{Axis, Lines, Over, Point, Series};
use steadyvm_report::page::{self, ReportMeta};
use steadyvm_report::text::{figure, ratio_words};
use steadyvm_report::{Grid, duration_words};

/// The report as HTML: plots over the levels of interference, and the tables.
pub fn render_rtca(results: &Results, meta: &ReportMeta) -> String {
    let introduction = format!(
        "Round trips and throughput between two high-priority endpoints while none, one, two or three \
         others send: {}.",
        results.endpoints.title()
    );
    let mut page = page::introduced(meta, &introduction, &results.notes);
    page += &page::cards("Over the levels of interference", &cards(results));
    page += &round_trips(results).html();
    page += &throughput(results).html();
    page + &page::reading(&READING)
}

const READING: [&str; 1] = [
    "A method alone takes the kernel’s plain path; method:N is one that takes at \
     most N packets of one endpoint before it looks for a more urgent one. Percentiles are nearest-rank, \
     of every counted sample of all rounds. Intervals are 95 %: hierarchical bootstrap over paired rounds \
     and blocks of consecutive samples, widened for the small number of rounds.",
];

fn cards(results: &Results) -> String {
    let card = |title: &str, words: fn(f64) -> String, value: fn(&LevelResult) -> Option<f64>| {
        let lines = Lines {
            title: title.to_owned(),
            over: Over::Places(&Interference::ALL.map(Interference::title)),
            axis: Axis::Logarithmic,
            words,
            mark: None,
            series: series(results, value),
        };
        lines.card()
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

/// A line a configuration over the levels.
fn series(results: &Results, value: fn(&LevelResult) -> Option<f64>) -> Vec<Series<'_>> {
    let point = |level: &LevelResult| {
        Some(Point {
            at: level.interference.senders() as f64,
            value: value(level)?,
            interval: None,
        })
    };
    let configurations = results.configurations.iter();
    configurations
        .map(|it| Series {
            name: &it.name,
            points: it.levels.iter().filter_map(point).collect(),
        })
        .collect()
}

fn round_trips(results: &Results) -> Grid {
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

fn throughput(results: &Results) -> Grid {
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
) -> Grid {
    let row = |configuration: &ConfigurationResult, level: &LevelResult| {
        let first = [&*configuration.name, level.interference.title()].map(str::to_owned);
        first.into_iter().chain(cells(level)).collect()
    };
    let configurations = results.configurations.iter();
    let headers = ["", "interference"].iter().chain(headers);
    Grid {
        title: title.to_owned(),
        words: 2,
        headers: headers.map(|name| (*name).to_owned()).collect(),
        rows: configurations
            .flat_map(|it| {
                it.levels
                    .iter()
                    .map(|level| row(it, level))
                    .collect::<Vec<_>>()
            })
            .collect(),
    }
}
