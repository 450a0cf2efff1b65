//! The main job: NetRT next to NetStream under several host methods, interleaved in rounds.
//!
//! Each method has a booted host of its own. In a round they take turns phase by phase: one
//! runs, the others stand still with their clocks stopped. So drift of the machine hits all
//! methods alike. Between parts of the rounds all hosts can be booted anew, so that what one
//! boot happens to be like is not taken for its method.

mod counts;
mod method;
mod output;
pub(crate) mod phase;
pub mod price;
pub(crate) mod receivers;
pub mod report;
pub mod results;
mod station;
pub mod table;
pub mod targets;

pub use method::{ComparedMethod, Guests};
pub use output::{Meta, write_files, write_output};

use crate::compare::results::{MethodData, Phase, PhaseData, RoundData, RunData, Service};
use crate::engine::{CpuUse, Disturbance, Repetitions, STANDSTILL};
use station::Station;
use steadyvm_lab::host::{boot_again, boot_side_by_side, keep_kernel_logs};
use steadyvm_lab::laboratory::Laboratory;
use steadyvm_lab::progress::{News, Observer, task};
use steadyvm_lab::{Blame, Error, Result};
use steadyvm_load::netstream::NetStreamRun;

/// The equal rate is this share of the slowest method's full speed: low enough that every
/// method holds it.
const EQUAL_SHARE: f64 = 0.9;

/// A phase in which this machine stood still is measured again, but no more than one in so many: a
/// machine that stands still all the time cannot do better.
const REPEATED_PHASES: u64 = 2;
/// A round in which a machine dies under load is measured again as a whole, this often a run.
const REBOOTS: u32 = 4;

/// What to compare, and how long.
#[derive(Debug, Clone)]
pub struct Options {
    /// Methods, in the order shown.
    pub methods: Vec<ComparedMethod>,
    /// Where the loads are received.
    pub service: Service,
    /// Whether the methods leave the fair server's long pieces: see `steadyvm host apply`.
    pub keep_fair_server: bool,
    /// Counted requests a method and phase, over all rounds.
    pub samples: u64,
    /// Rounds.
    pub rounds: u64,
    /// How often every host is booted: the rounds are shared out among the boots.
    pub boots: u64,
    /// Whether every phase is repeated with the host's receive path traced.
    pub receive_path: bool,
    /// TCP streams of NetStream, side by side.
    pub streams: u32,
    /// NetStream's rate in the phase in which all methods carry the same. None: 0.9 of the slowest
    /// method's full speed in the first round.
    pub equal_rate_mbit_per_s: Option<f64>,
    /// Seed of the request schedules. A round's schedule is the same for every method.
    pub seed: u64,
}

impl Options {
    /// Counted requests in this round (0 is the first): they differ by one at most.
    fn samples_in(&self, round: u64) -> u64 {
        self.samples / self.rounds + u64::from(round < self.samples % self.rounds)
    }

    /// The boot that this round (0 is the first) is measured in.
    fn boot_of(&self, round: u64) -> u64 {
        round * self.boots / self.rounds
    }

    /// Refuses what cannot be measured.
    pub fn check(&self) -> Result<()> {
        let wrong = if self.methods.is_empty() {
            "no method is given"
        } else if self.rounds == 0 {
            "there must be at least one round"
        } else if self.boots == 0 || self.boots > self.rounds {
            "there must be at least one boot, and a round for each"
        } else if self.samples < self.rounds {
            "there must be at least one sample a round"
        } else if self
            .equal_rate_mbit_per_s
            .is_some_and(|rate| !(rate.is_finite() && rate >= 0.01))
        {
            "the equal rate must be a number of Mbit/s from 0.01"
        } else {
            let mut methods = self.methods.iter();
            return methods.try_for_each(|method| method.check(self.service));
        };
        Err(Error::input("compare methods", wrong).what_to_do(
            "see steadyvm compare --help for --methods, --samples, --rounds, --boots and --equal-rate",
        ))
    }
}

/// What was measured, and what whoever reads the figures must see with them.
#[derive(Debug, Clone)]
pub struct Comparison {
    /// The samples.
    pub data: RunData,
    /// The equal rate that was asked for, or that the first round found.
    pub equal_rate_mbit_per_s: Option<f64>,
    /// The rounds that were dropped because a machine died, a sentence each.
    pub dropped_rounds: Vec<String>,
    /// What else the machine did during the rounds.
    pub disturbance: Disturbance,
}

