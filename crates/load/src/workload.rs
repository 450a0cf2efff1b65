//! A real-time task as a guest runs it: when its jobs are released, what each computes, and what became of each.
//!
//! **Releases.** A job is released `period_us` after the one before, or later by a random time up to `extra_us`: a
//! sporadic task. As in NISP, a job that is not done by then delays the next release to its own end; with a backlog,
//! as in RT-Xen's experiments, it delays none and jobs queue up.
//!
//! **Execution.** A job computes `work` units times its execution-time factor, fixed or drawn for each job.
//!
//! Rule: what a workload draws is a function of its seed alone, and factors move no release: [`Workload::plan`]. The
//! JSON of a [`Task`] is a workload, and a [`Ran`] can be read from the JSON of an [`Answer`].

mod policy;
#[cfg(test)]
mod tests;

use crate::computation::{Computation, Walk};
#[cfg(doc)]
use crate::job::Ran;
use crate::job::Task;
pub use policy::Policy;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{RngCore, SeedableRng};
use serde::{Deserialize, Serialize};
use std::thread;
use std::time::{Duration, Instant};

/// The most jobs of a run: each is recorded in memory.
pub const MOST_JOBS: u64 = 1_000_000;
/// The largest execution-time factor.
pub const LARGEST_FACTOR: f64 = 1000.0;

/// What a workload is.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Workload {
    /// From one release to the next, at least.
    pub period_us: u64,
    /// A job's length in units; either this or [`Workload::execution_us`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub work: Option<u64>,
    /// A job's length by the time that it takes here and now, undisturbed: calibrated before the first release.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub execution_us: Option<u64>,
    /// How many jobs.
    pub jobs: u64,
    /// Whether releases are independent of what is late.
    #[serde(default)]
    pub backlog: bool,
    /// The most that a release may come later than [`Workload::period_us`] says, uniform from 0 on.
    #[serde(default)]
    pub extra_us: u64,
    /// How much of its length a job takes.
    #[serde(default)]
    pub factor: Factor,
    /// The buffer that a job walks through, in KiB; none: it computes in registers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub buffer_kib: Option<u32>,
    /// How it is scheduled; none: as it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub policy: Option<Policy>,
    /// From a job's release to when it should be done; none: the period.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline_us: Option<u64>,
    /// Of all that is random.
    #[serde(default)]
    pub seed: u64,
}

/// An execution-time factor: a number, or the two between which each job's is uniform.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(
    untagged,
    expecting = "a factor is a number such as 1.2, or two such as [0.5, 1.5]"
)]
pub enum Factor {
    /// Every job's.
    Fixed(f64),
    /// The least and the largest.
    Uniform([f64; 2]),
}

impl Default for Factor {
    fn default() -> Self {
        Self::Fixed(1.0)
    }
}

/// What is drawn for a job.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Planned {
    /// From its release to the next one at least, in nanoseconds.
    pub separation_ns: u64,
    /// Of its length.
    pub factor: f64,
}

/// A job that was done; times in nanoseconds after the start of the run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    /// When it was released.
    pub released_ns: u64,
    /// When it began to compute.
    pub started_ns: u64,
    /// When it was finished.
    pub finished_ns: u64,
    /// When it should have been.
    pub deadline_ns: u64,
    /// Whether it was finished after that.
    pub missed: bool,
}

/// What a run answers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Answer {
    /// Every job.
    pub done: Vec<Record>,
    /// How many of them were finished after their deadline.
    pub missed: u64,
    /// A job's length in units, by a factor of 1.
    pub work: u64,
    /// How long the thread waited for a CPU while it could have run, in nanoseconds.
    pub waited_ns: u64,
}

/// How many jobs were done, and how many of them after their deadline, over all runs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Count {
    /// Jobs.
    pub jobs: u64,
    /// Of these, those that missed their deadlines.
    pub misses: u64,
}

impl Count {
    /// Counts a job.
    pub fn add(&mut self, job: &Record) {
        self.jobs += 1;
        self.misses += u64::from(job.missed);
    }
}

/// Why a workload cannot be run.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum WorkloadError {
    /// Neither or both lengths.
    #[error(
        "the task has {0} of \"work\" and \"execution_us\"; give one: units of work, as `calibrate` answers them, or \
         microseconds"
    )]
    Length(&'static str),
    /// Too many jobs.
    #[error(
        "\"jobs\" is {0}, and each job is kept until the run ends; give {most} at most, in several runs if need be",
        most = MOST_JOBS
    )]
    Jobs(u64),
    /// A factor that makes no sense.
    #[error(
        "\"factor\" is {0}; give a number from 0 to {most}, or two such as [0.5, 1.5], the lower first",
        most = LARGEST_FACTOR
    )]
    Factor(String),
    /// A buffer that is none, or too large.
    #[error("\"buffer_kib\" is {0}; give 1 to {most}, or leave it out to compute in registers", most = Walk::MOST_KIB)]
    Buffer(u32),
    /// No memory for the buffer.
    #[error(
        "there is no memory for a buffer of {0} KiB; give a smaller \"buffer_kib\", or the guest more memory"
    )]
    Memory(u32),
    /// A policy that is none.
    #[error(
        "\"{0}\" is no policy; write normal, fifo:PRIORITY with 1 to 99, or deadline:RUNTIME/DEADLINE/PERIOD in \
         microseconds, none longer than the next"
    )]
    Policy(String),
}

