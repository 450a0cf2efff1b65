//! Why something was not done.

use steadyvm_fault::Fault;
use steadyvm_host::HostError;

/// An error that tells what, where, why and what to do.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Of the host, or of the file that describes it.
    #[error(transparent)]
    Host(#[from] HostError),
    /// Of files, procfs and traces.
    #[error(transparent)]
    Fault(#[from] Fault),
    /// Of the scheduler of VCPU budgets.
    #[error(transparent)]
    Scheduler(#[from] steadyvm_sched::Error),
    /// A plan that the host cannot hold, where that is an error.
    #[error("{0}")]
    NotFeasible(String),
}

/// What such an error may come of.
pub type Result<T, E = Error> = std::result::Result<T, E>;

impl Error {
    /// The exit code of a program that ends with it.
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Host(error) => error.blame().exit_code(),
            Self::Fault(error) => error.blame.exit_code(),
            Self::Scheduler(error) => error.exit_code(),
            Self::NotFeasible(_) => 1,
        }
    }
}
