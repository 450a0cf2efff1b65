//! What the page begins with: the shares that VCPUs got of a CPU, and what each mechanism lost.

use super::condition::{Condition, Part};
use super::figures::has;
use super::work;
use crate::engine::answer::code;
use crate::engine::results::Record;
use crate::testbed::Mechanism;
use steadyvm_report::picture::{Bar, Group};
use steadyvm_report::{Answer, Finding, Picture};
use steadyvm_stats::mean;

const SHARE: &str = "share of a CPU where 40 % are granted";
const LOST: &str = "CPU time lost where all have the same load";

/// Of the experiment's record.
pub fn answer(record: &Record) -> Answer {
    let conditions: Vec<Condition> = Condition::of_part(Part::Share).collect();
    let groups = conditions.iter().map(|condition| Group {
        name: condition.to_string(),
        bars: (Mechanism::ALL.iter())
            .map(|it| Bar::new(it.title(), share(record, *it, *condition), percent))
            .collect(),
    });
    let shares = Mechanism::ALL.iter().filter_map(|mechanism| {
        let shares = conditions
            .iter()
            .filter_map(|it| share(record, *mechanism, *it));
        let shares: Vec<f64> = shares.collect();
        let least = shares.iter().copied().reduce(f64::min)?;
        let most = shares.iter().copied().reduce(f64::max)?;
        Some(finding(
            *mechanism,
            SHARE,
            format!("{least:.1} to {}", percent(most)),
        ))
    });
    let cell = Condition::Work(work::TOGETHER).to_string();
    let lost = Mechanism::ALL.iter().filter_map(|mechanism| {
        let lost = record.at(mechanism.title(), &cell).value("lost")?;
        Some(finding(*mechanism, LOST, percent(lost)))
    });
    if has(record, Part::Work) && !has(record, Part::Share) {
        return of_work(record, lost.collect());
    }
    Answer {
        question: "Do kernels keep a VCPU's budget?".to_owned(),
        findings: shares.chain(lost).collect(),
        picture: Picture {
            title: "Share of a CPU that a VCPU gets; 40 % are granted".to_owned(),
            groups: groups.filter(has_a_bar).collect(),
        },
    }
}

/// Of a run that measured what is lost, and no shares.
fn of_work(record: &Record, lost: Vec<Finding>) -> Answer {
    let cell = Condition::Work(work::TOGETHER).to_string();
    let bar = |it: &Mechanism| {
        let lost = record.at(it.title(), &cell).value("lost");
        Bar::new(it.title(), lost, percent)
    };
    Answer {
        question: "What CPU time does the scheduling of VCPUs cost?".to_owned(),
        findings: lost,
        picture: Picture {
            title: "CPU time lost; shorter is better".to_owned(),
            groups: vec![Group {
                name: cell.clone(),
                bars: Mechanism::ALL.iter().map(bar).collect(),
            }],
        },
    }
}

/// The mean of the windows, in per cent.
fn share(record: &Record, mechanism: Mechanism, condition: Condition) -> Option<f64> {
    let cell = condition.to_string();
    let at = record.at(mechanism.title(), &cell);
    mean(at.rounds("share").into_iter()).or_else(|| at.value("share"))
}

fn finding(mechanism: Mechanism, figure: &str, words: String) -> Finding {
    Finding::Bound {
        of: code(mechanism.title()),
        figure: figure.to_owned(),
        words,
        bound: None,
    }
}

fn has_a_bar(group: &Group) -> bool {
    group.bars.iter().any(|bar| bar.value.is_some())
}

fn percent(value: f64) -> String {
    format!("{value:.1} %")
}
