//! Exhaustive search over hosts that decide at a quantum: every legal schedule of a few periodic servers.
//!
//! An adversary releases VCPUs at any slot (never sooner than allowed) and ends them early. The host looks at
//! releases and budgets at every multiple of the quantum only: until then whoever runs keeps its CPU, done or not,
//! and no release is seen. Ties in any order. Nothing is shared with the library.

use std::{collections::HashSet, hash::BuildHasherDefault};

use crate::server_explorer::{Hasher, Policy, Vcpu};

/// The most VCPUs.
const MOST: usize = 4;

/// A VCPU before a slot.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
struct Job {
    left: u8,
    /// Slots to its deadline; 0: none.
    due: u8,
    /// Slots to the next release.
    wait: u8,
    /// The host knows of it.
    seen: bool,
}

#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
struct State {
    jobs: [Job; MOST],
    /// Slots since the host last decided.
    phase: u8,
    /// Who has a CPU until it decides again, a bit each.
    running: u8,
}

/// Whether each VCPU gets its budget by its deadline in every schedule; `None` beyond `most` states.
pub fn holds(vcpus: &[Vcpu], policy: Policy, quantum: u8, most: usize) -> Option<bool> {
    assert!(vcpus.len() <= MOST && quantum > 0);
    let mut seen: HashSet<State, BuildHasherDefault<Hasher>> = HashSet::default();
    seen.insert(State::default());
    let mut frontier = vec![State::default()];
    let mut runs = Vec::new();
    while let Some(state) = frontier.pop() {
        let mut states = vec![state];
        for (number, vcpu) in vcpus.iter().enumerate() {
            let before = std::mem::take(&mut states);
            for state in before {
                let job = state.jobs[number];
                let mut push = |job| {
                    let mut next = state;
                    next.jobs[number] = job;
                    states.push(next);
                };
                push(job);
                if job.left == 0 && job.wait == 0 {
                    push(Job {
                        left: vcpu.budget,
                        due: vcpu.deadline,
                        wait: vcpu.period,
                        seen: false,
                    });
                }
                if job.left > 0 {
                    // It ends early; its CPU stays taken.
                    push(Job {
                        left: 0,
                        due: 0,
                        ..job
                    });
                }
            }
        }
        for mut state in states {
            runs.clear();
            if state.phase == 0 {
                for job in &mut state.jobs {
                    job.seen = job.left > 0;
                }
                let wants = |&v: &usize| state.jobs[v].seen;
                let waiting = (0..vcpus.len())
                    .filter(wants)
                    .fold(0, |set, v| set | 1 << v);
                decide(vcpus, policy, &state, waiting, u8::MAX, 0, &mut runs);
            } else {
                runs.push(state.running);
            }
            for &running in &runs {
                match slot(vcpus, quantum, State { running, ..state }) {
                    None => return Some(false),
                    Some(after) => {
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

/// Every set of VCPUs that may run until the next decision.
fn decide(
    vcpus: &[Vcpu],
    policy: Policy,
    state: &State,
    waiting: u8,
    free: u8,
    running: u8,
    runs: &mut Vec<u8>,
) {
    let key = |v: usize| match policy {
        Policy::EarliestDeadline => (state.jobs[v].due, 0),
        Policy::DeadlineMonotonic => (vcpus[v].deadline, v),
    };
    let members = || (0..vcpus.len()).filter(|v| waiting >> v & 1 == 1);
    let Some(least) = members().map(key).min() else {
        if !runs.contains(&running) {
            runs.push(running);
        }
        return;
    };
    for next in members().filter(|&v| key(v) == least) {
        let rest = waiting & !(1 << next);
        let own = vcpus[next].cpus & free;
        if own == 0 {
            decide(vcpus, policy, state, rest, free, running, runs);
        }
        for cpu in (0..8).filter(|cpu| own >> cpu & 1 == 1) {
            let free = free & !(1 << cpu);
            decide(vcpus, policy, state, rest, free, running | 1 << next, runs);
            if vcpus.iter().all(|other| other.cpus == vcpus[next].cpus) {
                break;
            }
        }
    }
}

/// One slot; `None`: a budget was not given in time.
fn slot(vcpus: &[Vcpu], quantum: u8, mut state: State) -> Option<State> {
    for (number, job) in state.jobs.iter_mut().enumerate().take(vcpus.len()) {
        let ran = state.running >> number & 1 == 1;
        // A new release behind an early end is not seen, and does not run, before the next decision.
        if ran && job.seen {
            job.left = job.left.saturating_sub(1);
        }
        job.wait = job.wait.saturating_sub(1);
        job.due = job.due.saturating_sub(1);
        if job.left == 0 {
            job.due = 0;
        } else if job.due == 0 {
            return None;
        }
    }
    state.phase = (state.phase + 1) % quantum;
    if state.phase == 0 {
        state.running = 0;
    }
    Some(state)
}
