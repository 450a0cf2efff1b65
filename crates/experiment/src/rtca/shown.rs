//! What is shown of the record: the table for a terminal, and the report.

use super::figures::ENDPOINTS;
use crate::engine::Page;
use crate::engine::results::{At, Record};
use crate::testbed::{Endpoints, Interference};
use std::fmt::Write;
use steadyvm_report::lines::{Axis, Lines, Over, Point, Series};
use steadyvm_report::text::{capitalised, figure, ratio_words};
use steadyvm_report::{Grid, duration_words, page};

const READING: [&str; 1] = [
    "A method alone takes the kernel’s plain path; method:N is one that takes at \
     most N packets of one endpoint before it looks for a more urgent one. Percentiles are nearest-rank, \
     of every counted sample of all rounds. Intervals are 95 %: hierarchical bootstrap over paired rounds \
     and blocks of consecutive samples, widened for the small number of rounds.",
];

/// The report: plots over the levels of interference, and the tables.
pub fn page(record: &Record) -> Page {
    Page {
        introduction: format!(
            "Round trips and throughput between two high-priority endpoints while none, one, two or three \
             others send: {}.",
            endpoints(record).title()
        ),
        plots: page::cards("Over the levels of interference", &cards(record)),
        grids: vec![round_trips(record), throughput(record)],
        reading: &READING,
        notes: record.notes.clone(),
    }
}

fn endpoints(record: &Record) -> Endpoints {
    record.setting(ENDPOINTS).unwrap_or_default()
}

/// Every configuration at every level, in the order shown.
fn places(record: &Record) -> impl Iterator<Item = (Interference, At<'_>)> {
    let of = |row| Interference::ALL.map(|level| (level, record.at(row, level.key())));
    record.rows.iter().flat_map(move |row| of(row))
}

fn cards(record: &Record) -> String {
    let card = |title: &str, words: fn(f64) -> String, name: &str| {
        let lines = Lines {
            title: title.to_owned(),
            over: Over::Places(&Interference::ALL.map(Interference::title)),
            axis: Axis::Logarithmic,
            words,
            mark: None,
            series: series(record, name),
        };
        lines.card()
    };
    let rate = |mbit_per_s: f64| format!("{mbit_per_s:.0}");
    card("Median round trip", duration_words, "median")
        + &card("95th percentile of round trips", duration_words, "p95")
        + &card("Throughput, Mbit/s", rate, "throughput")
        + &card(
            "Packets/s of the others during round trips",
            rate,
            "others.round_trips",
        )
}

/// A line a configuration over the levels.
fn series<'r>(record: &'r Record, name: &str) -> Vec<Series<'r>> {
    let rows = record.rows.iter();
    rows.map(|row| {
        let point = |level: Interference| {
            Some(Point {
                at: level.senders() as f64,
                value: record.at(row, level.key()).value(name)?,
                interval: None,
            })
        };
        Series {
            name: row,
            points: Interference::ALL.into_iter().filter_map(point).collect(),
        }
    })
    .collect()
}

fn round_trips(record: &Record) -> Grid {
    let headers = [
        "n",
        "lost",
        "median, µs",
        "p75",
        "p95",
        "max",
        "median / Base",
        "p95 / Base",
    ];
    grid("Round trips", &headers, record, |at| {
        let mut cells = vec![at.count("n").to_string(), at.count("lost").to_string()];
        cells.extend(["median", "p75", "p95", "max"].map(|name| figure(at.value(name))));
        cells.extend(["median", "p95"].map(|name| ratio_words(at.ratio(name))));
        cells
    })
}