/// Measures everything. See the module's introduction for how.
pub fn run(
    laboratory: &Laboratory,
    options: &Options,
    observer: &dyn Observer,
) -> Result<Comparison> {
    options.check()?;
    let stations = task(observer, "boot the hosts", || {
        boot_stations(laboratory, options, observer)
    })?;
    let cpu_use = |stations: &[Station]| CpuUse::now(stations.iter().map(Station::emulator));
    let before = cpu_use(&stations)?;
    let mut run = Run {
        laboratory,
        options,
        observer,
        repetitions: Repetitions::start(
            options.rounds * Phase::ALL.len() as u64 / REPEATED_PHASES,
            STANDSTILL,
        )?,
        stations,
        equal_rate: options.equal_rate_mbit_per_s,
        reboots_left: REBOOTS,
        dropped_rounds: Vec::new(),
    };
    let mut rounds = Vec::new();
    let mut boot = 0;
    while (rounds.len() as u64) < options.rounds {
        let round = rounds.len() as u64;
        if options.boot_of(round) != boot {
            boot = options.boot_of(round);
            task(observer, "boot the hosts anew", || run.boot_anew())?;
        }
        let title = format!("round {} of {}", round + 1, options.rounds);
        match task(observer, title, || run.measure_round(round)) {
            Ok(measured) => rounds.push(measured),
            Err(error) => run.recover(round, error)?,
        }
    }
    let disturbance = cpu_use(&run.stations)?.since(&before);
    keep_kernel_logs(run.stations.iter_mut().map(Station::host), observer);
    Ok(Comparison {
        data: by_method(options, rounds),
        equal_rate_mbit_per_s: run.equal_rate,
        dropped_rounds: run.dropped_rounds,
        disturbance: Disturbance {
            standstills: run.repetitions.standstills(),
            ..disturbance
        },
    })
}

/// A comparison under way.
struct Run<'a> {
    laboratory: &'a Laboratory,
    options: &'a Options,
    observer: &'a dyn Observer,
    repetitions: Repetitions,
    stations: Vec<Station>,
    /// Asked for, or found by the first round and kept by the others.
    equal_rate: Option<f64>,
    reboots_left: u32,
    dropped_rounds: Vec<String>,
}

impl Run<'_> {
    /// One round: the data of each method, in the methods' order.
    fn measure_round(&mut self, round: u64) -> Result<Vec<RoundData>> {
        let load = phase::Load {
            seed: self.options.seed + round,
            samples: self.options.samples_in(round),
            receive_path: self.options.receive_path,
            streams: self.options.streams,
        };
        let idle = self.measure_phase(round, Phase::Idle, None, &load)?;
        let full = self.measure_phase(round, Phase::Full, None, &load)?;
        let rate = *self
            .equal_rate
            .get_or_insert_with(|| EQUAL_SHARE * slowest(&full));
        let equal = self.measure_phase(round, Phase::Equal, Some(rate), &load)?;
        let phases = idle.into_iter().zip(full).zip(equal);
        Ok(phases
            .map(|((idle, full), equal)| RoundData { idle, full, equal })
            .collect())
    }

    /// Measures one phase on every station. If this machine stood still meanwhile, all stations measure
    /// it again: what decides is a clock beside the experiment, never what was measured.
    fn measure_phase(
        &mut self,
        round: u64,
        phase: Phase,
        rate_mbit_per_s: Option<f64>,
        load: &phase::Load,
    ) -> Result<Vec<PhaseData>> {
        loop {
            self.repetitions.begin();
            let measured = self.take_turns(round, phase, rate_mbit_per_s, load)?;
            let what = format!("\"{}\"", phase.title());
            if !self.repetitions.are_needed(&what, self.observer) {
                return Ok(measured);
            }
        }
    }

    /// Measures one phase on every station, beginning with another one each round.
    fn take_turns(
        &mut self,
        round: u64,
        phase: Phase,
        rate_mbit_per_s: Option<f64>,
        load: &phase::Load,
    ) -> Result<Vec<PhaseData>> {
        let count = self.stations.len();
        let before = match phase {
            Phase::Idle => 0,
            Phase::Full => count,
            Phase::Equal => 2 * count,
        };
        let mut measured: Vec<Option<PhaseData>> = vec![None; count];
        for (turn, index) in turns(count, round).enumerate() {
            let station = &mut self.stations[index];
            self.observer.tell(News::Advance {
                done: (before + turn) as u64,
                of: 3 * count as u64,
                detail: format!("{}: {}", station.method(), phase.title()),
            });
            measured[index] = Some(station.measure(phase, rate_mbit_per_s, load)?);
        }
        Ok(measured.into_iter().flatten().collect())
    }

    /// Ends every host and boots it again.
    fn boot_anew(&mut self) -> Result<()> {
        // First: memory is for one host a method.
        self.stations.clear();
        self.stations = boot_stations(self.laboratory, self.options, self.observer)?;
        Ok(())
    }

    /// After a machine died in a round: drops the whole round, so that no method keeps its better
    /// half, and boots what is broken.
    fn recover(&mut self, round: u64, error: Error) -> Result<()> {
        if self.reboots_left == 0 || error.blame != Blame::Machine {
            return Err(error);
        }
        self.reboots_left -= 1;
        self.dropped_rounds.push(format!(
            "round {} was dropped for all methods and measured again: {error}",
            round + 1
        ));
        self.observer
            .tell(News::Note(format!("{error}\n  booting that host again")));
        for station in &mut self.stations {
            if station.is_broken() {
                let (method, options) = (station.method(), self.options);
                *station = boot_station(self.laboratory, method, options, 0, self.observer)?;
            }
        }
        Ok(())
    }
}

