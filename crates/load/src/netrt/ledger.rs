//! What became of each request. Pure: times come in, verdicts go out.

use super::clock::{Clock, Reading, round_trip_ns};
use serde::{Deserialize, Serialize};

/// One counted round trip.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sample {
    /// The request's number in its run, warm-up included.
    pub sequence: u64,
    /// When the request was sent, in nanoseconds after the start of the run.
    pub sent_ns: u64,
    /// The round trip in nanoseconds.
    pub rtt_ns: u64,
}

/// What was counted beside the samples. All but `malformed`, `foreign` and the send fields leave
/// the warm-up out, so `requests = answered + lost + undecided`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Counters {
    /// Counted requests that were due and handed to the kernel (or refused by it).
    pub requests: u64,
    /// Requests answered within the timeout: as many as there are samples.
    pub answered: u64,
    /// Requests not answered within the timeout.
    pub lost: u64,
    /// Requests whose time was not up when the run was stopped: neither answered nor lost.
    pub undecided: u64,
    /// Of the lost requests, those whose reply came after the timeout, while the run lasted.
    pub late: u64,
    /// Replies that came after the reply to a later request.
    pub reordered: u64,
    /// Replies to a request that already had one.
    pub duplicates: u64,
    /// Datagrams that are no reply to any request sent: wrong size, header or sequence.
    pub malformed: u64,
    /// Well-formed replies to another run's requests.
    pub foreign: u64,
    /// Requests the kernel did not take (no route, no buffer); they count as lost.
    pub send_failures: u64,
    /// Notices that nobody listens on the server's port (ICMP port unreachable).
    pub refusals: u64,
    /// Samples timed by the kernel's receive timestamp.
    pub timed_by_kernel: u64,
    /// Samples timed by the monotonic clock.
    pub timed_by_monotonic: u64,
    /// Warm-up requests sent; they appear in no other counter.
    pub warmup_requests: u64,
    /// Warm-up requests answered within the timeout.
    pub warmup_answered: u64,
    /// The largest delay between a request's scheduled time and its sending, in nanoseconds.
    pub send_delay_max_ns: u64,
    /// Requests sent more than 1 ms after their scheduled time: the client had no CPU.
    pub sent_over_1_ms_late: u64,
}

const LATE_SEND_NS: u64 = 1_000_000;

/// All requests of a run and their state.
pub(crate) struct Ledger {
    warmup: u64,
    timeout_ns: u64,
    start_ns: i64,
    requests: Vec<Request>,
    waiting: u64,
    /// Highest sequence answered so far.
    highest_answered: Option<u64>,
    pub(crate) counters: Counters,
    pub(crate) samples: Vec<Sample>,
}

struct Request {
    sent: Reading,
    state: State,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Waiting,
    /// Has had a reply, in time or late: another one is a duplicate.
    Replied,
}

impl Ledger {
    /// An empty ledger of a run that started at `start_ns` on the monotonic clock and whose first
    /// `warmup` requests are not counted.
    pub(crate) fn new(warmup: u64, timeout_ns: u64, start_ns: i64) -> Self {
        Self {
            warmup,
            timeout_ns,
            start_ns,
            requests: Vec::new(),
            waiting: 0,
            highest_answered: None,
            counters: Counters::default(),
            samples: Vec::new(),
        }
    }

    /// The sequence of the next request.
    pub(crate) fn next_sequence(&self) -> u64 {
        self.requests.len() as u64
    }

    /// Requests without any reply.
    pub(crate) fn waiting(&self) -> u64 {
        self.waiting
    }

    /// Enters the next request, sent `delay_ns` after it was due.
    pub(crate) fn sent(&mut self, sent: Reading, delay_ns: u64) {
        if self.next_sequence() < self.warmup {
            self.counters.warmup_requests += 1;
        } else {
            self.counters.requests += 1;
        }
        self.counters.send_delay_max_ns = self.counters.send_delay_max_ns.max(delay_ns);
        self.counters.sent_over_1_ms_late += u64::from(delay_ns > LATE_SEND_NS);
        self.requests.push(Request {
            sent,
            state: State::Waiting,
        });
        self.waiting += 1;
    }

