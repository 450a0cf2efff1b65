//! One error for the whole crate: what was tried, where, why it failed, what to do.

use std::fmt::Display;
use std::path::Path;

/// Who has to act on an error; the command line turns it into an exit code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Blame {
    /// The caller asked for something that makes no sense. Exit code 2.
    Input,
    /// This machine could not do it, or a machine of the lab failed: another attempt may succeed.
    /// Exit code 3.
    Machine,
    /// A machine lacks what is needed, and will the next time too. Exit code 3.
    Lack,
}

/// An error that tells what, where, why and what to do.
#[derive(Debug, thiserror::Error)]
#[error("{what}: {why}{}", advice(.what_to_do))]
pub struct Error {
    /// Whether the request or the machine has to change.
    pub blame: Blame,
    /// What was tried, with its place: "read /dev/kvm".
    pub what: String,
    /// Why it failed.
    pub why: String,
    /// What the reader can do about it; may be empty where nothing is known to help.
    pub what_to_do: String,
}

fn advice(what_to_do: &str) -> String {
    if what_to_do.is_empty() {
        String::new()
    } else {
        format!("\n  what to do: {what_to_do}")
    }
}

/// The result of everything fallible in this crate.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// An error that the machine is to blame for.
    pub fn machine(what: impl Into<String>, why: impl Display) -> Self {
        Self {
            blame: Blame::Machine,
            what: what.into(),
            why: why.to_string(),
            what_to_do: String::new(),
        }
    }

    /// An error that the request is to blame for.
    pub fn input(what: impl Into<String>, why: impl Display) -> Self {
        Self {
            blame: Blame::Input,
            ..Self::machine(what, why)
        }
    }

    /// An error of a machine that lacks something.
    pub fn lack(what: impl Into<String>, why: impl Display) -> Self {
        Self {
            blame: Blame::Lack,
            ..Self::machine(what, why)
        }
    }

    /// Says first whose error it is, such as a host's name.
    #[must_use]
    pub fn of(mut self, whose: impl Display) -> Self {
        self.what = format!("{whose}: {}", self.what);
        self
    }

    /// Adds what the reader can do.
    #[must_use]
    pub fn what_to_do(mut self, what_to_do: impl Into<String>) -> Self {
        self.what_to_do = what_to_do.into();
        self
    }
}

/// Gives a foreign error its place.
pub trait At<T> {
    /// "VERB PATH: the error".
    fn at(self, verb: &str, path: impl AsRef<Path>) -> Result<T>;
    /// "what: the error".
    fn doing(self, what: impl Into<String>) -> Result<T>;
}

impl<T, E: Display> At<T> for std::result::Result<T, E> {
    fn at(self, verb: &str, path: impl AsRef<Path>) -> Result<T> {
        self.map_err(|error| Error::machine(format!("{verb} {}", path.as_ref().display()), error))
    }

    fn doing(self, what: impl Into<String>) -> Result<T> {
        self.map_err(|error| Error::machine(what, error))
    }
}
