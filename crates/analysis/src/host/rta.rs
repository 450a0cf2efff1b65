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
//! Order of a round: VCPUs that are known to be on time (in the first round those that pass the interference
//! test) before those that are late and need their slack; the late ones again as long as one passes.
//!
//! What saves work, and changes no answer: no round's slack exceeds that of a response with slacks that
//! none exceeds (D - J - C, at first). So such responses are where later searches start, and a VCPU that
//! has none is beyond help. Those that fail the interference test are asked first.
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
const OPTIMISTIC_ROUNDS: usize = 2;

/// True if the analysis shows `vcpus` (in priority order under fixed priorities) schedulable. `suspects`:
/// the positions of those that fail the interference test; the others pass without any slack.
pub(super) fn test(
    vcpus: &[Candidate],
    suspects: impl Iterator<Item = usize>,
    dispatch: Dispatch,
    processors: usize,
    work: &mut Work,
) -> bool {
    let tasks = vcpus.iter().map(|vcpu| vcpu.task).collect();
    Analysis::new(tasks, dispatch, processors)
        .holds(suspects, work)
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
                ended: 0,
                spans: Vec::new(),
            },
        }
    }

    fn holds(
        &mut self,
        suspects: impl Iterator<Item = usize>,
        work: &mut Work,
    ) -> Result<bool, Exhausted> {
        if self.responses.dispatch == Dispatch::FixedPriority {
            return self.in_order(suspects, work);
        }
        let mut late = Vec::new();
        for suspect in suspects {
            if !self.could_pass(suspect, work)? {
                return Ok(false);
            }
            late.push(suspect);
        }
        for _ in 0..OPTIMISTIC_ROUNDS {
            for index in 0..self.slacks.len() {
                if !self.could_pass(index, work)? {
                    return Ok(false);
                }
            }
        }
        self.rounds(&late, work)
    }

    /// Fixed priorities: the slacks that count, those of higher priorities, are final.
    fn in_order(
        &mut self,
        mut suspects: impl Iterator<Item = usize>,
        work: &mut Work,
    ) -> Result<bool, Exhausted> {
        if let Some(suspect) = suspects.next()
            && !self.could_pass(suspect, work)?
        {
            return Ok(false);
        }
        for index in 0..self.slacks.len() {
            if self.improve(index, work)?.is_none() {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Rounds of slack improvement, until none of the `suspects` is late or no slack grows. A VCPU that
    /// passes once passes for good, as slacks only grow.
    fn rounds(&mut self, suspects: &[usize], work: &mut Work) -> Result<bool, Exhausted> {
        let mut late = suspects.to_vec();
        for _ in 0..ROUNDS {
            let mut grown = false;
            for index in 0..self.slacks.len() {
                if !late.contains(&index) {
                    grown |= self.improve(index, work)? == Some(true);
                }
            }
            // One that passes may be what another one waited for.
            loop {
                let still_late = self.still_late(&late, work)?;
                if still_late.is_empty() {
                    return Ok(true);
                }
                if still_late.len() == late.len() {
                    break;
                }
                late = still_late;
                grown = true;
            }
            if !grown {
                return Ok(false);
            }
        }
        Ok(false)
    }

    /// Those of `late` that do not pass now.
    fn still_late(&mut self, late: &[usize], work: &mut Work) -> Result<Vec<usize>, Exhausted> {
        let mut still_late = Vec::with_capacity(late.len());
        for &index in late {
            if self.improve(index, work)?.is_none() {
                still_late.push(index);
            }
        }
        Ok(still_late)
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
    /// The sum of the terms that have reached what is due, which are no longer among `terms`.
    ended: Amount,
    /// Of the terms that rise at the response looked at, how far.
    spans: Vec<Time>,
}

/// min(W_i(R), I_i) of another task, as R grows.
struct Term {
    period: Divisor,
    execution: Time,
    /// Where in R the carried-in job's period starts.
    start: Time,
    due: Time,
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
            let excess = self.excess(response, cut);
            match room(excess, &self.spans, self.processors, limit - response) {
                None => return Ok(None),
                Some(0) => return Ok(Some(response)),
                Some(further) => response += further,
            }
        }
    }

    /// The sum of the terms at `response` above what m processors do up to the cut; collects how far the
    /// terms that rise go on. `response` is never less than at the call before.
    fn excess(&mut self, response: Time, cut: Time) -> Amount {
        self.spans.clear();
        let mut sum = self.ended;
        self.terms.retain(|term| {
            let (low, high) = term.piece(response, cut);
            sum += Amount::from(low);
            if high > low {
                self.spans.push(high - low);
            }
            // All that is due is done: it stays there.
            let ends = low == term.due;
            self.ended += Amount::from(if ends { low } else { 0 });
            !ends
        });
        sum - self.processors * Amount::from(cut)
    }

    fn prepare(&mut self, index: usize, slacks: &[Time]) {
        let limit = self.tasks[index].window();
        let term = |(task, &slack): (&Task, &Time)| Term {
            period: task.divisor(),
            execution: task.demand(),
            start: task.demand() + slack - task.deadline(),
            // The work due by the deadline does not depend on R.
            due: match self.dispatch {
                Dispatch::EarliestDeadline => due(task, limit, slack),
                Dispatch::FixedPriority => Time::MAX,
            },
        };
        let others = self.tasks.iter().zip(slacks);
        self.ended = 0;
        self.terms.clear();
        self.terms.extend(others.clone().take(index).map(term));
        if self.dispatch == Dispatch::EarliestDeadline {
            self.terms.extend(others.skip(index + 1).map(term));
        }
    }
}

impl Term {
    /// (low, high) of min(low + d, high), a lower bound of the term at `response` + d, equal at d = 0.
    const fn piece(&self, response: Time, cut: Time) -> (Time, Time) {
        let length = response - self.start;
        let jobs = self.period.quotient(length);
        let (before, rest) = (jobs * self.execution, length - jobs * self.period.value());
        // The job that executes at R, if one does, goes on to its end; one that has ended stays there.
        let end = before + self.execution;
        let done = least_of(end, before + rest);
        let high = least_of(end, self.due);
        (least_of(least_of(done, self.due), cut), high)
    }
}

const fn least_of(a: Time, b: Time) -> Time {
    if a < b { a } else { b }
}

/// The least d >= 0 with excess + sum min(d, span) < m d, if it is at most `limit`.
fn room(excess: Amount, spans: &[Time], processors: Amount, limit: Time) -> Option<Time> {
    if excess < 0 {
        return Some(0);
    }
    // Where every span has ended there is room for certain, if that is not too late.
    let ended = excess + spans.iter().copied().map(Amount::from).sum::<Amount>();
    let mut further = Time::try_from(ended / processors + 1).map_or(limit, |d| d.min(limit));
    loop {
        // The line that the sum follows just below `further`.
        let (mut level, mut slope) = (excess, processors);
        for &span in spans {
            let rises = span >= further;
            level += Amount::from(if rises { 0 } else { span });
            slope -= Amount::from(rises);
        }
        if level >= slope * Amount::from(further) {
            return None;
        }
        // Concave, no room at 0 and room here: the slope is positive.
        match Time::try_from(level / slope + 1) {
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
            let none = vec![0; tasks.len()];
            let mut late = Vec::from_iter(0..tasks.len());
            late.retain(|&i| by_search(&tasks, i, dispatch, processors, &none).is_none());
            let suspects = late.into_iter();
            let found = Analysis::new(tasks.clone(), dispatch, processors)
                .holds(suspects, &mut Work::default())
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
