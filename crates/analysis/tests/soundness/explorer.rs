//! Exhaustive search: every legal schedule of a small system, slot by slot.
//!
//! An adversary decides, in every slot, which tasks release a job (never sooner than allowed), which
//! released jobs arrive (release jitter), which suspend themselves, and which processors are supplied
//! (never less than their budget in a period, in any phase). Deferrable VCPUs sleep and wake at will. The
//! scheduler then runs what comes first. Every state that can be reached is visited once, so a yes holds
//! for every release pattern, phase and placement of budgets, for ever. Nothing here shares a formula
//! with the library.

use std::{collections::HashSet, hash::Hash};

/// The most tasks or VCPUs of a system.
pub const MOST: usize = 5;

/// The most processors.
const PROCESSORS: usize = 3;

/// A sporadic task, or a VCPU as its host sees it. Times in slots.
#[derive(Clone, Copy, Debug, Default)]
pub struct Task {
    pub execution: u8,
    pub deadline: u8,
    pub period: u8,
    pub jitter: u8,
    pub suspension: u8,
    /// Processors it may not use, a bit each.
    pub barred: u8,
}

/// What comes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Policy {
    EarliestDeadline,
    /// In the order given.
    FixedPriority,
}

/// Visits all states from `starts` on; `successors` is false where a promise is broken. The answer:
/// whether none is; `None` if more than `most` states can be reached.
fn explore<S: Copy + Eq + Hash>(
    starts: Vec<S>,
    most: usize,
    successors: impl Fn(&S, &mut Vec<S>) -> bool,
) -> Option<bool> {
    let mut seen: HashSet<S> = starts.iter().copied().collect();
    let mut frontier = starts;
    let mut next = Vec::new();
    while let Some(state) = frontier.pop() {
        next.clear();
        if !successors(&state, &mut next) {
            return Some(false);
        }
        frontier.extend(next.iter().copied().filter(|&state| seen.insert(state)));
        if seen.len() > most {
            return None;
        }
    }
    Some(true)
}

/// A task's latest job; `since` = period: it may release the next.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
struct Job {
    since: u8,
    left: u8,
    suspension_left: u8,
    arrived: bool,
}

/// A processor in its period, before a slot.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
struct Supply {
    offset: u8,
    left: u8,
}

#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
struct State {
    jobs: [Job; MOST],
    supplies: [Supply; PROCESSORS],
}

/// Whether no job of `tasks` is ever late on `processors`, each with (budget, period).
pub fn never_late(
    tasks: &[Task],
    policy: Policy,
    processors: &[(u8, u8)],
    most: usize,
) -> Option<bool> {
    assert!(tasks.len() <= MOST && processors.len() <= PROCESSORS);
    let mut idle = State::default();
    for (job, task) in idle.jobs.iter_mut().zip(tasks) {
        job.since = task.period;
    }
    let mut starts = vec![idle];
    for (number, &(budget, period)) in processors.iter().enumerate() {
        let within = |offset: u8| {
            let least = budget.saturating_sub(offset);
            (least..=budget.min(period - offset)).map(move |left| Supply { offset, left })
        };
        starts = product(
            &starts,
            &(0..period).flat_map(within).collect::<Vec<_>>(),
            |state, &supply| {
                state.supplies[number] = supply;
            },
        );
    }
    explore(starts, most, |state, next| {
        let mut choices = vec![(*state, [false; MOST], [false; PROCESSORS])];
        for (number, &task) in tasks.iter().enumerate() {
            let options = job_options(task, state.jobs[number]);
            choices = product(&choices, &options, |choice, &(job, runs)| {
                choice.0.jobs[number] = job;
                choice.1[number] = runs;
            });
        }
        for (number, &(_, period)) in processors.iter().enumerate() {
            let Supply { offset, left } = state.supplies[number];
            let mut options = Vec::new();
            options.extend((left > 0).then_some(true));
            options.extend((left < period - offset).then_some(false));
            choices = product(&choices, &options, |choice, &given| {
                choice.2[number] = given;
            });
        }
        choices.iter().all(|&(state, runs, given)| {
            let after = slot(tasks, policy, processors, state, runs, given);
            next.extend(after);
            after.is_some()
        })
    })
}

/// Every choice with every option.
fn product<C: Copy, O>(choices: &[C], options: &[O], set: impl Fn(&mut C, &O)) -> Vec<C> {
    choices
        .iter()
        .flat_map(|&choice| {
            options.iter().map({
                let set = &set;
                move |option| {
                    let mut choice = choice;
                    set(&mut choice, option);
                    choice
                }
            })
        })
        .collect()
}

/// What may become of a task before a slot, and whether it wants to run in it.
fn job_options(task: Task, job: Job) -> Vec<(Job, bool)> {
    let released = Job {
        since: 0,
        left: task.execution,
        suspension_left: task.suspension,
        arrived: false,
    };
    let mut options = Vec::new();
    if job.since == task.period {
        options.push((job, false));
        arrival_options(task, released, &mut options);
    } else {
        arrival_options(task, job, &mut options);
    }
    options
}

fn arrival_options(task: Task, job: Job, options: &mut Vec<(Job, bool)>) {
    if job.left == 0 {
        options.push((job, false));
        return;
    }
    if !job.arrived && job.since < task.jitter {
        options.push((job, false));
    }
    let arrived = Job {
        arrived: true,
        ..job
    };
    options.push((arrived, true));
    if job.suspension_left > 0 {
        let suspension_left = job.suspension_left - 1;
        options.push((
            Job {
                suspension_left,
                ..arrived
            },
            false,
        ));
    }
}

