//! The plan that experiments of settings share: the chosen rows, each with a host of its own, under every condition.

use crate::engine::rounds::{self, Measured, Plan, Station, share};
use crate::experiment::{Options, Setting};
use crate::testbed::phase::Load;
use std::fmt::Display;
use steadyvm_lab::Result;
use steadyvm_lab::laboratory::Laboratory;
use steadyvm_lab::progress::Observer;

/// What one measurement has of the options.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Turn {
    /// Of the schedule of requests.
    pub seed: u64,
    /// The round's share of the samples.
    pub samples: u64,
}

impl Turn {
    /// Requests of `NetRT`, beside one stream at most.
    pub fn load(self) -> Load {
        Load {
            seed: self.seed,
            samples: self.samples,
            receive_path: false,
            streams: 1,
        }
    }
}

/// Boots a row's host, its processors on one CPU meanwhile, and stops its clock.
pub(crate) type Boot<R, T> = fn(&Laboratory, R, usize, &dyn Observer) -> Result<T>;
/// Measures one condition.
pub(crate) type Measure<C, T, S> = fn(&mut T, C, Turn) -> Result<S>;

/// Rows `R`, conditions `C`, hosts `T`, samples `S`.
pub(crate) struct BySetting<'a, R, C: 'static, T, S> {
    rows: Vec<R>,
    cells: &'static [C],
    options: &'a Options,
    boot: Boot<R, T>,
    measure: Measure<C, T, S>,
}

impl<'a, R, C, T, S> BySetting<'a, R, C, T, S>
where
    R: Copy + Display + Sync,
    C: Copy + Display + Sync,
    T: Station,
{
    /// The rows of the settings that were chosen, in their order.
    pub fn new(
        options: &'a Options,
        row: impl FnMut(&Setting) -> Option<R>,
        cells: &'static [C],
        boot: Boot<R, T>,
        measure: Measure<C, T, S>,
    ) -> Self {
        Self {
            rows: options.settings.iter().filter_map(row).collect(),
            cells,
            options,
            boot,
            measure,
        }
    }

    /// Measures everything.
    ///
    /// # Errors
    /// As of [`rounds::run`].
    pub fn run(self, laboratory: &Laboratory, observer: &dyn Observer) -> Result<Taken<R, C, S>> {
        let measured = rounds::run(laboratory, &self, observer)?;
        Ok(Taken {
            rows: self.rows,
            cells: self.cells,
            measured,
        })
    }
}

impl<R, C, T, S> Plan for BySetting<'_, R, C, T, S>
where
    R: Copy + Display + Sync,
    C: Copy + Display + Sync,
    T: Station,
{
    type Row = R;
    type Cell = C;
    type Station = T;
    type Sample = S;

    fn rows(&self) -> &[R] {
        &self.rows
    }

    fn cells(&self) -> &[C] {
        self.cells
    }

    fn rounds(&self) -> u64 {
        self.options.rounds
    }

    fn boot(
        &self,
        laboratory: &Laboratory,
        row: R,
        on_cpu: usize,
        observer: &dyn Observer,
    ) -> Result<T> {
        (self.boot)(laboratory, row, on_cpu, observer)
    }

    fn measure(&self, station: &mut T, cell: C, round: u64) -> Result<S> {
        let turn = Turn {
            seed: self.options.seed.wrapping_add(round),
            samples: share(self.options.samples, self.options.rounds, round),
        };
        (self.measure)(station, cell, turn)
    }
}

/// What was measured, by row and condition.
pub(crate) struct Taken<R, C: 'static, S> {
    /// The rows.
    pub rows: Vec<R>,
    /// The conditions.
    pub cells: &'static [C],
    /// The samples, and what a reader of the figures must see with them.
    pub measured: Measured<S>,
}

impl<R: Copy, C: Copy, S> Taken<R, C, S> {
    /// The samples of a row under a condition, by their numbers, in the order of the rounds.
    pub fn of(&self, row: usize, cell: usize) -> Vec<&S> {
        let rounds = self.measured.samples.get(row).into_iter().flatten();
        rounds.filter_map(|cells| cells.get(cell)).collect()
    }

    /// Every condition, and under it every row, with its samples.
    pub fn each(&self) -> impl Iterator<Item = (R, C, Vec<&S>)> {
        let cells = self.cells.iter().enumerate();
        cells.flat_map(move |(cell, &condition)| {
            let rows = self.rows.iter().enumerate();
            rows.map(move |(number, &row)| (row, condition, self.of(number, cell)))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::{Disturbance, Standstills};

    #[test]
    fn each_row_has_its_samples_of_all_rounds_under_every_condition_in_turn() {
        // Samples by row, round and condition.
        let sample = |row: u32, round: u32, cell: u32| 100 * row + 10 * round + cell;
        let cells = |row, round| (0..2).map(|cell| sample(row, round, cell)).collect();
        let rounds = |row| (0..3).map(|round| cells(row, round)).collect();
        let samples: Vec<Vec<Vec<u32>>> = (0..2).map(rounds).collect();
        let taken = Taken {
            rows: vec!["stock", "ours"],
            cells: &["alone", "beside"],
            measured: Measured {
                samples,
                dropped_rounds: Vec::new(),
                disturbance: Disturbance {
                    others: 0.0,
                    stolen: 0.0,
                    standstills: Standstills::default(),
                },
            },
        };
        let each: Vec<(&str, &str, Vec<u32>)> = taken
            .each()
            .map(|(row, cell, samples)| (row, cell, samples.into_iter().copied().collect()))
            .collect();
        let expected = [
            ("stock", "alone", vec![0, 10, 20]),
            ("ours", "alone", vec![100, 110, 120]),
            ("stock", "beside", vec![1, 11, 21]),
            ("ours", "beside", vec![101, 111, 121]),
        ];
        assert_eq!(each, expected);
        assert_eq!(taken.of(2, 0), Vec::<&u32>::new());
    }
}
