//! The guides as what a reader does with them: files to write and commands to type, in the page's order.
//!
//! A block of code is indented by four spaces, or fenced. `console` is commands after a root's prompt, each with what it
//! prints; `sh` and what is indented are commands alone. `toml` and `ini` are a file, whose path the paragraph before names. A page says
//! the rest in comments, which readers do not see:
//!
//! - `<!-- typed by FILE::TEST -->`: the test that types the blocks from here on, a file of crates/steadyvm-lab/tests; without
//!   a TEST a program of another place that does.
//! - `<!-- not typed: WHY -->`: of the next block.
//! - `<!-- not typed from here on: WHY -->`: until a test is named.
//! - `<!-- added to PATH -->`: the next block is lines for a file that the page has already.

use std::fs;
use std::path::{Path, PathBuf};

/// A block of code of a page.
#[derive(Debug, PartialEq, Eq)]
pub struct Block {
    /// Where it begins.
    pub line: usize,
    /// `lab/guides/FILE::TEST`.
    pub typed_by: Option<String>,
    /// Why no test types it.
    pub not_typed: Option<String>,
    pub content: Content,
}

#[derive(Debug, PartialEq, Eq)]
pub enum Content {
    Commands(Vec<Command>),
    File {
        path: String,
        text: String,
    },
    /// Lines for a file that is there.
    Addition {
        path: String,
        text: String,
    },
    /// Nothing that one could type or write.
    Unknown(String),
}

#[derive(Debug, PartialEq, Eq)]
pub struct Command {
    pub words: String,
    /// What the page says that it prints.
    pub printed: Option<Vec<String>>,
}

impl Block {
    /// What is wrong with it: that nobody knows whether it works.
    pub fn fault(&self) -> Option<String> {
        match (&self.content, &self.not_typed, &self.typed_by) {
            (_, Some(why), _) if why.split_whitespace().count() < 3 => {
                Some(format!("\"{why}\" is no reason for not typing it"))
            }
            (Content::Unknown(kind), None, _) => Some(format!(
                "{kind} is neither commands nor a file that the paragraph before names"
            )),
            (_, None, None) => Some("no test types it, and no word says why".to_owned()),
            _ => None,
        }
    }
}

/// The repository.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The page of this path, from the repository's root on.
pub fn page(path: &str) -> String {
    let place = root().join(path);
    fs::read_to_string(&place).unwrap_or_else(|error| panic!("{}: {error}", place.display()))
}

/// The README and the guide.
pub fn pages() -> Vec<String> {
    let folder = fs::read_dir(root().join("docs/guide")).unwrap();
    let name = |entry: std::io::Result<fs::DirEntry>| entry.unwrap().file_name();
    let mut names: Vec<String> = folder
        .map(|entry| format!("docs/guide/{}", name(entry).display()))
        .collect();
    names.push("README.md".to_owned());
    names.sort();
    names
}

/// The blocks of a page that a test types.
pub fn typed_by(path: &str, test: &str) -> Vec<Block> {
    let mut found = blocks(&page(path));
    found.retain(|it| it.not_typed.is_none() && it.typed_by.as_deref() == Some(test));
    assert!(!found.is_empty(), "{path}: nothing is typed by {test}");
    found
}

/// What comments say of the next block, and the test that types what follows.
#[derive(Default)]
struct Marks {
    typed_by: Option<String>,
    not_typed: Option<String>,
    not_typed_on: Option<String>,
    added_to: Option<String>,
}

impl Marks {
    fn read(&mut self, comment: &str) {
        if let Some(test) = comment.strip_prefix("typed by ") {
            self.typed_by = Some(test.to_owned());
            self.not_typed_on = None;
        } else if let Some(why) = comment.strip_prefix("not typed from here on: ") {
            self.not_typed_on = Some(why.to_owned());
        } else if let Some(why) = comment.strip_prefix("not typed: ") {
            self.not_typed = Some(why.to_owned());
        } else if let Some(path) = comment.strip_prefix("added to ") {
            self.added_to = Some(path.to_owned());
        }
    }
}

