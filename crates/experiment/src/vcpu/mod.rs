//! The dissertation's host experiments on KVM: an RT VCPU's share, isolation of domains, the scheduler's cost and its
//! quantum, and `NetRT` inside a planned budget. The README in this folder says what differs from the paper.

mod answer;
mod condition;
mod domains;
mod figures;
mod interval;
mod paper;
mod place;
mod quantum;
mod service;
mod shown;
mod window;
mod work;

#[cfg(test)]
mod results_tests;

pub use answer::answer;
pub use condition::{Beside, Condition, Part};
pub use figures::{NAME, assemble, required};
pub use place::KERNEL;
pub use quantum::{Asked, Quantum};
pub use service::Plan;
pub use shown::{page, windows_table};

use crate::engine::Disturbance;
use crate::engine::rounds::{self, Measured};
use condition::Cell;
use place::{Load, Place, Sample};
use std::fmt;
use std::sync::Mutex;
use steadyvm_lab::laboratory::Laboratory;
use steadyvm_lab::progress::Observer;
use steadyvm_lab::{Error, Result};

/// What to measure.
#[derive(Debug, Clone)]
pub struct Options {
    /// The tables and figures to measure.
    pub parts: Vec<Part>,
    /// Rounds: every condition under every mechanism once each.
    pub rounds: u64,
    /// Parts that are measured in so many of the first rounds only.
    pub rounds_of: Vec<(Part, u64)>,
    /// Length of a window in which CPU time is counted and jobs are released, in seconds.
    pub window_s: u64,
    /// Jobs of each domain's task in all rounds together, at least.
    pub jobs: u64,
    /// Counted requests of `NetRT` in each window.
    pub requests: u64,
    /// Seed of the first round's schedule of requests.
    pub seed: u64,
}

impl Options {
    /// How many of the rounds measure a part: the last that is said of it, at most all of them.
    fn rounds_of(&self, part: Part) -> u64 {
        let said = self.rounds_of.iter().rev().find(|(of, _)| *of == part);
        said.map_or(self.rounds, |(_, rounds)| *rounds)
            .min(self.rounds)
    }

    /// Refuses what cannot be measured.
    ///
    /// # Errors
    /// No part, no round, no window, or no request.
    pub fn check(&self) -> Result<()> {
        let wrong = if self.parts.is_empty() {
            "there must be at least one part"
        } else if self.rounds == 0 || self.rounds_of.iter().any(|(_, rounds)| *rounds == 0) {
            "there must be at least one round"
        } else if self.window_s == 0 {
            "a window lasts a second at least"
        } else if self.requests == 0 {
            "there must be at least one request"
        } else {
            return Ok(());
        };
        Err(Error::input("measure VCPU scheduling", wrong)
            .what_to_do("see steadyvm-lab experiment vcpu --help"))
    }
}

/// What was measured, and what a reader of the figures must see with it.
#[derive(Debug)]
pub struct Run {
    /// What the service was granted and promised.
    plan: Option<Plan>,
    /// What was measured in each round.
    cells: Vec<Cell>,
    /// Samples by round and cell of `cells`.
    samples: Vec<Vec<Sample>>,
    /// The rounds that were dropped because a machine died, a sentence each.
    pub dropped_rounds: Vec<String>,
    /// What else the machine did during the rounds.
    pub disturbance: Disturbance,
}

/// The one host: all mechanisms take turns on it.
#[derive(Debug, Clone, Copy)]
struct Host;

impl fmt::Display for Host {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad("host")
    }
}

struct Experiment<'a> {
    options: &'a Options,
    cells: Vec<Cell>,
    plan: Mutex<Option<Plan>>,
}

