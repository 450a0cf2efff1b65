//! What a channel did, counted by the thread that serves it. Who wants to know reads it at any time.

use crate::abi::op;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

/// Names of operations, by their numbers; those that the header does not have are the first.
const OPERATIONS: [&str; op::WAKE as usize + 1] = [
    "unknown",
    "socket",
    "bind",
    "connect",
    "listen",
    "accept",
    "send",
    "receive",
    "shutdown",
    "close",
    "getsockname",
    "getpeername",
    "setsockopt",
    "getsockopt",
    "ioctl",
    "poll",
    "steer",
    "state_table",
    "event_ring",
    "harvest",
    "wait",
    "wake",
];

/// Counters of one channel.
#[derive(Debug, Default)]
pub struct Counts {
    requests: [AtomicU64; OPERATIONS.len()],
    received_by_waits: AtomicU64,
    polls_that_found: AtomicU64,
    polls_in_vain: AtomicU64,
    bells: AtomicU64,
    interrupts: AtomicU64,
}

impl Counts {
    pub(crate) fn request(&self, op: u16) {
        let known = self.requests.get(usize::from(op));
        add(known.unwrap_or(&self.requests[0]));
    }

    /// A wait has received for who blocked.
    pub(crate) fn received_by_wait(&self) {
        add(&self.received_by_waits);
    }

    /// A wait has polled the card.
    pub(crate) fn polled(&self, is_found: bool) {
        add(if is_found {
            &self.polls_that_found
        } else {
            &self.polls_in_vain
        });
    }

    /// The guest has rung, and woken who serves it.
    pub fn rung(&self) {
        add(&self.bells);
    }

    /// The guest was interrupted.
    pub fn interrupted(&self) {
        add(&self.interrupts);
    }

    /// All that are not zero, by name.
    pub fn read(&self) -> BTreeMap<&'static str, u64> {
        let besides = [
            ("received_by_waits", &self.received_by_waits),
            ("polls_that_found", &self.polls_that_found),
            ("polls_in_vain", &self.polls_in_vain),
            ("bells", &self.bells),
            ("interrupts", &self.interrupts),
        ];
        let all = OPERATIONS.into_iter().zip(&self.requests).chain(besides);
        all.map(|(name, count)| (name, count.load(Ordering::Relaxed)))
            .filter(|(_, count)| *count > 0)
            .collect()
    }
}

fn add(count: &AtomicU64) {
    count.fetch_add(1, Ordering::Relaxed);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operations_are_counted_by_name_and_unknown_ones_together() {
        let counts = Counts::default();
        for op in [op::WAIT, op::SEND, op::WAIT, 0, 22, u16::MAX] {
            counts.request(op);
        }
        counts.polled(true);
        let expected = [
            ("polls_that_found", 1),
            ("send", 1),
            ("unknown", 3),
            ("wait", 2),
        ];
        assert_eq!(counts.read(), BTreeMap::from(expected));
    }
}
