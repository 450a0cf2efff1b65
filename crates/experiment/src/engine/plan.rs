//! What an experiment tells the engine: rows, conditions, how a host is booted and a condition measured.

use super::{Disturbance, Limit, STANDSTILL};
use std::fmt::Display;
use steadyvm_lab::Result;
use steadyvm_lab::agent::Connection;
use steadyvm_lab::host::EmulatedHost;
use steadyvm_lab::laboratory::Laboratory;
use steadyvm_lab::progress::Observer;

/// A row's host with what is measured on it. Its clock is stopped but for a measurement.
pub trait Station: Send {
    /// The host.
    fn host(&mut self) -> &mut EmulatedHost;
    /// The process id of its emulator.
    fn emulator(&self) -> u32;
    /// Whether it has to be booted again.
    fn is_broken(&self) -> bool;
}

/// A type with the fields `host` and `broken` is a station.
macro_rules! station {
    ($place:ty) => {
        impl $crate::engine::plan::Station for $place {
            fn host(&mut self) -> &mut steadyvm_lab::host::EmulatedHost {
                &mut self.host
            }

            fn emulator(&self) -> u32 {
                self.host.emulator()
            }

            fn is_broken(&self) -> bool {
                self.broken
            }
        }
    };
}
pub(crate) use station;

/// Notes whether a station is broken from now on, by what came of a measurement of `what`; an error gets the
/// state of the station's machines.
///
/// # Errors
/// That of the measurement.
pub fn or_broken<'c, T>(
    measured: Result<T>,
    (host, broken): (&'c EmulatedHost, &mut bool),
    what: impl Display,
    machines: impl IntoIterator<Item = (&'c str, &'c Connection)>,
) -> Result<T> {
    *broken = measured.is_err();
    measured.map_err(|error| host.with_state(error, machines).of(what))
}

/// In what an experiment differs from most others.
#[derive(Debug, Clone, Copy)]
pub struct Manner {
    /// When this machine counts as standing still.
    pub standstill: Limit,
    /// What is measured again then.
    pub again: Again,
    /// Whether hosts are booted one after the other: what they do meanwhile is timed.
    pub boots_alone: bool,
    /// How often every host is booted; the rounds are shared out among the boots.
    pub boots: u64,
}

/// What is measured again after a standstill.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Again {
    /// The condition, of every row.
    EveryRow,
    /// The condition, of the row that met it.
    ThatRow,
}

impl Default for Manner {
    fn default() -> Self {
        Self {
            standstill: STANDSTILL,
            again: Again::EveryRow,
            boots_alone: false,
            boots: 1,
        }
    }
}

impl Manner {
    /// The boot that a round (0 is the first) of so many is measured in.
    pub(super) fn boot_of(&self, round: u64, rounds: u64) -> u64 {
        round * self.boots / rounds
    }
}

/// What an experiment is.
pub trait Plan: Sync {
    /// What is compared, such as a method.
    type Row: Copy + Display + Sync;
    /// A condition that each row is measured under.
    type Cell: Copy + Display;
    /// A row's host.
    type Station: Station;
    /// What one measurement gives.
    type Sample;

    /// The rows, in the order shown.
    fn rows(&self) -> &[Self::Row];
    /// The conditions, in the order of measuring. They may be known only when all is ready.
    fn cells(&self) -> &[Self::Cell];
    /// How many rounds.
    fn rounds(&self) -> u64;

    /// Boots a row's host, its processors on one CPU meanwhile, and stops its clock.
    ///
    /// # Errors
    /// The host does not come up.
    fn boot(
        &self,
        laboratory: &Laboratory,
        row: Self::Row,
        on_cpu: usize,
        observer: &dyn Observer,
    ) -> Result<Self::Station>;

    /// Measures one condition in one round.
    ///
    /// # Errors
    /// A machine of the station died: it is broken from then on.
    fn measure(
        &self,
        station: &mut Self::Station,
        cell: Self::Cell,
        round: u64,
    ) -> Result<Self::Sample>;

