//! report.html: one self-contained file.

use crate::results::Results;

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

/// The report as HTML.
pub fn render(results: &Results, meta: &ReportMeta) -> String {
    format!(
        "<title>{}</title><pre>{}</pre>",
        meta.title,
        crate::table::render(results)
    )
}
