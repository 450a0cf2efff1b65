//! Response-time analysis of global scheduling (Bertogna and Cirinei).
//!
//! Model: sporadic tasks (no deferrable servers: slack would not be kept) under global EDF or global
//! fixed priorities on m processors.
//!
//! Formula: R_k is the least R with R = C_k + floor(sum min(W_i(R), I_i, R - C_k + 1) / m), where
//! W_i(R) = work of task i in a window of length R when its carried-in job ends S_i before its deadline,
//! and under EDF I_i = the work due within D_k - J_k, its carried-in job also ending S_i early. Slacks
//! S_i = D_i - J_i - R_i start at 0 and grow round by round; schedulable if every R_k <= D_k - J_k in
//! some round. Fixed priorities: only higher priorities interfere.
//!
//! How the least R is found: at R + d every term is at least min(a + d, b): it follows the cut or the
//! execution of one job up to b and stays there. The sum of these is concave in d, so Newton's method
//! from above finds the least d at which it leaves room; R grows by it until d = 0.
//!
//! What saves rounds, and changes no answer: no round's slack exceeds that of a response with slacks that
//! none exceeds (D - J - C, at first). So such responses are where later searches start, and a VCPU that
//! has none is beyond help. One that fails the interference test is asked first.
//!
//! Complexity: O(n) a step, at most one a corner of the sum (pseudo-polynomial), few in practice; at most
//! [`ROUNDS`] rounds. Sufficient. Source: Bertogna and Cirinei, RTSS 2007.

use super::{Candidate, Dispatch};
use crate::{
    task::Task,
    time::{Amount, Divisor, Time},
    work::{Exhausted, STEPS_SHARE, Work},
    workload::jobs_due,
};

/// Rounds of slack improvement.
pub const ROUNDS: usize = 8;

/// Rounds that look for a proof that no rounds will do.
const OPTIMISTIC_ROUNDS: usize = 3;

/// True if the analysis shows `vcpus` (in priority order under fixed priorities) schedulable. `suspect`:
/// the position of one that fails the interference test.
pub(super) fn test(
    vcpus: &[Candidate],
    suspect: usize,
    dispatch: Dispatch,
    processors: usize,
    work: &mut Work,
) -> bool {
    let tasks = vcpus.iter().map(|vcpu| vcpu.task).collect();
    Analysis::new(tasks, dispatch, processors)
        .holds(suspect, work)
        .unwrap_or(false)
}

struct Analysis {
    responses: Responses,
    /// Slacks that are certain.
    slacks: Vec<Time>,
    /// Slacks that no round exceeds.
    greatest: Vec<Time>,
}

impl Analysis {
    fn new(tasks: Vec<Task>, dispatch: Dispatch, processors: usize) -> Self {
        Self {
            slacks: vec![0; tasks.len()],
            greatest: tasks
                .iter()
                .map(|task| task.window() - task.demand())
                .collect(),
            responses: Responses {
                tasks,
                dispatch,
                processors: processors as Amount,
                terms: Vec::new(),
                pieces: Vec::new(),
            },
        }
    }

    fn holds(&mut self, suspect: usize, work: &mut Work) -> Result<bool, Exhausted> {
        if !self.could_pass(suspect, work)? {
            return Ok(false);
        }
        if self.responses.dispatch == Dispatch::FixedPriority {
            // The slacks that count, those of higher priorities, are final.
            for index in 0..self.slacks.len() {
                if self.improve(index, work)?.is_none() {
                    return Ok(false);
                }
            }
            return Ok(true);
        }
        self.rounds(work)
    }

    /// A VCPU that passes once passes for good, as slacks only grow: rounds look at the others first.
    fn rounds(&mut self, work: &mut Work) -> Result<bool, Exhausted> {
        let all = 0..self.slacks.len();
        for _ in 0..OPTIMISTIC_ROUNDS {
            for index in all.clone() {
                if !self.could_pass(index, work)? {
                    return Ok(false);
                }
            }
        }
        let mut late: Vec<usize> = all.clone().collect();
        for round in 0..ROUNDS {
            let (mut still_late, mut grown) = (Vec::new(), false);
            for &index in &late {
                match self.improve(index, work)? {
                    Some(_) => grown = true,
                    None => still_late.push(index),
                }
            }
            if still_late.is_empty() {
                return Ok(true);
            }
            late = still_late;
            let on_time = all.clone().filter(|index| !late.contains(index));
            for index in on_time.filter(|_| round > 0) {
                grown |= self.improve(index, work)? == Some(true);
            }
            if !grown {
                return Ok(false);
            }
        }
        Ok(false)
    }

    /// Some(whether the slack grew) if the VCPU meets its deadline with the slacks known so far.
    fn improve(&mut self, index: usize, work: &mut Work) -> Result<Option<bool>, Exhausted> {
        let settled = self.slacks[index] > 0 && self.slacks[index] == self.greatest[index];
        if settled {
            return Ok(Some(false));
        }
        let window = self.responses.tasks[index].window();
        let start = window - self.greatest[index];
        let response = self.responses.least(index, start, &self.slacks, work)?;
        Ok(response.map(|response| {
            let slack = window - response;
            let grown = slack > self.slacks[index];
            self.slacks[index] = self.slacks[index].max(slack);
            grown
        }))
    }

