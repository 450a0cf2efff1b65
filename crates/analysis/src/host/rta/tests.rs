//! Responses equal search, and verdicts plain rounds of it, with words of 32 and of 64 bits.

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::{Analysis, Dispatch, responses::KEPT, word::Word};
use crate::{
    task::Task,
    time::Time,
    work::Work,
    workload::{jobs_due, packed},
};

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

/// Work due within a window that ends with a deadline.
fn due(task: &Task, window: Time, slack: Time) -> Time {
    let jobs = jobs_due(task, window);
    jobs * task.demand() + (window - jobs * task.period() - slack).clamp(0, task.demand())
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

fn least<W: Word>(
    tasks: &[Task],
    dispatch: Dispatch,
    processors: usize,
    index: usize,
    start: Time,
    slacks: &[Time],
) -> Option<Time> {
    let slacks: Vec<W> = slacks.iter().map(|&slack| W::of(slack)).collect();
    Analysis::new(tasks, dispatch, processors)
        .responses
        .least(index, W::of(start), &slacks, &mut Work::default())
        .unwrap()
        .map(Into::into)
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
            // Any start up to the answer finds it.
            let first = tasks[index].demand();
            let start = rng.random_range(first..=expected.unwrap_or(first));
            let narrow = least::<i32>(&tasks, dispatch, processors, index, start, &slacks);
            assert_eq!(
                narrow, expected,
                "{tasks:?} {slacks:?} {index} {processors}"
            );
            let whole = least::<i64>(&tasks, dispatch, processors, index, start, &slacks);
            assert_eq!(whole, expected, "{tasks:?} {slacks:?} {index} {processors}");
            found += usize::from(expected.is_some());
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
        let found = Analysis::<i32>::new(tasks, dispatch, processors)
            .holds(suspect, &mut Work::default())
            .unwrap();
        assert_eq!(found, expected, "{tasks:?} {dispatch:?} {processors}");
        let wide = Analysis::<i64>::new(tasks, dispatch, processors)
            .holds(suspect, &mut Work::default())
            .unwrap();
        assert_eq!(wide, expected, "{tasks:?} {dispatch:?} {processors}");
        self.accepted += usize::from(found);
        self.later += usize::from(found && round > 0);
        self.refused += usize::from(!found);
    }

    /// There were more than so many of each kind: else the comparison says little.
    fn require(&self, accepted: usize, later: usize, refused: usize) {
        assert!(
            self.accepted > accepted && self.later > later && self.refused > refused,
            "{self:?}"
        );
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
    verdicts.require(5_000, 50, 5_000);
}

/// Sets as a cloud has them: nearly full, in nanoseconds, a fifth of the VCPUs heavy; some of more VCPUs than
/// those whose work due is kept.
#[test]
fn verdicts_of_large_sets_equal_plain_rounds() {
    let mut rng = ChaCha8Rng::seed_from_u64(33);
    let mut verdicts = Verdicts::default();
    for set in 0..400 {
        let count = if set % 100 == 0 { KEPT + 1 } else { 32 };
        let processors = rng.random_range(count / 8..=count / 4);
        let share = rng.random_range(0.5..0.7) * processors as f64;
        let weights: Vec<f64> = (0..count)
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
    verdicts.require(50, 10, 50);
}

/// What `at_deadline` rests on.
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
