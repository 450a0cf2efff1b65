//! What a terminal shows of the doc comments.
//!
//! rustdoc wants back-ticks, and a source line is as long as its editor's. A terminal wants neither: prose is joined, so
//! that it breaks where the terminal ends, and what is indented (tables, commands, files) stays as it is.

use clap::builder::StyledStr;
use clap::{Arg, Command};

/// The same command with all its texts, and those of its verbs, made for terminals.
pub fn for_terminals(command: Command) -> Command {
    let command = with(command, Command::get_about, clap::Command::about);
    let command = with(command, Command::get_long_about, |it, text| {
        it.long_about(text)
    });
    command.mut_args(argument).mut_subcommands(for_terminals)
}

fn argument(argument: Arg) -> Arg {
    let argument = with(argument, Arg::get_help, clap::Arg::help);
    with(argument, Arg::get_long_help, clap::Arg::long_help)
}

fn with<T>(of: T, text: impl Fn(&T) -> Option<&StyledStr>, set: impl Fn(T, String) -> T) -> T {
    match text(&of).map(|it| flowing(&it.to_string())) {
        Some(text) => set(of, text),
        None => of,
    }
}

/// Text without back-ticks, each paragraph of prose in one line.
fn flowing(text: &str) -> String {
    let mut flowing = String::with_capacity(text.len());
    let mut is_prose = false;
    for line in text.lines() {
        let continues = is_prose && is_flowing(line);
        if !flowing.is_empty() {
            flowing.push(if continues { ' ' } else { '\n' });
        }
        flowing.extend(line.chars().filter(|it| *it != '`'));
        is_prose = is_flowing(line);
    }
    flowing
}

/// Whether a line is of a paragraph, not empty and not indented.
fn is_flowing(line: &str) -> bool {
    line.starts_with(|first: char| !first.is_whitespace())
}

/// What an indented line may have: terminals are wider than that.
const WIDTH: usize = 80;
/// Of an option's help: clap's indentation.
const INDENTATION: usize = 10;
/// What a reader of an installed program cannot open.
const SOURCES: [&str; 5] = ["docs/", "crates/", "kernel/patches", "src/", "tools/"];

/// What is wrong with the texts of a command that [`for_terminals`] made, and of its verbs: for the programs' tests.
pub fn faults(command: &Command) -> Vec<String> {
    let mut texts = Vec::new();
    collect(command, command.get_name(), &mut texts);
    let mut found = Vec::new();
    for (name, width, text) in texts {
        if text.contains('`') {
            found.push(format!("{name} has a back-tick: {text}"));
        }
        if SOURCES.iter().any(|it| text.contains(it)) {
            found.push(format!("{name} names the source tree: {text}"));
        }
        let lines: Vec<&str> = text.lines().collect();
        for line in lines.iter().filter(|line| !is_flowing(line)) {
            let length = line.chars().count();
            if length > width {
                found.push(format!("{name} has {length} columns: {line}"));
            }
        }
        let is_broken = |two: &[&str]| two.iter().all(|it| is_flowing(it));
        if lines.windows(2).any(is_broken) {
            found.push(format!("{name} has a paragraph in pieces: {text}"));
        }
    }
    found
}

/// All texts of a command and its verbs, with its name and the width that each line has.
fn collect(command: &Command, name: &str, found: &mut Vec<(String, usize, String)>) {
    let after = [command.get_after_help(), command.get_after_long_help()];
    let about = [command.get_about(), command.get_long_about()];
    for text in about.into_iter().chain(after).flatten() {
        found.push((name.to_owned(), WIDTH, text.to_string()));
    }
    for argument in command.get_arguments() {
        let name = format!("{name} {}", argument.get_id());
        let own = [argument.get_help(), argument.get_long_help()];
        let own = own.into_iter().flatten().map(ToString::to_string);
        let values = argument.get_possible_values();
        let values = values.iter().filter_map(|it| it.get_help());
        let all = own.chain(values.map(ToString::to_string));
        found.extend(all.map(|text| (name.clone(), WIDTH - INDENTATION, text)));
    }
    for verb in command.get_subcommands() {
        collect(verb, &format!("{name} {}", verb.get_name()), found);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prose_is_joined_and_what_is_indented_stays() {
        let text = "One `word`\nand more.\n\n  a  b\n  c  d\nThen.\nOn.";
        assert_eq!(
            flowing(text),
            "One word and more.\n\n  a  b\n  c  d\nThen. On."
        );
        assert_eq!(flowing(""), "");
    }

    #[test]
    fn every_kind_of_fault_is_found() {
        let wide = format!("  {}", "x".repeat(WIDTH));
        for (text, fault) in [
            ("a `b`", "back-tick"),
            ("see docs/x.md", "source tree"),
            (&*wide, "82 columns"),
            ("a\nb", "in pieces"),
        ] {
            let verb = Command::new("verb").about(text.to_owned());
            let found = faults(&Command::new("program").subcommand(verb));
            assert_eq!(found.len(), 1, "{found:?}");
            assert!(found[0].starts_with("program verb") && found[0].contains(fault));
        }
    }
}
