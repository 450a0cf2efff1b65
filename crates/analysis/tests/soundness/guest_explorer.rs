//! What a guest gets of its VCPU: every legal schedule, with the guest of the first VCPU watched.
//!
//! The servers and the host are those of `server_explorer`; all other guests wake, sleep and end early at will.

use std::{collections::HashSet, hash::Hash};

use crate::server_explorer::{
    After, Hasher, Kind, Policy, Server, State, Vcpu, assignments, choices, slot, start, wants,
};

/// A watched guest before a slot.
trait Guest: Copy + Eq + Hash {
    /// What may happen at the beginning of a slot: the guest, and what its server (`options`: all it may do) does.
    fn begin(self, asleep_before: bool, options: &[Server], out: &mut Vec<(Self, Server)>);
    /// What may be after a slot; `None`: its promise is broken.
    fn end(self, ready: bool, ran: bool, out: &mut Vec<Self>) -> Option<()>;
}

/// Whether the promise of the first VCPU's guest is kept in every schedule; `None` beyond `most` states.
fn explore<G: Guest>(
    vcpus: &[Vcpu],
    kind: Kind,
    policy: Policy,
    guest: G,
    most: usize,
) -> Option<bool> {
    type Seen<T> = HashSet<T, std::hash::BuildHasherDefault<Hasher>>;
    let first = (start(vcpus, kind), guest);
    let mut seen: Seen<(State, G)> = HashSet::default();
    seen.insert(first);
    let mut frontier = vec![first];
    let (mut options, mut begun, mut states, mut runs, mut after) =
        (Vec::new(), Vec::new(), Vec::new(), Vec::new(), Vec::new());
    while let Some((state, guest)) = frontier.pop() {
        options.clear();
        begun.clear();
        states.clear();
        choices(vcpus[0], kind, state[0], &mut options);
        guest.begin(!state[0].ready, &options, &mut begun);
        for &(guest, server) in &begun {
            let mut state = state;
            state[0] = server;
            states.push((state, guest));
        }
        for number in 1..vcpus.len() {
            options.clear();
            choices(vcpus[number], kind, state[number], &mut options);
            let before = std::mem::take(&mut states);
            for &option in &options {
                states.extend(before.iter().map(|&(mut state, guest)| {
                    state[number] = option;
                    (state, guest)
                }));
            }
        }
        for &(state, guest) in &states {
            runs.clear();
            let waiting = (0..vcpus.len())
                .filter(|&v| wants(&state[v]))
                .fold(0_u8, |set, v| set | 1 << v);
            assignments(vcpus, policy, &state, waiting, u8::MAX, 0, &mut runs);
            for &running in &runs {
                let next = match slot(vcpus, kind, state, running) {
                    After::State(next) => next,
                    After::Missed => return Some(false),
                    After::Unknown => return None,
                };
                after.clear();
                if guest
                    .end(state[0].ready, running & 1 == 1, &mut after)
                    .is_none()
                {
                    return Some(false);
                }
                for &guest in &after {
                    if seen.insert((next, guest)) {
                        frontier.push((next, guest));
                    }
                }
            }
        }
        if seen.len() > most {
            return None;
        }
    }
    Some(true)
}

/// A guest that is ready from some slot on, and counts what it gets since: never less than a periodic resource's
/// supply, `late` later. Watched for four periods; until then it wakes and sleeps at will.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct Watched {
    budget: u8,
    period: u8,
    late: u8,
    /// Slots since it is watched, and slots it got; `None`: not yet.
    since: Option<(u8, u8)>,
}

/// What a periodic resource gives in any window (Shin and Lee, RTSS 2003).
fn periodic_supply(window: u8, budget: u8, period: u8) -> u8 {
    let (window, budget, period) = (i32::from(window), i32::from(budget), i32::from(period));
    let away = period - budget;
    if window < away {
        return 0;
    }
    let whole = (window - away) / period;
    let rest = (window - 2 * away - whole * period).max(0);
    u8::try_from(whole * budget + rest).unwrap()
}

impl Guest for Watched {
    fn begin(self, asleep_before: bool, options: &[Server], out: &mut Vec<(Self, Server)>) {
        if self.since.is_some() {
            // It stays awake.
            out.push((self, options[0]));
            return;
        }
        for &server in options {
            out.push((self, server));
        }
        let awake = options[usize::from(asleep_before)];
        out.push((
            Self {
                since: Some((0, 0)),
                ..self
            },
            awake,
        ));
    }

