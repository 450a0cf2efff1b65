//! What went wrong, in words: libbpf prints why it refuses, and returns a number.

use std::sync::{Mutex, PoisonError};

use libbpf_rs::{PrintLevel, set_print};

/// Lines of a long message that are shown.
const KEPT_LINES: usize = 6;

/// What went wrong, and where.
#[derive(Debug, thiserror::Error)]
#[error("cannot {action}: {cause}")]
pub struct Error {
    /// What was tried.
    pub action: String,
    /// Why it failed.
    pub cause: String,
}

pub(crate) fn failed<E: std::error::Error>(action: impl Into<String>) -> impl FnOnce(E) -> Error {
    let action = action.into();
    move |error| {
        let mut cause = error.to_string();
        let mut source = error.source();
        while let Some(error) = source {
            let deeper = error.to_string();
            if !cause.ends_with(&deeper) {
                cause = format!("{cause}: {deeper}");
            }
            source = error.source();
        }
        let cause = shortened(&cause);
        Error { action, cause }
    }
}

/// The verifier's log may have a hundred thousand lines; its verdict is at the end.
fn shortened(text: &str) -> String {
    let lines: Vec<&str> = text.lines().collect();
    if lines.len() <= 2 * KEPT_LINES {
        return text.to_owned();
    }
    let (first, last) = (&lines[..1], &lines[lines.len() - KEPT_LINES..]);
    format!("{}\n  ...\n{}", first.join("\n"), last.join("\n"))
}

/// What libbpf has printed since it was last asked something. It has one place for what it prints.
static PRINTED: Mutex<String> = Mutex::new(String::new());

/// One at a time: what is printed belongs to what was asked.
static ASKED: Mutex<()> = Mutex::new(());

// As libbpf calls it.
#[allow(clippy::needless_pass_by_value)]
fn keep(_: PrintLevel, text: String) {
    let mut printed = PRINTED.lock().unwrap_or_else(PoisonError::into_inner);
    printed.push_str(&text);
}

/// Asks libbpf. What it prints is part of the error, and of nothing else.
pub(crate) fn asked<T>(
    action: impl Into<String>,
    work: impl FnOnce() -> libbpf_rs::Result<T>,
) -> Result<T, Error> {
    let _alone = ASKED.lock().unwrap_or_else(PoisonError::into_inner);
    let before = set_print(Some((PrintLevel::Warn, keep)));
    let done = work();
    set_print(before);
    let printed = std::mem::take(&mut *PRINTED.lock().unwrap_or_else(PoisonError::into_inner));
    done.map_err(|error| {
        let Error { action, cause } = failed(action)(error);
        let cause = shortened(format!("{cause}\n{printed}").trim_end());
        Error { action, cause }
    })
}

#[cfg(test)]
mod tests {
    use super::shortened;

    #[test]
    fn only_the_ends_of_a_long_log_are_shown() {
        assert_eq!(shortened("one line"), "one line");
        let log: Vec<String> = (0..1000).map(|line| line.to_string()).collect();
        let short = shortened(&log.join("\n"));
        assert!(
            short.starts_with("0\n") && short.ends_with("\n999"),
            "{short}"
        );
        assert_eq!(short.lines().count(), 8);
    }
}
