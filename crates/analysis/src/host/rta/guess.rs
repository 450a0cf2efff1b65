//! Slacks a little below those found so far, which may be a solution ([`super`]).

use super::{responses::Responses, word::Word};
use crate::{
    time::{Amount, Time},
    work::{Exhausted, Work},
};

/// A guess leaves out this part of a VCPU's window.
const MARGIN: Time = 512;

/// Slacks that may be a solution. They only fall.
pub(super) struct Guess<W> {
    slacks: Vec<W>,
    /// Those of the least responses to slacks guessed before, where searches start.
    greatest: Vec<W>,
    /// How much slack was taken away in all, since the beginning.
    taken: Amount,
    /// How much may be taken away until the guess is given up.
    most: Amount,
    /// Of each VCPU: it is met until so much was taken away.
    met_until: Vec<Amount>,
}

impl<W: Word> Guess<W> {
    /// A little below `greatest`; given up once more than `most` has been taken away from it in all.
    pub fn new(responses: &Responses<W>, greatest: &[W], most: Amount) -> Self {
        let slacks = greatest.iter().enumerate();
        Self {
            slacks: slacks
                .map(|(index, &slack)| less(slack, responses.window(index)))
                .collect(),
            greatest: greatest.to_vec(),
            taken: 0,
            most,
            met_until: vec![0; greatest.len()],
        }
    }

    /// Whether the guess is a solution, or becomes one when slacks that are too large are taken back.
    pub fn holds(
        mut self,
        responses: &mut Responses<W>,
        order: &[usize],
        work: &mut Work,
    ) -> Result<bool, Exhausted> {
        let mut met = 0;
        for &index in order.iter().cycle() {
            if self.met_until[index] <= self.taken && !self.is_met(index, responses, work)? {
                let window = responses.window(index);
                let start = window - self.greatest[index];
                let Some(response) =
                    responses.raised(index, start, &self.slacks, usize::MAX, work)?
                else {
                    return Ok(false);
                };
                self.greatest[index] = window - response;
                if self.greatest[index] < self.slacks[index] {
                    let slack = less(self.greatest[index], window);
                    self.taken += (self.slacks[index] - slack).wide().into();
                    self.slacks[index] = slack;
                    met = 0;
                    if self.taken > self.most {
                        return Ok(false);
                    }
                }
                self.met_until[index] = self.taken + 1;
            }
            met += 1;
            if met == order.len() {
                break;
            }
        }
        Ok(true)
    }

    /// Whether the response guessed shows at once to be met; not tried at first.
    fn is_met(
        &mut self,
        index: usize,
        responses: &mut Responses<W>,
        work: &mut Work,
    ) -> Result<bool, Exhausted> {
        if self.met_until[index] == 0 {
            return Ok(false);
        }
        let response = responses.window(index) - self.slacks[index];
        let excess: Amount = (responses.excess(index, response, &self.slacks, work)?).into();
        self.met_until[index] = self.taken - excess;
        Ok(excess < 0)
    }
}

/// `slack` without the margin of a VCPU with this window.
fn less<W: Word>(slack: W, window: W) -> W {
    let window: Time = window.into();
    let slack: Time = slack.into();
    W::of((slack - window / MARGIN - 1).max(0))
}
