//! The experiments of one shape: percentiles of latencies, by method, setting or another row, and condition.
//! A new one is a folder and a line here; the command line has a verb for each.

use crate::compare::ComparedMethod;
use crate::engine::Disturbance;
use crate::engine::latency::{Figure, Latencies, Words};
use crate::{end_to_end, inversion, kamailio, memcached};
use steadyvm_lab::Result;
use steadyvm_lab::laboratory::{HostKernel, Laboratory};
use steadyvm_lab::progress::Observer;
use steadyvm_report::Grid;

/// The experiments, by the verbs of `steadyvm lab experiment`.
pub const EXPERIMENTS: &[&Experiment] = &[
    &end_to_end::EXPERIMENT,
    &inversion::EXPERIMENT,
    &kamailio::EXPERIMENT,
    &memcached::EXPERIMENT,
];

/// What to measure.
#[derive(Debug, Clone)]
pub struct Options {
    /// Methods, in the order shown; the first is what the others are held against. Those of [`Rows::Methods`].
    pub methods: Vec<ComparedMethod>,
    /// The same of [`Rows::Settings`].
    pub settings: Vec<Setting>,
    /// Counted requests, or jobs, per row and condition, over all rounds.
    pub samples: u64,
    /// Rounds.
    pub rounds: u64,
    /// Seed of the first round's schedule of requests.
    pub seed: u64,
}

/// A kernel with something set by hand: what is compared where it is no method.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Setting {
    /// The name on the command line and in results.
    pub name: &'static str,
    /// The host's kernel.
    pub kernel: HostKernel,
    /// Whether the bulk card is polled in threads of its own.
    pub bulk_in_threads: bool,
}

/// What an experiment compares.
#[derive(Debug, Clone, Copy)]
pub enum Rows {
    /// Methods of the caller's choice, on hosts with services.
    Methods,
    /// Settings of a host, of which the caller may choose some.
    Settings(&'static [Setting]),
    /// Its own, all of them.
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
    /// More figures than those of the latencies.
    pub figures: Vec<Figure>,
    /// Tables of these.
    pub tables: Vec<Grid>,
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

    #[test]
    fn every_setting_has_a_name_of_its_own() {
        for experiment in EXPERIMENTS {
            if let Rows::Settings(all) = experiment.rows {
                let names: BTreeSet<&str> = all.iter().map(|it| it.name).collect();
                assert_eq!(names.len(), all.len());
            }
        }
    }
}
