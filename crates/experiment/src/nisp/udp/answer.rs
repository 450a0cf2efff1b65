//! What the page begins with: the jobs' mean response at the highest rate over that without packets.

use super::figures::rates_of;
use crate::engine::answer::{code, groups};
use crate::engine::results::Record;
use steadyvm_report::{Answer, Finding, Over, Picture, duration_words};

const FIGURE: &str = "response_mean";

/// Of the experiment's record.
pub fn answer(record: &Record) -> Answer {
    let rates = rates_of(record);
    let ends = [rates.first(), rates.last()].into_iter().flatten();
    let ends: Vec<(&str, &str)> = ends.map(|(_, cell)| (&**cell, &**cell)).collect();
    let highest = ends.last().map_or("", |(cell, _)| cell);
    let of = |row: &String| Finding::Ratio {
        of: code(row),
        over: format!("its own mean response without packets, at {highest}"),
        ratio: record
            .at(row, highest)
            .ratio(FIGURE)
            .map(|it| Over::estimate(&it)),
    };
    Answer {
        question: "Do packets of low priority delay jobs of high priority?".to_owned(),
        findings: record.rows.iter().map(of).collect(),
        picture: Picture {
            title: "Mean response of the jobs; shorter is better".to_owned(),
            groups: groups(record, &ends, FIGURE, duration_words),
        },
    }
}
