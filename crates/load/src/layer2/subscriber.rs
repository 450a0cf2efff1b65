//! Takes the frames of all streams, and counts them.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use super::ber::Malformed;
use super::frame::{Frame, Protocol};
use super::goose::Goose;
use super::mark::Mark;
use super::publisher::now_ns;
use super::sampled_values::SampledValues;
use super::socket::{LONGEST_FRAME, PacketSocket};
use super::tally::Tally;

/// When a subscriber ends.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// After this time.
    pub duration: Duration,
    /// After so many frames of ours; none: by time alone.
    pub frames: Option<u64>,
}

/// The longest a subscriber sleeps before it looks at the flag.
const STOP_NOTICED_WITHIN: Duration = Duration::from_millis(20);
/// The kernel tells of an interface that went down once, and of nothing until it is up again.
const WENT_DOWN: i32 = nix::libc::ENETDOWN;

/// Counts until a limit is reached or the flag is set. `keep` gets every frame with its arrival since 1970, as a capture has it.
///
/// # Errors
/// The socket's, or those of `keep`.
pub fn subscribe(
    socket: &PacketSocket,
    limits: &Limits,
    stop: &AtomicBool,
    keep: &mut dyn FnMut(Duration, &[u8]) -> io::Result<()>,
) -> io::Result<Tally> {
    let begun = Instant::now();
    let mut tally = Tally::default();
    let mut buffer = [0; LONGEST_FRAME];
    loop {
        let left = limits.duration.saturating_sub(begun.elapsed());
        let is_full = limits.frames.is_some_and(|most| tally.received() >= most);
        if left.is_zero() || is_full || stop.load(Ordering::Relaxed) {
            return Ok(tally);
        }
        socket.wait(left.min(STOP_NOTICED_WITHIN))?;
        loop {
            let length = match socket.receive(&mut buffer) {
                Ok(Some(length)) => length,
                Ok(None) => break,
                Err(error) if error.raw_os_error() == Some(WENT_DOWN) => break,
                Err(error) => return Err(error),
            };
            let received_ns = now_ns();
            let frame = buffer.get(..length).unwrap_or_default();
            keep(Duration::from_nanos(received_ns), frame)?;
            match marked(frame) {
                Ok(Some((name, mark))) => tally.note(name, mark, received_ns),
                Ok(None) => tally.note_foreign(),
                Err(_) => tally.note_malformed(),
            }
        }
    }
}

/// The stream and the mark of a frame; none of one that is not ours.
///
/// # Errors
/// Bytes that are no frame of these protocols.
pub fn marked(frame: &[u8]) -> Result<Option<(&str, Mark)>, Malformed> {
    let frame = Frame::parse(frame)?;
    let (name, mark) = match frame.protocol {
        Protocol::SampledValues => {
            let sample = SampledValues::parse(frame.unit, is_ours)?;
            (sample.id, sample.mark)
        }
        Protocol::Goose => {
            let message = Goose::parse(frame.unit, is_ours)?;
            (message.id, message.mark)
        }
    };
    Ok(mark.map(|mark| (name, mark)))
}

/// Whether a stream has a name as [`super::stream_name`] gives it.
fn is_ours(name: &str) -> bool {
    let number = name.strip_prefix("steadyvm").map(str::as_bytes);
    number.is_some_and(|it| it.len() == 2 && it.iter().all(u8::is_ascii_digit))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn no_frame_panics(bytes in prop::collection::vec(any::<u8>(), 0..160), is_goose in any::<bool>()) {
            let _ = marked(&bytes);
            let protocol = if is_goose { Protocol::Goose } else { Protocol::SampledValues };
            let frame = Frame {
                source: [0; 6],
                destination: protocol.destination(1),
                tag: None,
                protocol,
                app_id: 0,
                unit: &bytes,
            };
            let _ = marked(&frame.to_bytes().unwrap());
        }
    }
}
