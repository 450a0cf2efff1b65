//! Soundness: what the library accepts is never late, shown without the library's formulas.
//!
//! `exhaustive` visits every legal schedule of small systems; `guests`, `hosts` and `servers` simulate
//! many more, in the worst patterns and in random ones.
// Helpers of tests unwrap, too.
#![allow(clippy::unwrap_used)]

mod exhaustive;
mod explorer;
mod guest_explorer;
mod guest_kinds;
mod guests;
mod hosts;
mod larger_hosts;
mod quantum_debts;
mod quantum_explorer;
mod server_explorer;
mod server_kinds;
mod servers;
mod simulator;
