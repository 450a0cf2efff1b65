//! Figure 9 of Garcia, Shinjo and Pu 2018: GET requests to memcached in a VM, beside bulk traffic for
//! another VM. The README in this folder says what differs from the paper.

mod station;

use crate::compare::{ComparedMethod, Guests};
use crate::engine::latency::{Latencies, Words};
use crate::engine::rounds::{self, Plan, share};
use crate::registry::{Experiment, Options, Outcome};
use station::{Load, Sample, Station};
use std::fmt;
use steadyvm_lab::laboratory::Laboratory;
use steadyvm_lab::progress::Observer;
use steadyvm_lab::{Error, Result};
use steadyvm_load::memcached::Kind;
use steadyvm_report::{Grid, headers};

/// The experiment.
pub const EXPERIMENT: Experiment = Experiment {
    words: Words {
        name: "memcached",
        introduction: "GET requests to memcached in a VM: keys of 64 bytes, values of 1,024 bytes, nine \
             GETs to a SET, 100 to 1,000 requests per second at random intervals.",
        reading: &[
            "A response is timed from when its request was due until the whole value is there: a slow \
             reply delays no later request. n is the number of GETs that were answered; lost: requests \
             without a reply in 2 s.",
            "Percentiles are nearest-rank, of every counted sample of all rounds. /first: over the first \
             method's under the same condition, with a 95 % interval.",
        ],
        paper,
    },
    title: "memcached beside bulk traffic",
    about: "Figure 9 of the outsourcing paper: memcached in a VM beside a TCP stream",
    check,
    run,
};

/// What section 4.3 says of figure 9's 99th percentiles: "59% lower" and "54% lower".
fn paper() -> Grid {
    let row = |method: &str, lower: u32, ratio: &str| {
        [method, &format!("{lower} % lower"), ratio]
            .map(str::to_owned)
            .into()
    };
    Grid {
        title: "The paper, on hardware: the outsourcing method's p99 beside NetStream".to_owned(),
        words: 1,
        headers: headers(["than with", "in its words", "ratio"]),
        rows: vec![row("preempt-rt", 59, "0.41"), row("dedicated", 54, "0.46")],
    }
}

fn check(options: &Options) -> Result<()> {
    let wrong = if options.methods.is_empty() {
        "no method is given"
    } else if options.rounds == 0 || options.samples < options.rounds {
        "there must be at least one round, and one sample per round"
    } else if options
        .methods
        .iter()
        .any(|it| it.guests == Guests::OutsourcedBulk)
    {
        "rt-process has no VM that memcached could run in"
    } else {
        return Ok(());
    };
    Err(Error::input("measure memcached", wrong)
        .what_to_do("see steadyvm lab experiment memcached --help"))
}

/// What runs beside memcached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Beside {
    Nothing,
    NetStream,
}

impl fmt::Display for Beside {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(match self {
            Self::Nothing => "GET, no NetStream",
            Self::NetStream => "GET beside NetStream at full speed",
        })
    }
}

const CELLS: [Beside; 2] = [Beside::Nothing, Beside::NetStream];

struct Memcached<'a>(&'a Options);

impl Plan for Memcached<'_> {
    type Row = ComparedMethod;
    type Cell = Beside;
    type Station = Station;
    type Sample = Sample;

    fn rows(&self) -> &[ComparedMethod] {
        &self.0.methods
    }

    fn cells(&self) -> &[Beside] {
        &CELLS
    }

    fn rounds(&self) -> u64 {
        self.0.rounds
    }

    fn boot(
        &self,
        laboratory: &Laboratory,
        row: ComparedMethod,
        on_cpu: usize,
        observer: &dyn Observer,
    ) -> Result<Station> {
        Station::boot(laboratory, row, on_cpu, observer)
    }

    fn measure(&self, station: &mut Station, cell: Beside, round: u64) -> Result<Sample> {
        let load = Load {
            seed: self.0.seed.wrapping_add(round),
            requests: share(self.0.samples, self.0.rounds, round),
        };
        station.measure(cell, load)
    }
}

fn run(laboratory: &Laboratory, options: &Options, observer: &dyn Observer) -> Result<Outcome> {
    check(options)?;
    let measured = rounds::run(laboratory, &Memcached(options), observer)?;
    let mut latencies = Vec::new();
    let mut notes = Vec::new();
    for (cell, beside) in CELLS.into_iter().enumerate() {
        for (method, rounds) in options.methods.iter().zip(&measured.samples) {
            let samples: Vec<&Sample> = rounds.iter().map(|cells| &cells[cell]).collect();
            latencies.push(latencies_of(method, beside, &samples));
            if beside == Beside::NetStream {
                notes.push(carried(method, &samples));
            }
        }
    }
    notes.extend(options.methods.iter().filter_map(|method| method.note()));
    Ok(Outcome {
        latencies,
        notes,
        dropped_rounds: measured.dropped_rounds,
        disturbance: measured.disturbance,
    })
}

/// The GETs of all rounds.
fn latencies_of(method: &ComparedMethod, beside: Beside, samples: &[&Sample]) -> Latencies {
    let gets = |sample: &&Sample| {
        let samples = sample.memcached.samples.iter();
        let gets = samples.filter(|it| it.kind == Kind::Get);
        gets.map(|it| it.response_ns).collect()
    };
    Latencies {
        row: method.to_string(),
        cell: beside.to_string(),
        rounds: samples.iter().map(gets).collect(),
        lost: samples.iter().map(|it| it.memcached.lost).sum(),
    }
}

/// What the stream carried meanwhile, in words.
fn carried(method: &ComparedMethod, samples: &[&Sample]) -> String {
    let rates: Vec<f64> = samples.iter().filter_map(|it| it.mbit_per_s).collect();
    let mean = rates.iter().sum::<f64>() / rates.len().max(1) as f64;
    let busy = samples.iter().map(|it| it.cpu_busy_fraction).sum::<f64>();
    let percent = 100.0 * busy / samples.len().max(1) as f64;
    format!(
        "{method}: NetStream received {mean:.0} Mbit/s, and {percent:.0} % of the host's CPU time was busy"
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use steadyvm_load::memcached;

    fn options() -> Options {
        Options {
            methods: ["preempt-rt", "outsourcing"]
                .map(|it| it.parse().unwrap())
                .into(),
            samples: 100,
            rounds: 2,
            seed: 1,
        }
    }

    #[test]
    fn what_cannot_be_measured_is_refused_first() {
        check(&options()).unwrap();
        for spoil in [
            |it: &mut Options| it.methods.clear(),
            |it: &mut Options| it.rounds = 0,
            |it: &mut Options| it.samples = 1,
            |it: &mut Options| it.methods.push("rt-process".parse().unwrap()),
        ] {
            let mut options = options();
            spoil(&mut options);
            assert!(check(&options).is_err(), "{options:?}");
        }
    }

    #[test]
    fn gets_alone_are_counted_and_what_the_stream_carried_is_said() {
        let sample = |kind, response_ns| memcached::Sample {
            sequence: 0,
            kind,
            due_ns: 0,
            response_ns,
        };
        let round = Sample {
            memcached: memcached::Run {
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
        let method = options().methods[0];
        let found = latencies_of(&method, Beside::NetStream, &[&round, &round]);
        assert_eq!(found.rounds, [[5, 6], [5, 6]]);
        assert_eq!((found.lost, &*found.row), (2, "preempt-rt"));
        let said = carried(&method, &[&round]);
        assert!(
            said.contains("200 Mbit/s") && said.contains("50 %"),
            "{said}"
        );
    }
}