    /// In what this experiment differs from most others.
    fn manner(&self) -> Manner {
        Manner::default()
    }

    /// The host that a row is measured on, by number. Rows may share one, which is booted for the first of them;
    /// numbers ascend in the rows' order.
    fn host_of(&self, row: usize) -> usize {
        row
    }

    /// Readies a host that rows share for one of them.
    fn turn_to(&self, _: &mut Self::Station, _: Self::Row) {}

    /// What is done with the hosts before the first round, uncounted.
    ///
    /// # Errors
    /// A machine died.
    fn begin(&self, _: &mut [Self::Station], _: &dyn Observer) -> Result<()> {
        Ok(())
    }

    /// The order of the conditions in a round, by their numbers.
    fn order(&self, _round: u64) -> Vec<usize> {
        (0..self.cells().len()).collect()
    }

    /// Takes from every row's samples of a condition what later conditions need.
    fn learn(&self, _: Self::Cell, _: &[Self::Sample]) {}

    /// Tells the observer of the figures so far, after each round: the samples are by row, round and cell.
    fn show(&self, _: &[Vec<Vec<Self::Sample>>], _: &dyn Observer) {}
}

/// What was measured, and what a reader of the figures must see with it.
#[derive(Debug)]
pub struct Measured<S> {
    /// Samples by row, round and cell.
    pub samples: Vec<Vec<Vec<S>>>,
    /// The rounds that were dropped because a machine died, a sentence each.
    pub dropped_rounds: Vec<String>,
    /// What else the machine did during the rounds.
    pub disturbance: Disturbance,
}

/// What was measured of one row.
#[derive(Debug, Clone, PartialEq)]
pub struct RowData<S> {
    /// Its name.
    pub name: String,
    /// Samples by round, in the order of measuring, and condition. Rounds of different rows with the same index were
    /// measured next to each other.
    pub rounds: Vec<Vec<S>>,
}

impl<S> RowData<S> {
    /// The samples of one condition, by its number, of every round.
    pub fn of_cell(&self, cell: usize) -> Vec<&S> {
        let rounds = self.rounds.iter();
        rounds.filter_map(|cells| cells.get(cell)).collect()
    }
}

impl<S> Measured<S> {
    /// By row, with the rows' names.
    pub fn by_row<R: Display>(self, rows: &[R]) -> Outcome<Vec<RowData<S>>> {
        let rows = rows.iter().map(ToString::to_string);
        self.map(|samples| {
            let rows = rows.zip(samples);
            rows.map(|(name, rounds)| RowData { name, rounds })
                .collect()
        })
    }

    /// As an experiment's own data, which it makes of the samples.
    pub fn map<D>(self, data: impl FnOnce(Vec<Vec<Vec<S>>>) -> D) -> Outcome<D> {
        Outcome {
            data: data(self.samples),
            dropped_rounds: self.dropped_rounds,
            disturbance: self.disturbance,
        }
    }
}

/// What was measured as an experiment's own data, and what a reader of the figures must see with it.
#[derive(Debug, Clone)]
pub struct Outcome<D> {
    /// The data.
    pub data: D,
    /// The rounds that were dropped because a machine died, a sentence each.
    pub dropped_rounds: Vec<String>,
    /// What else the machine did during the rounds.
    pub disturbance: Disturbance,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn boots_share_the_rounds_out() {
        for (rounds, boots) in [(8, 2), (7, 3), (3, 3), (5, 1)] {
            let manner = Manner {
                boots,
                ..Manner::default()
            };
            let mut measured = vec![0; boots as usize];
            for round in 0..rounds {
                let boot = manner.boot_of(round, rounds);
                measured[boot as usize] += 1;
                assert!(round == 0 || boot - manner.boot_of(round - 1, rounds) <= 1);
            }
            let (least, most) = (measured.iter().min(), measured.iter().max());
            assert!(most.unwrap() - least.unwrap() <= 1, "{measured:?}");
        }
    }
}
