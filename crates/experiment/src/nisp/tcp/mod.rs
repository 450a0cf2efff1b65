//! With a TCP stream at full speed, which the paper left open: "delaying interrupt handling can
//! defer TCP acknowledgments, and may make the TCP communication unstable".
//!
//! A round has a run of jobs without a stream, then one connection: first alone, then next to as
//! many jobs, then alone again. So what the stream carries after the jobs is held against what
//! the same connection carried before them, and a sender that has backed off shows in the first second.
//!
//! The stream is one connection a round, and a phase ends when the jobs do: what the receiver has got and
//! what the sender's TCP has counted is read at that moment, so no clocks have to be aligned. The
//! sender's counters are those of its network namespace, in which nothing else speaks TCP.

mod answer;
mod data;
mod figures;
mod segments;
mod shown;

pub use answer::answer;
pub use data::{RoundData, StreamData, samples_table, stream_table};
pub use figures::{NAME, assemble, required};
pub use segments::Segments;
pub use shown::page;

#[cfg(test)]
mod results_tests;

use super::{BULK, PATIENCE, Place, Processes, SINK_PORT, Times, beside};
use crate::engine::rounds::{self, Again, Manner, Outcome, RowData};
use std::fmt;
use std::fs;
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::AtomicBool;
use steadyvm_host::Method;
use steadyvm_lab::host::EmulatedHost;
use steadyvm_lab::laboratory::Laboratory;
use steadyvm_lab::progress::{Observer, task};
use steadyvm_lab::{At, Error, Result};
use steadyvm_load::flood::Count;
use steadyvm_load::job::{Ran, Task};
use steadyvm_load::stream;

/// A second in which the process of the jobs sleeps: nothing to do at its beginning, nothing at its
/// end.
const IDLE_SECOND: Task = Task {
    period_us: 1_000_000,
    work: 0,
    jobs: 2,
    backlog: false,
};
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
    /// The jobs'.
    pub times: Times,
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

/// Measures everything: in a round the methods take turns, beginning with another one each, and
/// the others stand still.
///
/// # Errors
/// A host does not come up, or hosts die too often.
pub fn run(
    laboratory: &Laboratory,
    options: &Options,
    observer: &dyn Observer,
) -> Result<Outcome<Vec<RowData<RoundData>>>> {
    let measured = rounds::run(laboratory, &Experiment { options }, observer)?;
    Ok(measured.by_row(&options.methods))
}

struct Experiment<'a> {
    options: &'a Options,
}

/// The only condition: a round has all phases.
#[derive(Debug, Clone, Copy)]
struct AllPhases;

impl fmt::Display for AllPhases {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad("jobs without and with a stream")
    }
}

impl rounds::Plan for Experiment<'_> {
    type Row = Method;
    type Cell = AllPhases;
    type Station = Place;
    type Sample = RoundData;

    fn rows(&self) -> &[Method] {
        &self.options.methods
    }

    fn cells(&self) -> &[AllPhases] {
        &[AllPhases]
    }

    fn rounds(&self) -> u64 {
        self.options.rounds
    }

    fn boot(
        &self,
        laboratory: &Laboratory,
        method: Method,
        _: usize,
        _: &dyn Observer,
    ) -> Result<Place> {
        Place::boot(
            laboratory,
            method,
            self.options.times,
            &["--protocol", "tcp"],
        )
    }

    fn measure(&self, place: &mut Place, _: AllPhases, _: u64) -> Result<RoundData> {
        place.running(|place| place.round(self.options.load))
    }

    fn manner(&self) -> Manner {
        Manner {
            again: Again::ThatRow,
            boots_alone: true,
            ..Manner::default()
        }
    }

    fn begin(&self, places: &mut [Place], observer: &dyn Observer) -> Result<()> {
        let warm_up = |place: &mut Place| place.running(|place| place.round(WARM_UP)).map(drop);
        task(observer, "warm up", || {
            places.iter_mut().try_for_each(warm_up)
        })
    }
}

impl Place {
    /// One round.
    fn round(&mut self, load: Load) -> Result<RoundData> {
        let jobs = self.jobs(load.jobs);
        let unloaded = self.processes.run(&jobs)?;
        let connection = connect(&self.host)?;
        let send = |stop: &AtomicBool| stream::send(&connection, stop).doing("send a TCP stream");
        let (host, processes) = (&self.host, &mut self.processes);
        let (round, _) = beside(send, || {
            // What TCP does until it has found its speed is no figure.
            processes.run(&IDLE_SECOND)?;
            let mut stream = Stream::of_now(host, processes)?;
            let before = stream.alone(load.stream_s)?;
            let (loaded, part) = stream.beside_jobs(&jobs)?;
            let during = stream.phase_of(&[part])?;
            let after = stream.alone(load.stream_s)?;
            Ok(RoundData {
                unloaded,
                before,
                loaded,
                during,
                after,
            })
        })?;
        Ok(round)
    }
}

/// A stream that flows. One phase begins with the count that ended the one before: between them
/// nothing is asked that could take long.
struct Stream<'a> {
    host: &'a EmulatedHost,
    processes: &'a mut Processes,
    received: Count,
    sent: Segments,
}

/// What it carried in some time.
struct Part {
    mbit_per_s: f64,
    duration_s: f64,
}

impl<'a> Stream<'a> {
    /// Whose first phase begins now.
    fn of_now(host: &'a EmulatedHost, processes: &'a mut Processes) -> Result<Self> {
        Ok(Self {
            received: processes.count()?,
            sent: segments(host)?,
            host,
            processes,
        })
    }

    /// What it carries while jobs are done.
    fn beside_jobs(&mut self, jobs: &Task) -> Result<(Ran, Part)> {
        let ran = self.processes.run(jobs)?;
        let received = self.processes.count()?;
        let part = Part {
            mbit_per_s: 8.0 * received.per_s_since(&self.received) / 1e6,
            duration_s: received.seconds_since(&self.received),
        };
        self.received = received;
        Ok((ran, part))
    }

    /// What it carries while the process of the jobs sleeps, second by second.
    fn alone(&mut self, seconds: u32) -> Result<StreamData> {
        let second = |_| Ok(self.beside_jobs(&IDLE_SECOND)?.1);
        let parts = (0..seconds).map(second).collect::<Result<Vec<_>>>()?;
        self.phase_of(&parts)
    }

    /// A phase that consists of these parts and ends now.
    fn phase_of(&mut self, parts: &[Part]) -> Result<StreamData> {
        Ok(StreamData {
            mbit_per_s: parts.iter().map(|part| part.mbit_per_s).collect(),
            durations_s: parts.iter().map(|part| part.duration_s).collect(),
            segments: self.segments()?,
        })
    }

    /// What the sender's TCP has counted since this was asked last.
    fn segments(&mut self) -> Result<Segments> {
        let now = segments(self.host)?;
        let since = now.since(&self.sent);
        self.sent = now;
        Ok(since)
    }
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
