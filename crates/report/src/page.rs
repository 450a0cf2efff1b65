//! The frame of a report: one self-contained HTML file. Inline style, inline SVG, no script, nothing
//! fetched.

use crate::svg::{escape, joined};

const STYLE: &str = include_str!("style.css");

/// The end of a page.
pub const END: &str = "</main>\n</body>\n</html>\n";

/// What the report says about the run besides its results.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ReportMeta {
    /// The page's title.
    pub title: String,
    /// Facts in the order shown: ("Kernel of vanilla", "6.12.9"), ("Git revision", "…"). Plain text.
    pub facts: Vec<(String, String)>,
    /// Sentences a reader must know, such as that the host was emulated. Plain text.
    pub notes: Vec<String>,
}

/// A page up to its title.
pub fn begin(meta: &ReportMeta) -> String {
    let title = escape(&meta.title);
    format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <link rel=\"icon\" href=\"data:,\">\n\
         <title>{title}</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n<main>\n<h1>{title}</h1>\n"
    )
}

/// The beginning of an experiment's page: what it did, what the run was, and the results' notes.
pub fn introduced(meta: &ReportMeta, introduction: &str, said: &[String]) -> String {
    let said = joined(said, |note| {
        format!("<p class=\"quiet\">Note: {}.</p>\n", escape(note))
    });
    let introduction = escape(introduction);
    begin(meta) + &format!("<p>{introduction}</p>\n") + &notes(meta) + &facts(meta) + &said
}

/// Its notes.
pub fn notes(meta: &ReportMeta) -> String {
    let notes = joined(&meta.notes, |note| format!("<p>{}</p>", escape(note)));
    if notes.is_empty() {
        notes
    } else {
        format!("<div class=\"notes\">{notes}</div>\n")
    }
}

/// Its facts.
pub fn facts(meta: &ReportMeta) -> String {
    if meta.facts.is_empty() {
        return String::new();
    }
    let facts = joined(&meta.facts, |(name, value)| {
        format!("<dt>{}</dt><dd>{}</dd>\n", escape(name), escape(value))
    });
    format!("<dl>\n{facts}</dl>\n")
}

/// A section with cards: plots next to each other.
pub fn cards(title: &str, cards: &str) -> String {
    format!(
        "<h2>{}</h2>\n<div class=\"grid\">\n{cards}</div>\n",
        escape(title)
    )
}

/// What the columns mean, and the page's end.
pub fn reading(sentences: &[&str]) -> String {
    let sentences = joined(sentences, |sentence| {
        format!("<p class=\"quiet\">{}</p>\n", escape(sentence))
    });
    format!("<h2>How to read this</h2>\n{sentences}{END}")
}
