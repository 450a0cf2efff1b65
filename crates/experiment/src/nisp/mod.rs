//! Lee, Kim, Shin, "Network Interrupt Scheduling with Process Priority" (2015).
//!
//! The experiment of NISP's section V: a process with periodic jobs, and packets for another
//! process of a lower priority on the same CPU: bursts of UDP ([`udp`]), as in the paper, or a TCP
//! stream ([`tcp`]), which it left open.
//!
//! The paper's machine has one CPU. So jobs, receiver and the bulk network card's interrupts
//! share one CPU of the host here, and everything else can use the other, also on the machine that
//! emulates it. Its times are scaled ([`Times`]).

mod jobs;
pub mod tcp;
mod times;
pub mod udp;

pub use times::{SCALE, SCALES, Times};

use crate::engine::results::Record;
use crate::engine::rounds::{or_broken, station};
use crate::testbed::ask::ask;
use std::net::Ipv4Addr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;
use steadyvm_host::Method;
use steadyvm_lab::agent::Process;
use steadyvm_lab::host::{BULK, EmulatedHost, HostSpecification, RT};
use steadyvm_lab::laboratory::Laboratory;
use steadyvm_lab::scheduling;
use steadyvm_lab::{At, Error, Result};
use steadyvm_load::flood::Count;
use steadyvm_load::job::{Ran, Task};

/// So many jobs tell how long one takes.
const CALIBRATION_JOBS: u64 = 101;

/// The CPU of the experiment.
const CPU: usize = 1;
/// FIFO priorities below the interrupt threads' 50: those of the paper's processes are below
/// ksoftirqd's, too.
const JOB_PRIORITY: &str = "40";
const SINK_PRIORITY: &str = "30";
const SINK_PORT: u16 = 7701;
/// The machine's CPU for what stands for the hardware and for the sender: that of the host's other
/// processor, so that the experiment's CPU runs without them.
const DEVICES_CPU: usize = 0;
/// An answer comes within this time after the jobs' own.
const PATIENCE: Duration = Duration::from_secs(60);

/// Whole microseconds as milliseconds, without digits that say nothing.
fn milliseconds(us: u64) -> String {
    format!("{}", us as f64 / 1e3)
}

/// A time that was set, in microseconds.
fn setting_us(record: &Record, key: &str) -> u64 {
    record.setting(key).unwrap_or(0)
}

/// "16 and 30", in milliseconds.
fn deadlines(record: &Record) -> String {
    let deadlines_us: Vec<u64> = record.setting("deadlines_us").unwrap_or_default();
    let each: Vec<String> = deadlines_us.into_iter().map(milliseconds).collect();
    each.join(" and ")
}

/// One method's host with its two processes.
struct Place {
    method: Method,
    host: EmulatedHost,
    processes: Processes,
    times: Times,
    /// A job's length.
    work: u64,
    broken: bool,
}

station!(Place);

/// The two processes on the experiment's CPU.
struct Processes {
    job: Process,
    sink: Process,
}

impl Place {
    /// Boots a host, starts the processes, puts the method in force, and stops the host's clock.
    /// `sink` are further words of `steadyvm-lab load sink`.
    fn boot(laboratory: &Laboratory, method: Method, times: Times, sink: &[&str]) -> Result<Self> {
        let specification = HostSpecification {
            boot_on_cpu: Some(0),
            devices_on_cpu: Some(DEVICES_CPU),
            ..laboratory.host(method.name(), laboratory.kernel_of(method))?
        };
        let mut host = EmulatedHost::boot(&specification)?;
        host.spread_processors()?;
        host.interrupts_to_cpu(BULK.name, CPU)?;
        let inside = host.connection();
        // The agent, and with it whatever it starts but the two, leaves the experiment's CPU to them.
        inside.run(&["sh", "-c", "taskset -apc 0 $PPID"])?;
        let start = |priority, words: &[&str]| -> Result<Process> {
            let cpu = CPU.to_string();
            let by = [
                "taskset",
                "-c",
                &cpu,
                "chrt",
                "-f",
                priority,
                "steadyvm-lab",
                "load",
            ];
            let mut process = inside.spawn(&[&by[..], words].concat())?;
            process.wait_for_line("ready", PATIENCE)?;
            Ok(process)
        };
        let job = start(JOB_PRIORITY, &["job"])?;
        let listen = format!("{}:{SINK_PORT}", Ipv4Addr::UNSPECIFIED);
        let sink = start(SINK_PRIORITY, &[&["sink", &listen], sink].concat())?;
        let service = ["--process".to_owned(), job.pid().to_string()];
        host.put_in_force(method, RT, &service)?;
        let mut processes = Processes { job, sink };
        let work = processes.calibrate(&times)?;
        host.pause()?;
        Ok(Self {
            method,
            host,
            processes,
            times,
            work,
            broken: false,
        })
    }

