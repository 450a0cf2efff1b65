//! When a thread looks for the next request or packet by itself instead of sleeping: where the last one has just come
//! quickly, as KVM's halt polling does for VCPUs (Documentation/virt/kvm/halt-polling.rst). Decides, and does no I/O.
//!
//! Whoever shares its CPU with the thread cannot ask while the thread polls. So polls that find nothing end it
//! for a while, and longer each time.

use std::time::{Duration, Instant};

/// Polls in a row that find nothing, before a rest.
const MOST_FAILURES: u32 = 4;
/// The first rest, and the longest.
const LEAST_REST: Duration = Duration::from_millis(10);
const MOST_REST: Duration = Duration::from_secs(1);

/// The state of one thread's polling.
#[derive(Debug)]
pub struct Polling {
    /// How long one poll may take; zero never polls.
    limit: Duration,
    /// The last request came within the limit.
    is_promising: bool,
    /// Polls in a row that found nothing.
    failures: u32,
    /// No poll before this.
    rests_until: Option<Instant>,
    /// The next rest.
    rest: Duration,
}

impl Polling {
    /// A thread that may poll for `limit` at a time.
    pub const fn new(limit: Duration) -> Self {
        Self {
            limit,
            is_promising: false,
            failures: 0,
            rests_until: None,
            rest: LEAST_REST,
        }
    }

    /// How long to poll before the next sleep: zero for not at all.
    pub fn window(&mut self, now: Instant) -> Duration {
        if self.rests_until.is_some_and(|until| now < until) || !self.is_promising {
            return Duration::ZERO;
        }
        self.rests_until = None;
        self.limit
    }

    /// A poll has ended.
    pub fn polled(&mut self, found: bool, now: Instant) {
        if found {
            self.failures = 0;
            self.rest = LEAST_REST;
            return;
        }
        self.failures += 1;
        if self.failures >= MOST_FAILURES {
            self.failures = 0;
            self.rests_until = Some(now + self.rest);
            self.rest = (self.rest * 2).min(MOST_REST);
        }
    }

    /// A sleep has ended by a request.
    pub fn slept(&mut self, duration: Duration) {
        self.is_promising = duration <= self.limit;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const LIMIT: Duration = Duration::from_micros(100);

    /// A guest that asks `gap` after each answer, for a second: the time that its server polls for nothing, and the requests
    /// that polls find. A guest on the server's own CPU asks only while the server sleeps.
    fn play(limit: Duration, gap: Duration, is_on_one_cpu: bool) -> (Duration, u32) {
        let mut polling = Polling::new(limit);
        let (mut now, mut wasted, mut found) = (Instant::now(), Duration::ZERO, 0);
        let end = now + Duration::from_secs(1);
        while now < end {
            let window = polling.window(now);
            let comes_in_time = !window.is_zero() && gap <= window && !is_on_one_cpu;
            if comes_in_time {
                now += gap;
                found += 1;
                polling.polled(true, now);
                continue;
            }
            let left = if is_on_one_cpu {
                gap
            } else {
                gap.saturating_sub(window)
            };
            now += window;
            if !window.is_zero() {
                wasted += window;
                polling.polled(false, now);
            }
            now += left.max(Duration::from_nanos(100));
            polling.slept(left);
        }
        (wasted, found)
    }

    #[test]
    fn a_guest_that_asks_quickly_is_not_slept_for() {
        let (wasted, found) = play(LIMIT, LIMIT / 2, false);
        assert_eq!(wasted, Duration::ZERO);
        assert!(found > 19_900, "{found}");
    }

    #[test]
    fn a_guest_that_shares_the_cpu_is_hardly_kept_from_it() {
        let (wasted, _) = play(LIMIT, LIMIT / 2, true);
        assert!(wasted < Duration::from_millis(4), "{wasted:?}");
    }

    #[test]
    fn without_a_limit_nothing_polls() {
        assert_eq!(
            play(Duration::ZERO, Duration::from_micros(1), false),
            (Duration::ZERO, 0)
        );
    }

    proptest! {
        /// At any rate of requests, what finds nothing takes less than a hundredth of a CPU.
        #[test]
        fn polls_for_nothing_take_little(gap_ns in 1_000_u64..10_000_000, is_on_one_cpu: bool) {
            let (wasted, _) = play(LIMIT, Duration::from_nanos(gap_ns), is_on_one_cpu);
            prop_assert!(wasted < Duration::from_millis(10), "{wasted:?}");
        }
    }
}
