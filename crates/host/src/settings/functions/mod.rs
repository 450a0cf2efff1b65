//! Ways from a card that many VMs share to the tap of one: a virtual function (SR-IOV) that the host keeps, or an XDP program.

mod calls;
mod count;
#[cfg(any(test, feature = "fake"))]
mod fake;
mod own;
mod xdp;

pub use calls::{Joint, KernelRedirects, Program, Redirects};
pub use count::Functions;
pub use own::{OwnFunction, Owner};
pub use xdp::{Way, XdpAddress, XdpProgram};
