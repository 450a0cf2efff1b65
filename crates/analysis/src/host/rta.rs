//! Response-time analysis of global scheduling (Bertogna and Cirinei).
//!
//! Model: sporadic tasks (no deferrable servers: slack would not be kept) under global EDF or global
//! fixed priorities on m processors.
//!
//! Formula: schedulable if there are responses R_k <= D_k - J_k with F_k(R_k) <= R_k for every k, where
//! F_k(R) = C_k + floor(sum min(W_i(R), I_i, R - C_k + 1) / m), W_i(R) = work of task i in a window of length
//! R when its carried-in job ends S_i = D_i - J_i - R_i before its deadline, and under EDF I_i = the work due
//! within D_k - J_k, its carried-in job also ending S_i early. Fixed priorities: only higher priorities
//! interfere.
//!
//! Why any such responses are bounds: let t be the first instant at which a job of some k, arrived at a, has
//! not ended by a + J_k + R_k = t. Every job whose own such instant is before t has ended by it, and one
//! whose instant is later is the last of its task to run before t, of which W_i and I_i count no less than
//! min(C_i, R_k). So F_k(R_k) bounds what k and the others did in the R_k before t, and the job has ended.
//!
//! F_k falls with every slack, so of all such responses there are least ones, which are looked for: they
//! start at C_k and grow ([`responses`]) until none has to; refused is what grows past a deadline. (Bertogna
//! and Cirinei start with slacks of 0, which grow: another solution, or the same. Whom they accept is accepted
//! here.) Long windows first: they need others' slack least. A response grows by a few jumps, then it is
//! the others' turn.
//!
//! What accepts early: that is a solution which is found to be one. At first, no slacks but those that show
//! at deadlines: at R = D_k - J_k F_k costs no W_i, as I_i is the work of one way to run, W_i that of the
//! worst. Once a round takes little slack, a guess a little below ([`guess`]), given up where it loses more
//! than that round took: what is left to find are nanoseconds. No
//! term grows by more than the slack that it loses, so a VCPU with room to spare need not be looked at again
//! until others have lost as much.
//!
//! Complexity: O(n) a step, at most one a corner of the sum (pseudo-polynomial), few in practice; a round
//! is O(n) steps, and as many rounds as slacks grow, within the allowance of work. Sufficient. Source:
//! Bertogna and Cirinei, RTSS 2007.

mod guess;
mod loops;
mod responses;
#[cfg(test)]
mod tests;
mod word;

use std::cmp::Reverse;

use guess::Guess;
use responses::Responses;
use word::Word;

use super::{Candidate, Dispatch};
use crate::{
    task::Task,
    time::Amount,
    work::{Exhausted, Work},
};

/// How often the response of one VCPU is raised before it is the others' turn.
const JUMPS: usize = 2;

/// Slacks are guessed once a round takes less than this part of all slack.
const SETTLING: Amount = 16;

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

struct Analysis<W: Word> {
    responses: Responses<W>,
    dispatch: Dispatch,
    /// Slacks of the responses so far: those of the least solution do not exceed them.
    slacks: Vec<W>,
}

/// What a round over all VCPUs found.
enum Round {
    /// Some VCPU would be late.
    Late,
    /// Every response is met with the slacks of the others as they are.
    Settled,
    /// So much slack went.
    Taken(Amount),
}

impl<W: Word> Analysis<W> {
    fn new(tasks: &[Task], dispatch: Dispatch, processors: usize) -> Self {
        let responses = Responses::new(tasks, dispatch, processors);
        Self {
            slacks: (0..tasks.len()).map(|i| responses.room(i)).collect(),
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
        if !self.raise(suspect, usize::MAX, work)? {
            return Ok(false);
        }
        for index in 0..self.slacks.len() {
            if !self.raise(index, usize::MAX, work)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// EDF: each response depends on all others.
    fn rounds(&mut self, work: &mut Work) -> Result<bool, Exhausted> {
        let mut order: Vec<usize> = (0..self.slacks.len()).collect();
        order.sort_by_key(|&index| Reverse(self.responses.window(index)));
        let Some(latest) = self.latest_at_deadlines(&order, work)? else {
            return Ok(true);
        };
        if !self.raise(latest, usize::MAX, work)? {
            return Ok(false);
        }
        let (mut met, mut guessed) = (0, false);
        loop {
            match self.round(&order, &mut met, work)? {
                Round::Late => return Ok(false),
                Round::Settled => return Ok(true),
                Round::Taken(taken) if !guessed && SETTLING * taken < self.all_slack() => {
                    guessed = true;
                    if Guess::new(&self.responses, &self.slacks, taken).holds(
                        &mut self.responses,
                        &order,
                        work,
                    )? {
                        return Ok(true);
                    }
                }
                Round::Taken(_) => {}
            }
        }
    }

    /// The VCPU that exceeds its deadline most, for its window, if none has slack but those looked at before it
    /// that meet theirs.
    fn latest_at_deadlines(
        &mut self,
        order: &[usize],
        work: &mut Work,
    ) -> Result<Option<usize>, Exhausted> {
        let mut slacks = vec![W::ZERO; order.len()];
        let mut latest: Option<(usize, Amount, Amount)> = None;
        for &index in order {
            let (excess, slack) = self.responses.at_deadline(index, &slacks, work)?;
            slacks[index] = slack;
            let (excess, window) = (excess.into(), self.responses.window(index).wide().into());
            let later = |&(_, most, of): &_| excess * of > most * window;
            if excess > 0 && latest.as_ref().is_none_or(later) {
                latest = Some((index, excess, window));
            }
        }
        Ok(latest.map(|(index, ..)| index))
    }

    /// Raises every response. `met`: how many in succession needed no raising.
    fn round(
        &mut self,
        order: &[usize],
        met: &mut usize,
        work: &mut Work,
    ) -> Result<Round, Exhausted> {
        let mut taken = 0;
        for &index in order {
            let before = self.slacks[index];
            if !self.raise(index, JUMPS, work)? {
                return Ok(Round::Late);
            }
            if self.slacks[index] < before {
                *met = 0;
                taken += (before - self.slacks[index]).wide().into();
            } else {
                *met += 1;
                if *met == order.len() {
                    return Ok(Round::Settled);
                }
            }
        }
        Ok(Round::Taken(taken))
    }

    /// Raises the response of a VCPU by up to `jumps`; false if it would be late.
    fn raise(&mut self, index: usize, jumps: usize, work: &mut Work) -> Result<bool, Exhausted> {
        let window = self.responses.window(index);
        let known = window - self.slacks[index];
        let response = (self.responses).raised(index, known, &self.slacks, jumps, work)?;
        if let Some(response) = response {
            self.slacks[index] = window - response;
        }
        Ok(response.is_some())
    }

    fn all_slack(&self) -> Amount {
        let slacks = self.slacks.iter();
        slacks.map(|slack| -> Amount { slack.wide().into() }).sum()
    }
}
