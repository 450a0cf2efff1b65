//! With a TCP stream at full speed, which the paper left open: what a round
//! consists of is in the module of the same name in `latency`.
//!
//! The stream is one connection a round, and a phase ends when the jobs do: what the receiver has got and
//! what the sender's TCP has counted is read at that moment, so no clocks have to be aligned. The
//! sender's counters are those of its network namespace, in which nothing else speaks TCP.

use super::{
    BULK, DEADLINES_US, EXECUTION_US, Measured, PATIENCE, PERIOD_US, Place, Processes, SINK_PORT,
    beside,
};
use crate::compare::{CpuUse, Disturbance, Repetitions};
use crate::error::{At, Error, Result};
use crate::host::EmulatedHost;
use crate::laboratory::Laboratory;
use crate::progress::{News, Observer, task};
use std::fs;
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::AtomicBool;
use steadyvm_host::Method;
use steadyvm_latency::job::Task;
use steadyvm_latency::nisp::tcp::{JobsData, MethodData, RoundData, RunData, Segments, StreamData};
use steadyvm_latency::stream;

/// A second in which the process of the jobs sleeps: nothing to do at its beginning, nothing at its
/// end.
const IDLE_SECOND: Task = Task {
    period_us: 1_000_000,
    work: 0,
    jobs: 2,
};
/// Of the turns during which this machine stood still, so many are measured again: one in this many
/// of all.
const REPEATED: u64 = 2;
/// A turn before the first round, unmeasured: an emulator has to translate what has not run yet.
const WARM_UP: Load = Load {
    jobs: 10,
    stream_s: 1,
};

/// What to measure.
#[derive(Debug, Clone)]
pub struct Options {
    /// Methods, in the order shown.
    pub methods: Vec<Method>,
    /// Rounds.
    pub rounds: u64,
    /// How much load a round has.
    pub load: Load,
}

/// How much load a round has.
#[derive(Debug, Clone, Copy)]
pub struct Load {
    /// Jobs without the stream, and as many next to it.
    pub jobs: u64,
    /// How long the stream flows without jobs, in seconds, before them and after them.
    pub stream_s: u32,
}

/// What was measured, and what whoever reads the figures must see with them.
#[derive(Debug, Clone)]
pub struct Outcome {
    /// The samples.
    pub data: RunData,
    /// What else the machine did during the rounds.
    pub disturbance: Disturbance,
}

/// Measures everything: in a round the methods take turns, beginning with another one each, and
/// the others stand still.
pub fn run(laboratory: &Laboratory, options: &Options, observer: &dyn Observer) -> Result<Outcome> {
    let sink = ["--protocol", "tcp"];
    let mut places = Place::boot_all(laboratory, &options.methods, &sink, observer)?;
    task(observer, "warm up", || {
        let mut places = places.iter_mut();
        places.try_for_each(|place| place.round(WARM_UP).map(drop))
    })?;
    let cpu_use = |places: &[Place]| CpuUse::now(places.iter().map(|place| place.host.emulator()));
    let before = cpu_use(&places)?;
    let count = places.len();
    let mut repetitions = Repetitions::start(options.rounds * count as u64 / REPEATED)?;
    let mut rounds: Vec<Vec<RoundData>> = vec![Vec::new(); count];
    for round in 0..options.rounds {
        let title = format!("round {} of {}", round + 1, options.rounds);
        task(observer, title, || -> Result<()> {
            for turn in 0..count {
                let index = (turn + round as usize) % count;
                observer.tell(News::Advance {
                    done: turn as u64,
                    of: count as u64,
                    detail: places[index].method.to_string(),
                });
                let place = &mut places[index];
                rounds[index].push(place.turn(options.load, &mut repetitions, observer)?);
            }
            Ok(())
        })?;
    }
    let disturbance = Disturbance {
        standstills: repetitions.standstills(),
        ..cpu_use(&places)?.since(&before)
    };
    let methods = places.iter().zip(rounds);
    Ok(Outcome {
        data: RunData {
            period_us: PERIOD_US,
            execution_us: EXECUTION_US,
            deadlines_us: DEADLINES_US.to_vec(),
            methods: methods
                .map(|(place, rounds)| MethodData {
                    name: place.method.to_string(),
                    rounds,
                })
                .collect(),
        },
        disturbance,
    })
}

