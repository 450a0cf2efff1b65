//! Busy polling by a VCPU that waits: for a bounded time its own thread takes packets from the card's queue, at its own
//! priority and expense (Documentation/networking/napi.rst, "Busy polling"). Else it sleeps until an interrupt, a thread of
//! the network and a wake-up have brought them. `Polling` decides when; this tells the kernel.

use crate::counts::Counts;
use crate::polling::Polling;
use crate::system;
use rustix::event::epoll;
use rustix::io::Errno;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

/// Whether this kernel polls cards for waits.
///
/// # Errors
/// Why it does not.
pub fn can_busy_poll() -> Result<(), Errno> {
    let probe = epoll::create(epoll::CreateFlags::CLOEXEC)?;
    system::set_busy_poll(probe.as_fd(), 1)
}

/// The polling of one wait set, by the thread that waits in it.
pub struct BusyPoll {
    polling: Polling,
    /// How long a wait may poll; zero never does.
    limit: Duration,
    /// As the kernel has it.
    told: Duration,
    /// For so long nothing has come.
    quiet: Duration,
}

/// A wait that has begun.
pub struct Begun {
    at: Instant,
    window: Duration,
}

impl BusyPoll {
    /// Of a new wait set, whose waits may poll for `limit`.
    pub const fn new(limit: Duration) -> Self {
        Self {
            polling: Polling::new(limit),
            limit,
            told: Duration::ZERO,
            quiet: Duration::ZERO,
        }
    }

    /// A wait begins that takes `longest` at most. None, where nothing ever polls.
    pub fn begin(&mut self, epoll: BorrowedFd<'_>, longest: Duration) -> Option<Begun> {
        if self.limit.is_zero() || longest.is_zero() {
            return None;
        }
        let at = Instant::now();
        let window = self.window(at, longest);
        self.tell(epoll, window);
        Some(Begun {
            at,
            window: self.told,
        })
    }

    /// The kernel looks at a wait's own time only after it has polled, so a timer of the guest may not come before.
    fn window(&mut self, now: Instant, longest: Duration) -> Duration {
        let window = self.polling.window(now);
        if window < longest {
            window
        } else {
            Duration::ZERO
        }
    }

    fn tell(&mut self, epoll: BorrowedFd<'_>, window: Duration) {
        if window == self.told {
            return;
        }
        let microseconds = u32::try_from(window.as_micros()).unwrap_or(u32::MAX);
        match system::set_busy_poll(epoll, microseconds) {
            Ok(()) => self.told = window,
            // Not asked again.
            Err(_) => self.limit = Duration::ZERO,
        }
    }

    /// A wait has ended, by an event of a socket or else.
    pub fn end(&mut self, begun: Option<Begun>, by_event: bool, counts: &Counts) {
        if let Some(begun) = begun {
            let took = begun.at.elapsed();
            self.ended(took, begun.window, by_event, begun.at + took, counts);
        }
    }

    fn ended(
        &mut self,
        took: Duration,
        window: Duration,
        by_event: bool,
        now: Instant,
        counts: &Counts,
    ) {
        let has_slept = took > window;
        if !window.is_zero() && (by_event || has_slept) {
            let is_found = !has_slept;
            counts.polled(is_found);
            self.polling.polled(is_found, now);
        }
        // A tick of the guest cuts a long silence into short waits.
        self.quiet += took;
        // A sleep that a tick ended early says nothing of when the next packet comes.
        if has_slept && (by_event || self.quiet > self.limit) {
            self.polling.slept(self.quiet);
        }
        if by_event {
            self.quiet = Duration::ZERO;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const LIMIT: Duration = Duration::from_micros(100);

    /// Packets `gap` after each wait's begin, in a guest whose timer ends waits after `tick`, for a second: the time that
    /// was polled in vain, and what polls found.
    fn play(gap: Duration, tick: Duration) -> (Duration, u32) {
        let mut poll = BusyPoll::new(LIMIT);
        let counts = Counts::default();
        let (mut now, mut vain, mut found) = (Instant::now(), Duration::ZERO, 0);
        let end = now + Duration::from_secs(1);
        let (mut to_packet, mut to_tick) = (gap, tick);
        while now < end {
            let window = poll.window(now, to_tick);
            let took = to_packet.min(to_tick).max(Duration::from_nanos(100));
            let by_event = to_packet <= to_tick;
            now += took;
            poll.ended(took, window, by_event, now, &counts);
            if took > window {
                vain += window;
            } else if by_event {
                found += 1;
            }
            to_tick = to_tick.saturating_sub(took);
            if to_tick.is_zero() {
                to_tick = tick;
            }
            to_packet = if by_event {
                gap
            } else {
                to_packet.saturating_sub(took)
            };
        }
        (vain, found)
    }

    const TICK: Duration = Duration::from_millis(4);

    #[test]
    fn packets_that_come_soon_are_polled_for() {
        let (vain, found) = play(LIMIT / 2, TICK);
        assert!(found > 19_000, "{found}");
        assert!(vain < Duration::from_millis(5), "{vain:?}");
    }

    /// Also where a tick comes just before each packet.
    #[test]
    fn a_silence_that_ticks_cut_into_pieces_is_not_polled_through() {
        let (vain, found) = play(TICK * 25 + LIMIT / 2, TICK);
        assert_eq!((vain, found), (Duration::ZERO, 0));
    }

    /// A tick just before each packet leaves a short rest of the silence, which a poll finds at once. That is no reason to poll.
    #[test]
    fn a_sleep_that_a_tick_ends_promises_nothing() {
        let gap = LIMIT + Duration::from_nanos(1);
        assert_eq!(play(gap, 2 * LIMIT), (Duration::ZERO, 0));
    }

    proptest! {
        /// At any rate of packets and ticks, what finds nothing takes less than a fiftieth of the CPU.
        #[test]
        fn polls_in_vain_take_little(gap_ns in 1_000_u64..10_000_000, tick_us in 200_u64..10_000) {
            let (vain, _) = play(Duration::from_nanos(gap_ns), Duration::from_micros(tick_us));
            prop_assert!(vain < Duration::from_millis(20), "{vain:?}");
        }

        /// No wait polls beyond the guest's next timer.
        #[test]
        fn no_poll_is_longer_than_the_wait(longest_us in 1_u64..200) {
            let mut poll = BusyPoll::new(LIMIT);
            poll.polling.slept(Duration::ZERO);
            let longest = Duration::from_micros(longest_us);
            let window = poll.window(Instant::now(), longest);
            prop_assert!(window < longest);
            prop_assert_eq!(window.is_zero(), longest <= LIMIT);
        }
    }
}
