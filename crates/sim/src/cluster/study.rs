//! Policies and seeds together: each policy sees the same traces.

use std::{
    sync::atomic::{AtomicUsize, Ordering},
    thread,
};

use steadyvm_config::PlacementPolicy;

use super::{
    replay::{Outcome, replay},
    scenario::Scenario,
    trace::{TooManyEvents, Trace},
};

/// What came of all runs.
#[derive(Debug, Clone, PartialEq)]
pub struct Study {
    /// In the order of the file.
    pub policies: Vec<OfPolicy>,
    /// The flavours of the first run's VMs, as they came.
    pub first_flavours: Vec<u16>,
}

/// What came of a policy.
#[derive(Debug, Clone, PartialEq)]
pub struct OfPolicy {
    /// The policy.
    pub policy: PlacementPolicy,
    /// A run for each seed.
    pub runs: Vec<Outcome>,
}

/// Plays every policy with every seed, on so many threads. The number of threads does not change what is found.
///
/// # Errors
/// More events than memory is asked for.
pub fn study(scenario: &Scenario, threads: usize) -> Result<Study, TooManyEvents> {
    let mut policies: Vec<OfPolicy> = (scenario.policies.iter())
        .map(|&policy| OfPolicy {
            policy,
            runs: Vec::new(),
        })
        .collect();
    let mut first_flavours = Vec::new();
    for run in 0..u64::from(scenario.seeds) {
        // One trace at a time: it may be large.
        let trace = Trace::draw(scenario, scenario.seed.wrapping_add(run))?;
        for (of_policy, outcome) in policies.iter_mut().zip(all(scenario, &trace, threads)) {
            of_policy.runs.push(outcome);
        }
        if run == 0 {
            first_flavours = trace.flavours;
        }
    }
    Ok(Study {
        policies,
        first_flavours,
    })
}

/// A trace under each policy.
fn all(scenario: &Scenario, trace: &Trace, threads: usize) -> Vec<Outcome> {
    let next = AtomicUsize::new(0);
    let work = || {
        let mut done = Vec::new();
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            let Some(&policy) = scenario.policies.get(number) else {
                return done;
            };
            done.push((number, replay(scenario, trace, policy)));
        }
    };
    let mut found: Vec<(usize, Outcome)> = thread::scope(|scope| {
        let others: Vec<_> = (1..threads).map(|_| scope.spawn(work)).collect();
        let own = work();
        // A thread that panicked has its panic go on here.
        let others = others.into_iter().map(|it| match it.join() {
            Ok(done) => done,
            Err(panic) => std::panic::resume_unwind(panic),
        });
        others.flatten().chain(own).collect()
    });
    found.sort_by_key(|(number, _)| *number);
    found.into_iter().map(|(_, outcome)| outcome).collect()
}
