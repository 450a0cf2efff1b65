//! A real service in one guest, alone and beside bulk traffic for another guest: what experiments of
//! unmodified programs have in common.

mod station;

use crate::engine::latency::Latencies;
use crate::engine::rounds::{self, Measured, Plan, share};
use crate::experiment::{Options, Outcome};
use crate::testbed::{ComparedMethod, Guests};
use std::fmt::{self, Debug};
use steadyvm_lab::host::EmulatedHost;
use steadyvm_lab::laboratory::Laboratory;
use steadyvm_lab::progress::Observer;
use steadyvm_lab::{Error, Result};
use steadyvm_report::{Grid, headers};

pub use crate::testbed::receivers::{Receivers, Server};
pub use station::{Sample, ServiceStation};

/// How much load a measurement has.
#[derive(Debug, Clone, Copy)]
pub struct Load {
    /// Seed of the load's schedule.
    pub seed: u64,
    /// What is counted of it: requests, or forwarded messages.
    pub samples: u64,
}

/// A service with its clients.
pub trait Service: Sync {
    /// What its clients measured.
    type Run: Debug;

    /// Its program in the guest.
    fn server(&self) -> Server;
    /// Waits from outside until it serves, and puts its data there.
    ///
    /// # Errors
    /// It does not serve.
    fn prepare(&self, host: &EmulatedHost, receivers: &Receivers) -> Result<()>;
    /// How long a load takes at most, by its schedule, in seconds.
    fn longest_s(&self, load: Load) -> f64;
    /// Puts a load on it, from outside.
    ///
    /// # Errors
    /// Its clients or the service failed.
    fn put_load(&self, host: &EmulatedHost, receivers: &Receivers, load: Load)
    -> Result<Self::Run>;
}

/// What runs beside the service.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Beside {
    /// Nothing.
    Nothing,
    /// A TCP stream at full speed into the other guest.
    NetStream,
}

impl fmt::Display for Beside {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(match self {
            Self::Nothing => "no NetStream",
            Self::NetStream => "beside NetStream at full speed",
        })
    }
}

/// The conditions, in the order of measuring.
pub const CELLS: [Beside; 2] = [Beside::Nothing, Beside::NetStream];

/// Refuses what cannot be measured.
///
/// # Errors
/// What is wrong with the options.
pub fn check(name: &str, options: &Options) -> Result<()> {
    let wrong = if options.methods.is_empty() {
        "no method is given".to_owned()
    } else if options.rounds == 0 || options.samples < options.rounds {
        "there must be at least one round, and one sample per round".to_owned()
    } else if options
        .methods
        .iter()
        .any(|it| it.row().guests == Guests::OutsourcedBulk)
    {
        format!("rt-process has no VM that {name} could run in")
    } else {
        return Ok(());
    };
    Err(Error::input(format!("measure {name}"), wrong)
        .what_to_do(format!("see steadyvm-lab experiment {name} --help")))
}

/// Samples by method, round and cell of [`CELLS`].
///
/// # Errors
/// A host does not come up, or hosts die too often.
fn measure<S: Service>(
    laboratory: &Laboratory,
    options: &Options,
    service: &S,
    observer: &dyn Observer,
) -> Result<Measured<Sample<S::Run>>> {
    rounds::run(laboratory, &Alternate { options, service }, observer)
}

struct Alternate<'a, S> {
    options: &'a Options,
    service: &'a S,
}

impl<S: Service> Plan for Alternate<'_, S> {
    type Row = ComparedMethod;
    type Cell = Beside;
    type Station = ServiceStation;
    type Sample = Sample<S::Run>;

    fn rows(&self) -> &[ComparedMethod] {
        &self.options.methods
    }

    fn cells(&self) -> &[Beside] {
        &CELLS
    }

    fn rounds(&self) -> u64 {
        self.options.rounds
    }

    fn boot(
        &self,
        laboratory: &Laboratory,
        row: ComparedMethod,
        on_cpu: usize,
        observer: &dyn Observer,
    ) -> Result<ServiceStation> {
        ServiceStation::boot(laboratory, row, self.service, on_cpu, observer)
    }

    fn measure(
        &self,
        station: &mut ServiceStation,
        cell: Beside,
        round: u64,
    ) -> Result<Self::Sample> {
        let load = Load {
            seed: self.options.seed.wrapping_add(round),
            samples: share(self.options.samples, self.options.rounds, round),
        };
        station.measure(self.service, cell, load)
    }
}

