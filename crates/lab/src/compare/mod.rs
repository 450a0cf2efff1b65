//! The main job: NetRT next to NetStream under several host methods, interleaved in rounds.
//!
//! Every round boots a host of its own for each method, so that what differs from boot to boot
//! is part of what the rounds show. Within a round the hosts take turns phase by phase: one
//! runs, the others stand still with their clocks stopped. So drift of the machine hits all
//! methods alike.

mod cpu;
mod output;
mod phase;
mod station;

pub use output::{Meta, write_output};

use crate::error::{Blame, Error, Result};
use crate::laboratory::{HostKernel, Laboratory};
use crate::progress::{News, Observer, task};
use station::Station;
use steadyvm_host::Method;
use steadyvm_latency::netstream::NetStreamRun;
use steadyvm_latency::results::{MethodData, Phase, PhaseData, RoundData, RunData};

/// The equal rate is this share of the slowest method's full speed: low enough that every
/// method holds it.
pub const EQUAL_SHARE: f64 = 0.9;

/// docs/design/lab.md has the measured rate of failed boots.
const BOOT_ATTEMPTS: u32 = 4;
/// A round in which a machine dies under load is measured again as a whole, once.
const ROUND_ATTEMPTS: u32 = 2;

/// What to compare, and how long.
#[derive(Debug, Clone)]
pub struct Options {
    /// Methods, in the order shown.
    pub methods: Vec<Method>,
    /// Counted requests a method and phase, over all rounds.
    pub samples: u64,
    /// Rounds.
    pub rounds: u64,
    /// Seed of the request schedules. A round's schedule is the same for every method.
    pub seed: u64,
}

impl Options {
    /// Counted requests in this round (0 is the first): they differ by one at most.
    fn samples_in(&self, round: u64) -> u64 {
        self.samples / self.rounds + u64::from(round < self.samples % self.rounds)
    }

    /// Refuses what cannot be measured.
    pub fn check(&self) -> Result<()> {
        let wrong = if self.methods.is_empty() {
            "no method is given"
        } else if self.rounds == 0 {
            "there must be at least one round"
        } else if self.samples < self.rounds {
            "there must be at least one sample a round"
        } else {
            return Ok(());
        };
        Err(Error::input("compare methods", wrong)
            .what_to_do("see steadyvm compare --help for --methods, --samples and --rounds"))
    }
}

/// Measures everything. See the module's introduction for how.
pub fn run(laboratory: &Laboratory, options: &Options, observer: &dyn Observer) -> Result<RunData> {
    options.check()?;
    let mut rounds = Vec::new();
    let mut equal_rate = None;
    for round in 0..options.rounds {
        let title = format!("round {} of {}", round + 1, options.rounds);
        rounds.push(task(observer, title, || {
            repeat_round(laboratory, options, round, &mut equal_rate, observer)
        })?);
    }
    Ok(by_method(&options.methods, rounds))
}

/// Measures a round, again if a machine died in it. What the dead one measured is dropped with
/// the whole round, so that no method keeps its better half.
fn repeat_round(
    laboratory: &Laboratory,
    options: &Options,
    round: u64,
    equal_rate: &mut Option<f64>,
    observer: &dyn Observer,
) -> Result<Vec<RoundData>> {
    let mut attempts_left = ROUND_ATTEMPTS;
    loop {
        attempts_left -= 1;
        match measure_round(laboratory, options, round, equal_rate, observer) {
            Err(error) if attempts_left > 0 && error.blame == Blame::Machine => {
                observer.tell(News::Note(format!("{error}\n  measuring the round again")));
            }
            result => return result,
        }
    }
}

/// One round: the data of each method, in the methods' order.
fn measure_round(
    laboratory: &Laboratory,
    options: &Options,
    round: u64,
    equal_rate: &mut Option<f64>,
    observer: &dyn Observer,
) -> Result<Vec<RoundData>> {
    let mut stations = boot_stations(laboratory, &options.methods, observer)?;
    let load = phase::Load {
        seed: options.seed + round,
        samples: options.samples_in(round),
    };
    let mut measure =
        |phase, rate| measure_phase(&mut stations, round, phase, rate, &load, observer);
    let idle = measure(Phase::Idle, None)?;
    let full = measure(Phase::Full, None)?;
    // The first round finds the rate; the others keep it.
    let rate = *equal_rate.get_or_insert_with(|| EQUAL_SHARE * slowest(&full));
    let equal = measure(Phase::Equal, Some(rate))?;
    let phases = idle.into_iter().zip(full).zip(equal);
    Ok(phases
        .map(|((idle, full), equal)| RoundData { idle, full, equal })
        .collect())
}

