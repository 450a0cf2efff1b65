//! What pages of records have in common: findings over the first row, and bars by condition.

use crate::picture::{Bar, Group};
use crate::results::{Figure, Record};
use crate::{Answer, Finding, Over, Picture, duration_words};

/// A question about one figure under some conditions.
#[derive(Debug, Clone, Copy)]
pub struct Asked {
    /// The page's title.
    pub question: &'static str,
    /// The figure's name in the record.
    pub figure: &'static str,
    /// The figure in words, such as "p99".
    pub words: &'static str,
    /// The conditions of the picture, and each in words. The sentence is of the last.
    pub cells: &'static [(&'static str, &'static str)],
}

impl Asked {
    /// The answer where figures are times in microseconds, and rows are held against the first.
    pub fn of_times(&self, record: &Record) -> Answer {
        Answer {
            question: self.question.to_owned(),
            findings: over_first(record, self),
            picture: Picture {
                title: format!("{}; shorter is better", self.words),
                groups: groups(record, self.cells, self.figure, duration_words),
            },
        }
    }
}

fn over_first(record: &Record, asked: &Asked) -> Vec<Finding> {
    let Some((first, others)) = record.rows.split_first() else {
        return Vec::new();
    };
    let Some((cell, condition)) = asked.cells.last() else {
        return Vec::new();
    };
    let of = |row: &String| Finding::Ratio {
        of: code(row),
        over: format!("{}'s {} {condition}", code(first), asked.words),
        ratio: record
            .at(row, cell)
            .ratio(asked.figure)
            .map(|it| Over::estimate(&it)),
    };
    others.iter().map(of).collect()
}

/// A group of bars for each condition, a bar for each row.
pub fn groups(
    record: &Record,
    cells: &[(&str, &str)],
    figure: &str,
    words: impl Fn(f64) -> String,
) -> Vec<Group> {
    let group = |(cell, condition): &(&str, &str)| Group {
        name: (*condition).to_owned(),
        bars: (record.rows.iter())
            .map(|row| Bar::new(row, record.at(row, cell).value(figure), &words))
            .collect(),
    };
    cells.iter().map(group).collect()
}

/// How many of a row's samples there are, such as jobs that are late.
pub fn count(of: &str, what: &str, figure: Option<&Figure>) -> Finding {
    Finding::Count {
        of: code(of),
        what: what.to_owned(),
        // Saturates at what no count is.
        count: figure.and_then(|it| it.value).unwrap_or(0.0) as u64,
        all: figure.map_or(0, |it| it.n),
    }
}

/// A name as a page shows it.
pub fn code(name: &str) -> String {
    format!("`{name}`")
}
