//! Rounds: in each, every condition on every row's host, in turns.
//!
//! Each row has a booted host of its own, or shares one. They take turns: one runs, the others stand still
//! with their clocks stopped. So drift of the machine hits all rows alike. What is measured while this
//! machine stood still is measured again. A round in which a host died is dropped for all rows, and the
//! broken hosts are booted again.

use super::{CpuUse, Disturbance, Repetitions};
use steadyvm_lab::host::{boot_again, boot_side_by_side, keep_kernel_logs};
use steadyvm_lab::laboratory::Laboratory;
use steadyvm_lab::progress::{News, Observer, task};
use steadyvm_lab::{Blame, Error, Result};

pub(crate) use super::plan::station;
pub use super::plan::{Again, Manner, Measured, Outcome, Plan, RowData, Station, or_broken};

/// At most one measurement in this many is repeated because the machine paused.
const REPEATED: u64 = 2;
/// How many rounds may be dropped because a host died.
const REBOOTS: u32 = 4;

/// Measures everything.
///
/// # Errors
/// A host does not come up, or hosts die too often.
pub fn run<P: Plan>(
    laboratory: &Laboratory,
    plan: &P,
    observer: &dyn Observer,
) -> Result<Measured<P::Sample>> {
    let booted = first_rows(plan);
    let boots = || boot_all(laboratory, plan, &booted, observer);
    let mut stations = task(observer, "boot the hosts", boots)?;
    plan.begin(&mut stations, observer)?;
    let cpu_use = |stations: &[P::Station]| CpuUse::now(stations.iter().map(Station::emulator));
    let before = cpu_use(&stations)?;
    let manner = plan.manner();
    let conditions = plan.rounds() * plan.cells().len() as u64;
    let measurements = match manner.again {
        Again::EveryRow => conditions,
        Again::ThatRow => conditions * plan.rows().len() as u64,
    };
    let mut run = Run {
        laboratory,
        plan,
        observer,
        booted: &booted,
        stations,
        manner,
        repetitions: Repetitions::start(measurements / REPEATED, manner.standstill)?,
        reboots_left: REBOOTS,
        dropped_rounds: Vec::new(),
    };
    let mut samples: Vec<Vec<Vec<P::Sample>>> = plan.rows().iter().map(|_| Vec::new()).collect();
    let (mut round, mut boot) = (0, 0);
    while round < plan.rounds() {
        if manner.boot_of(round, plan.rounds()) != boot {
            boot = manner.boot_of(round, plan.rounds());
            // First: memory is for one host at a time.
            run.stations.clear();
            run.stations = task(observer, "boot the hosts anew", boots)?;
        }
        let title = format!("round {} of {}", round + 1, plan.rounds());
        match task(observer, title, || run.measure_round(round)) {
            Ok(measured) => {
                for (row, cells) in samples.iter_mut().zip(measured) {
                    row.push(cells);
                }
                round += 1;
                plan.show(&samples, observer);
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

/// The rows that hosts are booted for: of those that share one, the first.
fn first_rows<P: Plan>(plan: &P) -> Vec<P::Row> {
    let mut first = Vec::new();
    for (number, row) in plan.rows().iter().enumerate() {
        if plan.host_of(number) == first.len() {
            first.push(*row);
        }
    }
    first
}

/// Boots a host for each of `rows`.
fn boot_all<P: Plan>(
    laboratory: &Laboratory,
    plan: &P,
    rows: &[P::Row],
    observer: &dyn Observer,
) -> Result<Vec<P::Station>> {
    let tell = |rows: &[P::Row]| {
        let names: Vec<String> = rows.iter().map(ToString::to_string).collect();
        observer.tell(News::Note(format!("booting: {}", names.join(", "))));
    };
    let boot = |&row: &P::Row, cpu| boot_row(laboratory, plan, row, cpu, observer);
    if !plan.manner().boots_alone {
        return boot_side_by_side(rows, tell, boot);
    }
    let alone = |row: &P::Row| {
        tell(std::slice::from_ref(row));
        boot(row, 0)
    };
    rows.iter().map(alone).collect()
}

fn boot_row<P: Plan>(
    laboratory: &Laboratory,
    plan: &P,
    row: P::Row,
    on_cpu: usize,
    observer: &dyn Observer,
) -> Result<P::Station> {
    boot_again(observer, || {
        let booted = plan.boot(laboratory, row, on_cpu, observer);
        booted.map_err(|error| error.of(row))
    })
}

struct Run<'a, P: Plan> {
    laboratory: &'a Laboratory,
    plan: &'a P,
    observer: &'a dyn Observer,
    /// The rows that the stations are booted for.
    booted: &'a [P::Row],
    stations: Vec<P::Station>,
    manner: Manner,
    repetitions: Repetitions,
    reboots_left: u32,
    dropped_rounds: Vec<String>,
}

impl<P: Plan> Run<'_, P> {
    /// One round: each row's samples by cell, in the rows' order.
    fn measure_round(&mut self, round: u64) -> Result<Vec<Vec<P::Sample>>> {
        let cells = self.plan.cells().len();
        let nothing = || (0..cells).map(|_| None).collect();
        let mut rows: Vec<Vec<Option<P::Sample>>> =
            self.plan.rows().iter().map(|_| nothing()).collect();
        for (done, number) in self.plan.order(round).into_iter().enumerate() {
            for (row, sample) in rows.iter_mut().zip(self.measure_cell(round, number, done)?) {
                row[number] = Some(sample);
            }
        }
        let samples = rows.into_iter().map(|row| row.into_iter().flatten());
        Ok(samples.map(Iterator::collect).collect())
    }

    /// One cell of every row; again, if this machine stood still meanwhile. `done` cells were before.
    fn measure_cell(&mut self, round: u64, number: usize, done: usize) -> Result<Vec<P::Sample>> {
        let cell = self.plan.cells()[number];
        loop {
            self.repetitions.begin();
            let measured = self.take_turns(round, cell, done)?;
            let every_row = self.manner.again == Again::EveryRow;
            let what = cell.to_string();
            if !every_row || !self.repetitions.are_needed(&what, self.observer) {
                self.plan.learn(cell, &measured);
                return Ok(measured);
            }
        }
    }

    fn take_turns(&mut self, round: u64, cell: P::Cell, done: usize) -> Result<Vec<P::Sample>> {
        let (rows, cells) = (self.plan.rows(), self.plan.cells());
        let mut measured: Vec<Option<P::Sample>> = rows.iter().map(|_| None).collect();
        for (turn, index) in turns(rows.len(), round).enumerate() {
            let what = format!("{}: {cell}", rows[index]);
            self.observer.tell(News::Advance {
                done: (done * rows.len() + turn) as u64,
                of: (cells.len() * rows.len()) as u64,
                detail: what.clone(),
            });
            measured[index] = Some(self.take_turn(round, cell, index, &what)?);
        }
        Ok(measured.into_iter().flatten().collect())
    }

    /// One cell of one row; again by itself, if that is the experiment's manner.
    fn take_turn(
        &mut self,
        round: u64,
        cell: P::Cell,
        index: usize,
        what: &str,
    ) -> Result<P::Sample> {
        let station = &mut self.stations[self.plan.host_of(index)];
        loop {
            if self.manner.again == Again::ThatRow {
                self.repetitions.begin();
            }
            self.plan.turn_to(station, self.plan.rows()[index]);
            let measured = self.plan.measure(station, cell, round)?;
            let that_row = self.manner.again == Again::ThatRow;
            if !that_row || !self.repetitions.are_needed(what, self.observer) {
                return Ok(measured);
            }
        }
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
        for (station, &row) in self.stations.iter_mut().zip(self.booted) {
            if station.is_broken() {
                *station = boot_row(self.laboratory, self.plan, row, 0, self.observer)?;
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
