//! Figure 9 of Garcia, Shinjo and Pu 2018: GET requests to memcached in a VM, beside bulk traffic for
//! another VM. The README in this folder says what differs from the paper.

use crate::engine::answer::Asked;
use crate::engine::latency::{Latencies, Words};
use crate::experiment::{Experiment, Options, Outcome, Rows};
use crate::service::Beside;
use crate::service::{self, Load, Receivers, Sample, Server, Service};
use crate::testbed::ComparedMethod;
use crate::testbed::phase;
use std::net::TcpStream;
use std::thread;
use std::time::{Duration, Instant};
use steadyvm_lab::artifact::UserSpace;
use steadyvm_lab::host::EmulatedHost;
use steadyvm_lab::laboratory::Laboratory;
use steadyvm_lab::progress::Observer;
use steadyvm_lab::scheduling;
use steadyvm_lab::{At, Result};
use steadyvm_load::memcached::{self, Kind, Run};

const PORT: u16 = 11_211;
/// Connections of the client; each request takes the next one.
const CONNECTIONS: usize = 4;
/// A server that starts accepts connections within this time, on a loaded machine too.
const PATIENCE: Duration = Duration::from_secs(60);
/// How soon a refused connection is tried again.
const AGAIN: Duration = Duration::from_millis(50);

const NAME: &str = "memcached";

const ASKED: Asked = Asked {
    question: "Does memcached in a VM gain beside bulk traffic?",
    figure: "p99",
    words: "p99 of a GET",
    cells: &[
        ("GET, no NetStream", "without a stream"),
        (
            "GET, beside NetStream at full speed",
            "beside a full stream",
        ),
    ],
};

/// The experiment.
pub const EXPERIMENT: Experiment = Experiment {
    words: Words {
        name: NAME,
        introduction: "GET requests to memcached in a VM: keys of 64 bytes, values of 1,024 bytes, nine \
             GETs to a SET, 100 to 1,000 requests per second at random intervals.",
        reading: &[
            "A response is timed from when its request was due until the whole value is there: a slow \
             reply delays no later request. n is the number of GETs that were answered; lost: requests \
             without a reply in 2 s.",
            "Percentiles are nearest-rank, of every counted sample of all rounds. /first: over the first \
             method's under the same condition, with a 95 % interval.",
        ],
        // Section 4.3, of figure 9.
        paper: Some(|| service::paper([59, 54])),
    },
    about: "Figure 9 of the outsourcing paper: memcached in a VM beside a TCP stream",
    answer: |record| ASKED.of_times(record),
    rows: Rows::Methods,
    user_space: UserSpace::Services,
    check: |options| service::check(NAME, options),
    run,
};

struct Memcached;

impl Service for Memcached {
    type Run = Run;

    /// Debian's, with one thread for its one VCPU.
    fn server(&self) -> Server {
        let words = "memcached -u root -l 0.0.0.0 -t 1 -m 32";
        Server {
            words: words.split(' ').map(str::to_owned).collect(),
            ready: None,
            file: None,
        }
    }

    fn prepare(&self, host: &EmulatedHost, receivers: &Receivers) -> Result<()> {
        host.outside().enter(|| {
            let connection = connect(receivers)?;
            memcached::fill(&connection, &memcached::Options::default()).doing("fill memcached")
        })
    }

    fn longest_s(&self, load: Load) -> f64 {
        // Its requests come at NetRT's intervals.
        phase::longest_s(load.samples)
    }

    /// Sends requests at real-time priority until all are answered or lost.
    fn put_load(&self, host: &EmulatedHost, receivers: &Receivers, load: Load) -> Result<Run> {
        host.outside().enter(|| {
            scheduling::make_fifo(0, scheduling::CLIENT_PRIORITY)?;
            let options = memcached::Options {
                seed: load.seed,
                warmup: phase::WARMUP_REQUESTS,
                requests: load.samples,
                ..memcached::Options::default()
            };
            let connections = (0..CONNECTIONS).map(|_| connect(receivers));
            let connections = connections.collect::<Result<Vec<_>>>()?;
            memcached::run(connections, &options).doing("send requests to memcached")
        })
    }
}

/// A connection to memcached, as soon as it listens.
fn connect(receivers: &Receivers) -> Result<TcpStream> {
    let address = (receivers.netrt.address, PORT).into();
    let end = Instant::now() + PATIENCE;
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

fn run(laboratory: &Laboratory, options: &Options, observer: &dyn Observer) -> Result<Outcome> {
    let gets = |method, beside, samples: &[&_]| vec![latencies_of(method, beside, samples)];
    service::outcome(laboratory, options, &Memcached, observer, gets)
}

/// The GETs of all rounds.
fn latencies_of(method: ComparedMethod, beside: Beside, samples: &[&Sample<Run>]) -> Latencies {
    let gets = |sample: &&Sample<Run>| {
        let samples = sample.run.samples.iter();
        let gets = samples.filter(|it| it.kind == Kind::Get);
        gets.map(|it| it.response_ns).collect()
    };
    Latencies {
        row: method.to_string(),
        cell: format!("GET, {beside}"),
        rounds: samples.iter().map(gets).collect(),
        lost: samples.iter().map(|it| it.run.lost).sum(),
        counts: Vec::new(),
        deadline_ns: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use steadyvm_load::memcached;

    #[test]
    fn gets_alone_are_counted() {
        let sample = |kind, response_ns| memcached::Sample {
            sequence: 0,
            kind,
            due_ns: 0,
            response_ns,
        };
        let round = Sample {
            run: memcached::Run {
                samples: vec![
                    sample(Kind::Get, 5),
                    sample(Kind::Set, 7),
                    sample(Kind::Get, 6),
                ],
                requests: 4,
                lost: 1,
                sent_late: 0,
            },
            mbit_per_s: Some(200.0),
            cpu_busy_fraction: 0.5,
        };
        let method = "preempt-rt".parse().unwrap();
        let found = latencies_of(method, Beside::NetStream, &[&round, &round]);
        assert_eq!(found.rounds, [[5, 6], [5, 6]]);
        assert_eq!((found.lost, &*found.row), (2, "preempt-rt"));
        assert_eq!(found.cell, "GET, beside NetStream at full speed");
    }
}
