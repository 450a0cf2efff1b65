//! One error for all parts that tell a person what failed: what was tried, where, why, what to do, and who has to act.
//!
//! A part whose callers tell its errors apart has its own type beside it, and says by a [`Blame`] who has to act.

#![forbid(unsafe_code)]

use std::fmt::Display;
use std::path::Path;

/// Who has to act on an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Blame {
    /// The guest of a VM that failed.
    Guest,
    /// The caller asked for something that makes no sense.
    Input,
    /// This machine could not do it, or a machine of the lab failed: another attempt may succeed.
    Machine,
    /// A machine lacks what is needed, and will the next time too.
    Lack,
}

impl Blame {
    /// The exit code of a program that ends with such an error.
    pub const fn exit_code(self) -> u8 {
        match self {
            Self::Guest => 1,
            Self::Input => 2,
            Self::Machine | Self::Lack => 3,
        }
    }
}

/// An error that tells what, where, why and what to do.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{what}{}{}", after(": ", .why), after("; ", .what_to_do))]
pub struct Fault {
    /// Who has to act.
    pub blame: Blame,
    /// What was tried, with its place: "read /dev/kvm".
    pub what: String,
    /// Why it failed; may be empty where `what` says it.
    pub why: String,
    /// What the reader can do about it; may be empty where nothing is known to help.
    pub what_to_do: String,
}

fn after(mark: &str, words: &str) -> String {
    if words.is_empty() {
        String::new()
    } else {
        format!("{mark}{words}")
    }
}

/// What such an error may come of.
pub type Result<T> = std::result::Result<T, Fault>;

impl Fault {
    fn new(blame: Blame, what: impl Into<String>, why: impl Display) -> Self {
        Self {
            blame,
            what: what.into(),
            why: why.to_string(),
            what_to_do: String::new(),
        }
    }

    /// An error that the machine is to blame for.
    pub fn machine(what: impl Into<String>, why: impl Display) -> Self {
        Self::new(Blame::Machine, what, why)
    }

    /// The same; `what` is what was tried: "open /dev/kvm".
    pub fn cannot(what: impl Display, why: impl Display) -> Self {
        Self::machine(format!("cannot {what}"), why)
    }

    /// An error that the request is to blame for.
    pub fn input(what: impl Into<String>, why: impl Display) -> Self {
        Self::new(Blame::Input, what, why)
    }

    /// An error of a machine that lacks something.
    pub fn lack(what: impl Into<String>, why: impl Display) -> Self {
        Self::new(Blame::Lack, what, why)
    }

    /// A guest that stopped without having been asked to and without powering off.
    pub fn guest(why: impl Display) -> Self {
        Self::new(Blame::Guest, "the guest failed", why)
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
    /// "cannot WHAT: the error".
    fn cannot(self, what: impl Display) -> Result<T>;
    /// The same, with what may help.
    fn cannot_or(self, what: impl Display, what_to_do: impl Into<String>) -> Result<T>;
}

impl<T, E: Display> At<T> for std::result::Result<T, E> {
    fn at(self, verb: &str, path: impl AsRef<Path>) -> Result<T> {
        self.map_err(|error| Fault::machine(format!("{verb} {}", path.as_ref().display()), error))
    }

    fn doing(self, what: impl Into<String>) -> Result<T> {
        self.map_err(|error| Fault::machine(what, error))
    }

    fn cannot(self, what: impl Display) -> Result<T> {
        self.map_err(|error| Fault::cannot(what, error))
    }

    fn cannot_or(self, what: impl Display, what_to_do: impl Into<String>) -> Result<T> {
        self.map_err(|error| Fault::cannot(what, error).what_to_do(what_to_do))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_says_what_why_and_what_to_do_and_no_empty_part() {
        let failed: std::result::Result<(), _> = Err("no such file");
        for (fault, text) in [
            (
                failed.at("read", "/a/b").unwrap_err(),
                "read /a/b: no such file",
            ),
            (failed.doing("boot").unwrap_err(), "boot: no such file"),
            (
                failed.cannot("boot").unwrap_err(),
                "cannot boot: no such file",
            ),
            (
                failed.cannot_or("boot", "install it").unwrap_err(),
                "cannot boot: no such file; install it",
            ),
            (
                Fault::input("`x` is no device", "").what_to_do("name one"),
                "`x` is no device; name one",
            ),
            (
                Fault::machine("boot", "no").of("vanilla"),
                "vanilla: boot: no",
            ),
            (Fault::guest("it hangs"), "the guest failed: it hangs"),
        ] {
            assert_eq!(fault.to_string(), text);
        }
    }

    #[test]
    fn exit_codes_are_those_of_the_command_line() {
        let codes = [Blame::Guest, Blame::Input, Blame::Machine, Blame::Lack].map(Blame::exit_code);
        assert_eq!(codes, [1, 2, 3, 3]);
    }
}
