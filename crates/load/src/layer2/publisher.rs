//! Sends the frames of one to eight streams on their schedule.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

use super::ber::Malformed;
use super::frame::{Frame, Protocol, Tag};
use super::goose::{Goose, Retransmission};
use super::mark::Mark;
use super::sampled_values::SampledValues;
use super::socket::PacketSocket;

/// The most streams of one publisher.
pub const MOST_STREAMS: u8 = 8;

/// The longest the sender sleeps before it looks at the flag.
const STOP_NOTICED_WITHIN: Duration = Duration::from_millis(20);
const REVISION: u32 = 1;

/// What is published.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Publication {
    /// Sampled Values, so many samples a second of each stream.
    SampledValues {
        /// 4,000 in networks of 50 Hz, 4,800 of 60 Hz.
        per_second: u32,
    },
    /// GOOSE.
    Goose {
        /// From an event to its first repetition.
        shortest: Duration,
        /// The longest time from one repetition to the next.
        longest: Duration,
        /// From one event to the next.
        events_apart: Duration,
    },
}

impl Publication {
    /// Of which protocol it is.
    pub fn protocol(&self) -> Protocol {
        match self {
            Self::SampledValues { .. } => Protocol::SampledValues,
            Self::Goose { .. } => Protocol::Goose,
        }
    }
}

/// What was sent.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Published {
    /// Frames of all streams.
    pub sent: u64,
    /// Frames that the sender's own machine had no room for. They have a sequence number, and count as lost.
    pub refused: u64,
    /// How long it took, in seconds.
    pub duration_s: f64,
    /// How late the latest frame was by the schedule, in microseconds.
    pub latest_us: f64,
}

/// What a stream is called, from 1.
pub fn stream_name(stream: u8) -> String {
    format!("steadyvm{stream:02}")
}

/// Publishes streams 1 to `streams` for a time, or until the flag is set. A sender that is late sends what is due at once: the
/// schedule does not wait.
///
/// # Errors
/// The socket's, but for a full queue (counted); a tag that no frame can have.
pub fn publish(
    socket: &PacketSocket,
    publication: &Publication,
    streams: u8,
    tag: Option<Tag>,
    duration: Duration,
    stop: &AtomicBool,
) -> io::Result<Published> {
    let names: Vec<String> = (1..=streams).map(stream_name).collect();
    let begun = Instant::now();
    let begun_ns = now_ns();
    let mut published = Published::default();
    for (sequence, due) in (0_u64..).zip(dues(publication)) {
        let due_after = Duration::from_nanos(due.at_ns);
        if due_after >= duration || !slept(begun, due_after, stop) {
            break;
        }
        for (stream, name) in (1..=streams).zip(&names) {
            let mark = Some(Mark {
                sequence,
                sent_ns: now_ns(),
            });
            let unit = match due.what {
                What::Sample(sample) => SampledValues {
                    id: name,
                    sample,
                    revision: REVISION,
                    synchronised: 0,
                    mark,
                }
                .to_bytes(),
                What::Message(message) => Goose {
                    id: name,
                    allowed_to_live_ms: message.allowed_to_live_ms,
                    event_ns: begun_ns + message.event_at_ns,
                    state: message.state,
                    repetition: message.repetition,
                    revision: REVISION,
                    mark,
                }
                .to_bytes(),
            };
            let protocol = publication.protocol();
            let frame = Frame {
                source: socket.address,
                destination: protocol.destination(stream),
                tag,
                protocol,
                app_id: protocol.app_id(stream),
                unit: &unit,
            };
            let frame = frame.to_bytes().map_err(impossible)?;
            match socket.send(&frame) {
                Ok(()) => published.sent += 1,
                Err(error) if error.raw_os_error() == Some(nix::libc::ENOBUFS) => {
                    published.refused += 1;
                }
                Err(error) => return Err(error),
            }
        }
        let late = begun.elapsed().saturating_sub(due_after);
        published.latest_us = published.latest_us.max(late.as_secs_f64() * 1e6);
    }
    published.duration_s = begun.elapsed().as_secs_f64();
    Ok(published)
}

/// One message of each stream.
struct Due {
    at_ns: u64,
    what: What,
}

#[derive(Clone, Copy)]
enum What {
    Sample(u16),
    Message(super::goose::Transmission),
}

fn dues(publication: &Publication) -> Box<dyn Iterator<Item = Due>> {
    match *publication {
        Publication::SampledValues { per_second } => {
            let per_second = u64::from(per_second.clamp(1, u32::from(u16::MAX)));
            Box::new((0_u64..).map(move |number| {
                let (second, sample) = (number / per_second, number % per_second);
                Due {
                    // Exact also where the rate does not divide a second.
                    at_ns: second * 1_000_000_000 + sample * 1_000_000_000 / per_second,
                    what: What::Sample(sample as u16),
                }
            }))
        }
        Publication::Goose {
            shortest,
            longest,
            events_apart,
        } => {
            let ns = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
            let schedule = Retransmission::new(ns(shortest), ns(longest), ns(events_apart));
            Box::new(schedule.map(|message| Due {
                at_ns: message.at_ns,
                what: What::Message(message),
            }))
        }
    }
}

/// Sleeps until a time after the start; false if the flag was set.
pub(crate) fn slept(begun: Instant, until: Duration, stop: &AtomicBool) -> bool {
    loop {
        if stop.load(Ordering::Relaxed) {
            return false;
        }
        let left = until.saturating_sub(begun.elapsed());
        if left.is_zero() {
            return true;
        }
        thread::sleep(left.min(STOP_NOTICED_WITHIN));
    }
}

/// This machine's clock, in nanoseconds since 1970.
pub(super) fn now_ns() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    u64::try_from(now.unwrap_or_default().as_nanos()).unwrap_or(u64::MAX)
}

fn impossible(error: Malformed) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, error)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_that_does_not_divide_a_second_drifts_by_nothing() {
        let publication = Publication::SampledValues { per_second: 4800 };
        let due = dues(&publication).nth(3 * 4800 + 1).unwrap();
        assert_eq!(due.at_ns, 3_000_208_333);
        assert!(matches!(due.what, What::Sample(1)));
        let last = dues(&publication).nth(4799).unwrap();
        assert!(matches!(last.what, What::Sample(4799)));
    }
}
