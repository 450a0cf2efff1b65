//! One check: what was looked at, what was found, and what to do.

use serde::{Deserialize, Serialize};

use crate::settings::Machine;

/// What a check found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Status {
    /// Nothing to do.
    Ok,
    /// It works, with less consistent latency.
    Warn,
    /// A method does not work, or latency is not bounded.
    Bad,
    /// It could not be read.
    Unknown,
}

/// One check.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Check {
    /// A stable name.
    pub id: String,
    /// The group it is printed in.
    pub group: String,
    /// What is checked.
    pub title: String,
    /// The verdict.
    pub status: Status,
    /// What was found, with the file it was read from.
    pub found: String,
    /// Why it matters.
    pub why: String,
    /// What to do; empty if nothing is.
    pub fix: String,
}

impl Check {
    pub(super) fn ok(self, found: impl Into<String>) -> Self {
        Self {
            status: Status::Ok,
            found: found.into(),
            ..self
        }
    }

    pub(super) fn warn(self, found: impl Into<String>, fix: &str) -> Self {
        Self {
            status: Status::Warn,
            found: found.into(),
            fix: fix.into(),
            ..self
        }
    }

    pub(super) fn bad(self, found: impl Into<String>, fix: &str) -> Self {
        Self {
            status: Status::Bad,
            found: found.into(),
            fix: fix.into(),
            ..self
        }
    }

    pub(super) fn unknown(self, found: impl Into<String>, fix: &str) -> Self {
        Self {
            found: found.into(),
            fix: fix.into(),
            ..self
        }
    }
}

/// Starts a check; the group is filled in by [`examine`](super::examine).
pub(super) fn check(id: &str, title: &str, why: &str) -> Check {
    Check {
        id: id.into(),
        group: String::new(),
        title: title.into(),
        status: Status::Unknown,
        found: String::new(),
        why: why.into(),
        fix: String::new(),
    }
}

/// The trimmed content of a file, if it can be read.
pub(super) fn text(machine: &Machine, path: &str) -> Option<String> {
    machine
        .tree
        .read(path)
        .ok()
        .map(|text| text.trim().to_owned())
}
