//! Early demultiplexing as a setting of the host.

#[cfg(any(test, feature = "fake"))]
mod fake;
mod kernel;
mod kind;
mod sockets;

pub use kernel::{Demultiplexer, DemuxState, KernelDemultiplexer, ListSockets, Presence};
pub use kind::{EarlyDemux, Installed};
pub(crate) use sockets::bound_sockets;