    /// Lets the host run for a measurement. If that fails, it is broken from then on.
    fn running<T>(&mut self, measure: impl FnOnce(&mut Self) -> Result<T>) -> Result<T> {
        let measured = self.resume_and(measure);
        let method = self.method;
        or_broken(measured, (&self.host, &mut self.broken), method, [])
    }

    fn resume_and<T>(&mut self, measure: impl FnOnce(&mut Self) -> Result<T>) -> Result<T> {
        self.host.resume()?;
        let measured = measure(self)?;
        self.host.pause()?;
        Ok(measured)
    }

    /// So many of the experiment's jobs.
    fn jobs(&self, jobs: u64) -> Task {
        Task {
            period_us: self.times.period_us,
            work: self.work,
            jobs,
            backlog: false,
        }
    }
}

impl Processes {
    /// The work of a job that takes [`Times::execution_us`] from release to finish where nothing else comes, in
    /// the median: what ticks and the waking take of it is in it, as in the paper's.
    fn calibrate(&mut self, times: &Times) -> Result<u64> {
        let request = format!("calibrate {}", times.execution_us);
        let undisturbed = ask(&mut self.job, &request, PATIENCE)?;
        let undisturbed: u64 = undisturbed.parse().doing("calibrate the job")?;
        let ran = self.run(&Task {
            period_us: times.period_us,
            work: undisturbed,
            jobs: CALIBRATION_JOBS,
            backlog: false,
        })?;
        let median_ns = ran.median_response_ns().filter(|ns| *ns > 0);
        let median_ns = median_ns.ok_or_else(|| {
            Error::machine("calibrate the job", "no job was done, or one took no time")
        })?;
        let share = times.execution_us as f64 * 1e3 / median_ns as f64;
        Ok((undisturbed as f64 * share).round().max(1.0) as u64)
    }

    /// Does jobs.
    fn run(&mut self, task: &Task) -> Result<Ran> {
        let request = serde_json::to_string(task).doing("describe the jobs")?;
        // Jobs that are late stretch the run: ten times its length is a host that does not answer.
        let patience = PATIENCE + Duration::from_micros(10 * task.period_us * task.jobs);
        let answer = ask(&mut self.job, &format!("run {request}"), patience)?;
        serde_json::from_str(&answer).doing("read when jobs were done")
    }

    /// What the sink has received so far.
    fn count(&mut self) -> Result<Count> {
        let answer = ask(&mut self.sink, "count", PATIENCE)?;
        serde_json::from_str(&answer).doing("count what came")
    }
}

/// Does `act` while `load` sends in a thread of its own, until it is told to stop.
fn beside<S: Send, T>(
    load: impl FnOnce(&AtomicBool) -> Result<S> + Send,
    act: impl FnOnce() -> Result<T>,
) -> Result<(T, S)> {
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let sender = scope.spawn(|| {
            scheduling::pin(0, DEVICES_CPU)?;
            load(&stop)
        });
        // The flag is set whatever happens: the scope ends with its threads only.
        let done = act();
        stop.store(true, Ordering::Relaxed);
        let panicked = |_| Err(Error::machine("send packets", "a thread panicked"));
        let sent = sender.join().unwrap_or_else(panicked)?;
        Ok((done?, sent))
    })
}
