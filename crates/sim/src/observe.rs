//! What a simulation tells while it runs.

/// A stretch of time in which one VCPU ran on one CPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stretch {
    /// The CPU.
    pub cpu: u32,
    /// The VCPU that held the CPU: its budget went by. Number over all guests.
    pub holder: u32,
    /// The VCPU that ran; `None`: the holder idled its budget away.
    pub runner: Option<u32>,
    /// The task that ran; `None`: none, or a VCPU without tasks.
    pub task: Option<u32>,
    /// Start, ns.
    pub start_ns: u64,
    /// End, ns.
    pub end_ns: u64,
}

/// A job that has finished.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Job {
    /// Its task, number over all guests.
    pub task: u32,
    /// Release, ns.
    pub release_ns: u64,
    /// Absolute deadline, ns.
    pub deadline_ns: u64,
    /// Finish, ns.
    pub finish_ns: u64,
}

/// Listens to a simulation.
pub trait Observer {
    /// A stretch has ended. Adjacent ones may be of the same VCPU and task.
    fn stretch(&mut self, _stretch: &Stretch) {}
    /// A job has finished.
    fn job(&mut self, _job: &Job) {}
}

/// Does not listen.
#[derive(Debug, Clone, Copy, Default)]
pub struct Nobody;

impl Observer for Nobody {}

/// Keeps everything, for a chart or a trace.
#[derive(Debug, Clone, Default)]
pub struct Recorder {
    /// Stretches in order of their ends; adjacent ones of the same VCPU and task are joined.
    pub stretches: Vec<Stretch>,
    /// Jobs in order of their ends.
    pub jobs: Vec<Job>,
    /// The last stretch of each CPU, a position.
    last: Vec<usize>,
}

impl Observer for Recorder {
    fn stretch(&mut self, stretch: &Stretch) {
        let cpu = stretch.cpu as usize;
        if self.last.len() <= cpu {
            self.last.resize(cpu + 1, usize::MAX);
        }
        if let Some(last) = self.stretches.get_mut(self.last[cpu]) {
            let same = (last.holder, last.runner, last.task)
                == (stretch.holder, stretch.runner, stretch.task);
            if same && last.end_ns == stretch.start_ns {
                last.end_ns = stretch.end_ns;
                return;
            }
        }
        self.last[cpu] = self.stretches.len();
        self.stretches.push(*stretch);
    }

    fn job(&mut self, job: &Job) {
        self.jobs.push(*job);
    }
}
