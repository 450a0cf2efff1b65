//! Responses of VCPUs for given slacks of the others: F_k(R) of [`super`], and its least R.
//!
//! How the least R is found: at R + d every term is at least min(a + d, b): it follows the cut or the
//! execution of one job up to b and stays there. The sum of these is concave in d, so Newton's method
//! from above finds the least d at which it leaves room; R grows by it until d = 0.
//!
//! Times are words of 32 bits where all that is computed of one VCPU fits them ([`Word::LONGEST`]), as the loops
//! ([`super::loops`]) work on several of these at once, and of 64 bits else; sums are wider. Each array has a
//! place for each VCPU.

use std::ops::Range;

use pulp::Arch;

use super::{
    super::Dispatch,
    loops::{CHUNK, Due, DueJobs, Others, Piece, Pieces, Rising, Sum, Term},
    word::Word,
};
use crate::{
    task::Task,
    time::{Amount, Time},
    work::{Exhausted, STEPS_SHARE, Work},
};

/// Hosts of up to this many VCPUs keep the work due by each deadline that was looked at.
pub(super) const KEPT: usize = 256;

/// The VCPUs, and the means to find their responses.
pub(super) struct Responses<W> {
    /// What runs the loops over all VCPUs.
    vectors: Arch,
    dispatch: Dispatch,
    processors: Amount,
    /// C.
    demands: Vec<W>,
    /// D - J.
    windows: Vec<W>,
    periods: Vec<W>,
    reciprocals: Vec<W>,
    /// J + T - D: what is added to a window to count the jobs due in it.
    due_leads: Vec<W>,
    /// D - C: how far before a window a job may start that executes to its deadline.
    work_leads: Vec<W>,
    /// For each VCPU, or for the last one looked at only.
    dues: Vec<Dues<W>>,
    /// How far each term goes on at the response looked at.
    spans: Vec<W>,
}

/// The work of the others due by the deadline of a VCPU.
#[derive(Default)]
struct Dues<W> {
    /// Whose deadline, if it was looked at.
    of: Option<usize>,
    /// That of whole jobs.
    whole: Vec<W>,
    /// How much of the window is left for the job carried in.
    left: Vec<W>,
}

impl<W: Word> Responses<W> {
    /// `tasks` have periods of at most [`Word::LONGEST`].
    pub fn new(tasks: &[Task], dispatch: Dispatch, processors: usize) -> Self {
        let all = |part: fn(&Task) -> Time| tasks.iter().map(|task| W::of(part(task))).collect();
        let periods: Vec<W> = all(Task::period);
        let kept = if tasks.len() <= KEPT { tasks.len() } else { 1 };
        Self {
            vectors: Arch::new(),
            dispatch,
            processors: processors as Amount,
            demands: all(Task::demand),
            windows: all(Task::window),
            reciprocals: periods.iter().map(|period| period.reciprocal()).collect(),
            periods,
            due_leads: all(|task| task.jitter() + task.period() - task.deadline()),
            work_leads: all(|task| task.deadline() - task.demand()),
            dues: (0..kept).map(|_| Dues::default()).collect(),
            spans: vec![W::ZERO; tasks.len()],
        }
    }

    /// The number of VCPUs.
    pub const fn count(&self) -> usize {
        self.windows.len()
    }

    /// C.
    pub fn demand(&self, index: usize) -> W {
        self.demands[index]
    }

    /// D - J.
    pub fn window(&self, index: usize) -> W {
        self.windows[index]
    }

    /// D - J - C: the slack of a VCPU that nothing delays.
    pub fn room(&self, index: usize) -> W {
        self.windows[index] - self.demands[index]
    }

    /// At R = D - J, where the work due decides: by how much the terms, on all processors, exceed what would
    /// leave room, and the slack if they do not.
    pub fn at_deadline(
        &mut self,
        index: usize,
        slacks: &[W],
        work: &mut Work,
    ) -> Result<(Amount, W), Exhausted> {
        self.pay(self.windows[index], work)?;
        let room = self.room(index);
        let cut = room + W::ONE;
        let dues = self.take_dues(index);
        let sum = self.sum(index, slacks, &dues, Due { cut });
        self.put_back(dues);
        let excess = sum + 1 - self.processors * cut.wide();
        let slack = room.wide() - sum / self.processors;
        Ok((excess, W::of(slack.max(0) as Time)))
    }

    /// F_k(R) at `response`, which is at least that, under EDF.
    pub fn step(
        &mut self,
        index: usize,
        response: W,
        slacks: &[W],
        work: &mut Work,
    ) -> Result<W, Exhausted> {
        self.pay(response, work)?;
        let demand = self.demands[index];
        let cut = response - demand + W::ONE;
        let dues = self.take_dues(index);
        let sum = self.sum(index, slacks, &dues, Piece { response, cut });
        self.put_back(dues);
        Ok(demand + W::of((sum / self.processors) as Time))
    }

