//! Lines to a terminal: a guest's console, which its monitor has to read byte by byte.

use std::fs::OpenOptions;
use std::io::{IsTerminal, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use nix::libc;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use super::AttackError;
use super::frames::has_no_room;
use super::pace::{Attacked, Pace, Tried};

const LINE: &[u8] =
    b"steadyvm-lab load attack console: 0123456789 abcdefghijklmnopqrstuvwxyz ABCDEFG\r\n";
/// A terminal that nobody reads is tried again after this.
const ROOM_WITHIN_MS: u8 = 20;

/// Writes lines to a terminal. What it has no room for is refused; no write waits.
///
/// # Errors
/// No such file, no right to write it, or it is no terminal.
pub fn console(path: &Path, pace: &Pace) -> Result<Attacked, AttackError> {
    let mut options = OpenOptions::new();
    // Reading, too: a pseudo-terminal's own end is opened for both.
    options.read(true).write(true);
    let flags = libc::O_NONBLOCK | libc::O_NOCTTY;
    let mut terminal = options.custom_flags(flags).open(path)?;
    if !terminal.is_terminal() {
        return Err(AttackError::NoTerminal);
    }
    let done = pace.run(|_| match terminal.write(LINE) {
        Ok(_) => Ok(Tried::Sent),
        Err(error) if has_no_room(&error) => {
            let mut ends = [PollFd::new(terminal.as_fd(), PollFlags::POLLOUT)];
            // A signal ends the pause, and the next attempt looks at the flag.
            let _ = poll(&mut ends, PollTimeout::from(ROOM_WITHIN_MS));
            Ok(Tried::Refused)
        }
        Err(error) => Err(error),
    });
    Ok(done?)
}
