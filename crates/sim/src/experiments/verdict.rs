//! A page's statements of the paper, each with what the page's own figures say of it.

use std::fmt::Write;
#[cfg(test)]
use steadyvm_report::Answer;
use steadyvm_report::Finding;

/// Statements and verdicts, as a table.
pub(super) struct Statements {
    text: String,
    all: usize,
    contradicted: Vec<String>,
}

impl Statements {
    pub(super) fn new() -> Self {
        let text = "\n## Statements of the paper\n\n| paper | here |\n|---|---|\n".to_owned();
        Self {
            text,
            all: 0,
            contradicted: Vec::new(),
        }
    }

    /// A statement: what contradicts it, and the figures that say so, or those with which it holds.
    pub(super) fn say(&mut self, paper: &str, contradictions: &[String], holds: &str) {
        self.all += 1;
        if !contradictions.is_empty() {
            self.contradicted.push(paper.to_owned());
        }
        let here = if contradictions.is_empty() {
            format!("holds: {holds}")
        } else {
            format!("**contradicted**: {}", contradictions.join("; "))
        };
        // Writing to a string does not fail.
        let _ = writeln!(self.text, "| {paper} | {here} |");
    }

    /// How many of them are contradicted.
    pub(super) fn finding(&self) -> Finding {
        Finding::Statements {
            of: "the dissertation".to_owned(),
            all: self.all,
            contradicted: self.contradicted.clone(),
        }
    }

    pub(super) fn table(self) -> String {
        self.text
    }
}

/// What a figure prints as: what verdicts are computed from.
pub(super) fn printed(percent: f64) -> f64 {
    (percent * 100.0).round() / 100.0
}

/// The numbers of a page's rows: of lines with as many cells, each cell that is a number.
#[cfg(test)]
pub(super) fn rows(page: &str, cells: usize) -> Vec<Vec<String>> {
    page.lines()
        .filter(|line| line.starts_with("| "))
        .map(|line| {
            let row = line.trim_matches('|').split('|');
            row.map(|cell| cell.trim().to_owned()).collect::<Vec<_>>()
        })
        .filter(|row| row.len() == cells && row[cells - 1].parse::<f64>().is_ok())
        .collect()
}

/// The page begins with this answer, which follows from its tables.
#[cfg(test)]
pub(super) fn require_answer(page: &str, answer: &Answer) {
    let short = answer.in_short();
    let begins = format!("# {}\n\nIn short: {short}\n\n![", answer.question);
    assert!(page.starts_with(&begins), "{begins}");
    assert!(page.contains(&answer.picture.description()));
}
