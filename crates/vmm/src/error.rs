//! One error for the whole crate: what was tried, why it failed, what to do.

use std::fmt::Display;

/// Why a VM cannot be started, or ended as it should not.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The description of the VM makes no sense.
    #[error("{place}: {why}")]
    Input {
        /// Where: a file, a key.
        place: String,
        /// What is wrong with it.
        why: String,
    },
    /// This machine, or this user on it, cannot do it.
    #[error("cannot {what}: {why}{}", advice(.what_to_do))]
    Machine {
        /// What was tried.
        what: String,
        /// Why it failed.
        why: String,
        /// What may help; may be empty.
        what_to_do: String,
    },
    /// The guest stopped without having been asked to and without powering off.
    #[error("the guest failed: {0}")]
    Guest(String),
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
    /// A description of the VM that makes no sense.
    pub fn input(place: impl Into<String>, why: impl Display) -> Self {
        Self::Input {
            place: place.into(),
            why: why.to_string(),
        }
    }

    /// The exit code of a program that ends with this error.
    pub const fn exit_code(&self) -> u8 {
        match self {
            Self::Guest(_) => 1,
            Self::Input { .. } => 2,
            Self::Machine { .. } => 3,
        }
    }
}

/// Gives a foreign error its place.
pub trait Doing<T> {
    /// "cannot WHAT: the error".
    fn doing(self, what: impl Into<String>) -> Result<T>;
    /// The same, with what may help.
    fn doing_or(self, what: impl Into<String>, what_to_do: impl Into<String>) -> Result<T>;
}

impl<T, E: Display> Doing<T> for std::result::Result<T, E> {
    fn doing(self, what: impl Into<String>) -> Result<T> {
        self.doing_or(what, "")
    }

    fn doing_or(self, what: impl Into<String>, what_to_do: impl Into<String>) -> Result<T> {
        self.map_err(|why| Error::Machine {
            what: what.into(),
            why: why.to_string(),
            what_to_do: what_to_do.into(),
        })
    }
}
