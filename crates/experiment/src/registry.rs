//! The experiments of one shape: percentiles of latencies, by method, or another row, and condition.
//! A new one is a folder and a line here; the command line has a verb for each.

use crate::compare::ComparedMethod;
use crate::engine::Disturbance;
use crate::engine::latency::{Latencies, Words};
use crate::{end_to_end, kamailio, memcached};
use steadyvm_lab::Result;
use steadyvm_lab::laboratory::{HostKernel, Laboratory};
use steadyvm_lab::progress::Observer;

/// The experiments, by the verbs of `steadyvm lab experiment`.
pub const EXPERIMENTS: &[&Experiment] = &[
    &end_to_end::EXPERIMENT,
    &kamailio::EXPERIMENT,
    &memcached::EXPERIMENT,
];

/// What to measure.
#[derive(Debug, Clone)]
pub struct Options {
    /// Methods, in the order shown; the first is what the others are held against. None for rows of [`Rows::Own`].
    pub methods: Vec<ComparedMethod>,
    /// Counted requests, or jobs, per row and condition, over all rounds.
    pub samples: u64,
    /// Rounds.
    pub rounds: u64,
    /// Seed of the first round's schedule of requests.
    pub seed: u64,
}

/// What an experiment compares.
#[derive(Debug, Clone, Copy)]
pub enum Rows {
    /// Methods of the caller's choice, on hosts with services.
    Methods,
    /// Its own.
    Own {
        /// What they are, in the plural.
        compared: &'static str,
        /// The kernel of its hosts.
        kernel: HostKernel,
        /// What `samples` is where the caller says nothing.
        samples: &'static str,
    },
}

/// An experiment.
#[derive(Debug)]
pub struct Experiment {
    /// Its verb, and what its page says.
    pub words: Words,
    /// The heading of its page.
    pub title: &'static str,
    /// Its help.
    pub about: &'static str,
    /// What it compares.
    pub rows: Rows,
    /// Refuses what cannot be measured.
    pub check: fn(&Options) -> Result<()>,
    /// Measures everything.
    pub run: fn(&Laboratory, &Options, &dyn Observer) -> Result<Outcome>,
}

/// What was measured, and what a reader of the figures must see with it.
#[derive(Debug)]
pub struct Outcome {
    /// The latencies.
    pub latencies: Vec<Latencies>,
    /// What is to be said of them, a sentence each.
    pub notes: Vec<String>,
    /// The rounds that were dropped because a machine died, a sentence each.
    pub dropped_rounds: Vec<String>,
    /// What else the machine did during the rounds.
    pub disturbance: Disturbance,
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn every_experiment_has_a_verb_of_its_own() {
        let names: BTreeSet<&str> = EXPERIMENTS.iter().map(|it| it.words.name).collect();
        assert_eq!(names.len(), EXPERIMENTS.len());
        assert!(!names.contains("nisp") && !names.contains("rtca"));
    }
}
