//! When to reconcile after events. Pure: time is handed in.
//!
//! Rule: a VM's process says that it made a VM before its virtual CPUs run, and a driver that resets a
//! card starts threads after the link event. So one event asks for several looks, close together at
//! first. Looks of several events at about one time are one look.
//!
//! A look costs more the more runs on the host, and holds the lock of the machine. So after one that took a time the next comes ten
//! such times later at the earliest: looking takes a tenth of the time at most. Only the first look after an event does not wait for
//! that, since a new VM waits for it; it comes after a pause as long as the look before.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use steadyvm_host::watcher::Event;

/// Looks after an event: the first ones keep a new virtual CPU's wait below 100 ms.
const AFTER_MS: [u64; 8] = [20, 60, 120, 200, 400, 1000, 3000, 8000];
/// Looks after a thread called itself a VCPU's: it makes the VCPU then.
const AFTER_NAME_MS: [u64; 4] = [5, 20, 60, 120];
/// Looks after a scheduler has ended: its loader notes the kernel's reason first. A look before that would load it again at once.
const AFTER_SCHEDULER_MS: [u64; 3] = [1000, 3000, 12_000];
/// Two looks are at least this far apart, however many events there are.
const APART: Duration = Duration::from_millis(20);
/// Pauses between looks, in times of what the one before took.
const PAUSE: u32 = 10;
/// Without any event: what changed without telling is found within this time.
pub const IDLE: Duration = Duration::from_secs(30);

/// The looks that are due.
#[derive(Debug)]
pub struct Pace {
    due: BTreeSet<Instant>,
    /// The first look after an event, which somebody waits for.
    urgent: Option<Instant>,
    /// When the last look began, when it ended, and what it took.
    last: Instant,
    ended: Instant,
    took: Duration,
}

impl Pace {
    /// The first look is at once.
    pub fn new(now: Instant) -> Self {
        let before = now.checked_sub(APART).unwrap_or(now);
        Self {
            due: BTreeSet::from([now]),
            urgent: None,
            last: before,
            ended: before,
            took: Duration::ZERO,
        }
    }

    /// Takes note of an event.
    pub fn note(&mut self, event: Event, now: Instant) {
        let after: &[u64] = match event {
            Event::VmCreated | Event::Service | Event::Link | Event::Cpu | Event::Lost => &AFTER_MS,
            Event::Scheduler => &AFTER_SCHEDULER_MS,
            Event::Vcpu => &AFTER_NAME_MS,
            Event::VmGone | Event::Reload => &[0],
            Event::VmUnknown | Event::End => return,
        };
        let looks = after
            .iter()
            .map(|&after| now + Duration::from_millis(after));
        self.due.extend(looks);
        // Nobody waits for what is gone, and whoever makes many events cannot have them lost to be looked at more often.
        if !matches!(event, Event::VmGone | Event::Lost) {
            let first = now + Duration::from_millis(after[0]);
            self.urgent = Some(self.urgent.map_or(first, |other| other.min(first)));
        }
    }

    /// Asks for a look at a time.
    pub fn ask(&mut self, at: Instant) {
        self.due.insert(at);
    }

    /// How long to wait for the next look.
    pub fn wait(&self, now: Instant) -> Duration {
        let idle = self.last + IDLE;
        let pause = |times: u32| self.ended + (times * self.took).clamp(APART, IDLE);
        let next = self.due.first().copied().unwrap_or(idle);
        let next = next.min(idle).max(pause(PAUSE));
        let next = match self.urgent {
            Some(urgent) => next.min(urgent.max(pause(1))),
            None => next,
        };
        next.saturating_duration_since(now)
    }

    /// Whether it is time to look. If so, all looks that are due by now are this one.
    pub fn take(&mut self, now: Instant) -> bool {
        if !self.wait(now).is_zero() {
            return false;
        }
        self.due = self.due.split_off(&(now + Duration::from_nanos(1)));
        self.urgent = self.urgent.filter(|urgent| *urgent > now);
        self.last = now;
        self.looked(now);
        true
    }

    /// The look that was taken has ended.
    pub fn looked(&mut self, now: Instant) {
        self.ended = now;
        self.took = now.saturating_duration_since(self.last);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn looks(events: &[(u64, Event)], until_ms: u64) -> Vec<u64> {
        looks_of(0, events, until_ms)
    }

    /// When looks begin that take so long.
    fn looks_of(took_ms: u64, events: &[(u64, Event)], until_ms: u64) -> Vec<u64> {
        let start = Instant::now();
        let mut pace = Pace::new(start);
        let (mut looks, mut ends) = (Vec::new(), 0);
        for ms in 0..=until_ms {
            let now = start + Duration::from_millis(ms);
            for (_, event) in events.iter().filter(|(at, _)| *at == ms) {
                pace.note(*event, now);
            }
            if ms >= ends && pace.take(now) {
                looks.push(ms);
                ends = ms + took_ms;
                pace.looked(start + Duration::from_millis(ends));
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

    #[test]
    fn looking_takes_a_tenth_of_the_time_but_for_the_first_look_after_an_event() {
        // 100 ms each. Eight looks of the event are due within 8 s.
        let seen = looks_of(100, &[(3000, Event::VmCreated)], 20_000);
        assert_eq!(seen, [0, 3020, 4120, 6000, 11_000]);
        // An event that comes right after a look waits as long as the look took.
        let seen = looks_of(100, &[(3000, Event::Cpu), (3130, Event::Vcpu)], 3500);
        assert_eq!(seen, [0, 3020, 3220]);
        // What is lost, and what is gone, is nobody's wait.
        for event in [Event::Lost, Event::VmGone] {
            let storm: Vec<(u64, Event)> = (0..2000).map(|n| (n * 10, event)).collect();
            let seen = looks_of(100, &storm, 20_000);
            let taken = seen.len() * 100;
            assert!(taken <= 20_000 / 10 + 100, "{taken} ms of 20 s: {event:?}");
        }
        assert_eq!(looks(&[(5, Event::VmUnknown)], 29_000), [0]);
        // The loader notes why its scheduler has ended before anybody looks.
        let seen = looks_of(100, &[(1000, Event::Scheduler)], 5000);
        assert_eq!(seen, [0, 2000, 4000]);
    }
}
