//! A run's results as a page of docs/results: the one place where its figures stand.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use steadyvm_report::Answer;
use steadyvm_report::results_page::{self, Details};

/// Where a run's page goes.
#[derive(Debug, clap::Args)]
pub struct MarkdownArgs {
    /// Write the run's page as Markdown to this file too, and its picture to pictures/NAME.svg beside it.
    #[arg(long, value_name = "FILE")]
    markdown: Option<PathBuf>,
}

impl MarkdownArgs {
    /// The file, if the page was asked for.
    pub fn file(&self) -> Option<&Path> {
        self.markdown.as_deref()
    }

    /// Writes the page if it was asked for, with what a reader must know first, and tables as Markdown.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn write_page(
        &self,
        answer: &Answer,
        warning: &str,
        facts: Vec<(String, String)>,
        tables: &str,
    ) -> Result<()> {
        match &self.markdown {
            Some(file) => write_page(file, answer, warning, facts, tables),
            None => Ok(()),
        }
    }
}

/// Writes a page and its picture. The fact that is called Command is what a reader types.
///
/// # Errors
/// The file cannot be written.
pub fn write_page(
    file: &Path,
    answer: &Answer,
    warning: &str,
    mut facts: Vec<(String, String)>,
    tables: &str,
) -> Result<()> {
    let commands = facts.extract_if(.., |(name, _)| name == "Command");
    let commands: Vec<String> = commands.map(|(_, value)| value).collect();
    let details = Details {
        command: commands.concat(),
        warning: warning.to_owned(),
        tables: tables.to_owned(),
        facts,
    };
    results_page::write(file, answer, &details)
        .with_context(|| format!("cannot write {}", file.display()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use steadyvm_report::Picture;
    use steadyvm_report::results_page::fenced;

    #[test]
    fn a_page_and_its_picture_are_written_with_the_command_apart_from_the_facts() {
        let directory = tempfile::tempdir().unwrap();
        let answer = Answer {
            question: "Why?".to_owned(),
            findings: Vec::new(),
            picture: Picture::default(),
        };
        let facts = [("Command", "steadyvm x"), ("Kernel", "6.12")];
        let facts = facts.map(|(name, value)| (name.to_owned(), value.to_owned()));
        let file = directory.path().join("why.md");
        write_page(&file, &answer, "Emulated.", facts.into(), &fenced("row 1")).unwrap();
        let page = std::fs::read_to_string(&file).unwrap();
        assert!(page.contains("```sh\nsteadyvm x\n```") && page.contains("| Kernel | 6.12 |"));
        assert!(!page.contains("| Command"));
        let picture = std::fs::read_to_string(directory.path().join("pictures/why.svg")).unwrap();
        assert!(picture.starts_with("<svg"));
    }
}