    fn end(self, ready: bool, ran: bool, out: &mut Vec<Self>) -> Option<()> {
        let Some((window, got)) = self.since else {
            out.push(self);
            return Some(());
        };
        assert!(ready);
        let (window, got) = (window + 1, got + u8::from(ran));
        let promised = window.saturating_sub(self.late);
        if got < periodic_supply(promised, self.budget, self.period) {
            return None;
        }
        if window < 4 * self.period {
            out.push(Self {
                since: Some((window, got)),
                ..self
            });
        }
        Some(())
    }
}

/// Whether the first VCPU always gets what a periodic resource of its budget and period gives, `late` slots later.
pub fn supplies(vcpus: &[Vcpu], late: u8, kind: Kind, policy: Policy, most: usize) -> Option<bool> {
    let guest = Watched {
        budget: vcpus[0].budget,
        period: vcpus[0].period,
        late,
        since: None,
    };
    explore(vcpus, kind, policy, guest, most)
}

/// One sporadic task with release jitter, alone on a reservation that wakes with its requests.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Request {
    pub execution: u8,
    pub deadline: u8,
    pub period: u8,
    pub jitter: u8,
    /// Other work of the guest may wake the VCPU, or keep it awake.
    pub disturbed: bool,
    /// Slots since the last release, up to the period.
    since: u8,
    /// Released and not done; arrived in the guest; execution left.
    open: bool,
    arrived: bool,
    left: u8,
}

impl Request {
    pub fn new(execution: u8, deadline: u8, period: u8, jitter: u8, disturbed: bool) -> Self {
        Self {
            execution,
            deadline,
            period,
            jitter,
            disturbed,
            since: period,
            open: false,
            arrived: false,
            left: 0,
        }
    }

    /// The same, where other work of the guest may wake the VCPU.
    pub fn disturbed(self) -> Self {
        Self {
            disturbed: true,
            ..self
        }
    }

    /// The reservation that is installed for it, with `margin` slots more than it needs where it is due before its period
    /// ends; without room for them it has its CPU to itself.
    pub fn reservation(self, margin: u8, cpus: u8) -> Vcpu {
        let deadline = self.deadline - self.jitter;
        let margin = if deadline < self.period { margin } else { 0 };
        let budget = self.execution + margin;
        if budget > deadline {
            return Vcpu {
                budget: deadline,
                deadline,
                period: deadline,
                cpus,
            };
        }
        Vcpu {
            budget,
            deadline,
            period: self.period,
            cpus,
        }
    }
}

impl Guest for Request {
    fn begin(self, asleep_before: bool, options: &[Server], out: &mut Vec<(Self, Server)>) {
        let mut released = vec![self];
        if !self.open && self.since >= self.period {
            released.push(Self {
                open: true,
                since: 0,
                ..self
            });
        }
        for guest in released {
            let here = Self {
                arrived: true,
                left: guest.execution,
                ..guest
            };
            let waits = guest.open && !guest.arrived;
            let mut arrived = Vec::new();
            if !waits || guest.since < guest.jitter {
                arrived.push((guest, false));
            }
            if waits {
                arrived.push((here, true));
            }
            for (guest, now) in arrived {
                let mut take = |choice: usize| out.push((guest, options[choice]));
                match (guest.arrived, asleep_before) {
                    (true, true) | (false, false) => take(1),
                    (true, false) => {
                        take(0);
                        if now {
                            // The last one was done at this instant: it slept and woke at once.
                            take(2);
                        }
                    }
                    (false, true) => take(0),
                }
                if self.disturbed && !guest.arrived {
                    take(usize::from(asleep_before));
                }
            }
        }
    }

    fn end(self, _ready: bool, ran: bool, out: &mut Vec<Self>) -> Option<()> {
        let mut next = Self {
            since: (self.since + 1).min(self.period),
            ..self
        };
        if self.arrived && ran {
            // It may end early.
            out.push(Self {
                open: false,
                arrived: false,
                left: 0,
                ..next
            });
            next.left -= 1;
            if next.left == 0 {
                return Some(());
            }
        }
        // Other work may also come first.
        if self.disturbed && self.arrived && ran {
            out.push(Self {
                left: self.left,
                ..next
            });
        }
        if next.open && next.since >= self.deadline {
            return None;
        }
        out.push(next);
        Some(())
    }
}

/// Whether its jobs are never late.
pub fn served(request: Request, vcpus: &[Vcpu], most: usize) -> Option<bool> {
    explore(
        vcpus,
        Kind::ConstantBandwidth,
        Policy::EarliestDeadline,
        request,
        most,
    )
}
