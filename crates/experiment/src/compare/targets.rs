//! What steadyvm's own methods are to reach over the peer `tuned`, and whether a run says that they do.

use super::ComparedMethod;
use super::price::Price;
use super::results::{RatioResult, Results};
use super::table::ratio_words;
use std::fmt::Write as _;
use steadyvm_host::Method;

/// A bound for a figure over the peer's.
struct Target {
    /// The figure's path in a method's entry of results.json.
    figure: &'static str,
    title: &'static str,
    bound: Bound,
}

#[derive(Clone, Copy)]
enum Bound {
    AtMost(f64),
    AtLeast(f64),
}

const TARGETS: [Target; 2] = [
    Target {
        figure: "netrt.p99_us",
        title: "p99 at most 0.5",
        bound: Bound::AtMost(0.5),
    },
    Target {
        figure: "netstream.mbit_per_s",
        title: "traffic at least 1.3",
        bound: Bound::AtLeast(1.3),
    },
];

impl Bound {
    /// Of the whole interval: a run that leaves it open says so.
    fn verdict(self, ratio: &RatioResult) -> &'static str {
        let (Some(low), Some(high)) = (ratio.low, ratio.high) else {
            return "open";
        };
        let (is_met, is_missed) = match self {
            Self::AtMost(bound) => (high <= bound, low > bound),
            Self::AtLeast(bound) => (low >= bound, high < bound),
        };
        match (is_met, is_missed) {
            (true, _) => "met",
            (_, true) => "missed",
            _ => "open",
        }
    }
}

/// A row for each method that takes no CPU and stands after the peer; empty without one.
pub fn table(results: &Results, methods: &[ComparedMethod]) -> String {
    let Some(peer) = methods.iter().find(|method| method.host == Method::Tuned) else {
        return String::new();
    };
    let peer = peer.to_string();
    let is_ours = |method: &&ComparedMethod| {
        let Price { cpus_set_aside, .. } = method.price();
        cpus_set_aside == 0 && !method.is_peer() && method.host != Method::Vanilla
    };
    let mut text = String::new();
    for method in methods.iter().filter(is_ours) {
        let name = method.to_string();
        let cells = TARGETS.map(|target| {
            let found = results.ratios.iter().find(|ratio| {
                ratio.of == name && ratio.to == peer && ratio.figure == target.figure
            });
            found.map_or("-".to_owned(), |ratio| {
                let words = ratio_words(ratio);
                format!("{words} {}", target.bound.verdict(ratio))
            })
        });
        // Writing to a string cannot fail.
        let _ = writeln!(text, "  {name:<22} {:>28} {:>28}", cells[0], cells[1]);
    }
    if text.is_empty() {
        return text;
    }
    let [p99, traffic] = TARGETS.map(|target| target.title);
    format!(
        "\nTargets over {peer}, NetStream at full speed, no CPU set aside; open = the interval has both\n  \
         {:<22} {p99:>28} {traffic:>28}\n{text}",
        "method"
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compare::results::{AssembleOptions, RunData, assemble};

    fn ratio(of: &str, figure: &str, median: f64, low: f64, high: f64) -> RatioResult {
        RatioResult {
            of: of.to_owned(),
            to: "tuned".to_owned(),
            figure: figure.to_owned(),
            median,
            low: Some(low),
            high: Some(high),
            estimate: None,
            rounds: 3,
        }
    }

    #[test]
    fn an_interval_beyond_a_bound_decides_and_another_is_open() {
        let (p99, traffic) = ("netrt.p99_us", "netstream.mbit_per_s");
        let mut results = assemble(&RunData::default(), AssembleOptions::default());
        results.ratios = vec![
            ratio("rt-profile", p99, 0.4, 0.3, 0.49),
            ratio("rt-profile", traffic, 1.2, 1.1, 1.29),
            ratio("outsourcing", p99, 0.45, 0.3, 0.6),
            ratio("outsourcing", traffic, 1.6, 1.4, 1.9),
            ratio("preempt-rt", p99, 0.8, 0.7, 0.9),
        ];
        let names = [
            "vanilla",
            "dedicated",
            "tuned",
            "rt-profile",
            "outsourcing",
            "preempt-rt",
        ];
        let methods = names.map(|name| name.parse::<ComparedMethod>().unwrap());
        let text = table(&results, &methods);
        let verdicts: Vec<Vec<&str>> = (text.lines().skip(3))
            .map(|line| {
                let words = line.split_whitespace();
                words
                    .filter(|word| word.chars().all(|it| it.is_ascii_lowercase() || it == '-'))
                    .collect()
            })
            .collect();
        assert_eq!(
            verdicts,
            [
                vec!["rt-profile", "met", "missed"],
                vec!["outsourcing", "open", "met"],
                vec!["preempt-rt", "missed", "-"],
            ]
        );
        assert!(text.lines().all(|line| line.len() <= 100), "{text}");
        assert_eq!(table(&results, &methods[3..]), "");
    }
}
