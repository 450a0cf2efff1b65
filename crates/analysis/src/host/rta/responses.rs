//! Responses of VCPUs for given slacks of the others: F_k(R) of [`super`], and its least R.
//!
//! How the least R is found: at R + d every term is at least min(a + d, b): it follows the cut or the
//! execution of one job up to b and stays there. The sum of these is concave in d, so Newton's method
//! from above finds the least d at which it leaves room; R grows by it until d = 0.
//!
//! Times are words of 32 bits where all that is computed of one VCPU fits them ([`Word::LONGEST`]), as four
//! of these are worked on at once, and of 64 bits else; sums are wider. Each array has a place for each VCPU.

use std::{hint::select_unpredictable, ops::Range};

use super::{super::Dispatch, word::Word};
use crate::{
    task::Task,
    time::{Amount, Time},
    work::{Exhausted, STEPS_SHARE, Work},
};

/// Terms and spans summed in a word: of 64 bits, each is below 2^55 (times are at most 2^53); of 32, their lower
/// and upper halves are below 2^16.
const CHUNK: usize = 128;

/// Hosts of up to this many VCPUs keep the work due by each deadline that was looked at.
pub(super) const KEPT: usize = 256;

/// The VCPUs, and the means to find their responses.
pub(super) struct Responses<W> {
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

/// Some of the VCPUs, side by side.
#[derive(Clone, Copy)]
struct Others<'a, W> {
    demands: &'a [W],
    periods: &'a [W],
    reciprocals: &'a [W],
    work_leads: &'a [W],
    slacks: &'a [W],
    whole: &'a [W],
    left: &'a [W],
}

impl<W: Word> Responses<W> {
    /// `tasks` have periods of at most [`Word::LONGEST`].
    pub fn new(tasks: &[Task], dispatch: Dispatch, processors: usize) -> Self {
        let all = |part: fn(&Task) -> Time| tasks.iter().map(|task| W::of(part(task))).collect();
        let periods: Vec<W> = all(Task::period);
        let kept = if tasks.len() <= KEPT { tasks.len() } else { 1 };
        Self {
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
        let sum = self.sum(index, slacks, &dues, |others, i| {
            least_of(others.due(i), cut)
        });
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
        let sum = self.sum(index, slacks, &dues, |others, i| {
            others.piece(i, others.due(i), response, cut).0
        });
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
                for i in 0..count {
                    let (jobs, rest) = (limit + leads[i]).divided(periods[i], reciprocals[i]);
                    whole[i] = jobs * demands[i];
                    left[i] = rest - leads[i];
                }
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
            let mut part = Sum::new();
            for (i, span) in spans[range].iter_mut().enumerate() {
                let (low, high) = others.piece(i, others.due(i), response, cut);
                *span = high - low;
                part.add(low);
            }
            sum += part.total();
        }
        if index < count {
            let own = self.others(index..index + 1, slacks, dues);
            sum -= own.piece(0, own.due(0), response, cut).0.wide();
            spans[index] = W::ZERO;
        }
        self.spans = spans;
        sum
    }

    /// The sum of `term` over all but `index`.
    fn sum(
        &self,
        index: usize,
        slacks: &[W],
        dues: &Dues<W>,
        term: impl Fn(Others<W>, usize) -> W,
    ) -> Amount {
        let mut sum: Amount = 0;
        for start in (0..self.count()).step_by(CHUNK) {
            let range = start..self.count().min(start + CHUNK);
            let others = self.others(range.clone(), slacks, dues);
            let mut part = Sum::new();
            for i in 0..range.len() {
                part.add(term(others, i));
            }
            sum += part.total();
        }
        sum - term(self.others(index..index + 1, slacks, dues), 0).wide()
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

impl<W: Word> Others<'_, W> {
    /// Work due within a window that ends with a deadline.
    fn due(self, i: usize) -> W {
        let carried = self.left[i] - self.slacks[i];
        let carried = select_unpredictable(carried < W::ZERO, W::ZERO, carried);
        self.whole[i] + least_of(carried, self.demands[i])
    }

    /// (low, high) of min(low + d, high), a lower bound of the term at `response` + d, equal at d = 0.
    fn piece(self, i: usize, due: W, response: W, cut: W) -> (W, W) {
        let (period, demand) = (self.periods[i], self.demands[i]);
        let length = response + self.work_leads[i] - self.slacks[i];
        let (jobs, rest) = length.divided(period, self.reciprocals[i]);
        let before = jobs * demand;
        // The job that executes at R, if one does, goes on to its end; one that has ended stays there.
        let end = least_of(before + demand, due);
        (least_of(least_of(end, before + rest), cut), end)
    }
}

/// A sum of up to [`CHUNK`] words, its lower and its upper halves apart, so that no wider word is needed.
struct Sum<W> {
    lower: W,
    upper: W,
}

impl<W: Word> Sum<W> {
    fn new() -> Self {
        Self {
            lower: W::ZERO,
            upper: W::ZERO,
        }
    }

    fn add(&mut self, word: W) {
        let (lower, upper) = word.halves();
        self.lower = self.lower + lower;
        self.upper = self.upper + upper;
    }

    fn total(self) -> Amount {
        self.lower.wide() + (self.upper.wide() << W::HALF)
    }
}

fn least_of<W: Word>(a: W, b: W) -> W {
    select_unpredictable(a < b, a, b)
}

/// The least d >= 0 with excess + sum min(d, span) < m d, if it is at most `limit`.
fn room<W: Word>(excess: Amount, spans: &[W], processors: Amount, limit: W) -> Option<W> {
    if excess < 0 {
        return Some(W::ZERO);
    }
    let mut further = limit;
    loop {
        // The line that the sum follows just below `further`.
        let (mut level, mut slope) = (excess, processors);
        for chunk in spans.chunks(CHUNK) {
            let (mut ended, mut rising) = (Sum::new(), W::ZERO);
            for &span in chunk {
                let rises = span >= further;
                ended.add(if rises { W::ZERO } else { span });
                rising = rising + if rises { W::ONE } else { W::ZERO };
            }
            level += ended.total();
            slope -= rising.wide();
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
