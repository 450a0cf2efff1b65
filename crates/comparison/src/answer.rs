//! What a comparison's page begins with: the 99th percentile beside the stream over the first method's.

use crate::data::Phase;
use crate::record::{THROUGHPUT, ratio_of, service_of};
use crate::service::Service;
use steadyvm_report::of_record::{code, groups};
use steadyvm_report::results::Record;
use steadyvm_report::{Answer, Finding, Over, Picture, duration_words};

/// The figure that the answer is of.
const FIGURE: &str = "p99";
/// What `steadyvm measure` answers, with and without what is in force.
const OWN_QUESTION: &str = "Is a service of this host steadier with steadyvm?";
/// The same, of methods and files.
const OWN_QUESTION_COMPARED: &str = "Which settings keep a service of this host steadiest?";
/// So many methods have room for their traffic in the sentence.
const FEW: usize = 4;

/// What a measurement of one's own host answers, by its rows.
pub fn own_question(rows: &[String]) -> &'static str {
    if rows == ["without", "with"] {
        OWN_QUESTION
    } else {
        OWN_QUESTION_COMPARED
    }
}

/// The answer of a comparison's record to a question, the page's title.
pub fn answer(record: &Record, question: &str) -> Answer {
    let service = service_of(record);
    let phases = service.phases().iter();
    let conditions = phases.map(|phase| (phase.cell(), condition(service, *phase)));
    let conditions: Vec<(&str, &str)> = conditions.collect();
    Answer {
        question: question.to_owned(),
        findings: findings(record, service),
        picture: Picture {
            title: "99th percentile of round trips; shorter is better".to_owned(),
            groups: groups(record, &conditions, FIGURE, duration_words),
        },
    }
}

fn condition(service: Service, phase: Phase) -> &'static str {
    match phase {
        _ if service == Service::Own => "beside the host's own load",
        Phase::Full => "beside a full stream",
        Phase::Equal => "beside a stream of one equal rate",
        Phase::Idle => "without a stream",
    }
}

fn findings(record: &Record, service: Service) -> Vec<Finding> {
    let phase = if service == Service::Own {
        Phase::Idle
    } else {
        Phase::Full
    };
    let condition = condition(service, phase);
    let of = |pair: Pair, figure: &str, words: &str| Finding::Ratio {
        of: code(pair.row),
        over: format!("{} {condition}", pair.whose(words)),
        ratio: ratio_of(record, (pair.row, pair.base), phase, figure).map(|it| Over::median(&it)),
    };
    let pairs = || pairs(&record.rows).into_iter();
    let mut findings: Vec<Finding> = pairs().map(|pair| of(pair, FIGURE, FIGURE)).collect();
    if record.rows.len() <= FEW && service != Service::Own {
        findings.extend(pairs().map(|pair| of(pair, THROUGHPUT, "throughput")));
    }
    findings
}

/// What is held against what.
#[derive(Debug, Clone, Copy)]
struct Pair<'a> {
    row: &'a str,
    base: &'a str,
    /// The base's kernel, where it is the same method on another.
    kernel: Option<&'a str>,
}

impl Pair<'_> {
    /// A figure of the base.
    fn whose(self, words: &str) -> String {
        match self.kernel {
            Some(kernel) => format!("the {words} of the same method on {}", code(kernel)),
            None => format!("{}'s {words}", code(self.base)),
        }
    }
}

/// Where kernels are named, each method is held against itself on the kernel before; else all against the first row.
fn pairs(rows: &[String]) -> Vec<Pair<'_>> {
    let on_kernels = rows.iter().enumerate().filter_map(|(number, row)| {
        let (method, _) = row.split_once('@')?;
        let mut before = rows[..number].iter().rev();
        let (base, kernel) = before.find_map(|base| {
            let (other, kernel) = base.split_once('@')?;
            (other == method).then_some((base, kernel))
        })?;
        Some(Pair {
            row,
            base,
            kernel: Some(kernel),
        })
    });
    let on_kernels: Vec<Pair> = on_kernels.collect();
    match rows.split_first() {
        Some((base, others)) if on_kernels.is_empty() => {
            let pair = |row| Pair {
                row,
                base,
                kernel: None,
            };
            others.iter().map(|row| pair(row)).collect()
        }
        _ => on_kernels,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use steadyvm_report::Figures;
    use steadyvm_stats::bootstrap::Ratio;

    fn record(rows: &[&str], pairs: &[(&str, &str, [f64; 3])]) -> Record {
        let mut figures = Figures::default();
        for &(of, to, [median, low, high]) in pairs {
            figures.at(of, Phase::Full.cell());
            let ratio = Ratio {
                estimate: median,
                median,
                low: Some(low),
                high: Some(high),
                rounds: 3,
            };
            figures.ratio(FIGURE, (to, Phase::Full.cell()), Some(ratio));
        }
        Record {
            rows: rows.iter().map(|it| (*it).to_owned()).collect(),
            figures: figures.all(),
            ..Record::default()
        }
    }

    #[test]
    fn methods_are_held_against_the_first() {
        let record = record(
            &["vanilla", "preempt-rt"],
            &[("preempt-rt", "vanilla", [0.16, 0.12, 0.32])],
        );
        assert_eq!(
            answer(&record, "?").in_short(),
            "`preempt-rt` has 0.16 [0.12, 0.32] of `vanilla`'s p99 beside a full stream; `preempt-rt` over \
             `vanilla`'s throughput beside a full stream was not measured."
        );
    }

    #[test]
    fn where_kernels_are_named_a_method_is_held_against_itself() {
        let rows = [
            "vanilla",
            "dedicated",
            "preempt-rt@6.12-rt",
            "preempt-rt@7.3-rt",
            "profile-sockets@7.3-rt",
        ];
        let record = record(
            &rows,
            &[("preempt-rt@7.3-rt", "preempt-rt@6.12-rt", [0.9, 0.7, 1.2])],
        );
        assert_eq!(
            answer(&record, "?").in_short(),
            "`preempt-rt@7.3-rt` is not told apart from the p99 of the same method on `6.12-rt` beside a full stream."
        );
    }
}