    /// Whether the VCPU would pass with slacks that no round exceeds.
    fn could_pass(&mut self, index: usize, work: &mut Work) -> Result<bool, Exhausted> {
        let window = self.responses.tasks[index].window();
        let start = window - self.greatest[index];
        let response = self.responses.least(index, start, &self.greatest, work)?;
        if let Some(response) = response {
            self.greatest[index] = window - response;
        }
        Ok(response.is_some())
    }
}

/// Finds response times for given slacks.
struct Responses {
    tasks: Vec<Task>,
    dispatch: Dispatch,
    processors: Amount,
    terms: Vec<Term>,
    pieces: Vec<Piece>,
}

/// min(W_i(R), I_i) of another task, as R grows.
struct Term {
    period: Divisor,
    execution: Time,
    /// Where in R its current period starts.
    start: Time,
    /// Work of the periods before.
    before: Time,
    due: Time,
}

/// min(low + d, high), a lower bound of a term at R + d.
#[derive(Clone, Copy)]
struct Piece {
    low: Time,
    high: Time,
}

impl Responses {
    /// The least R >= `start` with R = C_k + floor(sum / m), if it is at most the deadline; `start` is not
    /// above the least R of all.
    fn least(
        &mut self,
        index: usize,
        start: Time,
        slacks: &[Time],
        work: &mut Work,
    ) -> Result<Option<Time>, Exhausted> {
        let (demand, limit) = (self.tasks[index].demand(), self.tasks[index].window());
        self.prepare(index, slacks);
        let mut response = start;
        loop {
            work.spend(self.terms.len() / STEPS_SHARE + 2, response)?;
            let cut = response - demand + 1;
            self.pieces.clear();
            let pieces = self.terms.iter_mut().map(|term| term.piece(response, cut));
            self.pieces.extend(pieces);
            match room(&self.pieces, self.processors, cut, limit - response) {
                None => return Ok(None),
                Some(0) => return Ok(Some(response)),
                Some(further) => response += further,
            }
        }
    }

    fn prepare(&mut self, index: usize, slacks: &[Time]) {
        let limit = self.tasks[index].window();
        let term = |(task, &slack): (&Task, &Time)| Term {
            period: task.divisor(),
            execution: task.demand(),
            start: task.demand() + slack - task.deadline(),
            before: 0,
            // The work due by the deadline does not depend on R.
            due: match self.dispatch {
                Dispatch::EarliestDeadline => due(task, limit, slack),
                Dispatch::FixedPriority => Time::MAX,
            },
        };
        let others = self.tasks.iter().zip(slacks);
        self.terms.clear();
        self.terms.extend(others.clone().take(index).map(term));
        if self.dispatch == Dispatch::EarliestDeadline {
            self.terms.extend(others.skip(index + 1).map(term));
        }
    }
}

impl Term {
    /// `response` is never less than at the call before.
    fn piece(&mut self, response: Time, cut: Time) -> Piece {
        let mut rest = response - self.start;
        if rest >= self.period.value() {
            let jobs = self.period.quotient(rest);
            self.start += jobs * self.period.value();
            self.before += jobs * self.execution;
            rest = response - self.start;
        }
        // The job that executes at R, if one does, goes on to its end; one that has ended stays there.
        let end = self.before + self.execution;
        let done = end.min(self.before + rest);
        Piece {
            low: done.min(self.due).min(cut),
            high: end.min(self.due),
        }
    }
}

/// The least d >= 0 with sum min(low + d, high) < m (cut + d), if it is at most `limit`.
fn room(pieces: &[Piece], processors: Amount, cut: Time, limit: Time) -> Option<Time> {
    let (mut low, mut high): (Amount, Amount) = (0, 0);
    for piece in pieces {
        low += Amount::from(piece.low);
        high += Amount::from(piece.high);
    }
    let cut = processors * Amount::from(cut);
    if low < cut {
        return Some(0);
    }
    // Where every piece has ended there is room for certain, if that is not too late.
    let ended = (high - cut).max(0) / processors + 1;
    let mut further = Time::try_from(ended).map_or(limit, |ended| ended.min(limit));
    loop {
        // The line that the sum follows just below `further`.
        let (mut level, mut rising): (Amount, Time) = (0, 0);
        for piece in pieces {
            let rises = piece.high - piece.low >= further;
            level += Amount::from(if rises { piece.low } else { piece.high });
            rising += Time::from(rises);
        }
        let excess = level - cut;
        let slope = processors - Amount::from(rising);
        if excess >= slope * Amount::from(further) {
            return None;
        }
        // Concave, no room at 0 and room here: the slope is positive.
        let next = excess / slope + 1;
        match Time::try_from(next) {
            Ok(next) if next < further => further = next,
            _ => return Some(further),
        }
    }
}

/// Work due within a window that ends with a deadline.
fn due(task: &Task, window: Time, slack: Time) -> Time {
    let jobs = jobs_due(task, window);
    jobs * task.demand() + (window - jobs * task.period() - slack).clamp(0, task.demand())
}

