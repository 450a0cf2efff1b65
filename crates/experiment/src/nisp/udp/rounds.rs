//! The rounds: in each, every rate with every method in turn, and the receiver without jobs.

use super::{NO_JOBS, Options};
use crate::engine::Repetitions;
use crate::nisp::Place;
use crate::nisp::udp::{RateData, RoundData};
use steadyvm_host::Method;
use steadyvm_lab::Result;
use steadyvm_lab::progress::{News, Observer};

/// The rounds under way.
pub(super) struct Run<'a> {
    pub options: &'a Options,
    pub observer: &'a dyn Observer,
    pub places: Vec<Place>,
    /// In ascending order; the first is 0.
    pub asked_packets_per_s: Vec<f64>,
    /// That of the best peak.
    pub alone_asked_packets_per_s: f64,
    pub repetitions: Repetitions,
}

impl Run<'_> {
    /// One round: each method's, in their order.
    pub fn measure_round(&mut self, round: u64) -> Result<Vec<RoundData>> {
        let mut measured = vec![RoundData::default(); self.places.len()];
        for rate in 0..self.asked_packets_per_s.len() {
            let turn = Turn {
                packets_per_s: self.asked_packets_per_s[rate],
                jobs: Jobs::OfTheExperiment,
                number: rate,
                round,
            };
            for (round, of_rate) in measured.iter_mut().zip(self.measure_rate(&turn)?) {
                round.rates.push(of_rate);
            }
        }
        let turn = Turn {
            packets_per_s: self.alone_asked_packets_per_s,
            jobs: Jobs::OfNoLength,
            number: self.asked_packets_per_s.len(),
            round,
        };
        for (round, alone) in measured.iter_mut().zip(self.measure_rate(&turn)?) {
            round.alone_packets_per_s = alone.received_packets_per_s;
        }
        Ok(measured)
    }

    /// One rate with each method in turn, beginning with another one each round; what was measured is in
    /// their order.
    fn measure_rate(&mut self, turn: &Turn) -> Result<Vec<RateData>> {
        let count = self.places.len();
        let first = turn.round as usize % count;
        let mut measured = Vec::with_capacity(count);
        for number in 0..count {
            let place = (first + number) % count;
            let what = turn.describe(self.places[place].method);
            self.observer.tell(News::Advance {
                done: (turn.number * count + number) as u64,
                of: ((self.asked_packets_per_s.len() + 1) * count) as u64,
                detail: what.clone(),
            });
            measured.push(self.take_turn(turn, place, &what)?);
        }
        measured.rotate_right(first);
        Ok(measured)
    }

    /// One rate with one method; again, if this machine stood still meanwhile.
    fn take_turn(&mut self, turn: &Turn, place: usize, what: &str) -> Result<RateData> {
        let place = &mut self.places[place];
        let jobs = match turn.jobs {
            Jobs::OfTheExperiment => place.jobs(self.options.jobs_in(turn.round)),
            Jobs::OfNoLength => NO_JOBS,
        };
        let seed = self.options.seed_of(turn.round, turn.number);
        loop {
            self.repetitions.begin();
            let measured = place.measure(turn.packets_per_s, &jobs, seed)?;
            if !self.repetitions.are_needed(what, self.observer) {
                return Ok(measured);
            }
        }
    }
}

/// What each method does next.
struct Turn {
    round: u64,
    /// Of the round's turns, counted from 0.
    number: usize,
    packets_per_s: f64,
    jobs: Jobs,
}

#[derive(Clone, Copy)]
enum Jobs {
    OfTheExperiment,
    /// As the peaks are looked for.
    OfNoLength,
}

impl Turn {
    fn describe(&self, method: Method) -> String {
        let jobs = match self.jobs {
            Jobs::OfTheExperiment => "",
            Jobs::OfNoLength => " without jobs",
        };
        format!("{method}: {:.0} packets/s{jobs}", self.packets_per_s)
    }
}
