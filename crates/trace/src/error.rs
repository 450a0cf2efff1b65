//! Errors: what went wrong, where, why, and what to do.

use std::io;
use std::path::Path;

/// An error of this crate.
#[derive(Debug, thiserror::Error)]
pub enum TraceError {
    /// The caller asked for something that makes no sense here.
    #[error("{what}; {fix}")]
    BadInput {
        /// What is wrong.
        what: String,
        /// What to do.
        fix: String,
    },

    /// This machine, or this user on it, cannot do it.
    #[error("cannot {what}: {why}{}", advice(.fix))]
    CannotDo {
        /// What was tried.
        what: String,
        /// Why it failed.
        why: String,
        /// What to do; empty where nothing is known to help.
        fix: String,
    },
}

fn advice(fix: &str) -> String {
    if fix.is_empty() {
        String::new()
    } else {
        format!("; {fix}")
    }
}

impl TraceError {
    /// The exit code of the command line: 2 for wrong use, 3 where this machine cannot do it.
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::BadInput { .. } => 2,
            Self::CannotDo { .. } => 3,
        }
    }

    pub(crate) fn cannot(what: impl Into<String>, why: impl std::fmt::Display, fix: &str) -> Self {
        Self::CannotDo {
            what: what.into(),
            why: why.to_string(),
            fix: fix.to_owned(),
        }
    }

    pub(crate) fn reading(path: &Path, error: &io::Error) -> Self {
        let fix = match error.kind() {
            io::ErrorKind::PermissionDenied => "run it as root (sudo)",
            _ => "",
        };
        Self::cannot(format!("read {}", path.display()), error, fix)
    }
}
