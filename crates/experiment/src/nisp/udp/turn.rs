//! The turns of a round: every rate with every method, and the receiver without jobs.

use super::{NO_JOBS, Options, Peak, standstill};
use crate::engine::rounds::{Again, Manner, Plan};
use crate::nisp::Place;
use crate::nisp::udp::RateData;
use std::fmt;
use std::sync::OnceLock;
use steadyvm_host::Method;
use steadyvm_lab::laboratory::Laboratory;
use steadyvm_lab::progress::{Observer, task};
use steadyvm_lab::{Error, Result};

/// The experiment under way.
pub(super) struct Experiment<'a> {
    options: &'a Options,
    found: OnceLock<Found>,
}

/// What is looked for before the first round, and what follows from it.
#[derive(Debug)]
pub(super) struct Found {
    /// Of each method.
    pub peaks: Vec<Peak>,
    /// The best of them: a method that collapses under a flood would hide what happens before.
    pub best: Peak,
    /// In ascending order; the first is 0.
    pub asked_packets_per_s: Vec<f64>,
    turns: Vec<Turn>,
}

/// What each method does next.
#[derive(Debug, Clone, Copy)]
pub(super) struct Turn {
    /// Of the round's turns, counted from 0.
    number: usize,
    packets_per_s: f64,
    jobs: Jobs,
}

#[derive(Debug, Clone, Copy)]
enum Jobs {
    OfTheExperiment,
    /// As the peaks are looked for.
    OfNoLength,
}

impl fmt::Display for Turn {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let jobs = match self.jobs {
            Jobs::OfTheExperiment => "",
            Jobs::OfNoLength => " without jobs",
        };
        write!(formatter, "{:.0} packets/s{jobs}", self.packets_per_s)
    }
}

impl<'a> Experiment<'a> {
    /// One whose peaks are not known yet.
    pub fn of(options: &'a Options) -> Self {
        Self {
            options,
            found: OnceLock::new(),
        }
    }

    /// What was found before the first round.
    ///
    /// # Errors
    /// There was no such time.
    pub fn into_found(self) -> Result<Found> {
        let none = || Error::machine("find the peaks", "nothing was measured");
        self.found.into_inner().ok_or_else(none)
    }
}

impl Found {
    /// All turns of a round, by the methods' peaks and how many rates there are.
    fn of(peaks: Vec<Peak>, rates: u32) -> Self {
        let best = peaks.iter().copied().fold(Peak::default(), Peak::better);
        let share = |step| f64::from(step) / f64::from(rates);
        let asked_packets_per_s: Vec<f64> = (0..=rates)
            .map(|step| best.received_per_s * share(step))
            .collect();
        let asked = asked_packets_per_s.iter().enumerate();
        let mut turns: Vec<Turn> = asked
            .map(|(number, &packets_per_s)| Turn {
                number,
                packets_per_s,
                jobs: Jobs::OfTheExperiment,
            })
            .collect();
        turns.push(Turn {
            number: turns.len(),
            packets_per_s: best.asked_per_s,
            jobs: Jobs::OfNoLength,
        });
        Self {
            peaks,
            best,
            asked_packets_per_s,
            turns,
        }
    }
}

impl Plan for Experiment<'_> {
    type Row = Method;
    type Cell = Turn;
    type Station = Place;
    type Sample = RateData;

    fn rows(&self) -> &[Method] {
        &self.options.methods
    }

    fn cells(&self) -> &[Turn] {
        self.found.get().map_or(&[], |found| &found.turns)
    }

    fn rounds(&self) -> u64 {
        self.options.rounds
    }

    fn boot(
        &self,
        laboratory: &Laboratory,
        method: Method,
        _: usize,
        _: &dyn Observer,
    ) -> Result<Place> {
        Place::boot(laboratory, method, self.options.times, &[])
    }

    fn measure(&self, place: &mut Place, turn: Turn, round: u64) -> Result<RateData> {
        let jobs = match turn.jobs {
            Jobs::OfTheExperiment => place.jobs(self.options.jobs_in(round)),
            Jobs::OfNoLength => NO_JOBS,
        };
        let seed = self.options.seed_of(round, turn.number);
        place.running(|place| place.measure(turn.packets_per_s, &jobs, seed))
    }

    fn manner(&self) -> Manner {
        Manner {
            standstill: standstill(&self.options.times),
            again: Again::ThatRow,
            boots_alone: true,
            ..Manner::default()
        }
    }

    fn begin(&self, places: &mut [Place], observer: &dyn Observer) -> Result<()> {
        let last = self.options.last_packets_per_s.into();
        let peak = |place: &mut Place| place.running(|place| place.peak(last));
        let find = || places.iter_mut().map(peak).collect::<Result<Vec<_>>>();
        let found = Found::of(task(observer, "find the peaks", find)?, self.options.rates);
        if found.best.received_per_s <= 0.0 {
            let why = "no host has received any packet";
            return Err(Error::machine("find the peaks", why));
        }
        // The engine begins once.
        let _ = self.found.set(found);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_round_has_every_rate_up_to_the_best_peak_and_then_none_of_the_jobs() {
        let peak = |asked_per_s, received_per_s| Peak {
            asked_per_s,
            received_per_s,
        };
        let found = Found::of(vec![peak(4000.0, 3000.0), peak(8000.0, 6000.0)], 2);
        assert_eq!(found.asked_packets_per_s, [0.0, 3000.0, 6000.0]);
        let turns: Vec<String> = found.turns.iter().map(ToString::to_string).collect();
        let expected = [
            "0 packets/s",
            "3000 packets/s",
            "6000 packets/s",
            "8000 packets/s without jobs",
        ];
        assert_eq!(turns, expected);
        let numbers: Vec<usize> = found.turns.iter().map(|it| it.number).collect();
        assert_eq!(numbers, [0, 1, 2, 3]);
    }
}
