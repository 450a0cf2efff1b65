//! The two agreements in shared memory by which neither side rings the other in vain: that of the event ring, and that of
//! the request queue (`VRING_USED_F_NO_NOTIFY`). Every interleaving of their steps is visited, with stores that come late, as
//! x86-64 may have them: each side's stores wait in a buffer, in order, until they are written, and a full barrier waits for
//! that. Stuck short of the end is a lost wake-up.

use super::are_news;
use std::collections::{HashSet, VecDeque};
use std::hash::Hash;

/// All states that can be reached: how many, and those in which nothing can happen any more.
fn explore<S: Clone + Eq + Hash>(start: S, steps: impl Fn(&S) -> Vec<S>) -> (usize, Vec<S>) {
    let mut seen = HashSet::from([start.clone()]);
    let mut left = vec![start];
    let mut stuck = Vec::new();
    while let Some(state) = left.pop() {
        let next = steps(&state);
        if next.is_empty() {
            stuck.push(state);
        }
        left.extend(next.into_iter().filter(|state| seen.insert(state.clone())));
    }
    (seen.len(), stuck)
}

/// A word in memory that one side writes. What it reads of it itself is the newest.
#[derive(Clone, PartialEq, Eq, Hash, Default)]
struct Word {
    memory: u32,
    late: VecDeque<u32>,
}

impl Word {
    fn store(&mut self, value: u32) {
        self.late.push_back(value);
    }

    fn own(&self) -> u32 {
        self.late.back().copied().unwrap_or(self.memory)
    }

    /// One store is written.
    fn write(&self) -> Option<Self> {
        let mut word = self.clone();
        word.memory = word.late.pop_front()?;
        Some(word)
    }
}

/// What may be left out, to see that the model notices.
#[derive(Clone, Copy)]
struct Rules {
    device_fences: bool,
    guest_fences: bool,
    /// What else than `are_news` decides.
    tells: fn(pending: u32, pushed: u32) -> bool,
}

const RULES: Rules = Rules {
    device_fences: true,
    guest_fences: true,
    tells: are_news,
};

mod ring {
    use super::*;

    #[derive(Clone, Copy, PartialEq, Eq, Hash)]
    enum DeviceAt {
        /// Fills the ring: events pushed so far.
        Fill(u32),
        /// Has pushed so many, and looks at what was taken.
        Look(u32),
    }

    #[derive(Clone, Copy, PartialEq, Eq, Hash)]
    enum GuestAt {
        Elsewhere,
        /// In the loop that takes events.
        Load,
        /// Has counted what it took.
        Taken,
    }

    #[derive(Clone, PartialEq, Eq, Hash)]
    struct State {
        produced: Word,
        consumed: Word,
        interrupt: bool,
        device: DeviceAt,
        guest: GuestAt,
        /// Events that are to come yet.
        events: u32,
        /// How often the guest takes events for another reason: an answer, a tick.
        visits: u32,
        interrupts: u32,
    }

    fn device(state: &State, rules: Rules) -> Vec<State> {
        let mut all = Vec::new();
        let mut add = |change: &dyn Fn(&mut State)| {
            let mut next = state.clone();
            change(&mut next);
            all.push(next);
        };
        match state.device {
            DeviceAt::Fill(pushed) => {
                if state.events > 0 {
                    add(&|next| {
                        next.produced.store(next.produced.own() + 1);
                        next.events -= 1;
                        next.device = DeviceAt::Fill(pushed + 1);
                    });
                }
                if pushed > 0 && (!rules.device_fences || state.produced.late.is_empty()) {
                    add(&|next| next.device = DeviceAt::Look(pushed));
                }
            }
            DeviceAt::Look(pushed) => add(&|next| {
                let pending = next.produced.own() - next.consumed.memory;
                if (rules.tells)(pending, pushed) {
                    next.interrupt = true;
                    next.interrupts += 1;
                }
                next.device = DeviceAt::Fill(0);
            }),
        }
        all
    }