    /// Enters a well-formed reply of this run.
    pub(crate) fn replied(&mut self, sequence: u64, kernel_ns: Option<i64>, received: &Reading) {
        let counted = sequence >= self.warmup;
        let request = usize::try_from(sequence)
            .ok()
            .and_then(|index| self.requests.get_mut(index));
        let Some(request) = request else {
            self.counters.malformed += 1;
            return;
        };
        if request.state == State::Replied {
            self.counters.duplicates += u64::from(counted);
            return;
        }
        request.state = State::Replied;
        self.waiting -= 1;
        let (rtt_ns, clock) = round_trip_ns(&request.sent, kernel_ns, received);
        if rtt_ns > self.timeout_ns {
            self.counters.late += u64::from(counted);
            return;
        }
        let overtaken = self
            .highest_answered
            .is_some_and(|highest| sequence < highest);
        self.highest_answered = self.highest_answered.max(Some(sequence));
        if !counted {
            self.counters.warmup_answered += 1;
            return;
        }
        self.counters.answered += 1;
        self.counters.reordered += u64::from(overtaken);
        match clock {
            Clock::KernelTimestamp => self.counters.timed_by_kernel += 1,
            Clock::Monotonic => self.counters.timed_by_monotonic += 1,
        }
        let sent_ns = (request.sent.monotonic_ns - self.start_ns).max(0) as u64;
        self.samples.push(Sample {
            sequence,
            sent_ns,
            rtt_ns,
        });
    }

    /// Closes the ledger at `now_ns` on the monotonic clock: samples in the order of sending, and
    /// every request either answered, lost or undecided.
    pub(crate) fn close(mut self, now_ns: i64) -> (Vec<Sample>, Counters) {
        let warmup = usize::try_from(self.warmup).unwrap_or(usize::MAX);
        let undecided = self
            .requests
            .iter()
            .skip(warmup)
            .filter(|request| {
                let age_ns = (now_ns - request.sent.monotonic_ns).max(0) as u64;
                request.state == State::Waiting && age_ns <= self.timeout_ns
            })
            .count() as u64;
        self.counters.undecided = undecided;
        self.counters.lost = self.counters.requests - self.counters.answered - undecided;
        self.samples.sort_unstable_by_key(|sample| sample.sequence);
        (self.samples, self.counters)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashSet;

    const TIMEOUT_NS: u64 = 1_000;

    fn at(monotonic_ns: i64) -> Reading {
        Reading {
            monotonic_before_ns: monotonic_ns,
            realtime_ns: monotonic_ns,
            monotonic_ns,
        }
    }

    proptest! {
        /// Any sequence of replies: the counters against sets kept separately.
        #[test]
        fn every_request_and_reply_is_counted_once(
            requests in 0_u64..40,
            warmup in 0_u64..50,
            replies in proptest::collection::vec((0_u64..45, 0_i64..2_500), 0..120),
            closed_after_ns in 0_i64..3_000,
        ) {
            let mut ledger = Ledger::new(warmup, TIMEOUT_NS, 0);
            for sequence in 0..requests {
                ledger.sent(at(sequence as i64 * 10), 0);
            }
            let (mut replied, mut in_time) = (HashSet::new(), HashSet::new());
            let (mut duplicates, mut malformed, mut late, mut reordered) = (0, 0, 0, 0);
            for &(sequence, round_trip) in &replies {
                let received = at(sequence as i64 * 10 + round_trip);
                ledger.replied(sequence, Some(received.realtime_ns), &received);
                let counted = u64::from(sequence >= warmup);
                if sequence >= requests {
                    malformed += 1;
                } else if !replied.insert(sequence) {
                    duplicates += counted;
                } else if round_trip as u64 > TIMEOUT_NS {
                    late += counted;
                } else {
                    reordered += counted * u64::from(in_time.iter().any(|&other| other > sequence));
                    in_time.insert(sequence);
                }
            }
            prop_assert_eq!(ledger.waiting(), requests - replied.len() as u64);
            let now_ns = requests as i64 * 10 + closed_after_ns;
            let undecided = (warmup..requests)
                .filter(|sequence| !replied.contains(sequence))
                .filter(|&sequence| (now_ns - sequence as i64 * 10) as u64 <= TIMEOUT_NS)
                .count() as u64;

            let (samples, counters) = ledger.close(now_ns);
            let answered = in_time.iter().filter(|&&sequence| sequence >= warmup).count() as u64;
            prop_assert_eq!(samples.len() as u64, answered);
            prop_assert!(samples.is_sorted_by_key(|sample| sample.sequence));
            prop_assert_eq!(counters, Counters {
                requests: requests.saturating_sub(warmup),
                answered,
                lost: requests.saturating_sub(warmup) - answered - undecided,
                undecided,
                late,
                reordered,
                duplicates,
                malformed,
                timed_by_kernel: answered,
                warmup_requests: requests.min(warmup),
                warmup_answered: in_time.len() as u64 - answered,
                ..Counters::default()
            });
        }
    }

    #[test]
    fn delays_of_the_client_are_recorded() {
        let mut ledger = Ledger::new(0, TIMEOUT_NS, 0);
        ledger.sent(at(0), 10);
        ledger.sent(at(10), 1_000_001);
        let (_, counters) = ledger.close(0);
        assert_eq!(
            (counters.send_delay_max_ns, counters.sent_over_1_ms_late),
            (1_000_001, 1)
        );
    }
}
