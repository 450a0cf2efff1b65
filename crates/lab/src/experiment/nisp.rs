//! The experiment of NISP's section V: a process with periodic jobs, and bursts of packets for
//! another process of a lower priority on the same CPU.
//!
//! The paper's machine has one CPU. So jobs, receiver and the bulk network card's interrupts
//! share one CPU of the host here, and everything else can use the other, also on the machine that
//! emulates it. Its periods are scaled
//! 1:100: a job of 12 ms every 30 ms, with deadlines of 16 and 30 ms.

use crate::agent::Process;
use crate::compare::CpuTimes;
use crate::error::{At, Error, Result};
use crate::host::{BULK, EmulatedHost, HostSpecification, RT, boot_again};
use crate::laboratory::{HostKernel, Laboratory};
use crate::progress::{News, Observer, task};
use crate::scheduling;
use std::net::{Ipv4Addr, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;
use steadyvm_host::Method;
use steadyvm_latency::flood::{self, Flooded};
use steadyvm_latency::job::{Done, Punctuality, Task};
use steadyvm_latency::mmpp::Mmpp2;
use steadyvm_latency::nisp::{Curve, Point, Results};

const PERIOD_US: u64 = 30_000;
const EXECUTION_US: u64 = 12_000;
const DEADLINES_US: [u64; 2] = [16_000, 30_000];

/// The CPU of the experiment.
const CPU: usize = 1;
/// FIFO priorities below the interrupt threads' 50: those of the paper's processes are below
/// ksoftirqd's, too.
const JOB_PRIORITY: &str = "40";
const SINK_PRIORITY: &str = "30";
const SINK_PORT: u16 = 7701;
/// The paper's packets are small: their number is what counts.
const PACKET_BYTES: usize = 64;
/// The first rate at which the peak is looked for; each further one is twice that before.
const FIRST_PACKETS_PER_S: f64 = 1000.0;
/// More than any emulated host receives.
const LAST_PACKETS_PER_S: f64 = 64_000.0;
/// Jobs' time at each of these rates.
const PEAK_JOBS: u64 = 60;
/// A method that receives less than this share of its best has its peak behind it.
const PAST_THE_PEAK: f64 = 0.5;
/// The machine's CPU for what stands for the hardware and for the sender: that of the host's other
/// processor, so that the experiment's CPU runs without them.
const DEVICES_CPU: usize = 0;
/// An answer comes within this time after the jobs' own.
const PATIENCE: Duration = Duration::from_secs(60);

/// What to measure.
#[derive(Debug, Clone)]
pub struct Options {
    /// Methods, in the order shown.
    pub methods: Vec<Method>,
    /// How many rates from 0 (not counted) to the best method's peak.
    pub rates: u32,
    /// Jobs at each rate.
    pub jobs: u64,
    /// Seed of the first rate's schedule.
    pub seed: u64,
}

/// Measures everything: at each rate the methods take turns, the others stand still.
pub fn run(laboratory: &Laboratory, options: &Options, observer: &dyn Observer) -> Result<Results> {
    let mut places = task(observer, "boot the hosts", || {
        let boot = |method: &Method| boot_again(observer, || Place::boot(laboratory, *method));
        options.methods.iter().map(boot).collect::<Result<Vec<_>>>()
    })?;
    let peaks = task(observer, "find the peaks", || {
        places
            .iter_mut()
            .map(Place::peak)
            .collect::<Result<Vec<_>>>()
    })?;
    // The best method's: one that collapses under a flood would hide what happens before.
    let best = peaks.iter().copied().fold(0.0, f64::max);
    let mut points = vec![Vec::new(); places.len()];
    task(observer, "measure", || -> Result<()> {
        for step in 0..=options.rates {
            let rate = best * f64::from(step) / f64::from(options.rates);
            for (place, points) in places.iter_mut().zip(&mut points) {
                observer.tell(News::Advance {
                    done: step.into(),
                    of: u64::from(options.rates) + 1,
                    detail: format!("{}: {rate:.0} packets/s", place.method),
                });
                points.push(place.measure(rate, options.jobs, options.seed + u64::from(step))?);
            }
        }
        Ok(())
    })?;
    let curves = places.iter().zip(peaks).zip(points);
    Ok(Results {
        schema_version: 2,
        period_us: PERIOD_US,
        execution_us: EXECUTION_US,
        deadlines_us: DEADLINES_US.to_vec(),
        peak_packets_per_s: best,
        seed: options.seed,
        methods: curves
            .map(|((place, peak_packets_per_s), points)| Curve {
                name: place.method.to_string(),
                peak_packets_per_s,
                points,
            })
            .collect(),
    })
}

/// One method's host with its two processes.
struct Place {
    method: Method,
    host: EmulatedHost,
    job: Process,
    sink: Process,
    /// A job's length.
    work: u64,
}

impl Place {
    /// Boots a host, starts the processes, puts the method in force, and stops the host's clock.
    fn boot(laboratory: &Laboratory, method: Method) -> Result<Self> {
        let specification = HostSpecification {
            boot_on_cpu: Some(0),
            ..laboratory.host(method.name(), HostKernel::of(method))?
        };
        let mut host = EmulatedHost::boot(&specification)?;
        host.spread_processors()?;
        host.devices_to_cpu(DEVICES_CPU)?;
        host.interrupts_to_cpu(BULK.name, CPU)?;
        let inside = host.connection();
        let start = |priority, words: &[&str]| -> Result<Process> {
            let cpu = CPU.to_string();
            let by = [
                "taskset", "-c", &cpu, "chrt", "-f", priority, "steadyvm", "load",
            ];
            let mut process = inside.spawn(&[&by[..], words].concat())?;
            process.wait_for_line("ready", PATIENCE)?;
            Ok(process)
        };
        let mut job = start(JOB_PRIORITY, &["job"])?;
        let listen = format!("{}:{SINK_PORT}", Ipv4Addr::UNSPECIFIED);
        let sink = start(SINK_PRIORITY, &["sink", &listen])?;
        let service = ["--rt-process".to_owned(), job.pid().to_string()];
        host.put_in_force(method, RT, &service)?;
        let work = ask(&mut job, &format!("calibrate {EXECUTION_US}"), PATIENCE)?;
        host.pause()?;
        Ok(Self {
            method,
            work: work.parse().doing("calibrate the job")?,
            host,
            job,
            sink,
        })
    }

    /// The most packets a second that the receiver gets at any rate, with jobs of no length.
    fn peak(&mut self) -> Result<f64> {
        let jobs = Task {
            period_us: PERIOD_US,
            work: 0,
            jobs: PEAK_JOBS,
        };
        let (mut best, mut rate): (f64, f64) = (0.0, FIRST_PACKETS_PER_S);
        self.host.resume()?;
        while rate <= LAST_PACKETS_PER_S {
            let received = self.flooded(rate, 0, &jobs)?.received_packets_per_s;
            if received < PAST_THE_PEAK * best {
                break;
            }
            best = best.max(received);
            rate *= 2.0;
        }
        self.host.pause()?;
        Ok(best)
    }

    fn measure(&mut self, packets_per_s: f64, jobs: u64, seed: u64) -> Result<Point> {
        let task = Task {
            period_us: PERIOD_US,
            work: self.work,
            jobs,
        };
        self.host.resume()?;
        let measured = self.flooded(packets_per_s, seed, &task)?;
        self.host.pause()?;
        let punctuality = Punctuality::of(&measured.done, &DEADLINES_US.map(Duration::from_micros));
        let too_few = || Error::input("judge the jobs", "there are fewer than three");
        Ok(Point {
            asked_packets_per_s: packets_per_s,
            sent_packets_per_s: measured.sent_packets_per_s,
            received_packets_per_s: measured.received_packets_per_s,
            cpu_busy_fraction: measured.cpu_busy_fraction,
            waited_mean_us: measured.waited_ns as f64 / 1e3 / jobs as f64,
            punctuality: punctuality.ok_or_else(too_few)?,
        })
    }

    /// Does the jobs while packets come.
    fn flooded(&mut self, packets_per_s: f64, seed: u64, task: &Task) -> Result<Measured> {
        let stop = AtomicBool::new(false);
        thread::scope(|scope| {
            let (host, stop) = (&self.host, &stop);
            let flood = (packets_per_s > 0.0)
                .then(|| scope.spawn(move || send_flood(host, packets_per_s, seed, stop)));
            // The flag is set whatever happens: the scope ends with its threads only.
            let measured = jobs_and_packets(host, &mut self.job, &mut self.sink, task);
            stop.store(true, Ordering::Relaxed);
            let panicked = |_| Err(Error::machine("send packets", "a thread panicked"));
            let sent = flood.map(|flood| flood.join().unwrap_or_else(panicked));
            let sent = sent.transpose()?;
            let mut measured = measured?;
            measured.sent_packets_per_s =
                sent.map_or(0.0, |sent| sent.sent as f64 / sent.duration_s);
            Ok(measured)
        })
    }
}

struct Measured {
    done: Vec<Done>,
    sent_packets_per_s: f64,
    received_packets_per_s: f64,
    cpu_busy_fraction: f64,
    waited_ns: u64,
}

fn send_flood(
    host: &EmulatedHost,
    packets_per_s: f64,
    seed: u64,
    stop: &AtomicBool,
) -> Result<Flooded> {
    scheduling::pin(0, DEVICES_CPU)?;
    host.outside().enter(|| {
        let what = "send packets";
        let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).doing(what)?;
        socket.connect((BULK.host(), SINK_PORT)).doing(what)?;
        let schedule = Mmpp2::with_mean(packets_per_s).schedule(seed);
        flood::send(&socket, schedule, PACKET_BYTES, stop).doing(what)
    })
}