    fn guest(state: &State, rules: Rules) -> Vec<State> {
        let mut all = Vec::new();
        let mut add = |change: &dyn Fn(&mut State)| {
            let mut next = state.clone();
            change(&mut next);
            all.push(next);
        };
        match state.guest {
            GuestAt::Elsewhere => {
                if state.interrupt {
                    add(&|next| {
                        next.interrupt = false;
                        next.guest = GuestAt::Load;
                    });
                }
                if state.visits > 0 {
                    add(&|next| {
                        next.visits -= 1;
                        next.guest = GuestAt::Load;
                    });
                }
            }
            GuestAt::Load => {
                let there = state.produced.memory - state.consumed.own();
                if there == 0 {
                    add(&|next| next.guest = GuestAt::Elsewhere);
                }
                // It takes some, or all.
                for taken in 1..=there {
                    add(&|next| {
                        next.consumed.store(next.consumed.own() + taken);
                        next.guest = GuestAt::Taken;
                    });
                }
            }
            GuestAt::Taken => {
                if !rules.guest_fences || state.consumed.late.is_empty() {
                    add(&|next| next.guest = GuestAt::Load);
                }
            }
        }
        all
    }

    fn steps(state: &State, rules: Rules) -> Vec<State> {
        let mut all = device(state, rules);
        all.extend(guest(state, rules));
        all.extend(state.produced.write().map(|produced| State {
            produced,
            ..state.clone()
        }));
        all.extend(state.consumed.write().map(|consumed| State {
            consumed,
            ..state.clone()
        }));
        all
    }

    /// States, ends with events that nobody takes, and the most interrupts.
    fn play(rules: Rules, events: u32, visits: u32) -> (usize, usize, u32) {
        let start = State {
            produced: Word::default(),
            consumed: Word::default(),
            interrupt: false,
            device: DeviceAt::Fill(0),
            guest: GuestAt::Elsewhere,
            events,
            visits,
            interrupts: 0,
        };
        let (states, ends) = explore(start, |state| steps(state, rules));
        let lost = |end: &&State| end.consumed.memory != end.produced.memory;
        let most = ends.iter().map(|end| end.interrupts).max();
        (
            states,
            ends.iter().filter(lost).count(),
            most.unwrap_or_default(),
        )
    }

    #[test]
    fn no_event_is_lost_in_any_order_of_filling_and_taking() {
        let (states, lost, most) = play(RULES, 5, 3);
        assert_eq!(lost, 0);
        assert!(states > 3_000, "{states}");
        assert!(most <= 5, "one an event at most: {most}");
    }

    #[test]
    fn the_model_notices_what_is_missing() {
        let without = |rules| play(rules, 3, 2).1;
        assert!(
            without(Rules {
                device_fences: false,
                ..RULES
            }) > 0
        );
        assert!(
            without(Rules {
                guest_fences: false,
                ..RULES
            }) > 0
        );
        // Told only of the first of several: the guest may have taken that one, and gone.
        assert!(
            without(Rules {
                tells: |pending, pushed| pending == pushed,
                ..RULES
            }) > 0
        );
    }

    /// A guest that is told by each fill, as before, is interrupted as often in the worst case; one that takes events
    /// at its leisure is told once.
    #[test]
    fn a_guest_that_has_events_left_is_not_told_of_more() {
        for (pending, pushed, told) in [(0, 0, false), (0, 3, false), (1, 1, true), (2, 3, true)] {
            assert_eq!(are_news(pending, pushed), told);
        }
        assert!(!are_news(4, 3));
        assert!(!are_news(1, 0));
    }
}

mod queue {
    use super::*;

    #[derive(Clone, Copy, PartialEq, Eq, Hash)]
    enum DeviceAt {
        /// Looks at the queue without a bell.
        Look,
        /// Has let the guest ring again, and looks for the last time.
        LastLook,
        Sleep,
    }

