//! The table for a terminal.

use super::results::{ConfigurationResult, CostResult, LevelResult, Results};
use std::fmt::Write;
use steadyvm_report::text::{capitalised, figure, ratio_words};

/// The table, at most 100 columns wide. Ends with a newline.
pub fn render(results: &Results) -> String {
    let mut text = format!(
        "Round trips and throughput between two high-priority endpoints while none, one, two or \
         three others\nsend. {}.\n\n",
        capitalised(results.endpoints.title())
    );
    let _ = writeln!(
        text,
        "{:<22} {:>4} {:>4} {:>7} {:>7} {:>7} {:>7} {:<17} {:<17}",
        "round trips, µs", "n", "lost", "median", "p75", "p95", "max", "median/Base", "p95/Base"
    );
    each_level(results, &mut text, |level| {
        format!(
            "{:>4} {:>4} {:>7} {:>7} {:>7} {:>7} {:<17} {:<17}",
            level.n,
            level.lost,
            figure(level.median_us),
            figure(level.p75_us),
            figure(level.p95_us),
            figure(level.max_us),
            ratio_words(level.median_to_base),
            ratio_words(level.p95_to_base)
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
    each_level(results, &mut text, |level| {
        format!(
            "{:>7} {:<17}| {} {:<17}| {}",
            figure(level.mbit_per_s),
            ratio_words(level.mbit_per_s_to_base),
            cost(&level.round_trips_cost),
            ratio_words(level.round_trips_cost.others_to_first),
            cost(&level.stream_cost)
        )
    });
    text += "\nothers/s: packets a second that the low-priority endpoints got from one another, \
             CPU: busy share\nof all CPUs; first during the round trips, then during the stream. \
             /first: over the first\nconfiguration. Intervals: 95 %. A method alone: the plain path; \
             METHOD:N: at most N packets of one\nendpoint before a more urgent one is looked at.\n";
    for note in &results.notes {
        let _ = writeln!(text, "note: {note}");
    }
    text
}

fn each_level(results: &Results, text: &mut String, row: impl Fn(&LevelResult) -> String) {
    for ConfigurationResult { name, levels } in &results.configurations {
        for (index, level) in levels.iter().enumerate() {
            let name = if index == 0 { name.as_str() } else { "" };
            let title = level.interference.title();
            let line = format!("{name:<16}{title:<6} {}", row(level));
            let _ = writeln!(text, "{}", line.trim_end());
        }
    }
}

fn cost(cost: &CostResult) -> String {
    let percent = cost.cpu_busy_fraction.map(|share| 100.0 * share);
    let packets = cost
        .others_packets_per_s
        .map_or_else(|| "-".to_owned(), |rate| format!("{rate:.0}"));
    format!("{:>5} {packets:>8}", figure(percent))
}
