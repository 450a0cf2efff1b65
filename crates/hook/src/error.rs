//! Why something was not done.

use steadyvm_fault::Fault;
use steadyvm_host::HostError;

use crate::interface::SpecError;

/// An error that tells what, where, why and what to do.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Of files and procfs, or a VM that asks for what cannot be.
    #[error(transparent)]
    Fault(#[from] Fault),
    /// Of a VM's keys.
    #[error(transparent)]
    Specs(#[from] SpecError),
    /// Of the host, or of the file that describes it.
    #[error(transparent)]
    Site(#[from] steadyvm_site::Error),
}

impl From<HostError> for Error {
    fn from(error: HostError) -> Self {
        Self::Site(error.into())
    }
}

/// What such an error may come of.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// A VM, or a host's file, that is not as it has to be.
pub fn refused<T>(why: String) -> Result<T> {
    Err(Fault::input(why, "").into())
}