fn jobs_and_packets(
    host: &EmulatedHost,
    job: &mut Process,
    sink: &mut Process,
    task: &Task,
) -> Result<Measured> {
    let count = |sink: &mut Process| -> Result<u64> {
        let answer = ask(sink, "count", PATIENCE)?;
        answer.parse().doing("count the packets")
    };
    let (cpu_before, received_before) = (CpuTimes::read(host.connection())?, count(sink)?);
    let waited_before_ns = waited_ns(host, job)?;
    let request = serde_json::to_string(task).doing("describe the jobs")?;
    // Jobs that are late stretch the run: ten times its length is a host that does not answer.
    let patience = PATIENCE + Duration::from_micros(10 * task.period_us * task.jobs);
    let answer = ask(job, &format!("run {request}"), patience)?;
    let received = count(sink)? - received_before;
    let waited_ns = waited_ns(host, job)? - waited_before_ns;
    let cpu_busy_fraction = CpuTimes::read(host.connection())?.busy_fraction_since(&cpu_before);
    let done: Vec<Done> = serde_json::from_str(&answer).doing("read when jobs were done")?;
    let end_ns = done.last().map_or(1, |last| last.finished_ns);
    Ok(Measured {
        done,
        sent_packets_per_s: 0.0,
        received_packets_per_s: received as f64 / (end_ns as f64 / 1e9),
        cpu_busy_fraction,
        waited_ns,
    })
}

/// How long a process's first thread has waited for a CPU while it could have run.
fn waited_ns(host: &EmulatedHost, process: &Process) -> Result<u64> {
    let path = format!("/proc/{}/schedstat", process.pid());
    let text = host.connection().text(&["cat", &path])?;
    let second = text.split_whitespace().nth(1).unwrap_or_default();
    second.parse().at("read", path)
}

/// Writes a line to a process of `steadyvm load` and gives the line that it answers.
fn ask(process: &mut Process, request: &str, patience: Duration) -> Result<String> {
    process.input(format!("{request}\n").as_bytes())?;
    process.wait_for_line("", patience)
}
