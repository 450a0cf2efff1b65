//! GOOSE (IEC 61850-8-1): `goosePdu`, and when an event is repeated.
//!
//! An event is sent at once, then again after a short time that doubles up to a longest, at which the last state is repeated
//! until the next event. The data of ours are a switch that each event turns, and the [`Mark`] as a string of octets.

use super::ber::{Fields, Malformed, put, put_unsigned, text, unsigned};
use super::mark::Mark;

const UNIT: u8 = 0x61;
const REFERENCE: u8 = 0x80;
const ALLOWED_TO_LIVE: u8 = 0x81;
const DATA_SET: u8 = 0x82;
const ID: u8 = 0x83;
const TIME: u8 = 0x84;
const STATE: u8 = 0x85;
const SEQUENCE: u8 = 0x86;
const SIMULATED: u8 = 0x87;
const REVISION: u8 = 0x88;
const NEEDS_COMMISSIONING: u8 = 0x89;
const ENTRIES: u8 = 0x8a;
const ALL_DATA: u8 = 0xab;
const BOOLEAN: u8 = 0x83;
const OCTETS: u8 = 0x89;

/// The quality of `t`: the clock is not synchronised, its accuracy is not known.
const NOT_SYNCHRONISED: u8 = 0x3f;

/// One message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Goose<'b> {
    /// The stream (`goID`).
    pub id: &'b str,
    /// How long the receiver may wait for the next, in milliseconds (`timeAllowedtoLive`).
    pub allowed_to_live_ms: u32,
    /// When the event was, in nanoseconds since 1970 (`t`).
    pub event_ns: u64,
    /// Which event (`stNum`), from 1.
    pub state: u32,
    /// Which repetition (`sqNum`), from 0.
    pub repetition: u32,
    /// The revision of its configuration (`confRev`).
    pub revision: u32,
    /// Which frame of the stream it is, if it is one of ours.
    pub mark: Option<Mark>,
}

impl<'b> Goose<'b> {
    /// It as a data unit.
    pub fn to_bytes(&self) -> Vec<u8> {
        let id = self.id;
        let mut data = Vec::new();
        put(&mut data, BOOLEAN, &[u8::from(self.state % 2 == 1)]);
        let mark = self.mark.map(Mark::to_bytes).unwrap_or_default();
        put(&mut data, OCTETS, &mark);
        let seconds = (self.event_ns / 1_000_000_000) as u32;
        let fraction = ((self.event_ns % 1_000_000_000) << 24) / 1_000_000_000;
        let mut time = seconds.to_be_bytes().to_vec();
        time.extend(&(fraction as u32).to_be_bytes()[1..]);
        time.push(NOT_SYNCHRONISED);
        let mut content = Vec::new();
        put(
            &mut content,
            REFERENCE,
            format!("{id}/LLN0$GO$gcb").as_bytes(),
        );
        put_unsigned(&mut content, ALLOWED_TO_LIVE, self.allowed_to_live_ms);
        put(
            &mut content,
            DATA_SET,
            format!("{id}/LLN0$events").as_bytes(),
        );
        put(&mut content, ID, id.as_bytes());
        put(&mut content, TIME, &time);
        put_unsigned(&mut content, STATE, self.state);
        put_unsigned(&mut content, SEQUENCE, self.repetition);
        put(&mut content, SIMULATED, &[0]);
        put_unsigned(&mut content, REVISION, self.revision);
        put(&mut content, NEEDS_COMMISSIONING, &[0]);
        put_unsigned(&mut content, ENTRIES, 2);
        put(&mut content, ALL_DATA, &data);
        let mut unit = Vec::new();
        put(&mut unit, UNIT, &content);
        unit
    }

