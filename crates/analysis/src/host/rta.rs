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
//! first: their responses need others' slack least. Only when no such step is left the least R is looked for.
//!
//! How the least R is found: at R + d every term is at least min(a + d, b): it follows the cut or the
//! execution of one job up to b and stays there. The sum of these is concave in d, so Newton's method
//! from above finds the least d at which it leaves room; R grows by it until d = 0.
//!
//! What refuses early, and changes no answer: no slack exceeds that of a response with slacks that none
//! exceeds (D - J - C, at first). A VCPU that has no such response is beyond help. These responses are
//! computed when some VCPU is late and gains too slowly; they are where later searches start.
//!
//! Complexity: O(n) a step, at most one a corner of the sum (pseudo-polynomial), few in practice; a round
//! is O(n) steps, and as many rounds as slacks grow, within the allowance of work. Sufficient. Source:
//! Bertogna and Cirinei, RTSS 2007.

use super::{Candidate, Dispatch};
use crate::{
    task::Task,
    time::{Amount, Divisor, Time},
    work::{Exhausted, STEPS_SHARE, Work},
    workload::jobs_due,
};

/// A late VCPU that would take more rounds than this at its present pace gains too slowly.
const PATIENCE: Time = 4;

/// Terms and spans summed in 64 bits: each is below 2^55 (times are at most 2^53).
const CHUNK: usize = 128;

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
    /// Slacks that none exceeds.
    greatest: Vec<Time>,
}

