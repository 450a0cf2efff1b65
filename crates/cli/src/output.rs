//! Data on stdout, progress on stderr. A reader that has had enough (`| head`) is no error.
//!
//! VMs, threads and files are called whatever others like, and a terminal obeys what it is sent: so all text goes out by this
//! module, which lets no control character of theirs through.

use std::borrow::Cow;
use std::fmt::Write as _;
use std::io::{self, ErrorKind, Write, stdout};

use anyhow::{Context, Result};
use serde::Serialize;
use steadyvm_host::is_command;

/// Prints text.
pub fn print(text: &str) -> Result<()> {
    styled(&harmless(text))
}

/// Prints text with a terminal's commands of this program's own. Who calls this has made all else in it printable.
pub fn styled(text: &str) -> Result<()> {
    let written = stdout()
        .write_all(text.as_bytes())
        .and_then(|()| stdout().flush());
    ignore_closed(written).context("cannot write to stdout")
}

/// Prints text as all that the terminal shows.
pub fn screen(text: &str) -> Result<()> {
    // To the first place, and all of the screen cleared (ECMA-48: CUP, ED).
    styled(&format!("\u{1b}[H\u{1b}[2J{}", harmless(text)))
}

/// Prints a line.
pub fn line(text: &str) -> Result<()> {
    print(&format!("{text}\n"))
}

/// Prints JSON.
pub fn json<T: Serialize>(content: &T) -> Result<()> {
    line(&serde_json::to_string_pretty(content)?)
}

/// Says something on stderr, a line of its own.
pub fn say(text: &str) {
    eprintln!("{}", harmless(text));
}

/// Text with its control characters, and those that turn the direction of writing, as JSON escapes them: so JSON stays what
/// it is, since it has none of them outside of strings. Line feeds and tabs stay.
pub fn harmless(text: &str) -> Cow<'_, str> {
    let is_kept = |character: char| matches!(character, '\n' | '\t') || !is_command(character);
    if text.chars().all(is_kept) {
        return Cow::Borrowed(text);
    }
    let mut safe = String::with_capacity(text.len() + 16);
    for character in text.chars() {
        if is_kept(character) {
            safe.push(character);
        } else {
            // All of them are below U+10000.
            let _ = write!(safe, "\\u{:04x}", u32::from(character));
        }
    }
    Cow::Owned(safe)
}

fn ignore_closed(written: io::Result<()>) -> io::Result<()> {
    match written {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn only_a_closed_pipe_is_ignored() {
        assert!(ignore_closed(Err(ErrorKind::BrokenPipe.into())).is_ok());
        assert!(ignore_closed(Err(ErrorKind::StorageFull.into())).is_err());
    }

    #[test]
    fn a_terminal_is_told_nothing_by_names() {
        assert_eq!(
            harmless("a\u{1b}]0;x\u{7}\tb\u{9b}2J\n\u{202e}c\r\n"),
            "a\\u001b]0;x\\u0007\tb\\u009b2J\n\\u202ec\\u000d\n"
        );
        assert!(matches!(harmless("Größe\t1\n"), Cow::Borrowed(_)));
    }

    proptest! {
        #[test]
        fn nothing_is_left_and_json_stays_the_same(text in any::<String>()) {
            let json = serde_json::to_string_pretty(&[&text]).unwrap();
            let safe = harmless(&json);
            prop_assert!(!safe.contains(|it: char| it.is_control() && it != '\n' && it != '\t'));
            let back: Vec<String> = serde_json::from_str(&safe).unwrap();
            prop_assert_eq!(back, [text]);
        }
    }
}
