//! What leaves the monitor as text: the guest's console, and messages about the guest.
//!
//! A VCPU never writes to a descriptor. It puts bytes into a [`Pipe`], which is bounded and drops what
//! nobody reads; a thread of its own ([`Outputs::carry`]) writes them. So neither a slow reader nor a
//! stopped terminal holds a VCPU up, and a guest that writes without end fills no disk.

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::{Duration, Instant};
use steadyvm_sockets::{Held, Lock};
use vmm_sys_util::eventfd::EventFd;

use crate::event::borrow;

/// Bytes that wait for their reader, of the console and of messages each.
const CAPACITY: usize = 256 << 10;
/// Bytes of one write(2): a pipe that polls writable takes so many at once (`PIPE_BUF`).
const PIECE: usize = libc::PIPE_BUF;
/// How long after the VM's end a reader may still take what waits.
const LAST_WORDS: Duration = Duration::from_millis(500);

#[derive(Default)]
struct Pending {
    bytes: VecDeque<u8>,
    lost: u64,
}

/// A bounded queue of bytes that never blocks who writes.
pub struct Pipe {
    /// Held for the time of a copy of at most [`PIECE`] bytes.
    pending: Lock<Pending>,
    bell: EventFd,
}

impl Pipe {
    /// An empty one; `bell` is rung when there is something in it.
    pub fn new(bell: &EventFd) -> io::Result<Arc<Self>> {
        Ok(Arc::new(Self {
            pending: Lock::default(),
            bell: bell.try_clone()?,
        }))
    }

    /// Puts bytes in, all of them or none; those that have no room are counted as lost.
    pub fn put(&self, bytes: &[u8]) {
        let mut pending = self.lock();
        if pending.bytes.len() + bytes.len() > CAPACITY {
            pending.lost += bytes.len() as u64;
            return;
        }
        let was_empty = pending.bytes.is_empty();
        pending.bytes.extend(bytes);
        drop(pending);
        if was_empty {
            let _ = self.bell.write(1);
        }
    }

    /// Takes at most [`PIECE`] bytes; where bytes were lost, a line that says so comes after those
    /// that were not.
    pub(crate) fn take(&self) -> Vec<u8> {
        let mut pending = self.lock();
        let count = pending.bytes.len().min(PIECE);
        let mut taken: Vec<u8> = pending.bytes.drain(..count).collect();
        if pending.bytes.is_empty() && pending.lost > 0 {
            let lost = std::mem::take(&mut pending.lost);
            taken.extend(format!("\r\n[{lost} bytes are lost: nobody read them]\r\n").bytes());
        }
        taken
    }

    fn lock(&self) -> Held<'_, Pending> {
        self.pending.lock()
    }
}

/// A pipe as the serial port's output.
pub struct Entry(pub Arc<Pipe>);

impl Write for Entry {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.put(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Messages about the guest for whoever runs the monitor.
#[derive(Clone)]
pub struct Messages(pub Arc<Pipe>);

impl Messages {
    /// Says one line.
    pub fn say(&self, line: &str) {
        self.0.put(format!("steadyvm: {line}\n").as_bytes());
    }
}

/// Lets through one message a second of those that a guest can cause at will, and counts the others.
#[derive(Default)]
pub struct Limiter(Lock<Allowed>);

#[derive(Default)]
struct Allowed {
    last: Option<Instant>,
    left_out: u64,
}

impl Limiter {
    const INTERVAL: Duration = Duration::from_secs(1);

    /// Whether a message may be said at `now`: then how many were left out since the last.
    pub fn allows(&self, now: Instant) -> Option<u64> {
        let mut allowed = self.0.lock();
        let too_soon = |last: Instant| now.duration_since(last) < Self::INTERVAL;
        if allowed.last.is_some_and(too_soon) {
            allowed.left_out += 1;
            return None;
        }
        allowed.last = Some(now);
        Some(std::mem::take(&mut allowed.left_out))
    }
}

/// Where bytes go in the end.
pub struct Sink {
    file: File,
    /// Bytes that it may still take.
    room: u64,
}

impl Sink {
    /// A descriptor that somebody reads.
    pub const fn stream(file: File) -> Self {
        Self {
            file,
            room: u64::MAX,
        }
    }

    /// A file that may grow to so many bytes.
    pub const fn limited(file: File, bytes: u64) -> Self {
        Self { file, room: bytes }
    }

    /// Writes some of the bytes. What is beyond the room is taken and dropped.
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let allowed = bytes
            .len()
            .min(usize::try_from(self.room).unwrap_or(usize::MAX));
        if allowed == 0 {
            return Ok(bytes.len());
        }
        let written = self.file.write(&bytes[..allowed])?;
        self.room = self.room.saturating_sub(written as u64);
        Ok(written)
    }
}

/// One way from a pipe to its sink.
struct Flow {
    pipe: Arc<Pipe>,
    sink: Sink,
    piece: Vec<u8>,
    /// The reader has gone: bytes are dropped.
    gone: bool,
}

impl Flow {
    fn has_more(&mut self) -> bool {
        if self.piece.is_empty() {
            self.piece = self.pipe.take();
        }
        if self.gone {
            self.piece.clear();
        }
        !self.piece.is_empty()
    }

