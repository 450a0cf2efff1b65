//! The main job: NetRT next to NetStream under several host methods, interleaved in rounds.
//!
//! Each method has a booted host of its own. In a round they take turns phase by phase: one
//! runs, the others stand still with their clocks stopped. So drift of the machine hits all
//! methods alike. Between parts of the rounds all hosts can be booted anew, so that what one
//! boot happens to be like is not taken for its method.

mod answer;
pub mod interim;
pub mod price;
mod station;
pub mod targets;

pub use answer::answer;
pub use steadyvm_comparison::{
    BUSY, Intervals, MethodData, NAME, Phase, PhaseData, RoundData, RunData, THROUGHPUT, assemble,
    excludes_one, hgrm_of_method, ratio_of, report, required, service_of, table, tables,
    traced_paths,
};

use crate::engine::Disturbance;
use crate::engine::rounds::{self, Manner, Outcome, Plan, share};
use crate::testbed::{ComparedMethod, Service, phase};
use interim::Extent;
use station::Station;
use std::sync::OnceLock;
use steadyvm_lab::laboratory::Laboratory;
use steadyvm_lab::progress::{News, Observer};
use steadyvm_lab::{Error, Result};
use steadyvm_load::netstream::NetStreamRun;

/// The equal rate is this share of the slowest method's full speed: low enough that every
/// method holds it.
const EQUAL_SHARE: f64 = 0.9;

/// The phases in the order of measuring: what full speed is decides what the equal rate is.
const PHASES: [Phase; 3] = [Phase::Idle, Phase::Full, Phase::Equal];

/// What to compare, and how long.
#[derive(Debug, Clone)]
pub struct Options {
    /// Methods, in the order shown.
    pub methods: Vec<ComparedMethod>,
    /// Where the loads are received.
    pub service: Service,
    /// Whether the methods leave the fair server's long pieces: see `steadyvm apply --method`.
    pub keep_fair_server: bool,
    /// Counted requests per method and phase, over all rounds.
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
    /// Whether the observer is told of figures before the end.
    pub interim: bool,
    /// Seed of the request schedules. A round's schedule is the same for every method.
    pub seed: u64,
}

impl Options {
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
            "see steadyvm-lab compare --help for --methods, --samples, --rounds, --boots and --equal-rate",
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
    let alternate = Alternate {
        options,
        equal_rate: OnceLock::new(),
    };
    if let Some(rate) = options.equal_rate_mbit_per_s {
        alternate.equal_rate.get_or_init(|| rate);
    }
    let measured = rounds::run(laboratory, &alternate, observer)?;
    let equal_rate_mbit_per_s = alternate.equal_rate.into_inner();
    let Outcome {
        data,
        dropped_rounds,
        disturbance,
    } = measured.map(|samples| run_data(options, samples));
    Ok(Comparison {
        data,
        equal_rate_mbit_per_s,
        dropped_rounds,
        disturbance,
    })
}

/// A comparison under way.
struct Alternate<'a> {
    options: &'a Options,
    /// Asked for, or found by the first round and kept by the others.
    equal_rate: OnceLock<f64>,
}

impl Plan for Alternate<'_> {
    type Row = ComparedMethod;
    type Cell = Phase;
    type Station = Station;
    type Sample = PhaseData;

    fn rows(&self) -> &[ComparedMethod] {
        &self.options.methods
    }

    fn cells(&self) -> &[Phase] {
        &PHASES
    }

    fn rounds(&self) -> u64 {
        self.options.rounds
    }

    fn boot(
        &self,
        laboratory: &Laboratory,
        method: ComparedMethod,
        on_cpu: usize,
        observer: &dyn Observer,
    ) -> Result<Station> {
        Station::boot(laboratory, method, self.options, on_cpu, observer)
    }

    fn measure(&self, station: &mut Station, phase: Phase, round: u64) -> Result<PhaseData> {
        let options = self.options;
        let load = phase::Load {
            seed: options.seed + round,
            samples: share(options.samples, options.rounds, round),
            receive_path: options.receive_path,
            streams: options.streams,
        };
        let rate = match phase {
            Phase::Idle | Phase::Full => None,
            Phase::Equal => self.equal_rate.get().copied(),
        };
        station.measure(phase, rate, &load)
    }

    fn manner(&self) -> Manner {
        Manner {
            boots: self.options.boots,
            ..Manner::default()
        }
    }

    fn learn(&self, phase: Phase, measured: &[PhaseData]) {
        if phase == Phase::Full {
            self.equal_rate
                .get_or_init(|| EQUAL_SHARE * slowest(measured));
        }
    }

    fn show(&self, samples: &[Vec<Vec<PhaseData>>], observer: &dyn Observer) {
        let extent = Extent {
            samples: self.options.samples,
            rounds: self.options.rounds,
        };
        let done = samples.first().map_or(0, Vec::len) as u64;
        if self.options.interim && interim::is_due(done, extent) {
            let data = run_data(self.options, samples.to_vec());
            observer.tell(News::Table(interim::render(&data, done, extent)));
        }
    }
}

fn slowest(phases: &[PhaseData]) -> f64 {
    let speeds = phases.iter().filter_map(|phase| phase.netstream.as_ref());
    speeds
        .map(|stream: &NetStreamRun| stream.mbit_per_s)
        .fold(f64::INFINITY, f64::min)
}

fn run_data(options: &Options, samples: Vec<Vec<Vec<PhaseData>>>) -> RunData {
    let method = |(method, rounds): (&ComparedMethod, Vec<Vec<PhaseData>>)| MethodData {
        name: method.to_string(),
        rounds: rounds.into_iter().filter_map(round_data).collect(),
    };
    RunData {
        service: options.service,
        methods: options.methods.iter().zip(samples).map(method).collect(),
    }
}

/// The phases of [`PHASES`].
fn round_data(phases: Vec<PhaseData>) -> Option<RoundData> {
    let [idle, full, equal] = phases.try_into().ok()?;
    Some(RoundData { idle, full, equal })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Mutex;

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
            interim: false,
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

    #[derive(Default)]
    struct Teller(Mutex<Vec<News>>);

    impl Observer for Teller {
        fn tell(&self, news: News) {
            self.0.lock().unwrap().push(news);
        }
    }

    #[test]
    fn interim_tables_are_told_only_where_they_are_wanted() {
        let round = || PHASES.map(|_| PhaseData::not_measured()).to_vec();
        for (interim, rounds, told) in [(true, 1, 1), (true, 3, 0), (false, 1, 0)] {
            let options = Options {
                interim,
                ..options(8, 4)
            };
            let alternate = Alternate {
                options: &options,
                equal_rate: OnceLock::new(),
            };
            let teller = Teller::default();
            alternate.show(&[vec![round(); rounds]], &teller);
            let news = teller.0.into_inner().unwrap();
            assert_eq!(news.len(), told, "{news:?}");
            assert!(news.iter().all(|it| matches!(it, News::Table(_))));
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
