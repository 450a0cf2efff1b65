//! Policies and seeds together: each policy sees the same traces.

use std::{
    sync::atomic::{AtomicUsize, Ordering},
    thread,
};

use steadyvm_config::PlacementPolicy;
use steadyvm_stats::MeanInterval;

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

/// A figure of a run.
#[derive(Debug, Clone, Copy)]
pub struct Figure {
    /// What it is, with its unit.
    pub name: &'static str,
    /// Its value.
    pub of: fn(&Outcome) -> f64,
}

/// What policies are compared by.
pub const FIGURES: [Figure; 12] = [
    Figure {
        name: "real-time VMs admitted",
        of: |run| run.admitted_rt as f64,
    },
    Figure {
        name: "real-time VMs rejected",
        of: |run| run.rejected_rt as f64,
    },
    Figure {
        name: "other VMs admitted",
        of: |run| run.admitted_other as f64,
    },
    Figure {
        name: "other VMs rejected",
        of: |run| run.rejected_other as f64,
    },
    Figure {
        name: "real-time CPU held, per cent",
        of: |run| 100.0 * run.rt_utilisation,
    },
    Figure {
        name: "memory held, per cent",
        of: |run| 100.0 * run.memory_utilisation,
    },
    Figure {
        name: "moves",
        of: |run| run.moves() as f64,
    },
    Figure {
        name: "moves and resizes that no host took",
        of: |run| (run.migrations_refused + run.resizes_refused + run.drained_stayed) as f64,
    },
    Figure {
        name: "VMs without a host after a failure",
        of: |run| run.without_host as f64,
    },
    Figure {
        name: "hours that they waited",
        of: |run| run.without_host_hours,
    },
    Figure {
        name: "hours of over-committed hosts",
        of: |run| run.overcommitted_host_hours,
    },
    Figure {
        name: "events",
        of: |run| run.events as f64,
    },
];

impl Figure {
    /// Its mean over runs, and how well it is known.
    pub fn mean(&self, runs: &[Outcome]) -> Option<MeanInterval> {
        let values: Vec<f64> = runs.iter().map(self.of).collect();
        MeanInterval::of(&values)
    }

    /// The same in words: `12.0 [11.0, 13.0]`.
    pub fn words(&self, runs: &[Outcome]) -> String {
        match self.mean(runs) {
            None => "-".to_owned(),
            Some(MeanInterval {
                mean,
                interval: None,
            }) => format!("{mean:.1}"),
            Some(MeanInterval {
                mean,
                interval: Some((low, high)),
            }) => format!("{mean:.1} [{low:.1}, {high:.1}]"),
        }
    }
}
