//! What went wrong with the scheduler, and who has to act.

use std::io;

use steadyvm_sched_policy::ParametersError;

/// What went wrong.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The kernel or libbpf refused.
    #[error("cannot {what}: {why}")]
    Refused {
        /// What was tried.
        what: String,
        /// Why it failed, and what to do.
        why: String,
    },
    /// Parameters that the policy does not take.
    #[error("{0}")]
    Parameters(#[from] ParametersError),
    /// Wrong use.
    #[error("{0}")]
    Input(String),
    /// The scheduler is not in the state that this needs.
    #[error("{0}")]
    State(String),
    /// The kernel has ended the scheduler.
    #[error(
        "the kernel has ended the scheduler, and its own one has all threads again: {reason}; `steadyvm apply`, or \
         `steadyvm sched ext run`, loads it anew"
    )]
    Ejected {
        /// The kernel's words.
        reason: String,
    },
    /// The loader takes requests and does not answer.
    #[error(
        "the scheduler's loader at {socket} does not answer within {seconds} s; `steadyvm undo` or `steadyvm sched ext stop` ends it"
    )]
    Silent {
        /// Where it was asked.
        socket: String,
        /// How long it was waited for.
        seconds: f64,
    },
    /// The loader was started by another version of this program.
    #[error(
        "the scheduler's loader at {socket} is of another version of steadyvm (protocol {theirs}, and not {ours}); \
         `steadyvm apply` starts this one's in its place"
    )]
    OtherVersion {
        /// Where it was asked.
        socket: String,
        /// The version of its protocol.
        theirs: u32,
        /// The version of ours.
        ours: u32,
    },
}

impl Error {
    /// The command line's: 2 for the caller's fault, 3 for the machine's.
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Parameters(_) | Self::Input(_) => 2,
            Self::Refused { .. }
            | Self::State(_)
            | Self::Ejected { .. }
            | Self::Silent { .. }
            | Self::OtherVersion { .. } => 3,
        }
    }

    pub(crate) fn io(what: &str) -> impl FnOnce(io::Error) -> Self {
        let what = what.to_owned();
        move |error| Self::Refused {
            what,
            why: error.to_string(),
        }
    }

    pub(crate) fn system(what: &str) -> impl FnOnce(nix::errno::Errno) -> Self {
        let what = what.to_owned();
        move |error| Self::Refused {
            what,
            why: error.to_string(),
        }
    }

    pub(crate) fn bpf(what: &str) -> impl FnOnce(libbpf_rs::Error) -> Self {
        let what = what.to_owned();
        move |error| Self::Refused {
            what,
            why: format!("{error:#}"),
        }
    }
}
