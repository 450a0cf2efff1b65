//! The results of the experiment of NISP, and their tables.
//!
//! Lee, Kim, Shin, "Network Interrupt Scheduling with Process Priority" (2015), section V: a
//! high-priority process does periodic jobs while packets come for a low-priority one on the same
//! CPU. The paper's are bursts of UDP ([`udp`]); TCP, which it left open, is [`tcp`].

mod jobs;
pub mod tcp;
pub mod udp;

pub use jobs::JobsResult;

/// Whole microseconds as milliseconds, without digits that say nothing.
pub(crate) fn milliseconds(us: u64) -> String {
    format!("{}", us as f64 / 1e3)
}

/// "16 and 30", in milliseconds.
pub(crate) fn deadlines(deadlines_us: &[u64]) -> String {
    let each: Vec<String> = deadlines_us.iter().copied().map(milliseconds).collect();
    each.join(" and ")
}