/// One slot; `None` if a job is late after it.
fn slot(
    tasks: &[Task],
    policy: Policy,
    processors: &[(u8, u8)],
    mut state: State,
    runs: [bool; MOST],
    mut free: [bool; PROCESSORS],
) -> Option<State> {
    let given = free;
    let mut order: Vec<usize> = (0..tasks.len()).filter(|&task| runs[task]).collect();
    if policy == Policy::EarliestDeadline {
        order.sort_by_key(|&task| tasks[task].deadline - state.jobs[task].since);
    }
    for task in order {
        let allowed = |&processor: &usize| tasks[task].barred >> processor & 1 == 0;
        if let Some(processor) = (0..PROCESSORS).filter(|&p| free[p]).find(allowed) {
            free[processor] = false;
            state.jobs[task].left -= 1;
        }
    }
    for (job, task) in state.jobs.iter_mut().zip(tasks) {
        job.since = (job.since + 1).min(task.period);
        if job.left > 0 && job.since >= task.deadline {
            return None;
        }
        if job.left == 0 {
            *job = Job {
                since: job.since,
                ..Job::default()
            };
        }
    }
    for (number, &(budget, period)) in processors.iter().enumerate() {
        let supply = &mut state.supplies[number];
        supply.left -= u8::from(given[number]);
        supply.offset += 1;
        if supply.offset == period {
            *supply = Supply {
                offset: 0,
                left: budget,
            };
        }
    }
    Some(state)
}

/// A deferrable VCPU before a slot. `ready_since`: its period's slot from which on it has been ready.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
struct Server {
    offset: u8,
    left: u8,
    ready_since: Option<u8>,
}

/// Whether deferrable VCPUs of (budget, period), in any phases, sleeping and waking at will, keep their
/// promise on `processors`: one that has been ready from slot s of its period to the end of it has got its
/// budget less s.
pub fn deferrable_promises(
    vcpus: &[(u8, u8)],
    policy: Policy,
    processors: usize,
    most: usize,
) -> Option<bool> {
    let masks = vec![u8::MAX >> (8 - processors); vcpus.len()];
    masked_deferrable_promises(vcpus, &masks, policy, processors, most)
}

/// The same with the processors that each may use, a bit each. Who comes first takes any one of its own that is free.
pub fn masked_deferrable_promises(
    vcpus: &[(u8, u8)],
    masks: &[u8],
    policy: Policy,
    processors: usize,
    most: usize,
) -> Option<bool> {
    assert!(vcpus.len() <= MOST);
    let mut starts = vec![[Server::default(); MOST]];
    for (number, &(budget, period)) in vcpus.iter().enumerate() {
        // A first period that is cut promises nothing.
        let within = |offset| Server {
            offset,
            left: if offset == 0 { budget } else { 0 },
            ready_since: None,
        };
        let options: Vec<Server> = (0..period).map(within).collect();
        starts = product(&starts, &options, |state, &server| state[number] = server);
    }
    explore(starts, most, |state, next| {
        let mut choices = vec![*state];
        for number in 0..vcpus.len() {
            let server = state[number];
            let awake = server.ready_since.or(Some(server.offset));
            choices = product(&choices, &[None, awake], |state, &ready_since| {
                state[number].ready_since = ready_since;
            });
        }
        let all = u8::MAX >> (8 - processors);
        let mut runs = Vec::new();
        choices.iter().all(|&state| {
            runs.clear();
            let order = server_order(vcpus, policy, &state);
            running(&order, masks, all, 0, &mut runs);
            runs.iter().all(|&running| {
                let after = server_slot(vcpus, running, state);
                next.extend(after);
                after.is_some()
            })
        })
    })
}

/// Those that want to run, the most urgent first.
fn server_order(vcpus: &[(u8, u8)], policy: Policy, state: &[Server; MOST]) -> Vec<usize> {
    let wants = |&vcpu: &usize| state[vcpu].ready_since.is_some() && state[vcpu].left > 0;
    let mut order: Vec<usize> = (0..vcpus.len()).filter(wants).collect();
    if policy == Policy::EarliestDeadline {
        order.sort_by_key(|&vcpu| vcpus[vcpu].1 - state[vcpu].offset);
    }
    order
}

/// Every set that may run, a bit each: in order, each on any free processor of its own.
fn running(order: &[usize], masks: &[u8], free: u8, chosen: u8, runs: &mut Vec<u8>) {
    let Some((&next, rest)) = order.split_first() else {
        if !runs.contains(&chosen) {
            runs.push(chosen);
        }
        return;
    };
    let own = masks[next] & free;
    if own == 0 {
        running(rest, masks, free, chosen, runs);
    }
    for processor in (0..8).filter(|processor| own >> processor & 1 == 1) {
        let free = free & !(1 << processor);
        running(rest, masks, free, chosen | 1 << next, runs);
        // Processors that all may use are alike.
        if masks.iter().all(|mask| *mask == masks[next]) {
            break;
        }
    }
}

fn server_slot(
    vcpus: &[(u8, u8)],
    running: u8,
    mut state: [Server; MOST],
) -> Option<[Server; MOST]> {
    for (number, server) in state.iter_mut().enumerate() {
        server.left -= running >> number & 1;
    }
    for (server, &(budget, period)) in state.iter_mut().zip(vcpus) {
        server.offset += 1;
        if server.offset < period {
            continue;
        }
        if server
            .ready_since
            .is_some_and(|since| budget - server.left < budget.saturating_sub(since))
        {
            return None;
        }
        *server = Server {
            offset: 0,
            left: budget,
            ready_since: server.ready_since.map(|_| 0),
        };
    }
    Some(state)
}
