//! Errors: what went wrong, where, why, and what to do.

use std::io;
use std::path::Path;

use steadyvm_fault::Blame;

use crate::undone::Undone;

/// An error of this crate.
#[derive(Debug, thiserror::Error)]
pub enum HostError {
    /// The caller asked for something that makes no sense here.
    #[error("{what}; {fix}")]
    BadInput {
        /// What is wrong.
        what: String,
        /// What to do.
        fix: String,
    },

    /// The machine lacks something.
    #[error("this machine cannot do it: {missing}; {fix}")]
    Unsupported {
        /// What is missing.
        missing: String,
        /// What to do.
        fix: String,
    },

    /// Settings are in force already, or an earlier run was interrupted.
    #[error("{what} (journal: {journal}); {fix}")]
    InForce {
        /// What is in force.
        what: String,
        /// The journal that says so.
        journal: String,
        /// What to do.
        fix: String,
    },

    /// Another process changes this host.
    #[error(
        "another steadyvm is changing this host (it holds {path}); wait for it to end (--wait \
         SECONDS)"
    )]
    Busy {
        /// The lock file.
        path: String,
    },

    /// Others act on this host, and this is not to be mixed with it.
    #[error("{why}; {fix}")]
    KeptOff {
        /// Who, and why it is not to be.
        why: String,
        /// What to do.
        fix: String,
    },

    /// A file or a system call failed.
    #[error("cannot {action} {subject}: {cause}{hint}")]
    Io {
        /// What was tried.
        action: &'static str,
        /// On what: a path, or a thread.
        subject: String,
        /// Why it failed; part of the message, and so no `source` to be printed again.
        cause: io::Error,
        /// What to do, if it is known: starts with "; ".
        hint: &'static str,
    },

    /// A file of the host or the journal has a content that makes no sense.
    #[error("cannot understand {path}: {problem}")]
    Malformed {
        /// The file.
        path: String,
        /// What is wrong with it.
        problem: String,
    },

    /// The kernel took a setting and did not keep it.
    #[error("the kernel did not keep {what}: asked for {asked}, found {found}")]
    NotKept {
        /// The setting.
        what: String,
        /// What was written.
        asked: String,
        /// What was read back.
        found: String,
    },

    /// Something that the settings need went away meanwhile.
    #[error("{what} is gone; name the VM's and NIC's current state and apply again")]
    Vanished {
        /// The thread.
        what: String,
    },

    /// Applying failed midway, and what was done is undone.
    #[error("{cause}; what was changed before that is undone ({})", .undone.summary())]
    RolledBack {
        /// Why it failed.
        cause: Box<HostError>,
        /// What undoing found.
        undone: Box<Undone>,
    },
}

impl From<steadyvm_config::Error> for HostError {
    fn from(error: steadyvm_config::Error) -> Self {
        Self::BadInput {
            what: error.to_string(),
            fix: "steadyvm.toml(5) has all keys".into(),
        }
    }
}

impl HostError {
    /// Who has to act.
    pub fn blame(&self) -> Blame {
        match self {
            Self::BadInput { .. } | Self::InForce { .. } => Blame::Input,
            Self::RolledBack { cause, .. } => cause.blame(),
            _ => Blame::Machine,
        }
    }

    /// Wraps an I/O error with what was tried on what.
    pub(crate) fn io(action: &'static str, subject: impl Into<String>, cause: io::Error) -> Self {
        let hint = match cause.raw_os_error() {
            Some(libc::EPERM | libc::EACCES) => {
                "; it needs root (CAP_SYS_NICE, CAP_SYS_ADMIN): run it with sudo"
            }
            _ => "",
        };
        Self::Io {
            action,
            subject: subject.into(),
            cause,
            hint,
        }
    }

    /// Wraps an error of the journal's files.
    pub(crate) fn of_journal(action: &'static str, path: &Path, cause: io::Error) -> Self {
        let hint = match cause.raw_os_error() {
            Some(libc::EROFS) => "; name a directory that can be written (--state-dir)",
            Some(libc::ENOSPC | libc::EDQUOT | libc::EFBIG) => {
                "; free some space, or name another directory (--state-dir)"
            }
            _ => return Self::io(action, path.display().to_string(), cause),
        };
        Self::Io {
            action,
            subject: path.display().to_string(),
            cause,
            hint,
        }
    }

    /// Whether what it is about is gone: a thread ended, a device or its interrupt went away.
    pub(crate) fn is_vanished(&self) -> bool {
        match self {
            Self::Vanished { .. } => true,
            Self::Io { cause, .. } => {
                cause.kind() == io::ErrorKind::NotFound
                    || matches!(cause.raw_os_error(), Some(libc::ESRCH | libc::ENODEV))
            }
            _ => false,
        }
    }
}

/// None where what was asked went away meanwhile.
pub(crate) fn unless_vanished<T>(asked: Result<T, HostError>) -> Result<Option<T>, HostError> {
    match asked {
        Err(error) if error.is_vanished() => Ok(None),
        other => other.map(Some),
    }
}

/// A message with its place in front, if there is one.
pub(crate) fn at(place: &str, what: &str) -> String {
    if place.is_empty() {
        what.to_owned()
    } else {
        format!("{place}: {what}")
    }
}