#[cfg(test)]
mod tests {
    use rand::{Rng, SeedableRng};
    use rand_chacha::ChaCha8Rng;

    use super::{Analysis, Dispatch, ROUNDS, due};
    use crate::{task::Task, time::Time, work::Work, workload::packed};

    const DISPATCHES: [Dispatch; 2] = [Dispatch::EarliestDeadline, Dispatch::FixedPriority];

    fn random_tasks(rng: &mut ChaCha8Rng, heaviest: Time) -> Vec<Task> {
        let mut tasks: Vec<Task> = (0..rng.random_range(1..=8))
            .map(|_| {
                let period = rng.random_range(2..=60);
                let execution = rng.random_range(1..=(period / heaviest).max(1));
                let jitter = rng.random_range(0..=(period - execution).min(3));
                Task::server(execution, period, period, jitter)
            })
            .collect();
        tasks.sort_by_key(Task::period);
        tasks
    }

    /// The formula as written, at every whole R.
    fn by_search(
        tasks: &[Task],
        index: usize,
        dispatch: Dispatch,
        processors: usize,
        slacks: &[Time],
    ) -> Option<Time> {
        let task = &tasks[index];
        (task.demand()..=task.window()).find(|&response| {
            let sum: Time = (0..tasks.len())
                .filter(|&i| i != index && (dispatch == Dispatch::EarliestDeadline || i < index))
                .map(|i| {
                    let (other, slack) = (&tasks[i], slacks[i]);
                    let reach = response + other.deadline() - other.demand() - slack;
                    let work = packed(other, reach);
                    let due = match dispatch {
                        Dispatch::EarliestDeadline => due(other, task.window(), slack),
                        Dispatch::FixedPriority => Time::MAX,
                    };
                    work.min(due).min(response - task.demand() + 1)
                })
                .sum();
            task.demand() + sum / processors as Time <= response
        })
    }

    #[test]
    fn the_least_response_equals_search() {
        let mut rng = ChaCha8Rng::seed_from_u64(31);
        let mut found = 0;
        for _ in 0..40_000 {
            let tasks = random_tasks(&mut rng, 1);
            let slacks: Vec<Time> = tasks
                .iter()
                .map(|task| rng.random_range(0..=task.window() - task.demand()))
                .collect();
            let processors = rng.random_range(1..=4);
            let dispatch = DISPATCHES[rng.random_range(0..2)];
            for index in 0..tasks.len() {
                let expected = by_search(&tasks, index, dispatch, processors, &slacks);
                let mut analysis = Analysis::new(tasks.clone(), dispatch, processors);
                // Any start up to the answer finds it.
                let first = tasks[index].demand();
                let start = rng.random_range(first..=expected.unwrap_or(first));
                let work = &mut Work::default();
                let responses = &mut analysis.responses;
                let least = responses.least(index, start, &slacks, work).unwrap();
                assert_eq!(least, expected, "{tasks:?} {slacks:?} {index} {processors}");
                found += usize::from(least.is_some());
            }
        }
        assert!(found > 20_000, "{found}");
    }

    /// Rounds as the module's header has them, all from the start, without what saves some.
    fn plain_rounds(tasks: &[Task], dispatch: Dispatch, processors: usize) -> (bool, usize) {
        let mut slacks = vec![0; tasks.len()];
        let mut late: Vec<usize> = (0..tasks.len()).collect();
        for round in 0..ROUNDS {
            for first in [true, false] {
                let wanted = |index: &usize| late.contains(index) == first;
                let indices: Vec<usize> = (0..tasks.len()).filter(wanted).collect();
                for index in indices.into_iter().filter(|_| first || round > 0) {
                    if let Some(found) = by_search(tasks, index, dispatch, processors, &slacks) {
                        slacks[index] = slacks[index].max(tasks[index].window() - found);
                        late.retain(|&other| other != index);
                    }
                }
            }
            if late.is_empty() {
                return (true, round);
            }
        }
        (false, ROUNDS)
    }

    #[test]
    fn verdicts_equal_plain_rounds() {
        let mut rng = ChaCha8Rng::seed_from_u64(32);
        let (mut accepted, mut later, mut refused) = (0, 0, 0);
        for _ in 0..60_000 {
            let tasks = random_tasks(&mut rng, 2);
            let processors = rng.random_range(1..=3);
            let dispatch = DISPATCHES[rng.random_range(0..2)];
            let (expected, round) = plain_rounds(&tasks, dispatch, processors);
            let suspect = rng.random_range(0..tasks.len());
            let found = Analysis::new(tasks.clone(), dispatch, processors)
                .holds(suspect, &mut Work::default())
                .unwrap();
            assert_eq!(found, expected, "{tasks:?} {dispatch:?} {processors}");
            accepted += usize::from(found);
            later += usize::from(found && round > 0);
            refused += usize::from(!found);
        }
        let seen = accepted > 5_000 && later > 50 && refused > 5_000;
        assert!(seen, "{accepted} {later} {refused}");
    }
}
