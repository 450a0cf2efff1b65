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
//! How the least R is found: R grows by the fixed point's step or, if that is more, along the straight piece
//! of the sum to where R is enough (the fixed point alone creeps where many others are busy).
//!
//! Complexity: O(n) a step, at most one a corner of the sum (pseudo-polynomial); at most [`ROUNDS`] rounds. Sufficient.
//! Source: Bertogna and Cirinei, RTSS 2007.

use super::{Candidate, Dispatch};
use crate::{
    task::Task,
    time::{Amount, Time},
    work::{Exhausted, Work},
};

/// Rounds of slack improvement.
pub const ROUNDS: usize = 8;

/// Rounds that look for a proof that no rounds will do.
const OPTIMISTIC_ROUNDS: usize = 3;

/// True if the analysis shows `vcpus` (in priority order under fixed priorities) schedulable.
pub(super) fn test(
    vcpus: &[Candidate],
    dispatch: Dispatch,
    processors: usize,
    work: &mut Work,
) -> bool {
    let mut analysis = Analysis {
        vcpus,
        dispatch,
        processors,
        slacks: vec![0; vcpus.len()],
        terms: Vec::with_capacity(vcpus.len()),
    };
    analysis.holds(work).unwrap_or(false)
}

struct Analysis<'a> {
    vcpus: &'a [Candidate],
    dispatch: Dispatch,
    processors: usize,
    slacks: Vec<Time>,
    terms: Vec<Term>,
}

impl Analysis<'_> {
    /// A VCPU that passes once passes for good, as slacks only grow: rounds look at the others first.
    fn holds(&mut self, work: &mut Work) -> Result<bool, Exhausted> {
        let mut late = Vec::new();
        for index in 0..self.vcpus.len() {
            if self.improve(index, work)?.is_some() {
                continue;
            }
            // Under fixed priorities the slacks that count are final.
            if self.dispatch == Dispatch::FixedPriority {
                return Ok(false);
            }
            late.push(index);
        }
        if late.is_empty() {
            return Ok(true);
        }
        if !self.could_pass(&late, work)? {
            return Ok(false);
        }
        for _ in 1..ROUNDS {
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
            for index in (0..self.vcpus.len()).filter(|index| !still_late.contains(index)) {
                grown |= self.improve(index, work)? == Some(true);
            }
            if !grown {
                return Ok(false);
            }
            late = still_late;
        }
        Ok(late.is_empty())
    }

    /// Some(whether the slack grew) if the VCPU meets its deadline with the slacks known so far.
    fn improve(&mut self, index: usize, work: &mut Work) -> Result<Option<bool>, Exhausted> {
        let response = response(
            self.vcpus,
            index,
            self.dispatch,
            self.processors,
            &self.slacks,
            &mut self.terms,
            work,
        )?;
        Ok(response.map(|response| {
            let slack = self.vcpus[index].task.window() - response;
            let grown = slack > self.slacks[index];
            self.slacks[index] = self.slacks[index].max(slack);
            grown
        }))
    }

    /// Whether the late VCPUs would pass with slacks that no rounds can exceed: first everyone's
    /// D - J - C, then what responses with those leave.
    fn could_pass(&mut self, late: &[usize], work: &mut Work) -> Result<bool, Exhausted> {
        let mut greatest: Vec<Time> = self
            .vcpus
            .iter()
            .map(|vcpu| vcpu.task.window() - vcpu.task.demand())
            .collect();
        for _ in 0..OPTIMISTIC_ROUNDS {
            let others = (0..self.vcpus.len()).filter(|index| !late.contains(index));
            for index in late.iter().copied().chain(others) {
                let response = response(
                    self.vcpus,
                    index,
                    self.dispatch,
                    self.processors,
                    &greatest,
                    &mut self.terms,
                    work,
                )?;
                let Some(response) = response else {
                    return Ok(false);
                };
                greatest[index] = self.vcpus[index].task.window() - response;
            }
        }
        Ok(true)
    }
}

/// The least R with R = C_k + floor(sum / m), if it is at most the deadline.
fn response(
    vcpus: &[Candidate],
    index: usize,
    dispatch: Dispatch,
    processors: usize,
    slacks: &[Time],
    terms: &mut Vec<Term>,
    work: &mut Work,
) -> Result<Option<Time>, Exhausted> {
    let task = &vcpus[index].task;
    let limit = task.window();
    terms.clear();
    terms.extend(
        vcpus
            .iter()
            .zip(slacks)
            .enumerate()
            .filter(|&(position, _)| match dispatch {
                Dispatch::EarliestDeadline => position != index,
                Dispatch::FixedPriority => position < index,
            })
            .map(|(_, (other, &slack))| Term::new(&other.task, dispatch, limit, slack)),
    );
    let processors = processors as Amount;
    let mut response = task.demand();
    loop {
        work.spend(terms.len() + 1, response)?;
        let cut = response - task.demand() + 1;
        let (mut sum, mut slope, mut straight) = (0, 0, limit - response + 1);
        for term in terms.iter_mut() {
            let (value, rising, until) = term.at(response, cut);
            sum += Amount::from(value);
            slope += Amount::from(rising);
            straight = straight.min(until);
        }
        // R is enough iff sum < m (R - C_k + 1).
        let excess = sum - processors * Amount::from(cut);
        if excess < 0 {
            return Ok(Some(response));
        }
        // One step of the fixed point, or along the straight piece to where it is enough or ends.
        let step = excess / processors + 1;
        let along = if slope < processors {
            (excess / (processors - slope) + 1).min(straight.into())
        } else {
            straight.into()
        };
        let next = Amount::from(response) + step.max(along);
        match Time::try_from(next) {
            Ok(next) if next <= limit => response = next,
            _ => return Ok(None),
        }
    }
}