fn throughput(record: &Record) -> Grid {
    let title = "Throughput between the two, and the cost";
    let headers = [
        "Mbit/s",
        "/ Base",
        "CPU %, round trips",
        "others/s",
        "/ first",
        "CPU %, stream",
        "others/s",
        "/ first",
    ];
    grid(title, &headers, record, |at| {
        let mut cells = vec![
            figure(at.value("throughput")),
            ratio_words(at.ratio("throughput")),
        ];
        for what in ["round_trips", "stream"] {
            let others = format!("others.{what}");
            cells.extend([
                figure(busy_percent(at, what)),
                figure(at.value(&others)),
                ratio_words(at.ratio(&others)),
            ]);
        }
        cells
    })
}

fn grid(title: &str, headers: &[&str], record: &Record, cells: impl Fn(At) -> Vec<String>) -> Grid {
    let row = |(level, at): (Interference, At)| {
        let first = [at.row, level.title()].map(str::to_owned);
        first.into_iter().chain(cells(at)).collect()
    };
    let headers = ["", "interference"].iter().chain(headers);
    Grid {
        title: title.to_owned(),
        words: 2,
        headers: headers.map(|name| (*name).to_owned()).collect(),
        rows: places(record).map(row).collect(),
    }
}

fn busy_percent(at: At, what: &str) -> Option<f64> {
    Some(100.0 * at.value(&format!("cpu_busy.{what}"))?)
}

/// The table, at most 100 columns wide. Ends with a newline.
pub fn render(record: &Record) -> String {
    let mut text = format!(
        "Round trips and throughput between two high-priority endpoints while none, one, two or \
         three others\nsend. {}.\n\n",
        capitalised(endpoints(record).title())
    );
    let _ = writeln!(
        text,
        "{:<22} {:>4} {:>4} {:>7} {:>7} {:>7} {:>7} {:<17} {:<17}",
        "round trips, µs", "n", "lost", "median", "p75", "p95", "max", "median/Base", "p95/Base"
    );
    each_level(record, &mut text, |at| {
        format!(
            "{:>4} {:>4} {:>7} {:>7} {:>7} {:>7} {:<17} {:<17}",
            at.count("n"),
            at.count("lost"),
            figure(at.value("median")),
            figure(at.value("p75")),
            figure(at.value("p95")),
            figure(at.value("max")),
            ratio_words(at.ratio("median")),
            ratio_words(at.ratio("p95"))
        )
    });
    let _ = writeln!(
        text,
        "\n{:<22} {:>7} {:<17}| {:>5} {:>8} {:<17}| {:>5} {:>8}",
        "throughput and cost",
        "Mbit/s",
        "/Base",
        "CPU %",
        "others/s",
        "/first",
        "CPU %",
        "others/s"
    );
    each_level(record, &mut text, |at| {
        format!(
            "{:>7} {:<17}| {} {:<17}| {}",
            figure(at.value("throughput")),
            ratio_words(at.ratio("throughput")),
            cost(at, "round_trips"),
            ratio_words(at.ratio("others.round_trips")),
            cost(at, "stream")
        )
    });
    text += "\nothers/s: packets a second that the low-priority endpoints got from one another, \
             CPU: busy share\nof all CPUs; first during the round trips, then during the stream. \
             /first: over the first\nconfiguration. Intervals: 95 %. A method alone: the plain path; \
             METHOD:N: at most N packets of one\nendpoint before a more urgent one is looked at.\n";
    for note in &record.notes {
        let _ = writeln!(text, "note: {note}");
    }
    text
}

fn each_level(record: &Record, text: &mut String, row: impl Fn(At) -> String) {
    for (level, at) in places(record) {
        let is_first = level == Interference::Base;
        let name = if is_first { at.row } else { "" };
        let line = format!("{name:<16}{:<6} {}", level.title(), row(at));
        let _ = writeln!(text, "{}", line.trim_end());
    }
}

fn cost(at: At, what: &str) -> String {
    let percent = figure(busy_percent(at, what));
    let packets = at.value(&format!("others.{what}"));
    let packets = packets.map_or_else(|| "-".to_owned(), |rate| format!("{rate:.0}"));
    format!("{percent:>5} {packets:>8}")
}
