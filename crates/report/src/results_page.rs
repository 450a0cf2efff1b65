//! A results page in Markdown: its question, the answer in short, a picture, then the tables and the run, folded.

use crate::answer::Answer;
use crate::grid::in_cell;
use crate::svg::joined;
use serde::Deserialize;
use std::path::Path;
use std::{fs, io};

/// The directory of pictures, beside the pages.
const PICTURES: &str = "pictures";

/// What a page says besides its answer.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Details {
    /// What a reader types to make it again.
    pub command: String,
    /// What a reader must know first, such as that hosts were emulated.
    pub warning: String,
    /// Tables, as Markdown.
    pub tables: String,
    /// Facts of the run.
    pub facts: Vec<(String, String)>,
}

/// A page and its picture's file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResultsPage {
    /// The page.
    pub markdown: String,
    /// The picture, which it expects at `pictures/NAME.svg`.
    pub svg: String,
}

/// Writes the page to this file, and its picture to `pictures/NAME.svg` beside it.
///
/// # Errors
/// A file without a name, or that cannot be written.
pub fn write(file: &Path, answer: &Answer, details: &Details) -> io::Result<()> {
    let name = file.file_stem().and_then(|it| it.to_str());
    let name = name.ok_or_else(|| io::Error::other("it is no name of a page"))?;
    let page = results_page(name, answer, details);
    let pictures = file.with_file_name(PICTURES);
    fs::create_dir_all(&pictures)?;
    steadyvm_files::write(&pictures.join(name).with_extension("svg"), page.svg)?;
    steadyvm_files::write(file, page.markdown)
}

/// What a terminal shows, as Markdown.
pub fn fenced(text: &str) -> String {
    format!("```text\n{}\n```\n", text.trim_matches('\n'))
}

/// The page of this name.
pub fn results_page(name: &str, answer: &Answer, details: &Details) -> ResultsPage {
    let picture = &answer.picture;
    let facts = joined(&details.facts, |(name, value)| {
        format!("| {} | {} |\n", in_cell(name), in_cell(value))
    });
    let facts = if facts.is_empty() {
        facts
    } else {
        folded("The run", &format!("| run | |\n|---|---|\n{facts}"))
    };
    let warning = if details.warning.is_empty() {
        String::new()
    } else {
        format!(" {}", details.warning)
    };
    let markdown = format!(
        "# {}\n\nIn short: {}\n\n![{}. {}]({PICTURES}/{name}.svg)\n\n\
         This page is generated: the command below writes it.{warning}\n\n```sh\n{}\n```\n\n{}{facts}",
        answer.question,
        answer.in_short(),
        alternative(&picture.title),
        alternative(&picture.description()),
        details.command,
        folded("All figures", &details.tables),
    );
    ResultsPage {
        markdown,
        svg: picture.svg(),
    }
}

fn folded(summary: &str, content: &str) -> String {
    let content = content.trim_matches('\n');
    format!("<details>\n<summary>{summary}</summary>\n\n{content}\n\n</details>\n")
}

/// What stands for a picture may hold no bracket.
fn alternative(text: &str) -> String {
    text.replace(['[', ']', '\n'], " ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::picture::Picture;

    #[test]
    fn a_page_has_its_question_its_answer_its_picture_and_its_tables_in_this_order() {
        let answer = Answer {
            question: "Why?".to_owned(),
            findings: Vec::new(),
            picture: Picture::default(),
        };
        let details = Details {
            command: "steadyvm-lab compare --rounds 3".to_owned(),
            warning: "Emulated.".to_owned(),
            tables: fenced("\nrow 1\n"),
            facts: vec![("Kernel".to_owned(), "a | b\nc".to_owned())],
        };
        let page = results_page("why", &answer, &details);
        let parts = [
            "# Why?\n\nIn short: Nothing was measured.\n\n",
            "](pictures/why.svg)\n\nThis page is generated: the command below writes it. Emulated.\n\n",
            "```sh\nsteadyvm-lab compare --rounds 3\n```\n\n",
            "<details>\n<summary>All figures</summary>\n\n```text\nrow 1\n```\n\n</details>\n",
            "<details>\n<summary>The run</summary>\n\n| run | |\n|---|---|\n| Kernel | a \\| b c |\n\n</details>\n",
        ];
        let at: Vec<Option<usize>> = parts.iter().map(|part| page.markdown.find(part)).collect();
        assert!(at.iter().all(Option::is_some), "{at:?}\n{}", page.markdown);
        assert!(at.is_sorted() && at[0] == Some(0));
        assert!(page.svg.starts_with("<svg") && page.svg.ends_with("</svg>\n"));
    }
}
