//! Exhaustive search over hosts that decide at a quantum: every legal schedule of a few periodic servers, or of a few
//! deferrable ones whose guests sleep and wake at will.
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
    decide_by(
        vcpus,
        policy,
        state.jobs.map(|job| job.due),
        waiting,
        free,
        running,
        runs,
    );
}

/// The same with the slots to each VCPU's deadline.
pub fn decide_by(
    vcpus: &[Vcpu],
    policy: Policy,
    due: [u8; MOST],
    waiting: u8,
    free: u8,
    running: u8,
    runs: &mut Vec<u8>,
) {
    let key = |v: usize| match policy {
        Policy::EarliestDeadline => (due[v], 0),
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
            decide_by(vcpus, policy, due, rest, free, running, runs);
        }
        for cpu in (0..8).filter(|cpu| own >> cpu & 1 == 1) {
            let free = free & !(1 << cpu);
            decide_by(vcpus, policy, due, rest, free, running | 1 << next, runs);
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

/// A deferrable VCPU before a slot.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
struct Deferrable {
    /// Budget that the host knows of.
    left: u8,
    /// Slots to its period's end.
    wait: u8,
    /// A period began, and the host has not looked since.
    fresh: bool,
    awake: bool,
    /// It was awake since its period began.
    whole: bool,
    /// What it has had in this period.
    given: u8,
}

#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
struct Sleepers {
    vcpus: [Deferrable; MOST],
    phase: u8,
    running: u8,
}

/// Whether each VCPU has its budget in each period in which it never sleeps, in every schedule, periods beginning at
/// any time; `None` beyond `most` states. The host replenishes at its first look in a period.
pub fn deferrable_holds(vcpus: &[Vcpu], policy: Policy, quantum: u8, most: usize) -> Option<bool> {
    assert!(vcpus.len() <= MOST && quantum > 0);
    let mut frontier = vec![Sleepers::default()];
    for (number, vcpu) in vcpus.iter().enumerate() {
        let before = std::mem::take(&mut frontier);
        for state in before {
            for wait in 0..vcpu.period {
                let mut next = state;
                next.vcpus[number].wait = wait;
                frontier.push(next);
            }
        }
    }
    let mut seen: HashSet<Sleepers, BuildHasherDefault<Hasher>> = HashSet::default();
    seen.extend(&frontier);
    while let Some(state) = frontier.pop() {
        for awake in 0..1_u8 << vcpus.len() {
            let mut state = state;
            for (number, (one, vcpu)) in state.vcpus.iter_mut().zip(vcpus).enumerate() {
                let now = awake >> number & 1 == 1;
                if one.wait == 0 {
                    if one.whole && one.given < vcpu.budget {
                        return Some(false);
                    }
                    *one = Deferrable {
                        wait: vcpu.period,
                        fresh: true,
                        whole: true,
                        given: 0,
                        ..*one
                    };
                }
                one.awake = now;
                one.whole &= now;
            }
            for running in looks(vcpus, policy, &mut state) {
                let after = run(vcpus, quantum, Sleepers { running, ..state });
                if seen.insert(after) {
                    frontier.push(after);
                }
            }
        }
        if seen.len() > most {
            return None;
        }
    }
    Some(true)
}

/// What may run in the next slot, with what the host learns if it looks now: also when who runs goes to sleep.
fn looks(vcpus: &[Vcpu], policy: Policy, state: &mut Sleepers) -> Vec<u8> {
    let sleeps =
        |(number, one): (usize, &Deferrable)| state.running >> number & 1 == 1 && !one.awake;
    if state.phase > 0 && !state.vcpus.iter().enumerate().any(sleeps) {
        return vec![state.running];
    }
    let mut as_jobs = State::default();
    let mut waiting = 0;
    for (number, (one, vcpu)) in state.vcpus.iter_mut().zip(vcpus).enumerate() {
        if one.fresh {
            one.left = vcpu.budget;
            one.fresh = false;
        }
        as_jobs.jobs[number].due = one.wait;
        waiting |= u8::from(one.awake && one.left > 0) << number;
    }
    let mut runs = Vec::new();
    decide(vcpus, policy, &as_jobs, waiting, u8::MAX, 0, &mut runs);
    runs
}

/// One slot. Who has used its budget keeps its CPU until the host looks.
fn run(vcpus: &[Vcpu], quantum: u8, mut state: Sleepers) -> Sleepers {
    for (number, one) in state.vcpus.iter_mut().enumerate().take(vcpus.len()) {
        if state.running >> number & 1 == 1 && one.awake && one.left > 0 {
            one.left -= 1;
            one.given += 1;
        }
        one.wait -= 1;
    }
    state.phase = (state.phase + 1) % quantum;
    if state.phase == 0 {
        state.running = 0;
    }
    state
}