    /// Reads a data unit; `is_marked` says by the stream's name whether it is one of ours. One without `goID` has the name of its
    /// control block.
    ///
    /// # Errors
    /// Bytes that are no such unit.
    pub fn parse(unit: &'b [u8], is_marked: impl Fn(&str) -> bool) -> Result<Self, Malformed> {
        let mut content = Fields::of(Fields::of(unit).find(UNIT, "goosePdu")?);
        let reference = content.find(REFERENCE, "gocbRef")?;
        let allowed = content.find(ALLOWED_TO_LIVE, "timeAllowedtoLive")?;
        content.find(DATA_SET, "datSet")?;
        let mut with_id = content;
        let id = match with_id.find(ID, "goID") {
            Ok(id) => {
                content = with_id;
                text(id, "goID")?
            }
            Err(_) => text(reference, "gocbRef")?,
        };
        let time = content.find(TIME, "t")?;
        let time: [u8; 8] = time.try_into().map_err(|_| Malformed::Value("t"))?;
        let state = content.find(STATE, "stNum")?;
        let repetition = content.find(SEQUENCE, "sqNum")?;
        let revision = content.find(REVISION, "confRev")?;
        let mut data = Fields::of(content.find(ALL_DATA, "allData")?);
        let mark = is_marked(id).then(|| mark_of(&mut data)).transpose()?;
        Ok(Self {
            id,
            allowed_to_live_ms: unsigned(allowed, "timeAllowedtoLive")?,
            event_ns: ns_of(time),
            state: unsigned(state, "stNum")?,
            repetition: unsigned(repetition, "sqNum")?,
            revision: unsigned(revision, "confRev")?,
            mark,
        })
    }
}

fn ns_of(time: [u8; 8]) -> u64 {
    let [a, b, c, d, high, middle, low, _quality] = time;
    let seconds = u64::from(u32::from_be_bytes([a, b, c, d]));
    let fraction = u64::from(u32::from_be_bytes([0, high, middle, low]));
    seconds * 1_000_000_000 + ((fraction * 1_000_000_000) >> 24)
}

fn mark_of(data: &mut Fields<'_>) -> Result<Mark, Malformed> {
    let octets = data.find(OCTETS, "the mark")?;
    let octets = octets
        .try_into()
        .map_err(|_| Malformed::Value("the mark"))?;
    Ok(Mark::of(octets))
}

/// One message of a stream's schedule.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Transmission {
    /// When it is due, in nanoseconds after the start.
    pub at_ns: u64,
    /// When its event was, the same.
    pub event_at_ns: u64,
    /// Which event, from 1.
    pub state: u32,
    /// Which repetition, from 0.
    pub repetition: u32,
    /// How long the receiver may wait for the next.
    pub allowed_to_live_ms: u32,
}

/// The times of a stream's messages: events a fixed time apart, each repeated after `shortest_ns`, twice that, and so on up to
/// `longest_ns`.
#[derive(Debug, Clone)]
pub struct Retransmission {
    shortest_ns: u64,
    longest_ns: u64,
    events_apart_ns: u64,
    next: Transmission,
    pause_ns: u64,
}

impl Retransmission {
    /// That of these times; none is taken as shorter than a microsecond.
    pub fn new(shortest_ns: u64, longest_ns: u64, events_apart_ns: u64) -> Self {
        let shortest_ns = shortest_ns.max(1_000);
        let mut schedule = Self {
            shortest_ns,
            longest_ns: longest_ns.max(shortest_ns),
            events_apart_ns: events_apart_ns.max(1_000),
            next: Transmission {
                at_ns: 0,
                event_at_ns: 0,
                state: 1,
                repetition: 0,
                allowed_to_live_ms: 0,
            },
            pause_ns: shortest_ns,
        };
        schedule.next.allowed_to_live_ms = schedule.allowed_to_live_ms();
        schedule
    }

    /// Twice the pause to come: one message may be lost.
    fn allowed_to_live_ms(&self) -> u32 {
        let twice = self.pause_ns.saturating_mul(2).div_ceil(1_000_000);
        u32::try_from(twice).unwrap_or(u32::MAX)
    }
}

impl Iterator for Retransmission {
    type Item = Transmission;

    fn next(&mut self) -> Option<Transmission> {
        let now = self.next;
        let repeated_ns = now.at_ns.checked_add(self.pause_ns)?;
        let event_ns = now.event_at_ns.checked_add(self.events_apart_ns)?;
        let next = &mut self.next;
        if event_ns <= repeated_ns {
            next.at_ns = event_ns;
            next.event_at_ns = event_ns;
            next.state = now.state.wrapping_add(1).max(1);
            next.repetition = 0;
            self.pause_ns = self.shortest_ns;
        } else {
            next.at_ns = repeated_ns;
            // 0 is that of the event itself: it is not used again.
            next.repetition = now.repetition.wrapping_add(1).max(1);
            self.pause_ns = self.pause_ns.saturating_mul(2).min(self.longest_ns);
        }
        self.next.allowed_to_live_ms = self.allowed_to_live_ms();
        Some(now)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const ONE: Goose<'static> = Goose {
        id: "steadyvm01",
        allowed_to_live_ms: 2000,
        event_ns: 1_764_400_000_500_000_000,
        state: 300,
        repetition: 0,
        revision: 1,
        mark: Some(Mark {
            sequence: 5,
            sent_ns: 1_764_400_000_500_000_001,
        }),
    };

