//! A run's results as a page of docs/results: the one place where its figures stand.

use std::fmt::Write as _;
use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result};
use steadyvm_experiment::engine::RunRecord;

/// Where a run's page goes.
#[derive(Debug, clap::Args)]
pub struct MarkdownArgs {
    /// Write the run's page, its tables and how they were made, as Markdown to this file too.
    #[arg(long, value_name = "FILE")]
    markdown: Option<PathBuf>,
}

impl MarkdownArgs {
    /// Writes the page if it was asked for. `title` is its heading, `compared` names its rows
    /// ("methods"), `table` is what the run prints.
    pub fn write(&self, title: &str, compared: &str, run: &RunRecord, table: &str) -> Result<()> {
        self.write_page(title, &RunRecord::emulated(compared), &run.facts(), table)
    }

    /// The same for a run that is not the lab's, with what a reader must know first.
    pub fn write_page(
        &self,
        title: &str,
        warning: &str,
        facts: &[(String, String)],
        table: &str,
    ) -> Result<()> {
        let Some(file) = &self.markdown else {
            return Ok(());
        };
        let page = page(title, warning, facts, table);
        steadyvm_files::write(file, page)
            .with_context(|| format!("cannot write {}", file.display()))
    }
}

fn page(title: &str, warning: &str, facts: &[(String, String)], table: &str) -> String {
    let mut text = format!(
        "# {title}\n\nThis page is generated: the command below writes it. {warning}\n\n```text\n{}\n```\n\n\
         | run | |\n|---|---|\n",
        table.trim_matches('\n')
    );
    for (name, value) in facts {
        // Writing to a String cannot fail.
        let _ = writeln!(text, "| {} | {} |", in_cell(name), in_cell(value));
    }
    text
}

/// Text in one cell of a table: a bar would end the cell, a line's end the row.
fn in_cell(text: &str) -> String {
    text.replace('|', "\\|").replace(['\n', '\r'], " ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_has_its_warning_its_table_and_a_row_per_fact() {
        let facts = [("Command".to_owned(), "a | b\nc".to_owned())];
        let page = page("T", "Emulated.", &facts, "\nrow 1\n");
        assert!(page.starts_with("# T\n\nThis page is generated"));
        assert!(page.contains("Emulated."));
        assert!(page.contains("```text\nrow 1\n```"));
        assert!(page.ends_with("| Command | a \\| b c |\n"), "{page}");
    }
}
