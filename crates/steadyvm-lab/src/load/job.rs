//! `steadyvm-lab load job`: runs workloads, and tells somebody else how their jobs fare meanwhile.

use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use nix::fcntl::OFlag;
use nix::unistd::gettid;
use steadyvm_fault::Fault;
use steadyvm_files::{Directory, Others};
use steadyvm_host::profile::VcpuBudget;
use steadyvm_host::{KernelThreads, Scheduling, Threads};
use steadyvm_load::workload::{self, Answer, Count, Policy, Record, Workload};

/// Do periodic or sporadic jobs that need the CPU.
///
/// Reads requests from standard input, one per line, and answers each with a line of JSON:
///
///     calibrate MICROSECONDS [KIB]   units of work that take so long undisturbed,
///                                    in registers or through a buffer of KIB
///     run TASK                       does the jobs of a task
///
/// For example, 100 jobs of 3 ms, one every 10 ms, at FIFO priority 50:
///
///     task='{"period_us":10000,"execution_us":3000,"jobs":100,"policy":"fifo:50"}'
///     echo "run $task" | steadyvm-lab load job
///
/// A task is JSON with these fields:
///
///     period_us      from one release to the next, at least
///     jobs           how many
///     work           a job's length in units, as calibrate answers them, or
///     execution_us   its length by time: calibrated before the first release
///     extra_us       a release comes later by a random time up to this (0)
///     factor         share of its length that each job takes: 1.2, or [0.5,1.5]
///                    for a random one (1)
///     buffer_kib     jobs walk through a buffer of this size in random order,
///                    and need the caches (none: registers only)
///     deadline_us    from a job's release to its deadline (the period)
///     backlog        whether late jobs queue up; else a late job delays the next
///                    release (false)
///     policy         normal, fifo:PRIORITY, or deadline:RUNTIME/DEADLINE/PERIOD in
///                    microseconds; for this run only (left as it is)
///     seed           of all that is random (0)
///
/// The answer has of each job when it was released, started, finished and due, in nanoseconds after
/// the start, and whether it missed that; how many missed; the length in units; and how long the
/// jobs together waited for a CPU while they could have run.
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub struct Args {
    /// Write counts of jobs and missed deadlines to this file, at most once a second and after each run.
    ///
    /// A line is such as {"jobs":120,"misses":0}. In a guest the file is a virtio-serial port, which the host's monitor
    /// carries into /run/steadyvm/reports/VM for `steadyvm top --budgets`.
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
}

/// Runs the verb.
pub fn run(args: &Args) -> Result<()> {
    let mut reporter = args.report.as_deref().map(Reporter::at).transpose()?;
    super::serve(|line| match line.split_once(' ') {
        Some(("calibrate", times)) => calibrate(times),
        Some(("run", task)) => Ok(serde_json::to_string(&jobs(task, reporter.as_mut())?)?),
        _ => Err(no_request(line, "calibrate MICROSECONDS, or run TASK")),
    })
}

/// How many units of work take so many microseconds, through a buffer if there is a second number.
pub fn calibrate(times: &str) -> Result<String> {
    let wrong = || {
        let what = format!("cannot calibrate `{times}`");
        Fault::input(what, "it is not microseconds, nor these and a buffer's KiB")
            .what_to_do("write `calibrate 4000`, or `calibrate 4000 256`")
    };
    let mut words = times.split_whitespace();
    let us = words
        .next()
        .and_then(|us| us.parse().ok())
        .ok_or_else(wrong)?;
    let kib = words.next().map(|kib| kib.parse().map_err(|_| wrong()));
    if words.next().is_some() {
        return Err(wrong().into());
    }
    let mut computation = workload::computation(kib.transpose()?)
        .map_err(|error| Fault::input(format!("cannot calibrate `{times}`"), error))?;
    let units = computation.units_for(Duration::from_micros(us));
    Ok(units.to_string())
}

/// A line that asks for nothing known.
pub fn no_request(line: &str, known: &str) -> anyhow::Error {
    let fault = Fault::input(format!("`{line}` is no request"), "");
    fault.what_to_do(format!("write: {known}")).into()
}

fn jobs(task: &str, mut reporter: Option<&mut Reporter>) -> Result<Answer> {
    let what = "cannot run the task";
    let task: Workload = serde_json::from_str(task).map_err(|error| {
        Fault::input(what, error).what_to_do("see the fields in `steadyvm-lab load job --help`")
    })?;
    let mut prepared = task.prepare().map_err(|error| Fault::input(what, error))?;
    let in_force = task.policy.map(InForce::set).transpose()?;
    let waited_before_ns = waited_ns()?;
    let done = prepared.run(&mut |job| {
        if let Some(reporter) = &mut reporter {
            reporter.add(job);
        }
    });
    let waited_ns = waited_ns()?.saturating_sub(waited_before_ns);
    drop(in_force);
    if let Some(reporter) = reporter {
        reporter.tell();
    }
    Ok(Answer {
        missed: done.iter().filter(|job| job.missed).count() as u64,
        done,
        work: prepared.units(),
        waited_ns,
    })
}

