//! What is simulated: a host, its VCPUs, the guests and their tasks.

pub use steadyvm_config::Late;
use steadyvm_sched_policy::{CpuSet, Host, MAX_CPUS, Parameters};

/// The longest duration of a simulation, period, deadline or execution time, ns (104 days).
pub const MAX_TIME_NS: u64 = 1 << 53;

/// The most VCPUs, and the most tasks.
pub const MAX_PARTS: usize = 100_000;

/// A host and everything on it.
#[derive(Debug, Clone)]
pub struct System {
    /// Order of servers, queues, quantum.
    pub host: Host,
    /// CPUs 0 to `cpus` - 1.
    pub cpus: u32,
    /// What decisions cost.
    pub overheads: Overheads,
    /// Who keeps budgets, and whether chance or an adversary decides what is open.
    pub play: Play,
    /// The guests.
    pub guests: Vec<Guest>,
}

/// How a system is played.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Play {
    /// Who keeps budgets.
    pub kept_by: KeptBy,
    /// VCPUs of VMs without tasks wake and sleep at bad moments instead of having work always, and what is drawn is
    /// mostly an end of its range.
    pub adversary: bool,
    /// Servers' first periods begin at any time within a period, and tasks release their first jobs after that.
    pub random_phases: bool,
    /// In a guest with global queues no VCPU sleeps while there is work: what multiprocessor interfaces assume, since a
    /// VCPU that wakes later begins its server later. Else as many are awake as there are jobs.
    pub stays_awake: bool,
    /// What becomes of a job that has not finished at its deadline.
    pub late: Late,
}

/// Who keeps budgets.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum KeptBy {
    /// The policy, as in the BPF scheduler.
    #[default]
    Policy,
    /// The kernel's `SCHED_DEADLINE`: EDF, whatever the order, and constant-bandwidth servers, whatever the kind.
    Deadline,
}

/// Time that a CPU spends before a VCPU that it switches to goes on. The VCPU's own budget pays, since schedulers charge
/// who has the CPU: who is preempted pays for its own cold caches. A VCPU that always runs (budget = period) has none. All
/// ns.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Overheads {
    /// A decision that changes who runs.
    pub decision_ns: u64,
    /// A switch to another VCPU.
    pub context_switch_ns: u64,
    /// A VCPU's start on another CPU than its last.
    pub migration_ns: u64,
    /// Filling the caches again, at every start: others had the CPU, or the host had.
    pub cache_reload_ns: u64,
}

/// What a guest schedules by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GuestOrder {
    /// Earliest deadline first.
    EarliestDeadline,
    /// Fixed priorities, the shorter relative deadline first.
    DeadlineMonotonic,
}

/// A virtual machine.
#[derive(Debug, Clone)]
pub struct Guest {
    /// For reports.
    pub name: String,
    /// How it orders its jobs.
    pub order: GuestOrder,
    /// Its VCPUs.
    pub vcpus: Vec<Vcpu>,
    /// Its tasks. Without any, its VCPUs always have work.
    pub tasks: Vec<Task>,
}

/// A virtual CPU.
#[derive(Debug, Clone)]
pub struct Vcpu {
    /// Its server.
    pub parameters: Parameters,
    /// Where it may run; on a partitioned host one CPU.
    pub cpus: CpuSet,
}

/// A task that releases jobs.
#[derive(Debug, Clone)]
pub struct Task {
    /// For reports.
    pub name: String,
    /// The only VCPU of its guest that runs it, by position; `None`: any (global).
    pub vcpu: Option<usize>,
    /// Longest execution time of a job, ns.
    pub execution_ns: u64,
    /// Relative deadline, ns.
    pub deadline_ns: u64,
    /// Least time between releases, ns.
    pub period_ns: u64,
    /// First release, ns.
    pub offset_ns: u64,
    /// Execution times are uniform from this share of the longest to the longest, percent.
    pub execution_factor_percent: u32,
    /// Time between releases is uniform from the period to this share of it, percent. 100: periodic.
    pub longest_gap_percent: u32,
    /// A job arrives up to so long after its release, uniformly, ns.
    pub jitter_ns: u64,
    /// A job sleeps once, at any point of its execution, up to so long, ns.
    pub suspension_ns: u64,
}

impl Task {
    /// A periodic task with deadline = period, first released at 0, whose jobs take their longest time.
    pub fn periodic(name: impl Into<String>, execution_ns: u64, period_ns: u64) -> Self {
        Self {
            name: name.into(),
            vcpu: None,
            execution_ns,
            deadline_ns: period_ns,
            period_ns,
            offset_ns: 0,
            execution_factor_percent: 100,
            longest_gap_percent: 100,
            jitter_ns: 0,
            suspension_ns: 0,
        }
    }
}

