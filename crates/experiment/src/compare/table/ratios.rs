//! Ratios and their intervals, in words and as tables: a table a phase, a row a pair of methods.

use crate::compare::results::{Phase, RatioResult, Results, Service};
use std::fmt::Write;
use steadyvm_report::text::{WIDTH, cut, line};

const PAIR_WIDTH: usize = 22;
const CELL_WIDTH: usize = 18;
/// Traffic and CPU time, the columns of the last table.
const TRAFFIC_FIGURES: [&str; 4] = [
    "netstream.mbit_per_s",
    "netstream.equal_mbit_per_s",
    "host.cpu_busy_fraction",
    "host.equal_cpu_busy_fraction",
];
const TRAFFIC_HEADERS: [&str; 4] = ["traffic full", "traffic equal", "CPU full", "CPU equal"];

/// All tables of ratios; empty if there are none. Four figures fit a line: where there is a ratio
/// of p99.9 it takes the place of p50. The report and results.json have all.
pub(super) fn tables(results: &Results) -> String {
    let mut text = String::new();
    if results.ratios.is_empty() {
        return text;
    }
    let basis = if results.bootstrap.paired_rounds == 1 {
        ", within one round"
    } else {
        ""
    };
    line(&mut text, "");
    line(
        &mut text,
        &format!("Ratios with 95 % confidence intervals{basis}; * = excludes 1"),
    );
    let loads = |phase| match phase {
        _ if results.service == Service::Own => "round trips",
        Phase::Full => "full-speed NetStream",
        Phase::Equal => "equal-rate NetStream",
        Phase::Idle => "no NetStream",
    };
    let wake_ups = |phase| match phase {
        Phase::Full => "wake-up, full speed",
        Phase::Equal => "wake-up, equal rate",
        Phase::Idle => "wake-up, no stream",
    };
    let measured = results.service.phases().iter();
    let round_trips = measured.map(|phase| (loads(*phase), phase.key()));
    let wake_ups = Phase::ALL.map(|phase| (wake_ups(phase), phase.wake_up_key()));
    let is_traced = |(_, key): &(_, &str)| {
        let figure = format!("{key}.mean_us");
        results.ratios.iter().any(|it| it.figure == figure)
    };
    let wake_ups = wake_ups.into_iter().filter(is_traced);
    for (title, key) in round_trips.chain(wake_ups) {
        let path = |name: &str| format!("{key}.{name}");
        let has_p999 = results.ratios.iter().any(|it| it.figure == path("p999_us"));
        let names = if has_p999 {
            ["mean_us", "sd_us", "p99_us", "p999_us"]
        } else {
            ["mean_us", "sd_us", "p50_us", "p99_us"]
        };
        let figures = names.map(path);
        let headers = names.map(figure_words);
        let figures = figures.each_ref().map(String::as_str);
        table(&mut text, title, &headers, &figures, results);
    }
    let (title, headers, figures): (_, &[&str], &[&str]) = if results.service == Service::Own {
        ("CPU", &["CPU"], &["host.idle_cpu_busy_fraction"])
    } else {
        ("traffic and CPU", &TRAFFIC_HEADERS, &TRAFFIC_FIGURES)
    };
    table(&mut text, title, headers, figures, results);
    text
}

fn table(text: &mut String, title: &str, headers: &[&str], figures: &[&str], results: &Results) {
    let mut header = format!("  {title:PAIR_WIDTH$}");
    for name in headers {
        let _ = write!(header, " {name:>CELL_WIDTH$}");
    }
    line(text, &header);
    let mut pairs: Vec<(&str, &str)> = Vec::new();
    for ratio in &results.ratios {
        if !pairs.contains(&(&ratio.of, &ratio.to)) {
            pairs.push((&ratio.of, &ratio.to));
        }
    }
    for (of, to) in pairs {
        let mut pair = format!("{of} / {to}");
        if pair.chars().count() > PAIR_WIDTH {
            // A line of its own, since pairs may differ in their ends only.
            line(text, &format!("  {}", cut(&pair, WIDTH - 2)));
            pair.clear();
        }
        let mut row = format!("  {}", cut(&pair, PAIR_WIDTH));
        for figure in figures {
            let found = results
                .ratios
                .iter()
                .find(|it| it.of == of && it.to == to && it.figure == *figure);
            let _ = write!(row, " {:>CELL_WIDTH$}", found.map_or("-".to_owned(), cell));
        }
        line(text, &row);
    }
}

/// A ratio and its interval: `0.41 [0.35, 0.47]`.
pub(crate) fn ratio_words(ratio: &RatioResult) -> String {
    let median = digits(ratio.median);
    match (ratio.low, ratio.high) {
        (Some(low), Some(high)) => format!("{median} [{}, {}]", digits(low), digits(high)),
        _ => format!("{median} [no interval]"),
    }
}

/// The same with a mark where the interval excludes 1, never wider than a column.
fn cell(ratio: &RatioResult) -> String {
    let mark = if ratio.excludes_one() { "*" } else { " " };
    ratio_words(ratio) + mark
}

/// At most four characters, as many digits as they hold: a leading zero goes before a digit does.
fn digits(value: f64) -> String {
    match value {
        999.5..1e9 => format!("{value:.0e}"),
        99.95..999.5 => format!("{value:.0}"),
        9.995..99.95 => format!("{value:.1}"),
        0.0995..9.995 => format!("{value:.2}"),
        0.00995..0.0995 => format!("{value:.3}").trim_start_matches('0').to_owned(),
        1e-9..0.00995 => format!("{value:.0e}"),
        ..1e-9 => "~0".to_owned(),
        _ => ">1e9".to_owned(),
    }
}

/// What a ratio's figure is called where its phase is said apart.
pub(crate) fn figure_words(figure: &str) -> &str {
    match figure.split_once('.').map_or(figure, |(_, name)| name) {
        "mean_us" => "mean",
        "sd_us" => "SD",
        "p50_us" => "p50",
        "p99_us" => "p99",
        "p999_us" => "p99.9",
        "mbit_per_s" => "NetStream, full speed",
        "equal_mbit_per_s" => "NetStream, equal rate",
        "cpu_busy_fraction" => "host CPU, full speed",
        "equal_cpu_busy_fraction" => "host CPU, equal rate",
        "idle_cpu_busy_fraction" => "host CPU, no NetStream",
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_cell_fits_its_column(exponents in proptest::array::uniform3(-400.0_f64..400.0)) {
            let [median, low, high] = exponents.map(|exponent| 10_f64.powf(exponent));
            let ratio = RatioResult {
                of: String::new(),
                to: String::new(),
                figure: String::new(),
                median,
                low: Some(low),
                high: Some(high),
                estimate: None,
                rounds: 3,
            };
            prop_assert!(cell(&ratio).chars().count() <= CELL_WIDTH, "{}", cell(&ratio));
        }
    }

    #[test]
    fn digits_are_rounded_never_cut() {
        let shown = [
            0.0, 0.004, 0.0096, 0.01, 0.0994, 0.0996, 0.41, 1.0, 9.994, 9.996, 99.96, 1234.0, 1e12,
        ]
        .map(digits);
        assert_eq!(
            shown,
            [
                "~0", "4e-3", "1e-2", ".010", ".099", "0.10", "0.41", "1.00", "9.99", "10.0",
                "100", "1e3", ">1e9"
            ]
        );
    }
}
