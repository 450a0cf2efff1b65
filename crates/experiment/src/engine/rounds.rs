//! Rounds: in each, every condition on every row's host, in turns.
//!
//! Each row has a booted host of its own. They take turns: one runs, the others stand still with their
//! clocks stopped. So drift of the machine hits all rows alike. What is measured while this machine
//! stood still is measured again. A round in which a host died is dropped for all rows, and the
//! broken hosts are booted again.

use super::{CpuUse, Disturbance, Repetitions, STANDSTILL};
use std::fmt::Display;
use steadyvm_lab::host::{EmulatedHost, boot_again, boot_side_by_side, keep_kernel_logs};
use steadyvm_lab::laboratory::Laboratory;
use steadyvm_lab::progress::{News, Observer, task};
use steadyvm_lab::{Blame, Error, Result};

/// At most one measurement in this many is repeated because the machine paused.
const REPEATED: u64 = 2;
/// How many rounds may be dropped because a host died.
const REBOOTS: u32 = 4;

/// A row's host with what is measured on it. Its clock is stopped but for a measurement.
pub trait Station: Send {
    /// The host.
    fn host(&mut self) -> &mut EmulatedHost;
    /// The process id of its emulator.
    fn emulator(&self) -> u32;
    /// Whether it has to be booted again.
    fn is_broken(&self) -> bool;
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
    /// The conditions, in the order of measuring.
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

/// Measures everything.
///
/// # Errors
/// A host does not come up, or hosts die too often.
pub fn run<P: Plan>(
    laboratory: &Laboratory,
    plan: &P,
    observer: &dyn Observer,
) -> Result<Measured<P::Sample>> {
    let stations = task(observer, "boot the hosts", || {
        let tell = |rows: &[P::Row]| {
            let names: Vec<String> = rows.iter().map(ToString::to_string).collect();
            observer.tell(News::Note(format!("booting: {}", names.join(", "))));
        };
        boot_side_by_side(plan.rows(), tell, |&row, cpu| {
            boot_again(observer, || plan.boot(laboratory, row, cpu, observer))
        })
    })?;
    let cpu_use = |stations: &[P::Station]| CpuUse::now(stations.iter().map(Station::emulator));
    let before = cpu_use(&stations)?;
    let measurements = plan.rounds() * plan.cells().len() as u64;
    let mut run = Run {
        laboratory,
        plan,
        observer,
        stations,
        repetitions: Repetitions::start(measurements / REPEATED, STANDSTILL)?,
        reboots_left: REBOOTS,
        dropped_rounds: Vec::new(),
    };
    let mut samples: Vec<Vec<Vec<P::Sample>>> = plan.rows().iter().map(|_| Vec::new()).collect();
    let mut round = 0;
    while round < plan.rounds() {
        let title = format!("round {} of {}", round + 1, plan.rounds());
        match task(observer, title, || run.measure_round(round)) {
            Ok(measured) => {
                for (row, cells) in samples.iter_mut().zip(measured) {
                    row.push(cells);
                }
                round += 1;
            }
            Err(error) => run.recover(round, error)?,
        }
    }
    let disturbance = Disturbance {
        standstills: run.repetitions.standstills(),
        ..cpu_use(&run.stations)?.since(&before)
    };
    keep_kernel_logs(run.stations.iter_mut().map(Station::host), observer);
    Ok(Measured {
        samples,
        dropped_rounds: run.dropped_rounds,
        disturbance,
    })
}

/// The order in which stations take their turns in a round: each is the first one in turn.
pub fn turns(stations: usize, round: u64) -> impl Iterator<Item = usize> {
    (0..stations).map(move |turn| (turn + round as usize) % stations)
}

/// The share of all samples that a round (0 is the first) has: shares differ by one at most.
pub fn share(samples: u64, rounds: u64, round: u64) -> u64 {
    samples / rounds + u64::from(round < samples % rounds)
}

struct Run<'a, P: Plan> {
    laboratory: &'a Laboratory,
    plan: &'a P,
    observer: &'a dyn Observer,
    stations: Vec<P::Station>,
    repetitions: Repetitions,
    reboots_left: u32,
    dropped_rounds: Vec<String>,
}

impl<P: Plan> Run<'_, P> {
    /// One round: each row's samples by cell, in the rows' order.
    fn measure_round(&mut self, round: u64) -> Result<Vec<Vec<P::Sample>>> {
        let mut rows: Vec<Vec<P::Sample>> = self.stations.iter().map(|_| Vec::new()).collect();
        for number in 0..self.plan.cells().len() {
            for (row, sample) in rows.iter_mut().zip(self.measure_cell(round, number)?) {
                row.push(sample);
            }
        }
        Ok(rows)
    }

    /// One cell on every station; again, if this machine stood still meanwhile.
    fn measure_cell(&mut self, round: u64, number: usize) -> Result<Vec<P::Sample>> {
        loop {
            self.repetitions.begin();
            let measured = self.take_turns(round, number)?;
            let what = self.plan.cells()[number].to_string();
            if !self.repetitions.are_needed(&what, self.observer) {
                return Ok(measured);
            }
        }
    }

    fn take_turns(&mut self, round: u64, number: usize) -> Result<Vec<P::Sample>> {
        let (rows, cells) = (self.plan.rows(), self.plan.cells());
        let mut measured: Vec<Option<P::Sample>> = rows.iter().map(|_| None).collect();
        for (turn, index) in turns(rows.len(), round).enumerate() {
            self.observer.tell(News::Advance {
                done: (number * rows.len() + turn) as u64,
                of: (cells.len() * rows.len()) as u64,
                detail: format!("{}: {}", rows[index], cells[number]),
            });
            let station = &mut self.stations[index];
            measured[index] = Some(self.plan.measure(station, cells[number], round)?);
        }
        Ok(measured.into_iter().flatten().collect())
    }

    /// After a machine died in a round: drops the whole round, so that no row keeps its better half, and
    /// boots what is broken.
    fn recover(&mut self, round: u64, error: Error) -> Result<()> {
        if self.reboots_left == 0 || error.blame != Blame::Machine {
            return Err(error);
        }
        self.reboots_left -= 1;
        self.dropped_rounds.push(format!(
            "round {} was dropped for all and measured again: {error}",
            round + 1
        ));
        let note = format!("{error}\n  booting that host again");
        self.observer.tell(News::Note(note));
        for (station, &row) in self.stations.iter_mut().zip(self.plan.rows()) {
            if station.is_broken() {
                *station = boot_again(self.observer, || {
                    self.plan.boot(self.laboratory, row, 0, self.observer)
                })?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_has_every_turn_equally_often_and_its_share_of_the_samples() {
        for rows in 1..5 {
            for turn in 0..rows {
                let at_turn = |round| turns(rows, round).nth(turn).unwrap();
                let mut seen: Vec<usize> = (0..rows as u64).map(at_turn).collect();
                seen.sort_unstable();
                assert_eq!(seen, (0..rows).collect::<Vec<_>>());
            }
        }
        for (samples, rounds) in [(2000, 3), (10, 10), (11, 3), (1, 1)] {
            let shares = (0..rounds).map(|round| share(samples, rounds, round));
            assert_eq!(shares.sum::<u64>(), samples);
        }
    }
}