/// Why a system cannot be simulated.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SystemError {
    /// No CPUs, or more than the policy can name.
    #[error("the host has {0} CPUs; the simulator takes 1 to {MAX_CPUS}")]
    Cpus(u32),
    /// No VCPUs at all, or too many parts.
    #[error(
        "there are {vcpus} VCPUs and {tasks} tasks; the simulator takes 1 to {MAX_PARTS} VCPUs and at most as many tasks"
    )]
    Size {
        /// VCPUs.
        vcpus: usize,
        /// Tasks.
        tasks: usize,
    },
    /// A VCPU that may run nowhere.
    #[error("VM \"{guest}\", VCPU {vcpu}: none of its CPUs is on this host; change its mask")]
    NoCpu {
        /// The VM.
        guest: String,
        /// Its VCPU.
        vcpu: usize,
    },
    /// A partitioned host needs one CPU per VCPU.
    #[error(
        "VM \"{guest}\", VCPU {vcpu}: on a partitioned host a VCPU has exactly one CPU; give it one"
    )]
    NotPartitioned {
        /// The VM.
        guest: String,
        /// Its VCPU.
        vcpu: usize,
    },
    /// A time out of range.
    #[error(
        "VM \"{guest}\", task \"{task}\": {what} is {value_ns} ns; it must be within 1 and {MAX_TIME_NS} ns"
    )]
    Time {
        /// The VM.
        guest: String,
        /// The task.
        task: String,
        /// Which time.
        what: &'static str,
        /// What it is.
        value_ns: u64,
    },
    /// A share out of range.
    #[error("VM \"{guest}\", task \"{task}\": {what} is {value} %; {advice}")]
    Share {
        /// The VM.
        guest: String,
        /// The task.
        task: String,
        /// Which share.
        what: &'static str,
        /// What it is, percent.
        value: u32,
        /// What it must be.
        advice: &'static str,
    },
    /// A task on a VCPU that is not there, or tasks bound and unbound in one guest.
    #[error("VM \"{guest}\", task \"{task}\": {problem}")]
    Placement {
        /// The VM.
        guest: String,
        /// The task.
        task: String,
        /// What is wrong.
        problem: &'static str,
    },
}

impl System {
    /// Checks what the engine relies on.
    ///
    /// # Errors
    /// The first thing that is out of range.
    pub fn check(&self) -> Result<(), SystemError> {
        if self.cpus == 0 || self.cpus > MAX_CPUS {
            return Err(SystemError::Cpus(self.cpus));
        }
        let vcpus = self.guests.iter().map(|guest| guest.vcpus.len()).sum();
        let tasks = self.guests.iter().map(|guest| guest.tasks.len()).sum();
        if vcpus == 0 || vcpus > MAX_PARTS || tasks > MAX_PARTS {
            return Err(SystemError::Size { vcpus, tasks });
        }
        self.guests
            .iter()
            .try_for_each(|guest| self.check_guest(guest))
    }

    fn check_guest(&self, guest: &Guest) -> Result<(), SystemError> {
        for (vcpu, settings) in guest.vcpus.iter().enumerate() {
            let guest = || guest.name.clone();
            let usable = (0..self.cpus)
                .filter(|&cpu| settings.cpus.contains(cpu))
                .count();
            if usable == 0 {
                return Err(SystemError::NoCpu {
                    guest: guest(),
                    vcpu,
                });
            }
            if self.host.is_partitioned() && usable != 1 {
                return Err(SystemError::NotPartitioned {
                    guest: guest(),
                    vcpu,
                });
            }
        }
        let bound = guest.tasks.iter().any(|task| task.vcpu.is_some());
        for task in &guest.tasks {
            task.check(guest, bound)?;
        }
        Ok(())
    }
}

impl Task {
    fn check(&self, guest: &Guest, bound: bool) -> Result<(), SystemError> {
        let names = || (guest.name.clone(), self.name.clone());
        for (what, value_ns, least) in [
            ("the execution time", self.execution_ns, 1),
            ("the deadline", self.deadline_ns, 1),
            ("the period", self.period_ns, 1),
            ("the first release", self.offset_ns, 0),
            ("the jitter", self.jitter_ns, 0),
            ("the self-suspension", self.suspension_ns, 0),
        ] {
            if value_ns < least || value_ns > MAX_TIME_NS {
                let (guest, task) = names();
                return Err(SystemError::Time {
                    guest,
                    task,
                    what,
                    value_ns,
                });
            }
        }
        for (what, value, low, high, advice) in [
            (
                "the execution-time factor",
                self.execution_factor_percent,
                1,
                100,
                "give 1 to 100",
            ),
            (
                "the longest gap",
                self.longest_gap_percent,
                100,
                10_000,
                "give 100 (periodic) to 10,000",
            ),
        ] {
            if value < low || value > high {
                let (guest, task) = names();
                return Err(SystemError::Share {
                    guest,
                    task,
                    what,
                    value,
                    advice,
                });
            }
        }
        let problem = match self.vcpu {
            Some(vcpu) if vcpu >= guest.vcpus.len() => "its guest has no such VCPU",
            None if guest.vcpus.is_empty() => "its guest has no VCPU; give it one",
            None if bound => "other tasks of its guest are bound to VCPUs; bind all or none",
            _ => return Ok(()),
        };
        let (guest, task) = names();
        Err(SystemError::Placement {
            guest,
            task,
            problem,
        })
    }
}
