//! Ratios with their intervals, one card a pair of methods.

use crate::compare::results::{Phase, RatioResult, Results, Service};
use crate::compare::table::{figure_words, ratio_words};
use steadyvm_report::forest::{Forest, Row};
use steadyvm_report::joined;

/// One card for each pair of methods that has ratios.
pub(super) fn cards(results: &Results) -> String {
    let mut pairs: Vec<(&str, &str)> = Vec::new();
    for ratio in &results.ratios {
        if !pairs.contains(&(&ratio.of, &ratio.to)) {
            pairs.push((&ratio.of, &ratio.to));
        }
    }
    joined(pairs, |(of, to)| {
        let mut methods = results.methods.iter();
        let ratios = results.ratios.iter();
        let ratios = ratios.filter(|it| (&*it.of, &*it.to) == (of, to));
        let forest = Forest {
            title: format!("{of} / {to}"),
            label: format!("Ratios of {of} to {to} with intervals"),
            colour: methods.position(|it| it.name == of).unwrap_or(0),
            groups: grouped(ratios, results.service),
        };
        forest.card()
    })
}

/// What a figure of the ratios, by its path in results.json, is about.
fn title_of(figure: &str, service: Service) -> &'static str {
    let key = figure.split_once('.').map_or("", |(key, _)| key);
    if service == Service::Own {
        return if key == Phase::Idle.key() {
            "NetRT round trips"
        } else {
            "CPU"
        };
    }
    for phase in Phase::ALL {
        let (netrt, wake_up) = match phase {
            Phase::Full => (
                "NetRT, NetStream at full speed",
                "Wake-up, NetStream at full speed",
            ),
            Phase::Equal => (
                "NetRT, NetStream at equal rate",
                "Wake-up, NetStream at equal rate",
            ),
            Phase::Idle => ("NetRT, no NetStream", "Wake-up, no NetStream"),
        };
        if key == phase.key() {
            return netrt;
        }
        if key == phase.wake_up_key() {
            return wake_up;
        }
    }
    "Traffic and CPU"
}

fn grouped<'a>(
    ratios: impl Iterator<Item = &'a RatioResult>,
    service: Service,
) -> Vec<(&'static str, Vec<Row<'a>>)> {
    let mut groups: Vec<(&'static str, Vec<Row>)> = Vec::new();
    for ratio in ratios {
        let row = Row {
            name: figure_words(&ratio.figure),
            words: ratio_words(ratio),
            middle: ratio.median,
            low: ratio.low,
            high: ratio.high,
        };
        let title = title_of(&ratio.figure, service);
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
        for (figure, title) in [
            ("netrt.mean_us", "NetRT, NetStream at full speed"),
            ("netrt_idle.p99_us", "NetRT, no NetStream"),
            ("wake_up.sd_us", "Wake-up, NetStream at full speed"),
            ("wake_up_equal.p99_us", "Wake-up, NetStream at equal rate"),
            ("wake_up_idle.p50_us", "Wake-up, no NetStream"),
            ("host.cpu_busy_fraction", "Traffic and CPU"),
            ("netstream.mbit_per_s", "Traffic and CPU"),
        ] {
            assert_eq!(title_of(figure, Service::Vm), title, "{figure}");
        }
    }
}
