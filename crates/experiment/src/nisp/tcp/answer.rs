//! What the page begins with: what the stream carried after the jobs over what it carried before.

use super::figures::{AFTER, BEFORE, DURING, THROUGHPUT};
use crate::engine::answer::{code, groups};
use crate::engine::results::Record;
use steadyvm_report::{Answer, Finding, Over, Picture};

/// Of the experiment's record.
pub fn answer(record: &Record) -> Answer {
    let of = |row: &String| Finding::Ratio {
        of: code(row),
        over: "its own stream's throughput before the jobs, after them".to_owned(),
        ratio: record
            .at(row, AFTER)
            .ratio(THROUGHPUT)
            .map(|it| Over::estimate(&it)),
    };
    let phases = [
        (BEFORE, "before the jobs"),
        (DURING, "during them"),
        (AFTER, "after them"),
    ];
    Answer {
        question: "Does a TCP stream recover after jobs of higher priority?".to_owned(),
        findings: record.rows.iter().map(of).collect(),
        picture: Picture {
            title: "Received by the low-priority process; longer is better".to_owned(),
            groups: groups(record, &phases, THROUGHPUT, |it| format!("{it:.0} Mbit/s")),
        },
    }
}