/// Boots a station for each method, one after the other: kernels that boot side by side on a
/// busy machine misjudge their timers.
fn boot_stations(
    laboratory: &Laboratory,
    methods: &[Method],
    observer: &dyn Observer,
) -> Result<Vec<Station>> {
    let mut stations = Vec::new();
    for method in methods {
        observer.tell(News::Advance {
            done: stations.len() as u64,
            of: steps(methods.len()),
            detail: format!("{method}: booting a host and two guests"),
        });
        stations.push(boot_station(laboratory, *method, observer)?);
    }
    Ok(stations)
}

/// Boots one station. Under emulation a machine that is started may reset itself for no fault
/// of its kernel, so a failed boot is tried again, and said.
fn boot_station(
    laboratory: &Laboratory,
    method: Method,
    observer: &dyn Observer,
) -> Result<Station> {
    let mut attempts_left = BOOT_ATTEMPTS;
    loop {
        attempts_left -= 1;
        match Station::boot(laboratory, method) {
            Err(error) if attempts_left > 0 && error.blame == Blame::Machine => {
                observer.tell(News::Note(format!("{error}\n  booting it again")));
            }
            result => return result,
        }
    }
}

/// What a round tells of: a boot and three phases a method.
fn steps(methods: usize) -> u64 {
    4 * methods as u64
}

/// Measures one phase on every station, beginning with another one each round.
fn measure_phase(
    stations: &mut [Station],
    round: u64,
    phase: Phase,
    rate_mbit_per_s: Option<f64>,
    load: &phase::Load,
    observer: &dyn Observer,
) -> Result<Vec<PhaseData>> {
    let count = stations.len();
    let mut measured: Vec<Option<PhaseData>> = vec![None; count];
    for turn in 0..count {
        let index = (turn + round as usize) % count;
        let station = &mut stations[index];
        let before = match phase {
            Phase::Idle => count,
            Phase::Full => 2 * count,
            Phase::Equal => 3 * count,
        };
        observer.tell(News::Advance {
            done: (before + turn) as u64,
            of: steps(count),
            detail: format!("{}: {}", station.method(), phase.title()),
        });
        measured[index] = Some(station.measure(phase, rate_mbit_per_s, load)?);
    }
    Ok(measured.into_iter().flatten().collect())
}

fn slowest(phases: &[PhaseData]) -> f64 {
    let speeds = phases.iter().filter_map(|phase| phase.netstream.as_ref());
    speeds
        .map(|stream: &NetStreamRun| stream.mbit_per_s)
        .fold(f64::INFINITY, f64::min)
}

/// Turns rounds of methods into methods of rounds.
fn by_method(methods: &[Method], rounds: Vec<Vec<RoundData>>) -> RunData {
    let mut methods: Vec<MethodData> = methods
        .iter()
        .map(|method| MethodData {
            name: method.to_string(),
            rounds: Vec::new(),
        })
        .collect();
    for round in rounds {
        for (method, data) in methods.iter_mut().zip(round) {
            method.rounds.push(data);
        }
    }
    RunData { methods }
}

/// The kernel that a method's host runs.
fn kernel_of(method: Method) -> HostKernel {
    match method {
        Method::Vanilla => HostKernel::Distribution,
        Method::PreemptRt | Method::Dedicated => HostKernel::PreemptRt,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(samples: u64, rounds: u64) -> Options {
        Options {
            methods: vec![Method::Vanilla],
            samples,
            rounds,
            seed: 1,
        }
    }

    #[test]
    fn rounds_share_the_samples_out() {
        for (samples, rounds) in [(2000, 3), (10, 10), (11, 3), (1, 1)] {
            let options = options(samples, rounds);
            let shares: Vec<u64> = (0..rounds).map(|round| options.samples_in(round)).collect();
            assert_eq!(shares.iter().sum::<u64>(), samples);
            assert!(shares.iter().max().unwrap() - shares.iter().min().unwrap() <= 1);
        }
    }

    #[test]
    fn empty_comparisons_are_refused() {
        assert!(options(1, 1).check().is_ok());
        assert!(options(0, 1).check().is_err());
        assert!(options(5, 0).check().is_err());
        assert!(options(2, 3).check().is_err());
        assert!(
            Options {
                methods: Vec::new(),
                ..options(1, 1)
            }
            .check()
            .is_err()
        );
    }
}
