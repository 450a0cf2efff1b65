//! Data on stdout. A reader that has had enough (`| head`) is no error.

use std::io::{self, ErrorKind, Write, stdout};

use anyhow::{Context, Result};
use serde::Serialize;

/// Prints text.
pub fn print(text: &str) -> Result<()> {
    let written = stdout()
        .write_all(text.as_bytes())
        .and_then(|()| stdout().flush());
    ignore_closed(written).context("cannot write to stdout")
}

/// Prints a line.
pub fn line(text: &str) -> Result<()> {
    print(&format!("{text}\n"))
}

/// Prints JSON.
pub fn json<T: Serialize>(content: &T) -> Result<()> {
    line(&serde_json::to_string_pretty(content)?)
}

fn ignore_closed(written: io::Result<()>) -> io::Result<()> {
    match written {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_closed_pipe_is_ignored() {
        assert!(ignore_closed(Err(ErrorKind::BrokenPipe.into())).is_ok());
        assert!(ignore_closed(Err(ErrorKind::StorageFull.into())).is_err());
    }
}
