//! Early demultiplexing: XDP programs find out which port a packet is for before the host's stack
//! sees it, and hand it to one thread of its level, or mark it for the kernel's own levels
//! (kernel/patches/6.12).
//!
//! Mechanism only. [`Levels`] is the policy that turns priorities into levels, and is pure;
//! [`install`] loads, fills and pins the programs in a directory of a BPF file system, and
//! [`remove`] ends them all by removing that directory: nothing else holds them, so they end as
//! well if the process dies before they are pinned.

mod error;
mod install;
mod installed;
mod levels;
mod packet;
mod shared;
mod table;
mod tags;

pub use error::Error;
pub use install::install;
pub use installed::{Counters, Installed, counters, installed, remove};
pub use levels::{LEVELS, Levels, LevelsError, PRIORITIES};
pub use packet::{Kind, Link, Packet, link, parse};
pub use shared::{BoundSocket, FRAMES, Frames, MARK, Protocol, Queues, Specification};
pub use table::{Port, ports, refresh};
