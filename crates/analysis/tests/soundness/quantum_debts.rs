//! Exhaustive search over hosts that decide at a quantum, with the debts of their servers and looks at any instant.
//!
//! The rules are those of crates/sched-policy/policy/server.h, slot by slot: ends of budgets and beginnings of periods are
//! seen at multiples of the quantum; until then whoever runs goes on, and what is too much is taken from the next budget.
//! Periods begin at any instant. An adversary makes the host look in between, for any of the VCPUs (a wake-up does that), so
//! that budgets begin, and end, in the middle of a quantum. Deferrable VCPUs sleep and wake at will; periodic ones idle
//! their budget away, so that sleep changes nothing. Nothing is shared with the library.

use std::{collections::HashSet, hash::BuildHasherDefault};

use crate::{
    quantum_explorer::decide_by,
    server_explorer::{Hasher, Policy, Vcpu},
};

const MOST: usize = 4;

/// A VCPU before a slot.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
struct Server {
    /// Budget that the host knows of; below 0: what is owed.
    left: i8,
    /// Slots to the period's end.
    wait: u8,
    /// A period began, and the host has not looked since.
    fresh: bool,
    awake: bool,
    /// It was awake since its period began.
    whole: bool,
    given: u8,
}

#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
struct State {
    servers: [Server; MOST],
    phase: u8,
    running: u8,
}

/// Whether each VCPU has what is promised in each period in which it never sleeps, where the host installs the budgets of
/// `vcpus`; `None` beyond `most` states.
pub fn holds(
    vcpus: &[Vcpu],
    promised: &[u8],
    sleeps: bool,
    policy: Policy,
    quantum: u8,
    most: usize,
) -> Option<bool> {
    assert!(vcpus.len() <= MOST && quantum > 0);
    let mut frontier = vec![State::default()];
    for (number, vcpu) in vcpus.iter().enumerate() {
        let before = std::mem::take(&mut frontier);
        for state in before {
            for wait in 0..vcpu.period {
                let mut next = state;
                next.servers[number].wait = wait;
                frontier.push(next);
            }
        }
    }
    let mut seen: HashSet<State, BuildHasherDefault<Hasher>> = HashSet::default();
    seen.extend(&frontier);
    let all = (1_u8 << vcpus.len()) - 1;
    while let Some(state) = frontier.pop() {
        for awake in if sleeps { 0 } else { all }..=all {
            let mut state = state;
            let mut slept = 0;
            for (number, (one, vcpu)) in state.servers.iter_mut().zip(vcpus).enumerate() {
                let now = awake >> number & 1 == 1;
                if one.wait == 0 {
                    if one.whole && one.given < promised[number] {
                        return Some(false);
                    }
                    *one = Server {
                        wait: vcpu.period,
                        fresh: true,
                        whole: true,
                        given: 0,
                        ..*one
                    };
                }
                slept |= u8::from(state.running >> number & 1 == 1 && !now) << number;
                one.awake = now;
                one.whole &= now;
            }
            let at_quantum = state.phase == 0;
            for seen_of in looks(&state, vcpus.len(), at_quantum) {
                // Nobody looks: whoever runs goes on.
                let mut state = state;
                let looked = at_quantum || slept > 0 || seen_of != 0;
                let mut runs = vec![state.running];
                if looked {
                    decide(vcpus, policy, &mut state, seen_of, &mut runs);
                }
                for &running in &runs {
                    let after = run(vcpus, quantum, State { running, ..state });
                    if seen.insert(after) {
                        frontier.push(after);
                    }
                }
                if !looked {
                    // It looks, and learns of no new period: one that has begun is another's.
                    decide(vcpus, policy, &mut state, 0, &mut runs);
                    for &running in &runs {
                        let after = run(vcpus, quantum, State { running, ..state });
                        if seen.insert(after) {
                            frontier.push(after);
                        }
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

/// Of which new periods the host may learn now, a bit each.
fn looks(state: &State, count: usize, at_quantum: bool) -> Vec<u8> {
    let fresh = (0..count)
        .filter(|&v| state.servers[v].fresh)
        .fold(0_u8, |set, v| set | 1 << v);
    if at_quantum {
        return vec![fresh];
    }
    (0..=fresh).filter(|some| some & !fresh == 0).collect()
}

fn decide(vcpus: &[Vcpu], policy: Policy, state: &mut State, seen: u8, runs: &mut Vec<u8>) {
    let mut due = [0; MOST];
    let mut waiting = 0;
    for (number, (one, vcpu)) in state.servers.iter_mut().zip(vcpus).enumerate() {
        if seen >> number & 1 == 1 {
            one.left = i8::try_from(vcpu.budget).unwrap() + one.left.min(0);
            one.fresh = false;
        }
        // Until the new period is seen its key is the old one's, whose deadline is now or past.
        due[number] = if one.fresh { 0 } else { one.wait };
        waiting |= u8::from(one.awake && one.left > 0) << number;
    }
    runs.clear();
    decide_by(vcpus, policy, due, waiting, u8::MAX, 0, runs);
}

fn run(vcpus: &[Vcpu], quantum: u8, mut state: State) -> State {
    for (number, one) in state.servers.iter_mut().enumerate().take(vcpus.len()) {
        if state.running >> number & 1 == 1 && one.awake {
            one.left -= 1;
            one.given += 1;
        }
        one.wait -= 1;
    }
    state.phase = (state.phase + 1) % quantum;
    state
}
