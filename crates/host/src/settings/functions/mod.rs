//! Ways from a card that many VMs share to the tap of one: a virtual function (SR-IOV) that the host keeps, or an XDP program.

mod budget;
mod calls;
mod count;
#[cfg(any(test, feature = "fake"))]
mod fake;
mod own;
mod xdp;

pub use budget::XdpBudget;
pub use calls::{Joint, KernelRedirects, PacketBudget, Program, Received, Redirects};
pub use count::Functions;
pub use own::{OwnFunction, Owner};
pub(crate) use xdp::Counted;
pub use xdp::{Way, XdpAddress, XdpProgram};
