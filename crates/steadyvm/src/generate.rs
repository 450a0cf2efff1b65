//! `steadyvm generate`: man pages, completions and the reference, from the same text as `--help`.

use std::fmt::Write as _;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::{Command, CommandFactory};
use clap_complete::Shell;

use crate::CommandLine;
use crate::output;

/// Write man pages and completions, or print the reference of all verbs.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, clap::Subcommand)]
enum What {
    /// A man page per verb (section 1), into a directory.
    Man {
        /// The directory; made if it does not exist.
        directory: PathBuf,
    },
    /// Completions for bash, zsh and fish, into a directory.
    Completions {
        /// The directory; made if it does not exist.
        directory: PathBuf,
    },
    /// The help of every verb as Markdown, on standard output: docs/reference/cli.md.
    Reference,
}

/// Runs the verb.
pub fn run(args: &Args) -> Result<ExitCode> {
    match &args.what {
        What::Man { directory } => man_pages(directory)?,
        What::Completions { directory } => completions(directory)?,
        What::Reference => output::print(&reference())?,
    }
    Ok(ExitCode::SUCCESS)
}

fn man_pages(directory: &Path) -> Result<()> {
    make(directory)?;
    clap_mangen::generate_to(CommandLine::command(), directory)
        .with_context(|| format!("cannot write man pages to {}", directory.display()))
}

fn completions(directory: &Path) -> Result<()> {
    make(directory)?;
    for (shell, name) in [
        (Shell::Bash, "steadyvm.bash"),
        (Shell::Zsh, "_steadyvm"),
        (Shell::Fish, "steadyvm.fish"),
    ] {
        let path = directory.join(name);
        let mut file = steadyvm_files::create(&path)
            .with_context(|| format!("cannot write {}", path.display()))?;
        clap_complete::generate(shell, &mut CommandLine::command(), "steadyvm", &mut file);
    }
    Ok(())
}

fn make(directory: &Path) -> Result<()> {
    fs::create_dir_all(directory).with_context(|| format!("cannot make {}", directory.display()))
}

/// The help of every verb, deepest last, as Markdown.
fn reference() -> String {
    let mut text = String::from(
        "# Command line\n\nThis page is generated: `steadyvm generate reference > docs/reference/cli.md`.\n",
    );
    let mut program = CommandLine::command().term_width(100);
    program.build();
    describe(&mut program, "steadyvm", &mut text);
    text
}

fn describe(command: &mut Command, name: &str, text: &mut String) {
    let help = command.render_long_help().to_string();
    let lines: Vec<&str> = help.lines().map(str::trim_end).collect();
    // Writing to a String cannot fail.
    let _ = write!(
        text,
        "\n## {name}\n\n```text\n{}\n```\n",
        lines.join("\n").trim_end()
    );
    for verb in command.get_subcommands_mut() {
        if verb.get_name() == "help" || verb.is_hide_set() {
            continue;
        }
        let name = format!("{name} {}", verb.get_name());
        describe(verb, &name, text);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reference_in_docs_is_of_this_program() {
        let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/reference/cli.md");
        let written = fs::read_to_string(file).unwrap();
        assert!(
            written == reference(),
            "renew it: steadyvm generate reference > docs/reference/cli.md"
        );
    }

    #[test]
    fn every_verb_has_a_man_page_and_completions() {
        let directory = tempfile::tempdir().unwrap();
        man_pages(directory.path()).unwrap();
        completions(directory.path()).unwrap();
        let bash = fs::read_to_string(directory.path().join("steadyvm.bash")).unwrap();
        for verb in CommandLine::command().get_subcommands() {
            if verb.is_hide_set() {
                continue;
            }
            let page = directory
                .path()
                .join(format!("steadyvm-{}.1", verb.get_name()));
            assert!(page.exists(), "{}", page.display());
            assert!(bash.contains(verb.get_name()));
        }
    }
}