impl rounds::Plan for Experiment<'_> {
    type Row = Host;
    type Cell = Cell;
    type Station = Place;
    type Sample = Sample;

    fn rows(&self) -> &[Host] {
        &[Host]
    }

    fn cells(&self) -> &[Cell] {
        &self.cells
    }

    fn rounds(&self) -> u64 {
        self.options.rounds
    }

    fn boot(
        &self,
        laboratory: &Laboratory,
        _: Host,
        on_cpu: usize,
        observer: &dyn Observer,
    ) -> Result<Place> {
        let place = Place::boot(laboratory, on_cpu, observer)?;
        if let Ok(mut plan) = self.plan.lock() {
            *plan = Some(place.plan());
        }
        Ok(place)
    }

    fn measure(&self, place: &mut Place, cell: Cell, round: u64) -> Result<Sample> {
        let part = cell.condition.part();
        if round >= self.options.rounds_of(part) {
            return Ok(Sample::LeftOut);
        }
        let rounds = self.options.rounds_of(Part::Domains).max(1);
        let load = Load {
            seed: self.options.seed.wrapping_add(round),
            window_s: self.options.window_s,
            jobs: self.options.jobs.div_ceil(rounds),
            requests: self.options.requests,
        };
        place.measure(cell, load)
    }
}

/// Measures everything.
///
/// # Errors
/// The host does not come up, or dies too often.
pub fn run(laboratory: &Laboratory, options: &Options, observer: &dyn Observer) -> Result<Run> {
    options.check()?;
    let experiment = Experiment {
        options,
        cells: Cell::of(&options.parts),
        plan: Mutex::new(None),
    };
    let measured: Measured<Sample> = rounds::run(laboratory, &experiment, observer)?;
    Ok(Run {
        plan: experiment.plan.into_inner().unwrap_or(None),
        cells: experiment.cells,
        samples: measured.samples.into_iter().flatten().collect(),
        dropped_rounds: measured.dropped_rounds,
        disturbance: measured.disturbance,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testbed::Mechanism;

    #[test]
    fn what_cannot_be_measured_is_refused_first() {
        let options = Options {
            parts: Part::ALL.into(),
            rounds: 1,
            rounds_of: Vec::new(),
            window_s: 1,
            jobs: 1,
            requests: 1,
            seed: 1,
        };
        options.check().unwrap();
        for spoil in [
            |it: &mut Options| it.parts.clear(),
            |it: &mut Options| it.rounds = 0,
            |it: &mut Options| it.rounds_of.push((Part::Work, 0)),
            |it: &mut Options| it.window_s = 0,
            |it: &mut Options| it.requests = 0,
        ] {
            let mut options = options.clone();
            spoil(&mut options);
            assert!(options.check().is_err(), "{options:?}");
        }
    }

    #[test]
    fn a_part_is_measured_in_the_rounds_that_are_said_of_it() {
        let options = Options {
            parts: Part::ALL.into(),
            rounds: 30,
            rounds_of: vec![(Part::Work, 3), (Part::Quantum, 99), (Part::Work, 4)],
            window_s: 1,
            jobs: 1,
            requests: 1,
            seed: 1,
        };
        let rounds = Part::ALL.map(|part| options.rounds_of(part));
        assert_eq!(rounds, [30, 30, 30, 4, 30]);
    }

    #[test]
    fn every_mechanism_has_every_condition_and_a_mechanism_is_switched_to_once() {
        let cells = Cell::of(&Part::ALL);
        let quanta = Quantum::ALL.len() * Asked::ALL.len();
        assert_eq!(
            cells.len(),
            Mechanism::ALL.len() * Condition::ALL.len() + quanta + 1
        );
        let switches = cells
            .windows(2)
            .filter(|it| it[0].mechanism != it[1].mechanism);
        assert_eq!(switches.count(), Mechanism::ALL.len() - 1);
        for (number, cell) in cells.iter().enumerate() {
            assert_eq!(cells.iter().position(|it| it == cell), Some(number));
        }
    }

    #[test]
    fn the_parts_are_all_of_it_and_each_has_its_own_cells() {
        let all = Cell::of(&Part::ALL);
        let of_parts = Part::ALL.iter().map(|part| Cell::of(&[*part]));
        assert!(of_parts.clone().all(|cells| !cells.is_empty()));
        assert_eq!(of_parts.flatten().count(), all.len());
        let work = Cell::of(&[Part::Work]);
        assert!(
            work.iter()
                .all(|cell| matches!(cell.condition, Condition::Work(_)))
        );
    }
}
