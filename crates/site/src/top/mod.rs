//! What serves this host's VMs, live.
//!
//! - `frame`: figures of one look; pure
//! - `look`: reads the host
//! - `starving`: which VMs can keep which from CPUs; pure
//! - `metrics`, `text`: a frame as metrics for a collector, and as a table; pure

mod frame;
mod look;
mod metrics;
mod starving;
mod text;

pub use frame::{Budget, Frame, Group, InForce, Stage, WakeUp};
pub use look::Watcher;
pub use metrics::metrics;
pub use text::table;
