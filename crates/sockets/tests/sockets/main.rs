//! A guest and its peers: the guest's half lays requests in guest memory, the peers are ordinary
//! sockets of the host, in an unnamed network namespace that each test makes (as root).

// Helpers of tests unwrap, too.
#![allow(clippy::unwrap_used)]
// No real-time virtual CPU waits for a test.
#![allow(clippy::disallowed_types)]

mod busy_poll;
mod datagrams;
mod differential;
#[path = "../guest/mod.rs"]
mod guest;
mod hostile;
mod limits;
mod options;
mod readiness;
mod rights;
mod streams;
