//! The control channel: a process that starts processes where it runs, and its caller's end.
//!
//! [`serve`] runs in the emulated host and in every guest; [`Connection`] is the other end.

mod connection;
mod protocol;
mod serve;
#[cfg(test)]
mod tests;

pub use connection::{Connection, Finished, Process, ProcessInput};
pub use protocol::{Status, Stream, TerminalSize};
pub use serve::{port_named, serve};

/// The virtio-serial port that carries the control channel.
pub const PORT: &str = "steadyvm.agent";