/// This thread has a policy; what it had before comes back at the end.
struct InForce {
    thread: u32,
    before: Scheduling,
}

impl InForce {
    fn set(policy: Policy) -> Result<Self> {
        let wanted = match policy {
            Policy::Normal => Scheduling::normal(),
            Policy::Fifo(priority) => Scheduling::fifo(priority, 0),
            Policy::Deadline {
                runtime_us,
                deadline_us,
                period_us,
            } => {
                let ns = |us: u64| us.saturating_mul(1000);
                let budget = VcpuBudget {
                    runtime_ns: ns(runtime_us),
                    deadline_ns: ns(deadline_us),
                    period_ns: ns(period_us),
                    ..VcpuBudget::default()
                };
                budget.check().map_err(|why| {
                    Fault::input(format!("cannot run jobs by policy {policy}"), why)
                        .what_to_do("choose times within")
                })?;
                Scheduling::deadline(budget.runtime_ns, budget.deadline_ns, budget.period_ns, 0)
            }
        };
        let thread = gettid().as_raw().cast_unsigned();
        let before = KernelThreads
            .scheduling(thread)
            .context("cannot read the policy of this thread")?;
        KernelThreads
            .set_scheduling(thread, &wanted)
            .map_err(|error| not_set(policy, &error))?;
        Ok(Self { thread, before })
    }
}

impl Drop for InForce {
    fn drop(&mut self) {
        // What it had, it may have again: the kernel refuses more only.
        let _ = KernelThreads.set_scheduling(self.thread, &self.before);
    }
}

/// The kernel's refusal of a policy, with what to do.
fn not_set(policy: Policy, error: &io::Error) -> Fault {
    let what_to_do = match error.raw_os_error() {
        Some(nix::libc::EPERM) => {
            "run it as root or with CAP_SYS_NICE; root is refused where a cgroup has no real-time budget \
             (CONFIG_RT_GROUP_SCHED), and SCHED_DEADLINE where the thread may not use all CPUs"
        }
        Some(nix::libc::EBUSY) => {
            "the CPUs have no such bandwidth left: give a smaller runtime or a longer period, or end other threads of \
             SCHED_DEADLINE"
        }
        _ => "leave \"policy\" out to run the jobs as this thread is",
    };
    Fault::cannot(format!("run jobs by policy {policy}"), error).what_to_do(what_to_do)
}

/// Tells how many jobs were done and missed.
struct Reporter {
    file: fs::File,
    count: Count,
    told_at: Option<Instant>,
}

impl Reporter {
    /// Between two lines.
    const INTERVAL: Duration = Duration::from_secs(1);

    fn at(path: &Path) -> Result<Self> {
        // A port whose other side reads nothing keeps no job waiting; nor does a FIFO that nobody has opened. The system's
        // names of devices are links.
        let is_device = path.starts_with("/dev");
        let nofollow = if is_device {
            OFlag::empty()
        } else {
            OFlag::O_NOFOLLOW
        };
        let open = || {
            let (directory, name) = Directory::of(path, Others::Allowed)?;
            fs::OpenOptions::new()
                .read(true)
                .append(true)
                .create(!is_device)
                .custom_flags((OFlag::O_NONBLOCK | nofollow).bits())
                .open(directory.reach(&name))
        };
        let file = open().with_context(|| format!("cannot open {} for reports", path.display()))?;
        Ok(Self {
            file,
            count: Count::default(),
            told_at: None,
        })
    }

    fn add(&mut self, job: &Record) {
        self.count.add(job);
        if self.told_at.is_none_or(|at| at.elapsed() >= Self::INTERVAL) {
            self.tell();
        }
    }

    /// A line that finds no room is lost: the next one has all.
    fn tell(&mut self) {
        let Count { jobs, misses } = self.count;
        let line = format!("{{\"jobs\":{jobs},\"misses\":{misses}}}\n");
        let _ = self.file.write(line.as_bytes());
        self.told_at = Some(Instant::now());
    }
}

/// How long this thread has waited for a CPU while it could have run.
fn waited_ns() -> Result<u64> {
    let path = "/proc/thread-self/schedstat";
    let text = fs::read_to_string(path).with_context(|| format!("cannot read {path}"))?;
    let second = text.split_whitespace().nth(1).unwrap_or_default();
    second
        .parse()
        .with_context(|| format!("{path} has no time that was waited: {text}"))
}
