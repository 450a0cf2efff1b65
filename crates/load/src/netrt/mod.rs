//! NetRT: a UDP request/response service and the client that measures its round trips.
//!
//! The load is the paper's (section 4.1 of Garcia, Shinjo and Pu 2018): requests at random
//! intervals, uniform between 1 and 10 ms. It is an *open loop*: the schedule is made of absolute
//! times drawn from a seeded generator, so a slow reply never delays a later request, and the same
//! seed gives the same load to every method. docs/design/netrt.md gives the reasons.
//!
//! - `wire`: the datagram
//! - `schedule`: when requests are due
//! - `clock`: readings of two clocks, and which one timed a round trip
//! - `ledger`: what became of each request; pure
//! - [`serve`] and [`run`]: the two ends

mod client;
mod clock;
mod ledger;
mod schedule;
mod server;
pub(crate) mod wire;

#[cfg(test)]
mod tests;

pub use client::{ClientError, ClientOptions, ClientRun, End, EndedBy, Progress, run};
pub use ledger::{Counters, Sample};
pub use schedule::Intervals;
pub(crate) use schedule::Schedule;
pub use server::{ServerCounters, ServerError, serve};
pub use wire::{HEADER_BYTES, MAXIMUM_PAYLOAD_BYTES};