impl Place {
    /// One round; again, if this machine stood still meanwhile.
    fn turn(
        &mut self,
        load: Load,
        repetitions: &mut Repetitions,
        observer: &dyn Observer,
    ) -> Result<RoundData> {
        loop {
            repetitions.begin();
            let measured = self.round(load)?;
            if !repetitions.are_needed(self.method.name(), observer) {
                return Ok(measured);
            }
        }
    }

    /// Lets the host run for one round.
    fn round(&mut self, load: Load) -> Result<RoundData> {
        let jobs = self.jobs(load.jobs);
        self.host.resume()?;
        let unloaded = self.processes.run(&self.host, &jobs)?;
        let connection = connect(&self.host)?;
        let stream = |stop: &AtomicBool| stream::send(&connection, stop).doing("send a TCP stream");
        let (host, processes) = (&self.host, &mut self.processes);
        let (round, _) = beside(stream, || {
            // What TCP does until it has found its speed is no figure.
            processes.run(host, &IDLE_SECOND)?;
            let before = alone(host, processes, load.stream_s)?;
            let (loaded, during) = counted(host, || processes.run(host, &jobs))?;
            let after = alone(host, processes, load.stream_s)?;
            Ok(RoundData {
                unloaded: jobs_data(unloaded),
                before,
                during: StreamData {
                    mbit_per_s: vec![mbit_per_s(&loaded)],
                    segments: during,
                },
                loaded: jobs_data(loaded),
                after,
            })
        })?;
        self.host.pause()?;
        Ok(round)
    }
}

/// The stream while the process of the jobs sleeps, second by second.
fn alone(host: &EmulatedHost, processes: &mut Processes, seconds: u32) -> Result<StreamData> {
    let (mbit_per_s, segments) = counted(host, || {
        let second = |_| Ok(mbit_per_s(&processes.run(host, &IDLE_SECOND)?));
        (0..seconds).map(second).collect()
    })?;
    Ok(StreamData {
        mbit_per_s,
        segments,
    })
}

/// Does `act`, and tells what the sender's TCP has counted meanwhile.
fn counted<T>(host: &EmulatedHost, act: impl FnOnce() -> Result<T>) -> Result<(T, Segments)> {
    let before = segments(host)?;
    let done = act()?;
    Ok((done, segments(host)?.since(&before)))
}

fn segments(host: &EmulatedHost) -> Result<Segments> {
    host.outside().enter(|| {
        let read = |name: &str| {
            let path = format!("/proc/thread-self/net/{name}");
            fs::read_to_string(&path).at("read", path)
        };
        let text = read("snmp")? + &read("netstat")?;
        let unknown = || Error::machine("read TCP's counters", "/proc/net lacks one of them");
        Segments::parse(&text).ok_or_else(unknown)
    })
}

/// A connection from outside to the sink. One to a host that is gone fails in time.
fn connect(host: &EmulatedHost) -> Result<TcpStream> {
    host.outside().enter(|| {
        let what = "connect to the receiver";
        let sink = SocketAddr::from((BULK.host(), SINK_PORT));
        let connection = TcpStream::connect_timeout(&sink, PATIENCE).doing(what)?;
        connection.set_write_timeout(Some(PATIENCE)).doing(what)?;
        connection.set_read_timeout(Some(PATIENCE)).doing(what)?;
        Ok(connection)
    })
}

fn jobs_data(measured: Measured) -> JobsData {
    JobsData {
        done: measured.done,
        waited_ns: measured.waited_ns,
        cpu_busy_fraction: measured.cpu_busy_fraction,
    }
}

fn mbit_per_s(measured: &Measured) -> f64 {
    8.0 * measured.received_per_s / 1e6
}
