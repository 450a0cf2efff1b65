//! Ratios and their intervals, in words and as tables: a table a phase, a row a pair of methods.

use crate::Service;
use crate::data::Phase;
use crate::record::{
    BUSY, Intervals, THROUGHPUT, excludes_one, pairs, ratio_of, ratios, service_of,
};
use std::fmt::Write;
use steadyvm_report::results::Record;
use steadyvm_report::text::{WIDTH, cut, line};
use steadyvm_stats::bootstrap::Ratio;

const PAIR_WIDTH: usize = 22;
const CELL_WIDTH: usize = 18;
/// Columns of a table of ratios: their titles, and which figure of which phase they have.
type Columns<'a> = Vec<(&'a str, Phase, &'a str)>;

/// All tables of ratios; empty if there are none. Four figures fit a line: where there is a ratio
/// of p99.9 it takes the place of p50. The report and results.json have all.
pub(super) fn tables(record: &Record) -> String {
    let mut text = String::new();
    if ratios(record).next().is_none() {
        return text;
    }
    let basis = if Intervals::of(record).paired_rounds == 1 {
        ", within one round"
    } else {
        ""
    };
    line(&mut text, "");
    line(
        &mut text,
        &format!("Ratios with 95 % confidence intervals{basis}; * = excludes 1"),
    );
    let service = service_of(record);
    let has = |phase: Phase, name: &str| {
        ratios(record).any(|(it, ..)| (&*it.cell, &*it.name) == (phase.cell(), name))
    };
    for &phase in service.phases() {
        let title = match phase {
            _ if service == Service::Own => "round trips",
            Phase::Full => "full-speed NetStream",
            Phase::Equal => "equal-rate NetStream",
            Phase::Idle => "no NetStream",
        };
        let names = if has(phase, "p99.9") {
            ["mean", "sd", "p99", "p99.9"]
        } else {
            ["mean", "sd", "p50", "p99"]
        };
        let columns = names.map(|name| (figure_words(phase, name), phase, name));
        table(&mut text, title, &columns.into(), record);
    }
    for phase in Phase::ALL {
        if !has(phase, "wake_up.mean") {
            continue;
        }
        let title = match phase {
            Phase::Full => "wake-up, full speed",
            Phase::Equal => "wake-up, equal rate",
            Phase::Idle => "wake-up, no stream",
        };
        let names = if has(phase, "wake_up.p99.9") {
            ["wake_up.mean", "wake_up.sd", "wake_up.p99", "wake_up.p99.9"]
        } else {
            ["wake_up.mean", "wake_up.sd", "wake_up.p50", "wake_up.p99"]
        };
        let columns = names.map(|name| (figure_words(phase, name), phase, name));
        table(&mut text, title, &columns.into(), record);
    }
    let (title, columns) = if service == Service::Own {
        ("CPU", vec![("CPU", Phase::Idle, BUSY)])
    } else {
        let columns = vec![
            ("traffic full", Phase::Full, THROUGHPUT),
            ("traffic equal", Phase::Equal, THROUGHPUT),
            ("CPU full", Phase::Full, BUSY),
            ("CPU equal", Phase::Equal, BUSY),
        ];
        ("traffic and CPU", columns)
    };
    table(&mut text, title, &columns, record);
    text
}

fn table(text: &mut String, title: &str, columns: &Columns, record: &Record) {
    let mut header = format!("  {title:PAIR_WIDTH$}");
    for (name, ..) in columns {
        let _ = write!(header, " {name:>CELL_WIDTH$}");
    }
    line(text, &header);
    for (of, to) in pairs(record) {
        let mut pair = format!("{of} / {to}");
        if pair.chars().count() > PAIR_WIDTH {
            // A line of its own, since pairs may differ in their ends only.
            line(text, &format!("  {}", cut(&pair, WIDTH - 2)));
            pair.clear();
        }
        let mut row = format!("  {}", cut(&pair, PAIR_WIDTH));
        for (_, phase, name) in columns {
            let found = ratio_of(record, (of, to), *phase, name);
            let cell = found.as_ref().map_or("-".to_owned(), cell);
            let _ = write!(row, " {cell:>CELL_WIDTH$}");
        }
        line(text, &row);
    }
}

/// A ratio and its interval: `0.41 [0.35, 0.47]`.
pub fn ratio_words(ratio: &Ratio) -> String {
    let median = digits(ratio.median);
    match (ratio.low, ratio.high) {
        (Some(low), Some(high)) => format!("{median} [{}, {}]", digits(low), digits(high)),
        _ => format!("{median} [no interval]"),
    }
}

/// The same with a mark where the interval excludes 1, never wider than a column.
fn cell(ratio: &Ratio) -> String {
    let mark = if excludes_one(ratio) { "*" } else { " " };
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
pub(crate) fn figure_words(phase: Phase, name: &str) -> &str {
    match (name.strip_prefix("wake_up.").unwrap_or(name), phase) {
        ("sd", _) => "SD",
        (THROUGHPUT, Phase::Equal) => "NetStream, equal rate",
        (THROUGHPUT, _) => "NetStream, full speed",
        (BUSY, Phase::Full) => "host CPU, full speed",
        (BUSY, Phase::Equal) => "host CPU, equal rate",
        (BUSY, Phase::Idle) => "host CPU, no NetStream",
        (other, _) => other,
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
            let ratio = Ratio {
                estimate: median,
                median,
                low: Some(low),
                high: Some(high),
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
