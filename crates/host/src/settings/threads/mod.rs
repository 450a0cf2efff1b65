//! Threads: their scheduling policies and their CPUs.

mod affinity;
#[cfg(any(test, feature = "fake"))]
mod fake;
mod kernel;
mod policy;

pub use affinity::ThreadAffinity;
#[cfg(any(test, feature = "fake"))]
pub(crate) use kernel::Reserved;
pub(crate) use kernel::calling_thread;
#[cfg(test)]
pub(crate) use kernel::is_runnable;
pub use kernel::{KernelThreads, Policy, RESET_ON_FORK, Scheduling, Threads};
pub use policy::ThreadPolicy;
