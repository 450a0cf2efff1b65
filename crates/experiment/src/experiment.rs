//! What an experiment of latencies is: its words, what it compares, what may be chosen of it, and what came of it.

use crate::engine::Disturbance;
use crate::engine::latency::{Latencies, Words};
use crate::engine::results::{Figure, Record};
use crate::testbed::ComparedMethod;
use steadyvm_lab::artifact::UserSpace;
use steadyvm_lab::laboratory::{HostKernel, Laboratory};
use steadyvm_lab::progress::Observer;
use steadyvm_lab::{Error, Result};
use steadyvm_report::{Answer, Grid};

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
    /// Methods of the caller's choice.
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
    /// Its help.
    pub about: &'static str,
    /// What its page begins with.
    pub answer: fn(&Record) -> Answer,
    /// What it compares.
    pub rows: Rows,
    /// The image of its hosts and guests.
    pub user_space: UserSpace,
    /// Refuses what cannot be measured.
    pub check: fn(&Options) -> Result<()>,
    /// Measures everything.
    pub run: fn(&Laboratory, &Options, &dyn Observer) -> Result<Outcome>,
}

impl Experiment {
    /// What its rows are, in the plural.
    pub fn compared(&self) -> &'static str {
        match self.rows {
            Rows::Methods => "methods",
            Rows::Settings(_) => "kernels",
            Rows::Own { compared, .. } => compared,
        }
    }
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

/// Refuses what cannot be measured of an experiment that compares settings.
///
/// # Errors
/// What is wrong with the options.
pub fn check_settings(name: &str, options: &Options) -> Result<()> {
    let wrong = if options.settings.is_empty() {
        "no setting is given"
    } else if options.rounds == 0 || options.samples < options.rounds {
        "there must be at least one round, and one sample per round"
    } else {
        return Ok(());
    };
    Err(Error::input(format!("measure {name}"), wrong)
        .what_to_do(format!("see steadyvm-lab experiment {name} --help")))
}
