//! One method's host: memcached in one guest, the bulk stream into another.

use super::Beside;
use crate::compare::ComparedMethod;
use crate::compare::phase;
use crate::compare::receivers::{Receivers, Server};
use crate::engine::CpuTimes;
use crate::engine::rounds;
use std::net::TcpStream;
use std::thread;
use std::time::{Duration, Instant};
use steadyvm_lab::host::{EmulatedHost, HostSpecification, RT};
use steadyvm_lab::laboratory::Laboratory;
use steadyvm_lab::progress::Observer;
use steadyvm_lab::{At, Error, Result};
use steadyvm_lab::{Namespace, scheduling};
use steadyvm_load::memcached::{self, Options, Run};

const PORT: u16 = 11_211;
/// Connections of the client; each request takes the next one.
const CONNECTIONS: usize = 4;
/// A server that starts accepts connections within this time, on a loaded machine too.
const PATIENCE: Duration = Duration::from_secs(60);
/// How soon a refused connection is tried again.
const AGAIN: Duration = Duration::from_millis(50);

/// How much load a measurement has.
#[derive(Debug, Clone, Copy)]
pub(super) struct Load {
    /// Seed of the requests' schedule.
    pub seed: u64,
    /// Counted requests.
    pub requests: u64,
}

/// What one measurement gives.
#[derive(Debug)]
pub(super) struct Sample {
    /// The requests.
    pub memcached: Run,
    /// What the stream carried, if one flowed.
    pub mbit_per_s: Option<f64>,
    /// The host's CPU time that was not idle, of all CPUs: 0 to 1.
    pub cpu_busy_fraction: f64,
}

/// A booted host with its method in force.
pub(super) struct Station {
    method: ComparedMethod,
    host: EmulatedHost,
    receivers: Receivers,
    broken: bool,
}

impl rounds::Station for Station {
    fn host(&mut self) -> &mut EmulatedHost {
        &mut self.host
    }

    fn emulator(&self) -> u32 {
        self.host.emulator()
    }

    fn is_broken(&self) -> bool {
        self.broken
    }
}

impl Station {
    /// Boots the host with both guests, fills memcached, puts the method in force and stops the host's
    /// clock.
    pub fn boot(
        laboratory: &Laboratory,
        method: ComparedMethod,
        on_cpu: usize,
        observer: &dyn Observer,
    ) -> Result<Self> {
        let named = |mut error: Error| {
            error.what = format!("{method}: {}", error.what);
            error
        };
        Self::boot_unnamed(laboratory, method, on_cpu, observer).map_err(named)
    }

    fn boot_unnamed(
        laboratory: &Laboratory,
        method: ComparedMethod,
        on_cpu: usize,
        observer: &dyn Observer,
    ) -> Result<Self> {
        let specification = HostSpecification {
            boot_on_cpu: Some(on_cpu),
            ..laboratory.host(method.name, laboratory.in_place_of(method.kernel))?
        };
        let mut host = EmulatedHost::boot(&specification)?;
        let receivers = Receivers::in_guests(method.guests, &host, &server(), observer)?;
        host.put_in_force(method.host, RT, &receivers.named)?;
        host.outside().enter(|| {
            let connection = connect(&receivers, PATIENCE)?;
            memcached::fill(&connection, &Options::default()).doing("fill memcached")
        })?;
        host.pause()?;
        host.spread_processors()?;
        Ok(Self {
            method,
            host,
            receivers,
            broken: false,
        })
    }

    /// Lets the host run for one condition.
    pub fn measure(&mut self, beside: Beside, load: Load) -> Result<Sample> {
        let measured = self.resume_and_measure(beside, load);
        self.broken = measured.is_err();
        measured.map_err(|error| {
            let mut error = self.host.with_state(error, self.receivers.machines());
            error.what = format!("{}: {}", self.method, error.what);
            error
        })
    }

    fn resume_and_measure(&mut self, beside: Beside, load: Load) -> Result<Sample> {
        self.host.resume()?;
        let stream = match beside {
            Beside::Nothing => None,
            Beside::NetStream => Some(phase::start_stream(
                self.host.outside(),
                &self.receivers.netstream,
                None,
                // Its requests come at the same intervals.
                &phase::Load {
                    seed: load.seed,
                    samples: load.requests,
                    receive_path: false,
                    streams: 1,
                },
            )?),
        };
        let before = CpuTimes::read(self.host.connection())?;
        let memcached = send(self.host.outside(), &self.receivers, load)?;
        let cpu_busy_fraction =
            CpuTimes::read(self.host.connection())?.busy_fraction_since(&before);
        let carried = stream.map(phase::Stream::finish).transpose()?;
        self.host.pause()?;
        Ok(Sample {
            memcached,
            mbit_per_s: carried.map(|it| it.mbit_per_s),
            cpu_busy_fraction,
        })
    }
}

/// Debian's, with one thread for its one VCPU.
fn server() -> Server {
    let words = [
        "memcached",
        "-u",
        "root",
        "-l",
        "0.0.0.0",
        "-t",
        "1",
        "-m",
        "32",
    ];
    Server {
        words: words.map(str::to_owned).into(),
        ready: None,
    }
}

/// Sends requests from outside at real-time priority until all are answered or lost.
fn send(outside: &Namespace, receivers: &Receivers, load: Load) -> Result<Run> {
    outside.enter(|| {
        scheduling::make_fifo(0, scheduling::CLIENT_PRIORITY)?;
        let options = Options {
            seed: load.seed,
            warmup: phase::WARMUP_REQUESTS,
            requests: load.requests,
            ..Options::default()
        };
        let connections = (0..CONNECTIONS).map(|_| connect(receivers, PATIENCE));
        let connections = connections.collect::<Result<Vec<_>>>()?;
        memcached::run(connections, &options).doing("send requests to memcached")
    })
}

/// A connection to memcached, as soon as it listens.
fn connect(receivers: &Receivers, patience: Duration) -> Result<TcpStream> {
    let address = (receivers.netrt.address, PORT).into();
    let end = Instant::now() + patience;
    loop {
        let left = end.saturating_duration_since(Instant::now());
        match TcpStream::connect_timeout(&address, left.max(AGAIN)) {
            Ok(stream) => return Ok(stream),
            Err(error) if left.is_zero() => return Err(error).doing("connect to memcached"),
            // Refused until it listens: nothing tells when that is.
            Err(_) => thread::sleep(AGAIN),
        }
    }
}
