//! When to reconcile after events. Pure: time is handed in.
//!
//! Rule: a VM's process says that it made a VM before its virtual CPUs run, and a driver that resets a
//! card starts threads after the link event. So one event asks for several looks, close together at
//! first. Looks of several events at about one time are one look.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use super::events::Event;

/// Looks after an event: the first ones keep a new virtual CPU's wait below 100 ms.
const AFTER_MS: [u64; 8] = [20, 60, 120, 200, 400, 1000, 3000, 8000];
/// Looks after a thread called itself a VCPU's: it makes the VCPU then.
const AFTER_NAME_MS: [u64; 4] = [5, 20, 60, 120];
/// Two looks are at least this far apart, however many events there are.
const APART: Duration = Duration::from_millis(20);
/// Without any event: what changed without telling is found within this time.
pub const IDLE: Duration = Duration::from_secs(30);

/// The looks that are due.
#[derive(Debug)]
pub struct Pace {
    due: BTreeSet<Instant>,
    last: Instant,
}

impl Pace {
    /// The first look is at once.
    pub fn new(now: Instant) -> Self {
        Self {
            due: BTreeSet::from([now]),
            last: now.checked_sub(APART).unwrap_or(now),
        }
    }

    /// Takes note of an event.
    pub fn note(&mut self, event: Event, now: Instant) {
        match event {
            Event::VmCreated | Event::Link | Event::Cpu | Event::Lost => {
                let looks = AFTER_MS.map(|after| now + Duration::from_millis(after));
                self.due.extend(looks);
            }
            Event::Vcpu => {
                let looks = AFTER_NAME_MS.map(|after| now + Duration::from_millis(after));
                self.due.extend(looks);
            }
            Event::VmGone | Event::Reload => {
                self.due.insert(now);
            }
            Event::End => {}
        }
    }

    /// Asks for a look at a time.
    pub fn ask(&mut self, at: Instant) {
        self.due.insert(at);
    }

    /// How long to wait for the next look.
    pub fn wait(&self, now: Instant) -> Duration {
        let next = self.due.first().copied().unwrap_or(self.last + IDLE);
        let next = next.min(self.last + IDLE).max(self.last + APART);
        next.saturating_duration_since(now)
    }

    /// Whether it is time to look. If so, all looks that are due by now are this one.
    pub fn take(&mut self, now: Instant) -> bool {
        if !self.wait(now).is_zero() {
            return false;
        }
        self.due = self.due.split_off(&(now + Duration::from_nanos(1)));
        self.last = now;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn looks(events: &[(u64, Event)], until_ms: u64) -> Vec<u64> {
        let start = Instant::now();
        let mut pace = Pace::new(start);
        let mut looks = Vec::new();
        for ms in 0..=until_ms {
            let now = start + Duration::from_millis(ms);
            for (_, event) in events.iter().filter(|(at, _)| *at == ms) {
                pace.note(*event, now);
            }
            if pace.take(now) {
                looks.push(ms);
            }
        }
        looks
    }

    #[test]
    fn a_new_vm_is_looked_at_soon_and_again() {
        let seen = looks(&[(1000, Event::VmCreated)], 10_000);
        assert_eq!(seen, [0, 1020, 1060, 1120, 1200, 1400, 2000, 4000, 9000]);
    }

    #[test]
    fn a_vcpu_that_comes_long_after_its_vm_is_looked_for_as_it_comes() {
        let seen = looks(&[(1000, Event::VmCreated), (3500, Event::Vcpu)], 5000);
        let late: Vec<u64> = seen.into_iter().filter(|look| *look > 3000).collect();
        assert_eq!(late, [3505, 3525, 3560, 3620, 4000]);
    }

    #[test]
    fn without_events_it_looks_every_30_s() {
        assert_eq!(looks(&[], 61_000), [0, 30_000, 60_000]);
    }

    #[test]
    fn ten_vms_a_second_make_no_more_looks_than_one_in_20_ms() {
        let events: Vec<(u64, Event)> = (0..100)
            .flat_map(|n| [(n * 100, Event::VmCreated), (n * 100 + 50, Event::VmGone)])
            .collect();
        let seen = looks(&events, 10_000);
        assert!(seen.windows(2).all(|pair| pair[1] - pair[0] >= 20));
        // Each event is followed by a look.
        for (at, _) in events {
            assert!(
                seen.iter().any(|&look| look >= at && look <= at + 40),
                "{at}"
            );
        }
    }
}
