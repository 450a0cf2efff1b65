//! Forward delays, by a capture.

use super::capture::{CaptureError, frames};
use super::message::{Message, parse};
use std::collections::BTreeMap;
use std::net::Ipv4Addr;

/// A forwarded message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Delay {
    /// Which of a call's.
    pub message: Message,
    /// The call's number, from 0, in the order of their INVITEs.
    pub call: u64,
    /// From when the server's side had it on its wire until the server's was on it.
    pub delay_ns: u64,
}

/// What a capture tells.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Run {
    /// Every forwarded message of the counted calls, in the order of their arrival.
    pub delays: Vec<Delay>,
    /// Messages of counted calls that were not forwarded in time.
    pub lost: Vec<Message>,
    /// Counted calls.
    pub calls: u64,
}

/// When a message came and went.
#[derive(Clone, Copy)]
struct Seen {
    received_ns: u64,
    sent_ns: Option<u64>,
}

/// The delays of every call but the first `warmup` ones. A message that its sender repeats counts from
/// the first time; what the server repeats counts once. What is not forwarded within `patience_ns` is
/// lost.
///
/// # Errors
/// The capture cannot be read.
pub fn delays(
    capture: &[u8],
    server: Ipv4Addr,
    warmup: u64,
    patience_ns: u64,
) -> Result<Run, CaptureError> {
    let mut seen: BTreeMap<(&str, Message), Seen> = BTreeMap::new();
    let mut order: Vec<(&str, Message)> = Vec::new();
    let mut calls: BTreeMap<&str, u64> = BTreeMap::new();
    let captured = frames(capture)?;
    for frame in &captured {
        let Some((message, call)) = parse(frame.payload) else {
            continue;
        };
        if frame.destination == server {
            let next = calls.len() as u64;
            calls.entry(call).or_insert(next);
            seen.entry((call, message)).or_insert_with(|| {
                order.push((call, message));
                Seen {
                    received_ns: frame.time_ns,
                    sent_ns: None,
                }
            });
        } else if frame.source == server
            && let Some(found) = seen.get_mut(&(call, message))
        {
            found.sent_ns.get_or_insert(frame.time_ns);
        }
    }
    let mut run = Run {
        calls: (calls.len() as u64).saturating_sub(warmup),
        ..Run::default()
    };
    for (call, message) in order {
        let number = calls[call];
        if number < warmup {
            continue;
        }
        let found = seen[&(call, message)];
        let delay_ns = found.sent_ns.map(|at| at.saturating_sub(found.received_ns));
        match delay_ns.filter(|&delay_ns| delay_ns <= patience_ns) {
            Some(delay_ns) => run.delays.push(Delay {
                message,
                call: number - warmup,
                delay_ns,
            }),
            None => run.lost.push(message),
        }
    }
    Ok(run)
}

#[cfg(test)]
mod tests {
    use super::super::capture::tests::capture;
    use super::*;

    const SERVER: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 2);
    const ENDS: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
    const MS: u64 = 1_000_000;

    fn invite(call: &str) -> Vec<u8> {
        format!("INVITE sip:s SIP/2.0\r\nCall-ID: {call}\r\nCSeq: 1 INVITE\r\n\r\n").into()
    }

    fn answer(call: &str, status: &str) -> Vec<u8> {
        format!("SIP/2.0 {status}\r\nCall-ID: {call}\r\nCSeq: 1 INVITE\r\n\r\n").into()
    }

    fn run(datagrams: &[(u64, Ipv4Addr, Ipv4Addr, Vec<u8>)], warmup: u64) -> Run {
        let datagrams: Vec<_> = datagrams
            .iter()
            .map(|(at, from, to, data)| (*at, *from, *to, &data[..]))
            .collect();
        delays(&capture(&datagrams), SERVER, warmup, 100 * MS).unwrap()
    }

    #[test]
    fn a_message_counts_from_its_arrival_to_its_departure_once() {
        let datagrams = [
            (MS, ENDS, SERVER, invite("a")),
            (2 * MS, SERVER, ENDS, answer("a", "100 Trying")),
            (3 * MS, ENDS, SERVER, invite("a")),
            (5 * MS, SERVER, ENDS, invite("a")),
            (9 * MS, SERVER, ENDS, invite("a")),
            (10 * MS, ENDS, SERVER, answer("a", "180 Ringing")),
            (11 * MS, SERVER, ENDS, answer("a", "180 Ringing")),
        ];
        let run = run(&datagrams, 0);
        let found: Vec<_> = run
            .delays
            .iter()
            .map(|it| (it.message, it.delay_ns))
            .collect();
        assert_eq!(found, [(Message::Invite, 4 * MS), (Message::Ringing, MS)]);
        assert_eq!((run.lost.len(), run.calls), (0, 1));
    }

    #[test]
    fn what_is_not_forwarded_in_time_is_lost_and_first_calls_are_left_out() {
        let datagrams = [
            (0, ENDS, SERVER, invite("warm")),
            (MS, ENDS, SERVER, invite("late")),
            (2 * MS, ENDS, SERVER, invite("never")),
            (3 * MS, ENDS, SERVER, invite("good")),
            (4 * MS, SERVER, ENDS, invite("good")),
            (102 * MS, SERVER, ENDS, invite("late")),
        ];
        let run = run(&datagrams, 1);
        assert_eq!((run.lost.len(), run.calls), (2, 3));
        assert_eq!(run.delays.len(), 1);
        assert_eq!((run.delays[0].call, run.delays[0].delay_ns), (2, MS));
    }
}
