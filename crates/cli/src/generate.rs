//! The verb `generate` of both programs: man pages, completions and the reference, from the same text as `--help`.

use std::fmt::Write as _;
use std::fs::{self};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::Command;
use clap_complete::Shell;

use crate::output;

/// Write man pages and completions, or print the reference of all verbs.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, clap::Subcommand)]
enum What {
    /// A man page per verb (section 1) and per file (section 5), into a directory.
    Man {
        /// The directory; made if it does not exist.
        directory: PathBuf,
    },
    /// Completions for bash, zsh and fish, into a directory.
    Completions {
        /// The directory; made if it does not exist.
        directory: PathBuf,
    },
    /// A page of the reference as Markdown, on standard output.
    Reference {
        /// A file that the program reads: its keys. Default: the help of every verb.
        file: Option<String>,
    },
}

/// A program as its documents have it.
#[derive(Debug, Clone)]
pub struct Program {
    /// Its verbs.
    pub command: Command,
    /// Verbs of other programs and of experts: no help lists them, and the reference has them last.
    pub for_programs: &'static [&'static str],
    /// Where its reference stands in the repository.
    pub page: &'static str,
    /// The files that it reads and documents.
    pub files: Vec<File>,
}

/// A file that a program reads.
#[derive(Debug, Clone)]
pub struct File {
    /// What it is called.
    pub name: &'static str,
    /// Its man page, of section 5.
    pub man: String,
    /// Its page of the reference.
    pub markdown: String,
    /// Where that stands in the repository.
    pub page: &'static str,
}

/// Runs the verb for a program.
///
/// # Errors
/// A file cannot be written, or the program reads no file of that name.
pub fn run(args: &Args, program: Program) -> Result<ExitCode> {
    match &args.what {
        What::Man { directory } => man_pages(&program, directory)?,
        What::Completions { directory } => completions(program.command, directory)?,
        What::Reference { file: None } => output::print(&reference(&program))?,
        What::Reference { file: Some(name) } => {
            let file = (program.files.iter().find(|file| file.name == name))
                .with_context(|| format!("there is no page of {name}"))?;
            output::print(&file.markdown)?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn man_pages(program: &Program, directory: &Path) -> Result<()> {
    make(directory)?;
    clap_mangen::generate_to(program.command.clone(), directory)
        .with_context(|| format!("cannot write man pages to {}", directory.display()))?;
    for file in &program.files {
        let path = directory.join(format!("{}.5", file.name));
        steadyvm_files::write(&path, &file.man)
            .with_context(|| format!("cannot write {}", path.display()))?;
    }
    Ok(())
}

fn completions(mut program: Command, directory: &Path) -> Result<()> {
    make(directory)?;
    let name = program.get_name().to_owned();
    for (shell, file) in [
        (Shell::Bash, format!("{name}.bash")),
        (Shell::Zsh, format!("_{name}")),
        (Shell::Fish, format!("{name}.fish")),
    ] {
        let path = directory.join(file);
        let mut file = steadyvm_files::create(&path)
            .with_context(|| format!("cannot write {}", path.display()))?;
        clap_complete::generate(shell, &mut program, &name, &mut file);
    }
    Ok(())
}

fn make(directory: &Path) -> Result<()> {
    fs::create_dir_all(directory).with_context(|| format!("cannot make {}", directory.display()))
}

/// The help of every verb, deepest last, as Markdown.
fn reference(program: &Program) -> String {
    let name = program.command.get_name().to_owned();
    let page = program.page;
    let mut text = format!(
        "# Command line of {name}\n\nThis page is generated: `{name} generate reference > {page}`.\n"
    );
    let mut command = program.command.clone().term_width(100);
    command.build();
    describe(&mut command, &name, &mut text);
    for verb in program.for_programs {
        if let Some(command) = command.find_subcommand_mut(verb) {
            describe(command, &format!("{name} {verb}"), &mut text);
        }
    }
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

/// What is wrong with a program's reference in the repository, and with its man pages and completions: for its tests.
/// `read` reads a page of the repository.
///
/// # Errors
/// A file cannot be read or written.
pub fn faults(
    program: &Program,
    read: impl Fn(&str) -> std::io::Result<String>,
    directory: &Path,
) -> Result<Vec<String>> {
    let (command, page) = (&program.command, program.page);
    let name = command.get_name();
    let mut found = Vec::new();
    if read(page)? != reference(program) {
        found.push(format!("renew it: {name} generate reference > {page}"));
    }
    for File {
        name: file,
        markdown,
        page,
        ..
    } in &program.files
    {
        if read(page)? != *markdown {
            found.push(format!(
                "renew it: {name} generate reference {file} > {page}"
            ));
        }
    }
    man_pages(program, directory)?;
    completions(command.clone(), directory)?;
    let bash = fs::read_to_string(directory.join(format!("{name}.bash")))?;
    for verb in command.get_subcommands().filter(|it| !it.is_hide_set()) {
        let verb = verb.get_name();
        if !directory.join(format!("{name}-{verb}.1")).exists() || !bash.contains(verb) {
            found.push(format!("{verb} has no man page, or no completion"));
        }
    }
    Ok(found)
}