impl From<Task> for Workload {
    fn from(task: Task) -> Self {
        Self {
            period_us: task.period_us,
            work: Some(task.work),
            execution_us: None,
            jobs: task.jobs,
            backlog: task.backlog,
            extra_us: 0,
            factor: Factor::default(),
            buffer_kib: None,
            policy: None,
            deadline_us: None,
            seed: 0,
        }
    }
}

impl Workload {
    /// What the workload draws: for each job, endlessly, the same for the same seed.
    ///
    /// With a backlog, and whenever no job is late, releases are the sums of the separations.
    pub fn plan(&self) -> impl Iterator<Item = Planned> + use<> {
        let (mut separations, mut factors) = (self.random(0), self.random(1));
        let (period_ns, extra_ns) = (nanoseconds(self.period_us), nanoseconds(self.extra_us));
        let factor = self.factor;
        std::iter::repeat_with(move || Planned {
            separation_ns: period_ns.saturating_add(up_to(&mut separations, extra_ns)),
            factor: factor.draw(&mut factors),
        })
    }

    /// A generator of its own for each thing that is drawn, so that one moves no other.
    fn random(&self, stream: u64) -> ChaCha8Rng {
        let mut random = ChaCha8Rng::seed_from_u64(self.seed);
        random.set_stream(stream);
        random
    }

    /// Makes the buffer and calibrates: what takes time before the first release.
    ///
    /// # Errors
    /// What makes no sense, or no memory.
    pub fn prepare(&self) -> Result<Prepared<'_>, WorkloadError> {
        if self.jobs > MOST_JOBS {
            return Err(WorkloadError::Jobs(self.jobs));
        }
        self.factor.check()?;
        let mut computation = computation(self.buffer_kib)?;
        let units = match (self.work, self.execution_us) {
            (Some(units), None) => units,
            (None, Some(us)) => computation.units_for(Duration::from_micros(us)),
            (None, None) => return Err(WorkloadError::Length("neither")),
            (Some(_), Some(_)) => return Err(WorkloadError::Length("both")),
        };
        Ok(Prepared {
            workload: self,
            computation,
            units,
        })
    }
}

/// What jobs with such a buffer compute, or without one.
///
/// # Errors
/// A buffer that is none, or no memory for it.
pub fn computation(buffer_kib: Option<u32>) -> Result<Computation, WorkloadError> {
    match buffer_kib {
        None => Ok(Computation::Registers),
        Some(kib @ 1..=Walk::MOST_KIB) => {
            let walk = Walk::through(kib).map_err(|_| WorkloadError::Memory(kib))?;
            Ok(Computation::Memory(walk))
        }
        Some(kib) => Err(WorkloadError::Buffer(kib)),
    }
}

/// A workload that can begin at once.
#[derive(Debug)]
pub struct Prepared<'w> {
    workload: &'w Workload,
    computation: Computation,
    units: u64,
}

impl Prepared<'_> {
    /// A job's length in units, by a factor of 1.
    pub fn units(&self) -> u64 {
        self.units
    }

    /// Does the jobs on this thread, and tells of each after it is done.
    pub fn run(&mut self, tell: &mut dyn FnMut(&Record)) -> Vec<Record> {
        let Workload {
            period_us,
            jobs,
            backlog,
            deadline_us,
            ..
        } = *self.workload;
        let deadline = nanoseconds(deadline_us.unwrap_or(period_us));
        // No job waits for memory.
        let mut done = Vec::with_capacity(jobs as usize);
        let begun = Instant::now();
        let now_ns = || begun.elapsed().as_nanos() as u64;
        let mut released_ns: u64 = 0;
        for planned in self.workload.plan().take(jobs as usize) {
            thread::sleep(Duration::from_nanos(released_ns.saturating_sub(now_ns())));
            let started_ns = now_ns();
            let units = self.units as f64 * planned.factor;
            self.computation.work(units.round() as u64);
            let finished_ns = now_ns();
            let deadline_ns = released_ns.saturating_add(deadline);
            let job = Record {
                released_ns,
                started_ns,
                finished_ns,
                deadline_ns,
                missed: finished_ns > deadline_ns,
            };
            done.push(job);
            tell(&job);
            released_ns = released_ns.saturating_add(planned.separation_ns);
            if !backlog {
                released_ns = released_ns.max(finished_ns);
            }
        }
        done
    }
}

impl Factor {
    fn check(self) -> Result<(), WorkloadError> {
        let is_one = |factor: f64| (0.0..=LARGEST_FACTOR).contains(&factor);
        match self {
            Self::Fixed(factor) if is_one(factor) => Ok(()),
            Self::Uniform([least, most]) if is_one(least) && is_one(most) && least <= most => {
                Ok(())
            }
            Self::Fixed(factor) => Err(WorkloadError::Factor(factor.to_string())),
            Self::Uniform(both) => Err(WorkloadError::Factor(format!("{both:?}"))),
        }
    }

    fn draw(self, random: &mut ChaCha8Rng) -> f64 {
        match self {
            Self::Fixed(factor) => factor,
            Self::Uniform([least, most]) => {
                // 53 bits: all that a number between 0 and 1 has.
                let share = (random.next_u64() >> 11) as f64 / (1_u64 << 53) as f64;
                least + (most - least) * share
            }
        }
    }
}

fn nanoseconds(us: u64) -> u64 {
    us.saturating_mul(1000)
}

/// Uniform from 0 to `most`.
fn up_to(random: &mut ChaCha8Rng, most: u64) -> u64 {
    ((u128::from(random.next_u64()) * (u128::from(most) + 1)) >> 64) as u64
}