/// min(W_i(R), I_i, R - C_k + 1) of one other task as R grows: straight pieces, without a division
/// while R stays in the same period of the task.
struct Term {
    execution: Time,
    period: Time,
    /// Where in R the task's current period starts.
    start: Time,
    /// Work of its earlier jobs.
    before: Time,
    due: Time,
}

impl Term {
    fn new(task: &Task, dispatch: Dispatch, limit: Time, slack: Time) -> Self {
        Self {
            execution: task.demand(),
            period: task.period(),
            start: task.demand() + slack - task.deadline(),
            before: 0,
            // The work due by the deadline does not depend on R.
            due: match dispatch {
                Dispatch::EarliestDeadline => due(task, limit, slack),
                Dispatch::FixedPriority => Time::MAX,
            },
        }
    }

    /// The value at R (never less than at the call before), its slope, and how long it is straight.
    const fn at(&mut self, response: Time, cut: Time) -> (Time, bool, Time) {
        let mut rest = response - self.start;
        if rest >= self.period {
            let jobs = rest / self.period;
            self.start += jobs * self.period;
            self.before += jobs * self.execution;
            rest -= jobs * self.period;
        }
        let rising = rest < self.execution;
        let (done, until) = if rising {
            (rest, self.execution - rest)
        } else {
            (self.execution, self.period - rest)
        };
        let executed = self.before + done;
        let room = self.due - executed;
        if room <= 0 {
            return if cut < self.due {
                (cut, true, self.due - cut)
            } else {
                (self.due, false, Time::MAX)
            };
        }
        let until = if rising && room < until { room } else { until };
        if cut > executed {
            (executed, rising, until)
        } else if rising {
            (cut, true, until)
        } else {
            let meets = if cut == executed { 1 } else { executed - cut };
            (
                cut,
                cut < executed,
                if meets < until { meets } else { until },
            )
        }
    }
}

/// Work due within a window that ends with a deadline.
fn due(task: &Task, window: Time, slack: Time) -> Time {
    let reach = window + task.jitter() - task.deadline();
    let jobs = if reach < 0 {
        0
    } else {
        reach / task.period() + 1
    };
    jobs * task.demand() + (window - jobs * task.period() - slack).clamp(0, task.demand())
}

#[cfg(test)]
mod tests {
    use rand::{Rng, SeedableRng};
    use rand_chacha::ChaCha8Rng;

    use super::{super::Candidate, Dispatch, due, response};
    use crate::{
        task::Task,
        time::{Amount, Time},
        work::Work,
        workload::packed,
    };

    /// The formula as written, at every whole R.
    fn by_search(
        vcpus: &[Candidate],
        index: usize,
        dispatch: Dispatch,
        processors: usize,
        slacks: &[Time],
    ) -> Option<Time> {
        let task = &vcpus[index].task;
        (task.demand()..=task.window()).find(|&response| {
            let sum: Time = (0..vcpus.len())
                .filter(|&i| i != index && (dispatch == Dispatch::EarliestDeadline || i < index))
                .map(|i| {
                    let (other, slack) = (&vcpus[i].task, slacks[i]);
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
            let vcpus: Vec<Candidate> = (0..rng.random_range(1..=7))
                .map(|index| {
                    let period = rng.random_range(2..=60);
                    let execution = rng.random_range(1..=period);
                    let jitter = rng.random_range(0..=(period - execution).min(3));
                    Candidate {
                        index,
                        vm: index,
                        task: Task::server(execution, period, period, jitter),
                        mask: None,
                    }
                })
                .collect();
            let slacks: Vec<Time> = vcpus
                .iter()
                .map(|vcpu| rng.random_range(0..=vcpu.task.window() - vcpu.task.demand()))
                .collect();
            let processors = rng.random_range(1..=4);
            let dispatch = if rng.random() {
                Dispatch::EarliestDeadline
            } else {
                Dispatch::FixedPriority
            };
            for index in 0..vcpus.len() {
                let expected = by_search(&vcpus, index, dispatch, processors, &slacks);
                let work = &mut Work::default();
                let terms = &mut Vec::new();
                let least =
                    response(&vcpus, index, dispatch, processors, &slacks, terms, work).unwrap();
                assert_eq!(least, expected, "{vcpus:?} {slacks:?} {index} {processors}");
                found += Amount::from(least.is_some());
            }
        }
        assert!(found > 20_000, "{found}");
    }
}