    #[derive(Clone, Copy, PartialEq, Eq, Hash)]
    enum GuestAt {
        Elsewhere,
        /// Has made a request.
        Made,
        /// Waits for its answer.
        Waits,
    }

    #[derive(Clone, PartialEq, Eq, Hash)]
    struct State {
        made: Word,
        served: Word,
        silent: Word,
        bell: bool,
        device: DeviceAt,
        guest: GuestAt,
        requests: u32,
    }

    fn device(state: &State, rules: Rules) -> Vec<State> {
        let mut all = Vec::new();
        let mut add = |change: &dyn Fn(&mut State)| {
            let mut next = state.clone();
            change(&mut next);
            all.push(next);
        };
        let is_asked = state.made.memory != state.served.own();
        let serve = |next: &mut State| {
            next.served.store(next.made.memory);
            next.silent.store(1);
            next.device = DeviceAt::Look;
        };
        match state.device {
            DeviceAt::Look if is_asked => add(&serve),
            DeviceAt::Look => add(&|next| {
                next.silent.store(0);
                next.device = DeviceAt::LastLook;
            }),
            DeviceAt::LastLook if rules.device_fences && !state.silent.late.is_empty() => {}
            DeviceAt::LastLook if is_asked => add(&serve),
            DeviceAt::LastLook => add(&|next| next.device = DeviceAt::Sleep),
            DeviceAt::Sleep if state.bell => add(&|next| {
                next.bell = false;
                if next.made.memory != next.served.own() {
                    serve(next);
                }
            }),
            DeviceAt::Sleep => {}
        }
        all
    }

    fn guest(state: &State, rules: Rules) -> Option<State> {
        let mut next = state.clone();
        match state.guest {
            GuestAt::Elsewhere if state.requests > 0 => {
                next.requests -= 1;
                next.made.store(next.made.own() + 1);
                next.guest = GuestAt::Made;
            }
            GuestAt::Made if !rules.guest_fences || state.made.late.is_empty() => {
                // An exit writes what is late.
                if state.silent.memory == 0 {
                    next.bell = true;
                    while let Some(made) = next.made.write() {
                        next.made = made;
                    }
                }
                next.guest = GuestAt::Waits;
            }
            GuestAt::Waits if state.served.memory == state.made.own() => {
                next.guest = GuestAt::Elsewhere;
            }
            _ => return None,
        }
        Some(next)
    }

    fn steps(state: &State, rules: Rules) -> Vec<State> {
        let mut all = device(state, rules);
        all.extend(guest(state, rules));
        let words: [fn(&mut State) -> &mut Word; 3] = [
            |state| &mut state.made,
            |state| &mut state.served,
            |state| &mut state.silent,
        ];
        for word in words {
            let mut next = state.clone();
            let place = word(&mut next);
            if let Some(written) = place.write() {
                *place = written;
                all.push(next);
            }
        }
        all
    }

    /// States, and ends at which a request has no answer.
    fn play(rules: Rules) -> (usize, usize) {
        let start = State {
            made: Word::default(),
            served: Word::default(),
            silent: Word::default(),
            bell: false,
            device: DeviceAt::Sleep,
            guest: GuestAt::Elsewhere,
            requests: 4,
        };
        let (states, ends) = explore(start, |state| steps(state, rules));
        let unanswered = |end: &&State| end.requests > 0 || end.guest != GuestAt::Elsewhere;
        (states, ends.iter().filter(unanswered).count())
    }

    #[test]
    fn no_request_is_lost_in_any_order_of_asking_and_looking() {
        let (states, lost) = play(RULES);
        assert_eq!(lost, 0);
        assert!(states > 100, "{states}");
    }

    #[test]
    fn the_model_notices_a_missing_barrier() {
        for (device_fences, guest_fences) in [(false, true), (true, false)] {
            let rules = Rules {
                device_fences,
                guest_fences,
                ..RULES
            };
            assert!(play(rules).1 > 0, "{device_fences} {guest_fences}");
        }
    }
}
