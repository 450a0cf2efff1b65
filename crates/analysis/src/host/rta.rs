//! Response-time analysis of global scheduling (Bertogna and Cirinei).
//!
//! Model: sporadic tasks (no deferrable servers: slack would not be kept) under global EDF or global
//! fixed priorities on m processors.
//!
//! Formula: R_k is the least R with R = F_k(R) = C_k + floor(sum min(W_i(R), I_i, R - C_k + 1) / m), where
//! W_i(R) = work of task i in a window of length R when its carried-in job ends S_i before its deadline,
//! and under EDF I_i = the work due within D_k - J_k, its carried-in job also ending S_i early. Slacks
//! S_i = D_i - J_i - R_i start at 0 and grow until none does; schedulable if then every R_k <= D_k - J_k.
//! Fixed priorities: only higher priorities interfere.
//!
//! The end does not depend on the order in which slacks grow, as F_k falls with every slack. So a round
//! takes the cheapest steps that grow one: where F_k(R) <= R, the response is at most F_k(R). At
//! R = D_k - J_k that costs no W_i: I_i is the work of one way to run, W_i that of the worst. Long windows
//! first: their responses need others' slack least. In every other round only the heavy VCPUs: most of the
//! slack that late ones lack is theirs. Only when no such step is left the least R is looked for
//! ([`responses`]).
//!
//! What refuses early, and changes no answer: no slack exceeds that of a response with slacks that none
//! exceeds (D - J - C, at first). A VCPU that has no such response is beyond help. These responses are
//! computed when some VCPU is late and gains too slowly, at first those of heavy VCPUs; they are where later
//! searches start.
//!
//! Complexity: O(n) a step, at most one a corner of the sum (pseudo-polynomial), few in practice; a round
//! is O(n) steps, and as many rounds as slacks grow, within the allowance of work. Sufficient. Source:
//! Bertogna and Cirinei, RTSS 2007.

mod loops;
mod responses;
#[cfg(test)]
mod tests;
mod word;

use std::cmp::Reverse;

use responses::Responses;
use word::Word;

use super::{Candidate, Dispatch};
use crate::{
    task::Task,
    time::Amount,
    work::{Exhausted, Work},
};

/// A late VCPU that would take more rounds than this at its present pace gains too slowly.
const PATIENCE: Amount = 4;

/// A VCPU with at least this part of the greatest budget is heavy.
const HEAVY: Amount = 16;

/// The first round after which the greatest slacks of all VCPUs are looked at, not of heavy ones only.
const THOROUGH: usize = 8;

/// True if the analysis shows `vcpus` (in priority order under fixed priorities) schedulable. `suspect`:
/// the position of one that fails the interference test.
pub(super) fn test(
    vcpus: &[Candidate],
    suspect: usize,
    dispatch: Dispatch,
    processors: usize,
    work: &mut Work,
) -> bool {
    let tasks: Vec<Task> = vcpus.iter().map(|vcpu| vcpu.task).collect();
    let short = tasks.iter().all(|task| task.period() <= i32::LONGEST);
    let holds = if short {
        Analysis::<i32>::new(&tasks, dispatch, processors).holds(suspect, work)
    } else {
        Analysis::<i64>::new(&tasks, dispatch, processors).holds(suspect, work)
    };
    holds.unwrap_or(false)
}

struct Analysis<W> {
    responses: Responses<W>,
    dispatch: Dispatch,
    /// Slacks that are certain.
    slacks: Vec<W>,
    /// Slacks that none exceeds.
    greatest: Vec<W>,
    /// Which are known to meet their deadlines.
    pass: Vec<bool>,
    /// Those not yet known to.
    late: Vec<Late>,
}

/// A VCPU not yet known to meet its deadline.
struct Late {
    index: usize,
    /// By how much the others take too much, at the deadline, on all processors.
    excess: Amount,
}

impl<W: Word> Analysis<W> {
    fn new(tasks: &[Task], dispatch: Dispatch, processors: usize) -> Self {
        let responses = Responses::new(tasks, dispatch, processors);
        Self {
            slacks: vec![W::ZERO; tasks.len()],
            greatest: (0..tasks.len()).map(|i| responses.room(i)).collect(),
            pass: vec![false; tasks.len()],
            late: Vec::new(),
            dispatch,
            responses,
        }
    }

    fn holds(&mut self, suspect: usize, work: &mut Work) -> Result<bool, Exhausted> {
        match self.dispatch {
            Dispatch::EarliestDeadline => self.rounds(work),
            Dispatch::FixedPriority => self.in_order(suspect, work),
        }
    }

