//! NetStream: bulk TCP traffic into a guest, made by iperf3.
//!
//! This module writes iperf3's command lines ([`ServerCommand`], [`ClientCommand`]) and reads its
//! JSON ([`parse`]); starting the programs, in whichever namespace or guest, is the caller's.

mod commands;
mod output;

pub use commands::{ClientCommand, DEFAULT_PORT, ServerCommand};
pub use output::{Interval, NetStreamError, NetStreamRun, parse};
