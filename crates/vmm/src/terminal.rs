//! The user's terminal as the guest's console.

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::termios::{SetArg, cfmakeraw, tcgetattr, tcsetattr};
use std::io::{self, IsTerminal, Read};
use std::os::fd::{AsFd, BorrowedFd};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, Ordering};
use vmm_sys_util::eventfd::EventFd;

use crate::devices::serial::Console;
use crate::event::borrow;

/// The terminal's mode before this program changed it; null where it has not. For signal handlers
/// too: what it points to is never freed.
static BEFORE: AtomicPtr<libc::termios> = AtomicPtr::new(null_mut());

/// The terminal hands every key to the guest until this is dropped.
pub struct RawTerminal {
    raw: bool,
}

impl RawTerminal {
    /// Where standard input is a terminal; otherwise nothing changes.
    pub fn enter() -> io::Result<Self> {
        let input = io::stdin();
        if !input.is_terminal() {
            return Ok(Self { raw: false });
        }
        let before = tcgetattr(&input)?;
        let mut raw = before.clone();
        cfmakeraw(&mut raw);
        BEFORE.store(Box::leak(Box::new(before.into())), Ordering::SeqCst);
        tcsetattr(&input, SetArg::TCSANOW, &raw)?;
        Ok(Self { raw: true })
    }

    /// Whether the terminal's own keys, such as Ctrl-C, go to the guest.
    pub const fn is_raw(&self) -> bool {
        self.raw
    }
}

impl Drop for RawTerminal {
    fn drop(&mut self) {
        restore();
    }
}

/// Gives the terminal its mode back. May be called in a signal handler.
pub fn restore() {
    let before = BEFORE.swap(null_mut(), Ordering::SeqCst);
    if !before.is_null() {
        // SAFETY: `before` points to a termios that is never freed; 0 is standard input.
        unsafe { libc::tcsetattr(0, libc::TCSANOW, before) };
    }
}

/// What the keys pressed so far ask for.
#[derive(Debug, PartialEq, Eq)]
enum Keys {
    /// Bytes for the guest.
    Bytes(Vec<u8>),
    /// The end of the VM.
    Quit,
}

/// Takes Ctrl-A x, which ends the VM, out of what is typed; Ctrl-A Ctrl-A is one Ctrl-A.
#[derive(Debug, Default)]
struct Escape {
    /// Ctrl-A came last.
    begun: bool,
}

impl Escape {
    const KEY: u8 = 1;

    fn filter(&mut self, typed: &[u8]) -> Keys {
        let mut bytes = Vec::with_capacity(typed.len());
        for key in typed {
            match (self.begun, *key) {
                (true, b'x') => return Keys::Quit,
                (false, Self::KEY) => {
                    self.begun = true;
                    continue;
                }
                (true, Self::KEY) | (false, _) => bytes.push(*key),
                (true, other) => bytes.extend([Self::KEY, other]),
            }
            self.begun = false;
        }
        Keys::Bytes(bytes)
    }
}

/// Feeds standard input to the console until it ends, `stop` is readable, or the escape key ends
/// the VM: then `true`. `interrupted` is called after each interrupt that this raises.
pub fn feed(console: &Console, stop: &EventFd, escape: bool, interrupted: impl Fn()) -> bool {
    let mut keys = Escape::default();
    let mut buffer = [0; 256];
    loop {
        let input = io::stdin();
        if !wait_for([input.as_fd(), borrow(stop)]) {
            return false;
        }
        let Ok(count @ 1..) = input.lock().read(&mut buffer) else {
            return false;
        };
        let typed = &buffer[..count];
        let bytes = if escape {
            match keys.filter(typed) {
                Keys::Bytes(bytes) => bytes,
                Keys::Quit => return true,
            }
        } else {
            typed.to_vec()
        };
        if !put_all(console, stop, &bytes, &interrupted) {
            return false;
        }
    }
}

/// Puts bytes into the console as the guest takes them; `false` where it is to stop.
fn put_all(console: &Console, stop: &EventFd, bytes: &[u8], interrupted: &impl Fn()) -> bool {
    let mut rest = console.feed(bytes);
    interrupted();
    while !rest.is_empty() {
        if !wait_for([borrow(console.drained()), borrow(stop)]) {
            return false;
        }
        let _ = console.drained().read();
        rest = console.feed(rest);
        interrupted();
    }
    true
}

/// Waits for the first or the last descriptor; `false` where the last one, the stop, is readable.
fn wait_for(fds: [BorrowedFd<'_>; 2]) -> bool {
    let mut fds = fds.map(|fd| PollFd::new(fd, PollFlags::POLLIN));
    loop {
        match poll(&mut fds, PollTimeout::NONE) {
            Ok(_) => return !fds[1].any().unwrap_or(true),
            Err(nix::Error::EINTR) => {}
            Err(_) => return false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_escape_key_ends_and_twice_it_is_itself() {
        let mut escape = Escape::default();
        let bytes = |text: &[u8]| Keys::Bytes(text.to_vec());
        assert_eq!(escape.filter(b"ab\x01"), bytes(b"ab"));
        assert_eq!(escape.filter(b"\x01c"), bytes(b"\x01c"));
        assert_eq!(escape.filter(b"\x01y"), bytes(b"\x01y"));
        assert_eq!(escape.filter(b"x\x01"), bytes(b"x"));
        assert_eq!(escape.filter(b"xyz"), Keys::Quit);
    }
}
