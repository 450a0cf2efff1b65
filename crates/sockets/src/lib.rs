//! Outsourced sockets: a guest's socket operations, executed on the host's own sockets, in the
//! VCPU thread that asks for them. There is no KVM in it: whoever has the guest's memory and its
//! request queues can serve them.
//!
//! - [`Device`]: the sockets of one VM, its limits and its network namespace.
//! - [`Channel`]: the request queue, wait set and event ring of one VCPU.
//! - [`abi`]: what guest and host agree on.
//!
//! The guest is hostile: a request is copied once, then checked, then carried out; payload goes
//! straight between the host's socket and the guest's pages, by the host's kernel. Host sockets are
//! non-blocking, so that a VCPU thread sleeps only where the guest is idle and says so. Reasons and
//! layout are in `docs/design/socket-rpc.md`.

pub mod abi;
mod busy_poll;
mod chain;
mod channel;
mod closing;
mod congestion;
mod control;
mod counts;
mod device;
mod handle;
mod ioctl;
mod limits;
mod lock;
mod memory;
mod news;
mod operation;
mod option;
mod polling;
mod socket;
mod system;
mod table;
mod wait;

pub use busy_poll::can_busy_poll;
pub use channel::{BrokenQueue, Channel, Served};
pub use counts::Counts;
pub use device::{Device, DeviceError};
pub use ioctl::IOCTLS;
pub use limits::Limits;
pub use lock::{Held, Lock};
pub use memory::Memory;
pub use option::{OPTION_LEVELS, is_forwarded};
pub use polling::Polling;
pub use system::SET_BUSY_POLL;
