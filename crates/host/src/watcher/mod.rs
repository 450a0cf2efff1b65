//! Hears what happens on this host that can make a setting obsolete, and leaves out what concerns only others.
//!
//! - `events`: VMs, links, CPUs and signals, as a watch waits for them
//! - `connector`: threads that call themselves a VCPU's, of the kernel's process connector
//! - `concern`: which of all that is about a card or a VM that a profile names
//!
//! It only listens: nothing here changes the host.

mod concern;
mod connector;
mod events;

pub use concern::Concern;
pub use events::{Event, Events};