    /// The least R >= `start` with R = F_k(R), if it is at most the deadline; `start` is not above the least
    /// R of all.
    pub fn least(
        &mut self,
        index: usize,
        start: W,
        slacks: &[W],
        work: &mut Work,
    ) -> Result<Option<W>, Exhausted> {
        let (demand, limit) = (self.demands[index], self.windows[index]);
        let dues = self.take_dues(index);
        let count = dues.whole.len();
        let mut response = start;
        let found = loop {
            self.pay(response, work)?;
            let cut = response - demand + W::ONE;
            let excess = self.excess(index, slacks, &dues, response, cut);
            match room(
                self.vectors,
                excess,
                &self.spans[..count],
                self.processors,
                limit - response,
            ) {
                None => break None,
                Some(further) if further == W::ZERO => break Some(response),
                Some(further) => response = response + further,
            }
        };
        self.put_back(dues);
        Ok(found)
    }

    /// Pays for looking at all tasks once.
    fn pay(&self, at: W, work: &mut Work) -> Result<(), Exhausted> {
        work.spend(self.count() / STEPS_SHARE + 2, at.into())
    }

    /// The work due by the deadline of `index`: that of higher priorities, without a bound, if these are fixed.
    fn take_dues(&mut self, index: usize) -> Dues<W> {
        let place = index % self.dues.len();
        let mut dues = std::mem::take(&mut self.dues[place]);
        if dues.of == Some(index) {
            return dues;
        }
        dues.of = Some(index);
        dues.whole.clear();
        dues.left.clear();
        let limit = self.windows[index];
        match self.dispatch {
            Dispatch::EarliestDeadline => {
                let count = self.count();
                let (periods, reciprocals) = (&self.periods[..count], &self.reciprocals[..count]);
                let (demands, leads) = (&self.demands[..count], &self.due_leads[..count]);
                dues.whole.resize(count, W::ZERO);
                dues.left.resize(count, W::ZERO);
                let (whole, left) = (&mut dues.whole[..count], &mut dues.left[..count]);
                self.vectors.dispatch(DueJobs {
                    limit,
                    periods,
                    reciprocals,
                    demands,
                    leads,
                    whole,
                    left,
                });
            }
            Dispatch::FixedPriority => {
                dues.whole.resize(index, limit);
                dues.left.resize(index, W::ZERO);
            }
        }
        dues
    }

    fn put_back(&mut self, dues: Dues<W>) {
        let place = dues.of.unwrap_or_default() % self.dues.len();
        self.dues[place] = dues;
    }

    /// The sum of the terms at `response` above what the processors do up to the cut; collects how far the
    /// terms go on.
    fn excess(
        &mut self,
        index: usize,
        slacks: &[W],
        dues: &Dues<W>,
        response: W,
        cut: W,
    ) -> Amount {
        let mut spans = std::mem::take(&mut self.spans);
        let count = dues.whole.len();
        let mut sum = -self.processors * cut.wide();
        for start in (0..count).step_by(CHUNK) {
            let range = start..count.min(start + CHUNK);
            let others = self.others(range.clone(), slacks, dues);
            sum += self.vectors.dispatch(Pieces {
                others,
                at: Piece { response, cut },
                spans: &mut spans[range],
            });
        }
        if index < count {
            let own = self.others(index..index + 1, slacks, dues);
            sum -= Piece { response, cut }.of(own, 0).wide();
            spans[index] = W::ZERO;
        }
        self.spans = spans;
        sum
    }

    /// The sum of `term` over all but `index`.
    fn sum(&self, index: usize, slacks: &[W], dues: &Dues<W>, term: impl Term<W>) -> Amount {
        let mut sum: Amount = 0;
        for start in (0..self.count()).step_by(CHUNK) {
            let range = start..self.count().min(start + CHUNK);
            let others = self.others(range.clone(), slacks, dues);
            sum += self.vectors.dispatch(Sum { others, term });
        }
        sum - term
            .of(self.others(index..index + 1, slacks, dues), 0)
            .wide()
    }

    fn others<'a>(
        &'a self,
        range: Range<usize>,
        slacks: &'a [W],
        dues: &'a Dues<W>,
    ) -> Others<'a, W> {
        Others {
            demands: &self.demands[range.clone()],
            periods: &self.periods[range.clone()],
            reciprocals: &self.reciprocals[range.clone()],
            work_leads: &self.work_leads[range.clone()],
            slacks: &slacks[range.clone()],
            whole: &dues.whole[range.clone()],
            left: &dues.left[range],
        }
    }
}

/// The least d >= 0 with excess + sum min(d, span) < m d, if it is at most `limit`.
fn room<W: Word>(
    vectors: Arch,
    excess: Amount,
    spans: &[W],
    processors: Amount,
    limit: W,
) -> Option<W> {
    if excess < 0 {
        return Some(W::ZERO);
    }
    let mut further = limit;
    loop {
        // The line that the sum follows just below `further`.
        let (mut level, mut slope) = (excess, processors);
        for chunk in spans.chunks(CHUNK) {
            let spans = chunk;
            let (ended, rising) = vectors.dispatch(Rising { spans, further });
            level += ended;
            slope -= rising;
        }
        if level >= slope * further.wide() {
            return None;
        }
        // Concave, no room at 0 and room here: the slope is positive.
        match Time::try_from(level / slope + 1) {
            Ok(next) if next < further.into() => further = W::of(next),
            _ => return Some(further),
        }
    }
}