/// Measures a service, and what is to be said of it: `latencies_of` are those of one method under one condition.
///
/// # Errors
/// A host does not come up, or hosts die too often.
pub fn outcome<S: Service>(
    laboratory: &Laboratory,
    options: &Options,
    service: &S,
    observer: &dyn Observer,
    latencies_of: impl Fn(ComparedMethod, Beside, &[&Sample<S::Run>]) -> Vec<Latencies>,
) -> Result<Outcome> {
    let measured = measure(laboratory, options, service, observer)?;
    let mut latencies = Vec::new();
    let mut notes = Vec::new();
    for (cell, beside) in CELLS.into_iter().enumerate() {
        for (&method, rounds) in options.methods.iter().zip(&measured.samples) {
            let samples: Vec<&Sample<S::Run>> = rounds.iter().map(|cells| &cells[cell]).collect();
            latencies.extend(latencies_of(method, beside, &samples));
            if beside == Beside::NetStream {
                notes.push(carried(method, &samples));
            }
        }
    }
    notes.extend(options.methods.iter().filter_map(|method| method.note()));
    Ok(Outcome {
        latencies,
        figures: Vec::new(),
        tables: Vec::new(),
        notes,
        dropped_rounds: measured.dropped_rounds,
        disturbance: measured.disturbance,
    })
}

/// What the paper says of the outsourcing method's 99th percentiles: by how many per cent they are lower than with
/// `preempt-rt` and with `dedicated`.
pub fn paper(lower_percent: [u32; 2]) -> Grid {
    let row = |(method, lower): (&str, u32)| {
        let ratio = 1.0 - f64::from(lower) / 100.0;
        [
            method.to_owned(),
            format!("{lower} % lower"),
            format!("{ratio:.2}"),
        ]
        .into()
    };
    Grid {
        title: "The paper, on hardware: the outsourcing method's p99 beside NetStream".to_owned(),
        words: 1,
        headers: headers(["than with", "in its words", "ratio"]),
        rows: ["preempt-rt", "dedicated"]
            .into_iter()
            .zip(lower_percent)
            .map(row)
            .collect(),
    }
}

/// What the stream carried meanwhile, in words.
fn carried<R>(method: ComparedMethod, samples: &[&Sample<R>]) -> String {
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

    fn options() -> Options {
        Options {
            methods: ["preempt-rt", "outsourcing"]
                .map(|it| it.parse().unwrap())
                .into(),
            settings: Vec::new(),
            samples: 100,
            rounds: 2,
            seed: 1,
        }
    }

    #[test]
    fn what_cannot_be_measured_is_refused_first() {
        check("memcached", &options()).unwrap();
        for spoil in [
            |it: &mut Options| it.methods.clear(),
            |it: &mut Options| it.rounds = 0,
            |it: &mut Options| it.samples = 1,
            |it: &mut Options| it.methods.push("rt-process".parse().unwrap()),
        ] {
            let mut options = options();
            spoil(&mut options);
            assert!(check("memcached", &options).is_err(), "{options:?}");
        }
    }

    #[test]
    fn what_the_paper_says_is_shown_as_a_ratio() {
        let rows = paper([41, 32]).rows;
        assert_eq!(rows[0], ["preempt-rt", "41 % lower", "0.59"]);
        assert_eq!(rows[1], ["dedicated", "32 % lower", "0.68"]);
    }

    #[test]
    fn what_the_stream_carried_is_the_mean_of_the_rounds() {
        let round = |mbit_per_s, cpu_busy_fraction| Sample {
            run: (),
            mbit_per_s: Some(mbit_per_s),
            cpu_busy_fraction,
        };
        let said = carried(
            options().methods[0],
            &[&round(100.0, 0.25), &round(300.0, 0.75)],
        );
        assert!(
            said.contains("200 Mbit/s") && said.contains("50 %"),
            "{said}"
        );
    }
}
