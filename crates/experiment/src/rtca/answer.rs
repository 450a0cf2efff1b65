//! What the page begins with: round trips beside the most interference over those without.

use crate::engine::answer::{code, groups};
use crate::engine::results::Record;
use crate::testbed::Interference;
use steadyvm_report::{Answer, Finding, Over, Picture, duration_words};

const FIGURE: &str = "p95";

/// Of the experiment's record.
pub fn answer(record: &Record) -> Answer {
    let heavy = Interference::Heavy.key();
    let of = |row: &String| Finding::Ratio {
        of: code(row),
        over:
            "its own 95th percentile of round trips while nobody else sends, when three others send"
                .to_owned(),
        ratio: record
            .at(row, heavy)
            .ratio(FIGURE)
            .map(|it| Over::estimate(&it)),
    };
    let levels = [Interference::Base, Interference::Heavy].map(|it| (it.key(), it.title()));
    Answer {
        question: "Do other VMs that send delay packets between two VMs?".to_owned(),
        findings: record.rows.iter().map(of).collect(),
        picture: Picture {
            title: "95th percentile of round trips; shorter is better".to_owned(),
            groups: groups(record, &levels, FIGURE, duration_words),
        },
    }
}
