//! A load for a SIP server, by SIPp, and how long the server takes to forward each message.
//!
//! SIPp is the caller and the callee. Its built-in call has six messages that a proxy forwards. Both
//! ends are on one machine, and a capture of its card sees a message come from one end and leave the
//! server for the other: the time in between is the forward delay, whatever SIPp does. The capture is
//! the hardware monitor of Garcia, Shinjo and Pu 2018, section 4.3.

mod capture;
mod commands;
mod delays;
mod message;

pub use capture::{CaptureError, Frame, frames};
pub use commands::{
    CALLEE_PORT, CALLER_PORT, Calls, SERVER_PORT, relay_configuration, tcpdump_arguments,
};
pub use delays::{Delay, Run, delays};
pub use message::{MESSAGES, Message};