/// All blocks of a page.
pub fn blocks(page: &str) -> Vec<Block> {
    let mut found = Vec::new();
    let mut marks = Marks::default();
    let mut paragraph = String::new();
    let mut ended = true;
    let mut lines = page.lines().enumerate().peekable();
    while let Some((number, line)) = lines.next() {
        let trimmed = line.trim();
        let is_code = ended && line.starts_with("    ") && !trimmed.is_empty();
        let content = if let Some(kind) = trimmed.strip_prefix("```") {
            let rest = lines.by_ref().map(|(_, line)| line);
            let text: Vec<&str> = rest.take_while(|line| line.trim() != "```").collect();
            fenced(kind, &text, &paragraph, marks.added_to.take())
        } else if is_code {
            let mut text = vec![trimmed];
            while let Some((_, line)) = lines.next_if(|(_, line)| line.starts_with("    ")) {
                text.push(line.trim());
            }
            Content::Commands(commands(&text))
        } else {
            let comment = trimmed.strip_prefix("<!-- ");
            if let Some(comment) = comment.and_then(|it| it.strip_suffix(" -->")) {
                marks.read(comment);
                continue;
            }
            if ended && !trimmed.is_empty() {
                paragraph.clear();
            }
            ended = trimmed.is_empty();
            paragraph.push_str(trimmed);
            paragraph.push(' ');
            continue;
        };
        ended = true;
        found.push(Block {
            line: number + 1,
            typed_by: marks.typed_by.clone(),
            not_typed: marks.not_typed.take().or(marks.not_typed_on.clone()),
            content,
        });
    }
    found
}

fn fenced(kind: &str, text: &[&str], paragraph: &str, added_to: Option<String>) -> Content {
    let path = paragraph.split_whitespace().map(bare).find(is_path);
    match (kind, added_to, path) {
        ("console", ..) => Content::Commands(prompted(text)),
        ("sh", ..) => Content::Commands(commands(text)),
        ("toml" | "ini", Some(path), _) => Content::Addition {
            path,
            text: text.join("\n"),
        },
        ("toml" | "ini", None, Some(path)) => Content::File {
            path: path.to_owned(),
            text: text.join("\n"),
        },
        _ => Content::Unknown(format!("a block of \"{kind}\"")),
    }
}

/// A word without the marks around it.
fn bare(word: &str) -> &str {
    word.trim_matches(|letter: char| ",.:;()`".contains(letter))
}

fn is_path(word: &&str) -> bool {
    word.starts_with('/') && Path::new(word).extension().is_some()
}

/// A command ends with its line, unless that ends with a backslash.
fn commands(text: &[&str]) -> Vec<Command> {
    let mut found: Vec<Command> = Vec::new();
    let mut goes_on = false;
    for line in text {
        match found.last_mut() {
            Some(last) if goes_on => {
                last.words.push('\n');
                last.words.push_str(line);
            }
            _ => found.push(Command {
                words: (*line).to_owned(),
                printed: None,
            }),
        }
        goes_on = line.ends_with('\\');
    }
    found
}

/// Commands after a root's prompt.
fn prompted(text: &[&str]) -> Vec<Command> {
    let mut found: Vec<Command> = Vec::new();
    for line in text {
        if let Some(words) = line.strip_prefix("# ") {
            found.push(Command {
                words: words.to_owned(),
                printed: Some(Vec::new()),
            });
        } else if let Some(last) = found.last_mut() {
            last.printed
                .get_or_insert_default()
                .push((*line).to_owned());
        } else {
            panic!("{line}: a block of commands begins with one");
        }
    }
    found
}

/// Numbers of processes, threads and interrupts differ from host to host.
fn without_numbers(line: &str) -> String {
    let mut read = String::new();
    for word in line.split_whitespace() {
        let mut in_number = false;
        for letter in word.chars() {
            let is_digit = letter.is_ascii_digit();
            if !is_digit {
                read.push(letter);
            } else if !in_number {
                read.push('N');
            }
            in_number = is_digit;
        }
        read.push(' ');
    }
    read.trim_end().to_owned()
}

/// Whether a command said what its page says: numbers aside, and `…` stands for any lines, or none.
pub fn agree(printed: &[String], said: &[&str]) -> bool {
    let Some((first, rest)) = printed.split_first() else {
        return said.is_empty();
    };
    if first.trim() == "…" {
        return (0..=said.len()).any(|skipped| agree(rest, &said[skipped..]));
    }
    said.split_first().is_some_and(|(line, others)| {
        without_numbers(first) == without_numbers(line) && agree(rest, others)
    })
}

/// The programs' words in the page's text, outside of blocks, such as `steadyvm apply --strict`.
pub fn inline_commands(page: &str) -> Vec<String> {
    let mut is_fenced = false;
    let mut text = String::new();
    for line in page.lines() {
        let is_fence = line.trim().starts_with("```");
        is_fenced ^= is_fence;
        if !is_fenced && !is_fence && !line.starts_with("    ") {
            text.push_str(line.trim());
            text.push(' ');
        }
    }
    let quoted = text.split('`').skip(1).step_by(2);
    let words = quoted.map(|it| it.strip_prefix("sudo ").unwrap_or(it));
    words
        .filter(|it| it.starts_with("steadyvm ") || it.starts_with("steadyvm-lab "))
        .map(str::to_owned)
        .collect()
}