/// A VCPU not yet known to meet its deadline.
struct Late {
    index: usize,
    /// By how much F_k(R) exceeds R at the deadline.
    excess: Time,
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
                terms: Vec::with_capacity(tasks.len()),
                spans: Vec::with_capacity(tasks.len()),
                tasks,
                dispatch,
                processors: processors as Amount,
            },
        }
    }

    fn holds(&mut self, suspect: usize, work: &mut Work) -> Result<bool, Exhausted> {
        match self.responses.dispatch {
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
        let mut order: Vec<usize> = (0..self.slacks.len()).collect();
        order.sort_by_key(|&index| -self.responses.tasks[index].window());
        let all = order.iter().map(|&index| Late { index, excess: 0 });
        let mut late = self.still_late(all.collect(), false, work)?.late;
        if !self.could_all_pass(&late, work)? {
            return Ok(false);
        }
        let (mut round, mut next_proof) = (0, 1);
        let mut searching = false;
        loop {
            let step = self.still_late(late, searching, work)?;
            late = step.late;
            if late.is_empty() {
                return Ok(true);
            }
            if round >= next_proof && step.slow {
                for &index in &order {
                    if self.slacks[index] < self.greatest[index] && !self.could_pass(index, work)? {
                        return Ok(false);
                    }
                }
                if !self.could_all_pass(&late, work)? {
                    return Ok(false);
                }
                next_proof = 2 * round + 2;
            }
            let mut grown = step.passed;
            for &index in &order {
                let settled = self.slacks[index] == self.greatest[index];
                if !settled && late.iter().all(|late| late.index != index) {
                    grown |= if searching {
                        self.improve(index, work)? == Some(true)
                    } else {
                        self.tighten(index, work)?
                    };
                }
            }
            if !grown && searching {
                return Ok(false);
            }
            searching = !grown;
            round += 1;
        }
    }

    /// Those of `late` that still are. `searching`: where the deadline itself does not show it, a response
    /// before it may.
    fn still_late(
        &mut self,
        late: Vec<Late>,
        searching: bool,
        work: &mut Work,
    ) -> Result<Step, Exhausted> {
        let count = late.len();
        let mut step = Step {
            late: Vec::with_capacity(count),
            passed: false,
            slow: false,
        };
        for Late {
            index,
            excess: before,
        } in late
        {
            let excess = self
                .responses
                .excess_at_deadline(index, &self.slacks, work)?;
            if excess <= 0 {
                self.slacks[index] = -excess;
            } else if !searching || self.improve(index, work)?.is_none() {
                step.slow |= excess / PATIENCE > before - excess;
                step.late.push(Late { index, excess });
            }
        }
        step.passed = step.late.len() < count;
        Ok(step)
    }

    /// Whether each of `late` would pass with slacks that none exceeds.
    fn could_all_pass(&mut self, late: &[Late], work: &mut Work) -> Result<bool, Exhausted> {
        for &Late { index, .. } in late {
            let greatest = &self.greatest;
            let excess = self.responses.excess_at_deadline(index, greatest, work)?;
            if excess > 0 && !self.could_pass(index, work)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// One step from the response known of a VCPU that passes; whether its slack grew.
    fn tighten(&mut self, index: usize, work: &mut Work) -> Result<bool, Exhausted> {
        let window = self.responses.tasks[index].window();
        let known = window - self.slacks[index];
        let response = self.responses.step(index, known, &self.slacks, work)?;
        self.slacks[index] = self.slacks[index].max(window - response);
        Ok(response < known)
    }

    /// Some(whether the slack grew) if the VCPU meets its deadline with the slacks known so far.
    fn improve(&mut self, index: usize, work: &mut Work) -> Result<Option<bool>, Exhausted> {
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

    /// Whether the VCPU would pass with slacks that none exceeds.
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

/// What became of the late VCPUs in a round.
struct Step {
    late: Vec<Late>,
    /// One is late no more.
    passed: bool,
    /// One gains too slowly.
    slow: bool,
}

/// Finds response times for given slacks.
struct Responses {
    tasks: Vec<Task>,
    dispatch: Dispatch,
    processors: Amount,
    terms: Vec<Term>,
    /// How far each term goes on at the response looked at.
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
    /// F_k(R) - R at R = D_k - J_k, where the work due decides.
    fn excess_at_deadline(
        &self,
        index: usize,
        slacks: &[Time],
        work: &mut Work,
    ) -> Result<Time, Exhausted> {
        let (demand, limit) = (self.tasks[index].demand(), self.tasks[index].window());
        self.pay(limit, work)?;
        let cut = limit - demand + 1;
        let sum = self.sum(index, slacks, |task, slack| {
            due(task, limit, slack).min(cut)
        });
        Ok(demand - limit + self.share(sum))
    }

    /// F_k(R) at `response`.
    fn step(
        &self,
        index: usize,
        response: Time,
        slacks: &[Time],
        work: &mut Work,
    ) -> Result<Time, Exhausted> {
        let (demand, limit) = (self.tasks[index].demand(), self.tasks[index].window());
        self.pay(response, work)?;
        let cut = response - demand + 1;
        let sum = self.sum(index, slacks, |task, slack| {
            let due = due(task, limit, slack);
            Term::new(task, slack, due).piece(response, cut).0
        });
        Ok(demand + self.share(sum))
    }

    /// The least R >= `start` with R = F_k(R), if it is at most the deadline; `start` is not above the least
    /// R of all.
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
            self.pay(response, work)?;
            let cut = response - demand + 1;
            let excess = self.excess(response, cut);
            match room(excess, &self.spans, self.processors, limit - response) {
                None => return Ok(None),
                Some(0) => return Ok(Some(response)),
                Some(further) => response += further,
            }
        }
    }

    /// Pays for looking at all tasks once.
    fn pay(&self, at: Time, work: &mut Work) -> Result<(), Exhausted> {
        work.spend(self.tasks.len() / STEPS_SHARE + 2, at)
    }

    /// The sum of `term` over the tasks other than `index`.
    fn sum(&self, index: usize, slacks: &[Time], term: impl Fn(&Task, Time) -> Time) -> Amount {
        let terms = |tasks: &[Task], slacks: &[Time]| -> Amount {
            let chunks = tasks.chunks(CHUNK).zip(slacks.chunks(CHUNK));
            let part = |(tasks, slacks): (&[Task], &[Time])| -> Time {
                let others = tasks.iter().zip(slacks);
                others.map(|(task, &slack)| term(task, slack)).sum()
            };
            chunks.map(part).map(Amount::from).sum()
        };
        terms(&self.tasks[..index], &slacks[..index])
            + terms(&self.tasks[index + 1..], &slacks[index + 1..])
    }

    /// What a sum of terms, none above the cut, takes of each processor.
    fn share(&self, sum: Amount) -> Time {
        // At most the number of tasks times the cut: where that does not fit, nothing else matters.
        Time::try_from(sum / self.processors)
            .map_or(Time::MAX / 2, |share| share.min(Time::MAX / 2))
    }

    fn prepare(&mut self, index: usize, slacks: &[Time]) {
        let limit = self.tasks[index].window();
        let dispatch = self.dispatch;
        let term = |(task, &slack): (&Task, &Time)| {
            // The work due by the deadline does not depend on R.
            let due = match dispatch {
                Dispatch::EarliestDeadline => due(task, limit, slack),
                Dispatch::FixedPriority => limit,
            };
            Term::new(task, slack, due)
        };
        let others = self.tasks.iter().zip(slacks);
        self.terms.clear();
        self.terms.extend(others.clone().take(index).map(term));
        if dispatch == Dispatch::EarliestDeadline {
            self.terms.extend(others.skip(index + 1).map(term));
        }
    }

    /// The sum of the terms at `response` above what m processors do up to the cut; collects how far the
    /// terms go on.
    fn excess(&mut self, response: Time, cut: Time) -> Amount {
        self.spans.clear();
        let mut sum: Amount = 0;
        for chunk in self.terms.chunks(CHUNK) {
            let mut part: Time = 0;
            self.spans.extend(chunk.iter().map(|term| {
                let (low, high) = term.piece(response, cut);
                part += low;
                high - low
            }));
            sum += Amount::from(part);
        }
        sum - self.processors * Amount::from(cut)
    }
}

impl Term {
    const fn new(task: &Task, slack: Time, due: Time) -> Self {
        Self {
            period: task.divisor(),
            execution: task.demand(),
            start: task.demand() + slack - task.deadline(),
            due,
        }
    }

    /// (low, high) of min(low + d, high), a lower bound of the term at `response` + d, equal at d = 0.
    const fn piece(&self, response: Time, cut: Time) -> (Time, Time) {
        let length = response - self.start;
        let jobs = self.period.quotient(length);
        let (before, rest) = (jobs * self.execution, length - jobs * self.period.value());
        // The job that executes at R, if one does, goes on to its end; one that has ended stays there.
        let end = least_of(before + self.execution, self.due);
        (least_of(least_of(end, before + rest), cut), end)
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
    let mut further = limit;
    loop {
        // The line that the sum follows just below `further`.
        let (mut level, mut slope) = (excess, processors);
        for chunk in spans.chunks(CHUNK) {
            let (mut ended, mut rising): (Time, Time) = (0, 0);
            for &span in chunk {
                let rises = span >= further;
                ended += if rises { 0 } else { span };
                rising += Time::from(rises);
            }
            level += Amount::from(ended);
            slope -= Amount::from(rising);
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

    use super::{Analysis, Dispatch, due};
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

    /// F_k(R) as the formula is written.
    fn by_formula(
        tasks: &[Task],
        index: usize,
        dispatch: Dispatch,
        processors: usize,
        slacks: &[Time],
        response: Time,
    ) -> Time {
        let task = &tasks[index];
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
        task.demand() + sum / processors as Time
    }

    /// The least R = F_k(R), looked for at every whole R.
    fn by_search(
        tasks: &[Task],
        index: usize,
        dispatch: Dispatch,
        processors: usize,
        slacks: &[Time],
    ) -> Option<Time> {
        let task = &tasks[index];
        (task.demand()..=task.window()).find(|&response| {
            by_formula(tasks, index, dispatch, processors, slacks, response) <= response
        })
    }

    /// The same by R = F_k(R) over and over.
    fn by_iteration(
        tasks: &[Task],
        index: usize,
        dispatch: Dispatch,
        processors: usize,
        slacks: &[Time],
    ) -> Option<Time> {
        let mut response = tasks[index].demand();
        while response <= tasks[index].window() {
            let next = by_formula(tasks, index, dispatch, processors, slacks, response);
            if next <= response {
                return Some(response);
            }
            response = next;
        }
        None
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

    type Least = fn(&[Task], usize, Dispatch, usize, &[Time]) -> Option<Time>;

    /// Slacks grow in the order given until none does: the verdict, and the round that it took.
    fn plain_rounds(
        tasks: &[Task],
        dispatch: Dispatch,
        processors: usize,
        least: Least,
    ) -> (bool, usize) {
        let mut slacks = vec![0; tasks.len()];
        for round in 0.. {
            let (mut late, mut grown) = (0, false);
            for (index, task) in tasks.iter().enumerate() {
                match least(tasks, index, dispatch, processors, &slacks) {
                    None => late += 1,
                    Some(response) => {
                        grown |= task.window() - response > slacks[index];
                        slacks[index] = task.window() - response;
                    }
                }
            }
            if late == 0 || !grown {
                return (late == 0, round);
            }
        }
        unreachable!("slacks do not grow for ever")
    }

    /// The verdicts that were compared.
    #[derive(Debug, Default)]
    struct Verdicts {
        accepted: usize,
        /// Of the accepted, those that took more than one round.
        later: usize,
        refused: usize,
    }

    impl Verdicts {
        /// Requires the verdict of plain rounds.
        fn compare(
            &mut self,
            tasks: &[Task],
            dispatch: Dispatch,
            processors: usize,
            suspect: usize,
            least: Least,
        ) {
            let (expected, round) = plain_rounds(tasks, dispatch, processors, least);
            let found = Analysis::new(tasks.to_vec(), dispatch, processors)
                .holds(suspect, &mut Work::default())
                .unwrap();
            assert_eq!(found, expected, "{tasks:?} {dispatch:?} {processors}");
            self.accepted += usize::from(found);
            self.later += usize::from(found && round > 0);
            self.refused += usize::from(!found);
        }
    }

    #[test]
    fn verdicts_equal_plain_rounds() {
        let mut rng = ChaCha8Rng::seed_from_u64(32);
        let mut verdicts = Verdicts::default();
        for _ in 0..60_000 {
            let tasks = random_tasks(&mut rng, 2);
            let processors = rng.random_range(1..=3);
            let dispatch = DISPATCHES[rng.random_range(0..2)];
            let suspect = rng.random_range(0..tasks.len());
            verdicts.compare(&tasks, dispatch, processors, suspect, by_search);
        }
        let Verdicts {
            accepted,
            later,
            refused,
        } = verdicts;
        assert!(
            accepted > 5_000 && later > 50 && refused > 5_000,
            "{verdicts:?}"
        );
    }

    /// Sets as a cloud has them: nearly full, in nanoseconds, a fifth of the VCPUs heavy.
    #[test]
    fn verdicts_of_large_sets_equal_plain_rounds() {
        let mut rng = ChaCha8Rng::seed_from_u64(33);
        let mut verdicts = Verdicts::default();
        for _ in 0..400 {
            let processors = rng.random_range(4..=8);
            let share = rng.random_range(0.5..0.7) * processors as f64;
            let weights: Vec<f64> = (0..32)
                .map(|_| {
                    if rng.random_bool(0.2) {
                        rng.random_range(0.3..0.8)
                    } else {
                        rng.random_range(0.01..0.1)
                    }
                })
                .collect();
            let sum: f64 = weights.iter().sum();
            let mut tasks: Vec<Task> = weights
                .iter()
                .map(|weight| {
                    let milliseconds = [1, 2, 5, 10, 20, 50, 100][rng.random_range(0..7)];
                    let period: Time = milliseconds * 1_000_000 + rng.random_range(0..1_000);
                    let bandwidth = (weight * share / sum).min(0.95);
                    let jitter = rng.random_range(0..=period / 50);
                    Task::server((period as f64 * bandwidth) as Time, period, period, jitter)
                })
                .collect();
            tasks.sort_by_key(Task::period);
            let dispatch = DISPATCHES[usize::from(rng.random_bool(0.2))];
            let suspect = rng.random_range(0..tasks.len());
            verdicts.compare(&tasks, dispatch, processors, suspect, by_iteration);
        }
        let Verdicts {
            accepted,
            later,
            refused,
        } = verdicts;
        assert!(accepted > 50 && later > 10 && refused > 50, "{verdicts:?}");
    }

    /// What `excess_at_deadline` rests on.
    #[test]
    fn work_due_by_a_deadline_is_never_more_than_work_in_the_window() {
        let mut rng = ChaCha8Rng::seed_from_u64(34);
        for _ in 0..200_000 {
            let task = random_tasks(&mut rng, 1)[0];
            let slack = rng.random_range(0..=task.window() - task.demand());
            let window = rng.random_range(1..=200);
            let reach = window + task.deadline() - task.demand() - slack;
            assert!(
                due(&task, window, slack) <= packed(&task, reach),
                "{task:?} {slack} {window}"
            );
        }
    }
}
