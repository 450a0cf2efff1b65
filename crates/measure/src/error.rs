//! Why a measurement ended before its time.

use steadyvm_fault::Fault;
use steadyvm_host::HostError;
use steadyvm_site::guard::NotRestored;

/// An error that tells what, where, why and what to do.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Of the host, or of what is compared.
    #[error(transparent)]
    Host(#[from] HostError),
    /// Of the client, of files and of procfs.
    #[error(transparent)]
    Fault(#[from] Fault),
    /// Of the host as a file describes it, and of the guard.
    #[error(transparent)]
    Site(#[from] steadyvm_site::Error),
    /// What was found at the start is not in force again.
    #[error(transparent)]
    NotRestored(#[from] NotRestored),
}

/// What such an error may come of.
pub type Result<T, E = Error> = std::result::Result<T, E>;

impl Error {
    /// The exit code of a program that ends with it.
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Host(error) => error.blame().exit_code(),
            Self::Fault(error) => error.blame.exit_code(),
            Self::Site(error) => error.exit_code(),
            Self::NotRestored(_) => 3,
        }
    }
}