    /// The bytes as IEC 61850-8-1 has them: lengths, tags, order.
    #[test]
    fn a_unit_has_the_bytes_of_the_standard() {
        let bytes = ONE.to_bytes();
        assert_eq!(bytes[..2], [0x61, bytes.len() as u8 - 2]);
        let mut content = Fields::of(&bytes[2..]);
        let mut field = |tag| content.find(tag, "it").unwrap().to_vec();
        assert_eq!(field(0x80), b"steadyvm01/LLN0$GO$gcb");
        assert_eq!(field(0x81), [0x07, 0xd0]);
        assert_eq!(field(0x82), b"steadyvm01/LLN0$events");
        assert_eq!(field(0x83), b"steadyvm01");
        assert_eq!(field(0x84), [0x69, 0x2a, 0x9b, 0x80, 0x80, 0, 0, 0x3f]);
        assert_eq!(field(0x85), [0x01, 0x2c]);
        assert_eq!(field(0x86), [0]);
        assert_eq!(field(0x87), [0]);
        assert_eq!(field(0x88), [1]);
        assert_eq!(field(0x89), [0]);
        assert_eq!(field(0x8a), [2]);
        assert_eq!(field(0xab)[..5], [0x83, 1, 0, 0x89, 16]);
    }

    #[test]
    fn an_event_is_repeated_ever_more_slowly_until_the_next() {
        let ms = 1_000_000;
        let schedule = Retransmission::new(2 * ms, 1000 * ms, 3000 * ms);
        let all: Vec<(u64, u32, u32, u32)> = schedule
            .take(14)
            .map(|it| {
                (
                    it.at_ns / ms,
                    it.state,
                    it.repetition,
                    it.allowed_to_live_ms,
                )
            })
            .collect();
        let expected = [
            (0, 1, 0, 4),
            (2, 1, 1, 8),
            (6, 1, 2, 16),
            (14, 1, 3, 32),
            (30, 1, 4, 64),
            (62, 1, 5, 128),
            (126, 1, 6, 256),
            (254, 1, 7, 512),
            (510, 1, 8, 1024),
            (1022, 1, 9, 2000),
            (2022, 1, 10, 2000),
            (3000, 2, 0, 4),
            (3002, 2, 1, 8),
            (3006, 2, 2, 16),
        ];
        assert_eq!(all, expected);
    }

    proptest! {
        #[test]
        fn a_message_is_read_as_it_is_written(
            allowed_to_live_ms in any::<u32>(),
            seconds in any::<u32>(),
            state in any::<u32>(),
            repetition in any::<u32>(),
            sequence in any::<u64>(),
        ) {
            let one = Goose {
                allowed_to_live_ms,
                event_ns: u64::from(seconds) * 1_000_000_000,
                state,
                repetition,
                mark: Some(Mark { sequence, sent_ns: 9 }),
                ..ONE
            };
            let bytes = one.to_bytes();
            prop_assert_eq!(Goose::parse(&bytes, |_| true), Ok(one));
        }

        #[test]
        fn a_schedule_goes_forward(shortest in any::<u64>(), longest in any::<u64>(), apart in any::<u64>()) {
            let times: Vec<u64> = Retransmission::new(shortest, longest, apart)
                .take(50)
                .map(|it| it.at_ns)
                .collect();
            prop_assert!(times.is_sorted_by(|one, next| one < next));
        }

        #[test]
        fn no_damage_panics(at in 0_usize..140, byte in any::<u8>(), length in 0_usize..200) {
            let mut bytes = ONE.to_bytes();
            let last = bytes.len() - 1;
            bytes[at.min(last)] = byte;
            let _ = Goose::parse(&bytes[..length.min(bytes.len())], |_| true);
        }

        #[test]
        fn no_bytes_panic(bytes in prop::collection::vec(any::<u8>(), 0..120)) {
            let _ = Goose::parse(&bytes, |_| true);
        }
    }
}
