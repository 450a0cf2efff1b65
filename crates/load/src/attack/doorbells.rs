//! Tiny frames without end, by default to the sender's own hardware address.
//!
//! A guest's card rings its doorbell for each that its host is not busy with. A bridge drops a frame for the port it came by
//! (`net/bridge/br_forward.c`, `should_deliver`), so the doorbell is all there is of it.

use std::io;

use super::AttackError;
use super::ends::{Aim, Ends, To};
use super::multicast::experimental;

/// A virtual card does not pad: a header and two bytes, for packet sockets refuse a header alone.
pub(super) const BYTES: usize = 16;

pub(super) fn ends(everybody: Ends, aim: &Aim) -> Result<Ends, AttackError> {
    let destination = match aim.to {
        None => everybody.source,
        Some(To::Hardware(hardware)) => hardware,
        Some(to @ To::Address(_)) => return Err(AttackError::NotHardware(to)),
    };
    Ok(Ends {
        destination,
        to: None,
        ..everybody
    })
}

#[allow(clippy::unnecessary_wraps)] // others of its kind may fail
pub(super) fn write(ends: &Ends, _: u64, frame: &mut Vec<u8>) -> io::Result<()> {
    experimental(ends, frame);
    frame.resize(BYTES, 0);
    Ok(())
}
