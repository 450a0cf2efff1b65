//! Virtual functions of cards (SR-IOV) that the host keeps for VMs, and the programs that join them with taps.

mod calls;
mod count;
#[cfg(any(test, feature = "fake"))]
mod fake;
mod own;

pub use calls::{Joint, KernelRedirects, Redirects};
pub use count::Functions;
pub use own::{OwnFunction, Owner};