    /// Fixed priorities: the slacks that count, those of higher priorities, are final.
    fn in_order(&mut self, suspect: usize, work: &mut Work) -> Result<bool, Exhausted> {
        if !self.could_pass(suspect, work)? {
            return Ok(false);
        }
        for index in 0..self.slacks.len() {
            if self.improve(index, work)?.is_none() {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// EDF. A VCPU that passes once passes for good, as slacks only grow.
    fn rounds(&mut self, work: &mut Work) -> Result<bool, Exhausted> {
        let mut all: Vec<usize> = (0..self.slacks.len()).collect();
        all.sort_by_key(|&index| Reverse(self.responses.window(index)));
        let heavy = self.heavy(&all);
        self.late = all.iter().map(|&index| Late { index, excess: 0 }).collect();
        self.look_at_deadlines(work)?;
        if !self.could_all_pass(&[], work)? {
            return Ok(false);
        }
        let (mut round, mut next_proof, mut next_thorough) = (0, 1, THOROUGH);
        let mut searching = false;
        while !self.late.is_empty() {
            let partial = !searching && round % 2 == 0;
            let mut grown = self.grow(if partial { &heavy } else { &all }, searching, work)?;
            let mut slow = false;
            if searching {
                grown |= self.search(work)?;
                if !grown {
                    return Ok(false);
                }
            } else if grown {
                slow = self.look_at_deadlines(work)?;
            }
            searching = !grown && !partial;
            let helpers = if slow && round >= next_thorough {
                next_thorough = 2 * round + 2;
                Some(&all)
            } else if slow && round >= next_proof {
                next_proof = 2 * round + 1;
                Some(&heavy)
            } else {
                None
            };
            if let Some(helpers) = helpers
                && !self.could_all_pass(helpers, work)?
            {
                return Ok(false);
            }
            round += 1;
        }
        Ok(true)
    }

    /// Those of `indices` whose slack counts most.
    fn heavy(&self, indices: &[usize]) -> Vec<usize> {
        let demand = |index: usize| -> Amount { self.responses.demand(index).wide() };
        let most = indices.iter().map(|&index| demand(index)).max();
        let least = most.unwrap_or_default() / HEAVY;
        let heavy = indices.iter().copied();
        heavy.filter(|&index| demand(index) >= least).collect()
    }

    /// Takes a step for each of `indices` that passes; whether a slack grew.
    fn grow(
        &mut self,
        indices: &[usize],
        searching: bool,
        work: &mut Work,
    ) -> Result<bool, Exhausted> {
        let mut grown = false;
        for &index in indices {
            if self.pass[index] && self.slacks[index] < self.greatest[index] {
                grown |= if searching {
                    self.improve(index, work)? == Some(true)
                } else {
                    self.tighten(index, work)?
                };
            }
        }
        Ok(grown)
    }

    /// Lets the late ones pass that meet their deadline with others' slacks as they are; whether another one
    /// gains too slowly.
    fn look_at_deadlines(&mut self, work: &mut Work) -> Result<bool, Exhausted> {
        let mut slow = false;
        let late = std::mem::take(&mut self.late);
        for Late {
            index,
            excess: before,
        } in late
        {
            let (excess, slack) = self.responses.at_deadline(index, &self.slacks, work)?;
            if excess <= 0 {
                self.slacks[index] = slack;
                self.pass[index] = true;
            } else {
                slow |= excess / PATIENCE > before - excess;
                self.late.push(Late { index, excess });
            }
        }
        Ok(slow)
    }

    /// The same for those that have a response before their deadline, though it does not show there; whether
    /// one passes.
    fn search(&mut self, work: &mut Work) -> Result<bool, Exhausted> {
        let late = std::mem::take(&mut self.late);
        let before = late.len();
        for late in late {
            if self.improve(late.index, work)?.is_some() {
                self.pass[late.index] = true;
            } else {
                self.late.push(late);
            }
        }
        Ok(self.late.len() < before)
    }

    /// Whether each late one would pass with slacks that none exceeds, those of `helpers` looked at anew.
    fn could_all_pass(&mut self, helpers: &[usize], work: &mut Work) -> Result<bool, Exhausted> {
        for &index in helpers {
            if self.slacks[index] < self.greatest[index] && !self.could_pass(index, work)? {
                return Ok(false);
            }
        }
        for position in 0..self.late.len() {
            let index = self.late[position].index;
            let (excess, _) = self.responses.at_deadline(index, &self.greatest, work)?;
            if excess > 0 && !self.could_pass(index, work)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// One step from the response known of a VCPU that passes; whether its slack grew.
    fn tighten(&mut self, index: usize, work: &mut Work) -> Result<bool, Exhausted> {
        let window = self.responses.window(index);
        let known = window - self.slacks[index];
        let response = self.responses.step(index, known, &self.slacks, work)?;
        self.slacks[index] = self.slacks[index].max(window - response);
        Ok(response < known)
    }

    /// Some(whether the slack grew) if the VCPU meets its deadline with the slacks known so far.
    fn improve(&mut self, index: usize, work: &mut Work) -> Result<Option<bool>, Exhausted> {
        let window = self.responses.window(index);
        let start = window - self.greatest[index];
        let response = self.responses.least(index, start, &self.slacks, work)?;
        Ok(response.map(|response| {
            let slack = window - response;
            let grown = slack > self.slacks[index];
            self.slacks[index] = self.slacks[index].max(slack);
            grown
        }))
    }

    /// Whether the VCPU would pass with slacks that none exceeds.
    fn could_pass(&mut self, index: usize, work: &mut Work) -> Result<bool, Exhausted> {
        let window = self.responses.window(index);
        let start = window - self.greatest[index];
        let response = self.responses.least(index, start, &self.greatest, work)?;
        if let Some(response) = response {
            self.greatest[index] = window - response;
        }
        Ok(response.is_some())
    }
}
