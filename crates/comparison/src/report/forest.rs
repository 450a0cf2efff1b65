//! Ratios with their intervals, one card a pair of methods.

use crate::Service;
use crate::data::Phase;
use crate::record::{pairs, ratios, service_of};
use crate::table::{figure_words, ratio_words};
use steadyvm_report::forest::{Forest, Row};
use steadyvm_report::joined;
use steadyvm_report::results::{Figure, Record};
use steadyvm_stats::bootstrap::Ratio;

/// One card for each pair of methods that has ratios.
pub(super) fn cards(record: &Record) -> String {
    joined(pairs(record), |(of, to)| {
        let mut rows = record.rows.iter();
        let found = ratios(record).filter(|(it, over, _)| (&*it.row, *over) == (of, to));
        let forest = Forest {
            title: format!("{of} / {to}"),
            label: format!("Ratios of {of} to {to} with intervals"),
            colour: rows.position(|it| it == of).unwrap_or(0),
            groups: grouped(found.map(|(it, _, ratio)| (it, ratio)), service_of(record)),
        };
        forest.card()
    })
}

/// What a figure of the ratios is about.
fn title_of(phase: Phase, figure: &str, service: Service) -> &'static str {
    let is_wake_up = figure.starts_with("wake_up.");
    if figure.starts_with("netstream.") || figure.starts_with("host.") {
        return if service == Service::Own {
            "CPU"
        } else {
            "Traffic and CPU"
        };
    }
    match (phase, is_wake_up) {
        _ if service == Service::Own => "NetRT round trips",
        (Phase::Full, false) => "NetRT, NetStream at full speed",
        (Phase::Equal, false) => "NetRT, NetStream at equal rate",
        (Phase::Idle, false) => "NetRT, no NetStream",
        (Phase::Full, true) => "Wake-up, NetStream at full speed",
        (Phase::Equal, true) => "Wake-up, NetStream at equal rate",
        (Phase::Idle, true) => "Wake-up, no NetStream",
    }
}

fn grouped<'a>(
    ratios: impl Iterator<Item = (&'a Figure, Ratio)>,
    service: Service,
) -> Vec<(&'static str, Vec<Row<'a>>)> {
    let mut groups: Vec<(&'static str, Vec<Row>)> = Vec::new();
    for (figure, ratio) in ratios {
        let phase = Phase::of_cell(&figure.cell);
        let row = Row {
            name: figure_words(phase, &figure.name),
            words: ratio_words(&ratio),
            middle: ratio.median,
            low: ratio.low,
            high: ratio.high,
        };
        let title = title_of(phase, &figure.name, service);
        match groups.last_mut() {
            Some((last, members)) if *last == title => members.push(row),
            _ => groups.push((title, vec![row])),
        }
    }
    groups
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_figure_stands_below_what_it_is_about() {
        for (phase, figure, title) in [
            (Phase::Full, "mean", "NetRT, NetStream at full speed"),
            (Phase::Idle, "p99", "NetRT, no NetStream"),
            (
                Phase::Full,
                "wake_up.sd",
                "Wake-up, NetStream at full speed",
            ),
            (
                Phase::Equal,
                "wake_up.p99",
                "Wake-up, NetStream at equal rate",
            ),
            (Phase::Idle, "wake_up.p50", "Wake-up, no NetStream"),
            (Phase::Full, "host.cpu_busy", "Traffic and CPU"),
            (Phase::Full, "netstream.throughput", "Traffic and CPU"),
        ] {
            assert_eq!(title_of(phase, figure, Service::Vm), title, "{figure}");
        }
    }
}
