//! What an experiment shows of its record: the same in a terminal, on a Markdown page and in report.html.

use steadyvm_report::{Grid, ReportMeta, Shown, document, joined, page};

/// All that is shown.
#[derive(Debug, Clone, Default)]
pub struct Page {
    /// What was done, a sentence or two.
    pub introduction: String,
    /// Sections with plots, as HTML.
    pub plots: String,
    /// Tables.
    pub grids: Vec<Grid>,
    /// What the columns mean, a sentence each.
    pub reading: &'static [&'static str],
    /// What a reader must know.
    pub notes: Vec<String>,
}

impl Page {
    /// For a terminal, and as a report.
    pub fn shown(&self, about: &ReportMeta) -> Shown {
        Shown {
            text: self.text(),
            html: self.html(about),
        }
    }

    /// For a terminal. Ends with a newline.
    pub fn text(&self) -> String {
        document(&self.introduction, &self.grids, self.reading, &self.notes)
    }

    /// The report as HTML.
    pub fn html(&self, about: &ReportMeta) -> String {
        let mut html = page::introduced(about, &self.introduction, &self.notes);
        html += &self.plots;
        html += &joined(&self.grids, Grid::html);
        html + &page::reading(self.reading)
    }
}
