//! How fast an attack goes, and when it ends.

use std::io;
use std::num::NonZeroU32;
use std::sync::atomic::AtomicBool;
use std::thread;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use crate::layer2::slept;

/// So much later than the end an attempt may be made that was due before it.
const LATE_BY: Duration = Duration::from_secs(1);

/// How fast, how long, and a flag that ends it at once.
#[derive(Debug, Clone, Copy)]
pub struct Pace<'a> {
    /// Attempts per second, of all threads together; as many as go if `None`.
    pub per_second: Option<NonZeroU32>,
    /// It ends after this time; at a rate that is too high for the machine, a second later.
    pub duration: Duration,
    /// It ends as soon as this is set.
    pub stop: &'a AtomicBool,
}

/// What an attack did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Attacked {
    /// What was tried.
    pub attempted: u64,
    /// What the kernel took.
    pub sent: u64,
    /// What the kernel had no room for, or refused.
    pub refused: u64,
    /// How long it took, in seconds.
    pub duration_s: f64,
    /// Sent per second.
    pub per_s: f64,
    /// How many sockets it had; only where it is about their number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sockets: Option<u64>,
}

/// What became of one attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Tried {
    Sent,
    Refused,
}

impl Pace<'_> {
    /// Does `act`, which is given its number, at the pace until the end. A late attempt is made at once: the schedule does not
    /// wait.
    pub(super) fn run(&self, act: impl FnMut(u64) -> io::Result<Tried>) -> io::Result<Attacked> {
        let begun = Instant::now();
        let mut done = self.share(begun, (0, 1), act)?;
        done.end(begun);
        Ok(done)
    }

    /// The same in several threads, which share the pace. Each has an `act` of its own.
    pub(super) fn run_in<A>(&self, acts: Vec<A>) -> io::Result<Attacked>
    where
        A: FnMut(u64) -> io::Result<Tried> + Send,
    {
        let begun = Instant::now();
        let step = acts.len() as u64;
        let shares: Vec<io::Result<Attacked>> = thread::scope(|scope| {
            let numbered = (0..).zip(acts);
            let threads: Vec<_> = numbered
                .map(|(first, act)| scope.spawn(move || self.share(begun, (first, step), act)))
                .collect();
            let panicked = |_| Err(io::Error::other("a thread panicked"));
            let threads = threads.into_iter();
            threads
                .map(|it| it.join().unwrap_or_else(panicked))
                .collect()
        });
        let mut all = Attacked::default();
        for share in shares {
            let share = share?;
            all.attempted += share.attempted;
            all.sent += share.sent;
            all.refused += share.refused;
        }
        all.end(begun);
        Ok(all)
    }

    /// Every `step`th attempt from the `first` on.
    fn share(
        &self,
        begun: Instant,
        (first, step): (u64, u64),
        mut act: impl FnMut(u64) -> io::Result<Tried>,
    ) -> io::Result<Attacked> {
        let mut done = Attacked::default();
        let mut number = first;
        loop {
            let due = self.due(number);
            if due >= self.duration {
                slept(begun, self.duration, self.stop);
                return Ok(done);
            }
            if !slept(begun, due, self.stop) || begun.elapsed() >= self.end() {
                return Ok(done);
            }
            match act(number)? {
                Tried::Sent => done.sent += 1,
                Tried::Refused => done.refused += 1,
            }
            done.attempted += 1;
            number += step;
        }
    }

    /// An attempt that was due in time is made in the second after it, too: a rate is kept on a busy machine.
    fn end(&self) -> Duration {
        let late = self.per_second.map_or(Duration::ZERO, |_| LATE_BY);
        self.duration.saturating_add(late)
    }

    fn due(&self, number: u64) -> Duration {
        let Some(per_second) = self.per_second else {
            return Duration::ZERO;
        };
        let ns = u128::from(number) * 1_000_000_000 / u128::from(per_second.get());
        Duration::from_nanos(u64::try_from(ns).unwrap_or(u64::MAX))
    }
}

impl Attacked {
    fn end(&mut self, begun: Instant) {
        self.duration_s = begun.elapsed().as_secs_f64();
        if self.duration_s > 0.0 {
            self.per_s = self.sent as f64 / self.duration_s;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering;

    use proptest::prelude::*;

    use super::*;

    fn pace(per_second: u32, ms: u64, stop: &AtomicBool) -> Pace<'_> {
        Pace {
            per_second: NonZeroU32::new(per_second),
            duration: Duration::from_millis(ms),
            stop,
        }
    }

    #[test]
    fn a_rate_is_kept_exactly_by_one_thread_and_by_three() {
        let stop = AtomicBool::new(false);
        let pace = pace(1000, 300, &stop);
        let mut numbers = Vec::new();
        let one = pace.run(|number| {
            numbers.push(number);
            Ok(if number % 3 == 0 {
                Tried::Refused
            } else {
                Tried::Sent
            })
        });
        let one = one.unwrap();
        assert_eq!((one.attempted, one.sent, one.refused), (300, 200, 100));
        assert_eq!(numbers, (0..300).collect::<Vec<_>>());
        assert!(one.duration_s >= 0.3, "{one:?}");
        assert!((one.per_s - 200.0 / one.duration_s).abs() < 1e-9);
        let three = pace.run_in(vec![|_| Ok(Tried::Sent); 3]).unwrap();
        assert_eq!((three.attempted, three.sent), (300, 300));
    }

    #[test]
    fn a_rate_that_is_too_high_ends_a_second_after_its_time() {
        let stop = AtomicBool::new(false);
        let done = pace(u32::MAX, 10, &stop).run(|_| {
            thread::sleep(Duration::from_millis(1));
            Ok(Tried::Sent)
        });
        let done = done.unwrap();
        assert!((1.0..5.0).contains(&done.duration_s), "{done:?}");
        assert!(done.attempted < 2000, "{done:?}");
    }

    #[test]
    fn without_a_rate_the_time_ends_it_and_the_flag_ends_it_at_once() {
        let stop = AtomicBool::new(false);
        let done = pace(0, 20, &stop).run(|_| Ok(Tried::Sent)).unwrap();
        assert!(done.attempted > 100 && done.duration_s < 10.0, "{done:?}");
        let flagged = pace(0, 60_000, &stop).run(|number| {
            stop.store(number == 9, Ordering::Relaxed);
            Ok(Tried::Sent)
        });
        assert_eq!(flagged.unwrap().attempted, 10);
        let none = pace(1, 60_000, &stop).run(|_| Ok(Tried::Sent)).unwrap();
        assert_eq!(none.attempted, 0);
    }

    #[test]
    fn what_is_neither_sent_nor_refused_is_an_error_of_every_thread() {
        let stop = AtomicBool::new(false);
        let fail = |_| Err(io::Error::other("broken"));
        assert!(pace(0, 60_000, &stop).run(fail).is_err());
        assert!(pace(0, 60_000, &stop).run_in(vec![fail; 2]).is_err());
    }

    proptest! {
        #[test]
        fn no_attempt_is_before_its_time_or_drifts(per_second in 1_u32.., number in any::<u64>()) {
            let stop = AtomicBool::new(false);
            let due = pace(per_second, 1, &stop).due(number).as_nanos();
            let exact = u128::from(number) * 1_000_000_000 / u128::from(per_second);
            prop_assert_eq!(due, exact.min(u128::from(u64::MAX)));
        }
    }
}
