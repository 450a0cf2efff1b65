//! What steadyvm's own methods are to reach over the peer `tuned`, and whether a run says that they do.

use super::table::ratio_words;
use super::{Phase, THROUGHPUT, ratio_of};
use crate::engine::Bound;
use crate::engine::results::Record;
use crate::testbed::ComparedMethod;
use std::fmt::Write as _;
use steadyvm_methods::Method;

/// A bound for a figure over the peer's.
struct Target {
    /// The figure, with `NetStream` at full speed.
    figure: &'static str,
    title: &'static str,
    bound: Bound,
}

const TARGETS: [Target; 2] = [
    Target {
        figure: "p99",
        title: "p99 at most 0.5",
        bound: Bound::AtMost(0.5),
    },
    Target {
        figure: THROUGHPUT,
        title: "traffic at least 1.3",
        bound: Bound::AtLeast(1.3),
    },
];

/// A row for each method that takes no CPU and stands after the peer; empty without one.
pub fn table(record: &Record, methods: &[ComparedMethod]) -> String {
    let Some(peer) = methods.iter().find(|method| method.method == Method::Tuned) else {
        return String::new();
    };
    let peer = peer.to_string();
    let is_ours = |method: &&ComparedMethod| {
        let row = method.row();
        row.price.cpus_set_aside == 0 && !row.role.is_peer() && !row.switches.is_vanilla()
    };
    let mut text = String::new();
    for method in methods.iter().filter(is_ours) {
        let name = method.to_string();
        let cells = TARGETS.map(|target| {
            let pair = (&*name, &*peer);
            let found = ratio_of(record, pair, Phase::Full, target.figure);
            found.map_or("-".to_owned(), |ratio| {
                let words = ratio_words(&ratio);
                format!("{words} {}", target.bound.verdict(&ratio))
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
    use crate::engine::Figures;
    use steadyvm_stats::bootstrap::Ratio;

    /// Three rounds' ratios over the peer's, as median, low and high.
    fn record(ratios: &[(&str, &str, [f64; 3]); 5]) -> Record {
        let mut figures = Figures::default();
        for &(of, name, [median, low, high]) in ratios {
            let ratio = Ratio {
                estimate: median,
                median,
                low: Some(low),
                high: Some(high),
                rounds: 3,
            };
            figures.at(of, Phase::Full.cell());
            figures.ratio(name, ("tuned", Phase::Full.cell()), Some(ratio));
        }
        Record {
            figures: figures.all(),
            ..Record::default()
        }
    }

    #[test]
    fn an_interval_beyond_a_bound_decides_and_another_is_open() {
        let results = record(&[
            ("rt-profile", "p99", [0.4, 0.3, 0.49]),
            ("rt-profile", THROUGHPUT, [1.2, 1.1, 1.29]),
            ("outsourcing", "p99", [0.45, 0.3, 0.6]),
            ("outsourcing", THROUGHPUT, [1.6, 1.4, 1.9]),
            ("preempt-rt", "p99", [0.8, 0.7, 0.9]),
        ]);
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