/// Boots a station for each method.
fn boot_stations(
    laboratory: &Laboratory,
    options: &Options,
    observer: &dyn Observer,
) -> Result<Vec<Station>> {
    let with = match options.service {
        Service::Vm => " and two guests",
        Service::Host | Service::Own => "",
    };
    let tell = |methods: &[ComparedMethod]| {
        let names: Vec<String> = methods.iter().map(ToString::to_string).collect();
        observer.tell(News::Note(format!(
            "booting a host{with}: {}",
            names.join(", ")
        )));
    };
    boot_side_by_side(&options.methods, tell, |&method, cpu| {
        boot_station(laboratory, method, options, cpu, observer)
    })
}

/// Boots one station, if need be in several attempts.
fn boot_station(
    laboratory: &Laboratory,
    method: ComparedMethod,
    options: &Options,
    on_cpu: usize,
    observer: &dyn Observer,
) -> Result<Station> {
    boot_again(observer, || {
        Station::boot(laboratory, method, options, on_cpu, observer)
    })
}

/// The order in which stations take their turns in a round: each is the first one in turn.
fn turns(stations: usize, round: u64) -> impl Iterator<Item = usize> {
    (0..stations).map(move |turn| (turn + round as usize) % stations)
}

fn slowest(phases: &[PhaseData]) -> f64 {
    let speeds = phases.iter().filter_map(|phase| phase.netstream.as_ref());
    speeds
        .map(|stream: &NetStreamRun| stream.mbit_per_s)
        .fold(f64::INFINITY, f64::min)
}

/// Turns rounds of methods into methods of rounds.
fn by_method(options: &Options, rounds: Vec<Vec<RoundData>>) -> RunData {
    let mut methods: Vec<MethodData> = options
        .methods
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
    RunData {
        service: options.service,
        methods,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(samples: u64, rounds: u64) -> Options {
        Options {
            methods: vec!["vanilla".parse().unwrap()],
            service: Service::Vm,
            keep_fair_server: false,
            samples,
            rounds,
            boots: 1,
            receive_path: false,
            streams: 1,
            equal_rate_mbit_per_s: None,
            seed: 1,
        }
    }

    #[test]
    fn an_equal_rate_that_is_no_rate_is_refused() {
        for (rate, allowed) in [
            (900.0, true),
            (0.01, true),
            (0.0, false),
            (-5.0, false),
            (f64::NAN, false),
            (f64::INFINITY, false),
        ] {
            let options = Options {
                equal_rate_mbit_per_s: Some(rate),
                ..options(1, 1)
            };
            assert_eq!(options.check().is_ok(), allowed, "{rate}");
        }
    }

    #[test]
    fn boots_share_the_rounds_out() {
        for (rounds, boots) in [(8, 2), (7, 3), (3, 3), (5, 1)] {
            let options = Options {
                boots,
                ..options(1000, rounds)
            };
            assert!(options.check().is_ok());
            let mut measured = vec![0; boots as usize];
            for round in 0..rounds {
                measured[options.boot_of(round) as usize] += 1;
                assert!(round == 0 || options.boot_of(round) - options.boot_of(round - 1) <= 1);
            }
            let (least, most) = (measured.iter().min(), measured.iter().max());
            assert!(most.unwrap() - least.unwrap() <= 1, "{measured:?}");
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
    fn every_station_has_every_turn_equally_often() {
        for stations in 1..5 {
            for turn in 0..stations {
                let at_turn = |round| turns(stations, round).nth(turn).unwrap();
                let mut seen: Vec<usize> = (0..stations as u64).map(at_turn).collect();
                seen.sort_unstable();
                assert_eq!(seen, (0..stations).collect::<Vec<_>>());
            }
        }
    }

    #[test]
    fn empty_comparisons_are_refused() {
        assert!(options(1, 1).check().is_ok());
        assert!(options(0, 1).check().is_err());
        assert!(options(5, 0).check().is_err());
        assert!(options(2, 3).check().is_err());
        for boots in [0, 4] {
            let options = Options {
                boots,
                ..options(100, 3)
            };
            assert!(options.check().is_err());
        }
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