    fn write(&mut self) {
        match self.sink.write(&self.piece) {
            Ok(count) => drop(self.piece.drain(..count)),
            Err(error) if is_temporary(&error) => {}
            Err(_) => self.gone = true,
        }
    }
}

fn is_temporary(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted
    )
}

/// The console and the messages with their sinks, to be carried by a thread.
pub struct Outputs {
    bell: EventFd,
    flows: [Flow; 2],
}

impl Outputs {
    /// The pipes' `bell` is what this waits for.
    pub fn new(bell: EventFd, console: (Arc<Pipe>, Sink), messages: (Arc<Pipe>, Sink)) -> Self {
        let flows = [console, messages].map(|(pipe, sink)| Flow {
            pipe,
            sink,
            piece: Vec::new(),
            gone: false,
        });
        Self { bell, flows }
    }

    /// Carries bytes until `stop` is readable, then what is left for as long as readers take it and
    /// [`LAST_WORDS`] last.
    pub fn carry(mut self, stop: &EventFd) {
        let mut until: Option<Instant> = None;
        loop {
            let _ = self.bell.read();
            let more = self.flows.each_mut().map(Flow::has_more);
            let left = until.map(|until| until.saturating_duration_since(Instant::now()));
            if left.is_some_and(|left| left.is_zero() || more == [false; 2]) {
                return;
            }
            let timeout = left.map_or(PollTimeout::NONE, |left| {
                PollTimeout::try_from(left).unwrap_or(PollTimeout::ZERO)
            });
            let ready = wait(
                [&self.bell, stop],
                &self.flows,
                more,
                until.is_some(),
                timeout,
            );
            let Ok((stopped, ready)) = ready else {
                return;
            };
            if stopped && until.is_none() {
                until = Some(Instant::now() + LAST_WORDS);
            }
            for (flow, ready) in self.flows.iter_mut().zip(ready) {
                if ready {
                    flow.write();
                }
            }
        }
    }
}

/// Waits for the bell, the stop, and room in the sinks that have bytes: whether the stop has come, and
/// which sinks have room.
fn wait(
    events: [&EventFd; 2],
    flows: &[Flow; 2],
    more: [bool; 2],
    stopped: bool,
    timeout: PollTimeout,
) -> io::Result<(bool, [bool; 2])> {
    let mut fds: Vec<PollFd> = events
        .into_iter()
        .map(|event| PollFd::new(borrow(event), PollFlags::POLLIN))
        .collect();
    if stopped {
        // It stays readable: only what may still come is waited for.
        fds.truncate(1);
    }
    let first = fds.len();
    for (flow, more) in flows.iter().zip(more) {
        if more {
            fds.push(PollFd::new(flow.sink.file.as_fd(), PollFlags::POLLOUT));
        }
    }
    match poll(&mut fds, timeout) {
        Ok(_) => {}
        Err(nix::Error::EINTR) => return Ok((stopped, [false; 2])),
        Err(error) => return Err(error.into()),
    }
    let any = |fd: Option<&PollFd>| fd.is_some_and(|fd| fd.any().unwrap_or(true));
    let mut sinks = fds[first..].iter();
    let ready = more.map(|more| more && any(sinks.next()));
    Ok((stopped || any(fds.get(1)), ready))
}

#[cfg(test)]
#[path = "output_tests.rs"]
mod tests;
