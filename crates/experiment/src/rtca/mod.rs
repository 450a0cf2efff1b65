//! The experiment of RTCA's section VI-B on KVM: round trips and throughput between two
//! high-priority endpoints of a host while others send to one another.
//!
//! Xi, Li, Lu, Gill, "Limitations and Solutions for Real-Time Local Inter-Domain Communication in
//! Xen" (2012), section VI-B: round trips (Table I) and throughput (Figure 8) between two
//! high-priority domains of a host while none, one, two or three of the others on each core send.
//!
//! The paper has a core for Domain 0, one for each of the two domains, and three cores with three
//! other domains each. A host of the lab has two CPUs for everything: what of the paper's "perfect VMM
//! scheduler" there is, the methods' real-time priorities make. docs/design/inter-vm-traffic.md says
//! what a batch is on KVM, and why there is none of 238.
//!
//! Each method has a host of its own, and one more for its plain path next to a batch; batches are
//! set while it runs. In a round, at each level of interference, the configurations take turns; all
//! hosts but one stand still. A turn of all before the first round is not counted.

mod assemble;
mod configuration;
mod data;
pub(crate) mod endpoint;
mod output;
mod place;
mod report;
mod results;
pub(crate) mod setting;
mod table;

pub use assemble::assemble;
pub use configuration::{Configuration, LARGEST_BATCH};
pub use data::{
    ConfigurationData, Cost, Endpoints, Interference, LevelData, RoundData, RunData, StreamData,
};
pub use output::write_output;
pub use report::render_rtca;
pub use results::{ConfigurationResult, CostResult, LevelResult, Results, SCHEMA_VERSION};
pub use table::render;

#[cfg(test)]
mod results_tests;

use crate::engine::{CpuUse, Disturbance, Repetitions, STANDSTILL};
use place::{Load, Place};
use setting::Setting;
use steadyvm_lab::host::{boot_again, boot_side_by_side, keep_kernel_logs};
use steadyvm_lab::laboratory::Laboratory;
use steadyvm_lab::progress::{News, Observer, task};
use steadyvm_lab::{Blame, Error, Result};

/// Of the measurements during which this machine stood still, so many are made again: one in this
/// many of all.
const REPEATED: u64 = 2;
/// A round in which a machine dies is measured again as a whole, this often a run.
const REBOOTS: u32 = 4;

/// What to measure.
#[derive(Debug, Clone)]
pub struct Options {
    /// Methods and batches, in the order shown.
    pub configurations: Vec<Configuration>,
    /// What the packets go between.
    pub endpoints: Endpoints,
    /// Counted round trips a configuration and level of interference, over all rounds.
    pub samples: u64,
    /// Rounds.
    pub rounds: u64,
    /// How long each stream flows, in seconds.
    pub stream_s: u32,
    /// Seed of the first round's schedule of requests.
    pub seed: u64,
}

impl Options {
    /// Refuses what cannot be measured.
    pub fn check(&self) -> Result<()> {
        let wrong = if self.configurations.is_empty() {
            "no method is given"
        } else if self.rounds == 0 {
            "there must be at least one round"
        } else if self.samples < self.rounds {
            "there must be at least one sample a round"
        } else if self.stream_s == 0 {
            "a stream must flow for a second at least"
        } else {
            let mut configurations = self.configurations.iter();
            return configurations.try_for_each(|it| it.check(self.endpoints));
        };
        Err(Error::input("measure RTCA's experiment", wrong)
            .what_to_do("see steadyvm lab experiment rtca --help"))
    }

    fn load(&self, round: u64) -> Load {
        Load {
            seed: self.seed + round,
            samples: self.samples / self.rounds + u64::from(round < self.samples % self.rounds),
            stream_s: self.stream_s,
        }
    }
}

/// What was measured, and what whoever reads the figures must see with them.
#[derive(Debug, Clone)]
pub struct Measured {
    /// The samples.
    pub data: RunData,
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
) -> Result<Measured> {
    options.check()?;
    let settings = Setting::of_all(&options.configurations, options.endpoints);
    let places = task(observer, "boot the hosts", || {
        boot_places(laboratory, &settings, observer)
    })?;
    let cpu_use = |places: &[Place]| CpuUse::now(places.iter().map(Place::emulator));
    let before = cpu_use(&places)?;
    let levels = Interference::ALL.len() as u64;
    let mut run = Run {
        laboratory,
        options,
        observer,
        repetitions: Repetitions::start(options.rounds * levels / REPEATED, STANDSTILL)?,
        places,
        reboots_left: REBOOTS,
        dropped_rounds: Vec::new(),
    };
    task(observer, "warm up", || run.warm_up())?;
    let mut rounds = Vec::new();
    while (rounds.len() as u64) < options.rounds {
        let round = rounds.len() as u64;
        let title = format!("round {} of {}", round + 1, options.rounds);
        match task(observer, title, || run.measure_round(round)) {
            Ok(measured) => rounds.push(measured),
            Err(error) => run.recover(round, error)?,
        }
    }
    let disturbance = cpu_use(&run.places)?.since(&before);
    keep_kernel_logs(run.places.iter_mut().map(Place::host), observer);
    Ok(Measured {
        data: RunData {
            endpoints: options.endpoints,
            configurations: by_configuration(options, rounds),
        },
        dropped_rounds: run.dropped_rounds,
        disturbance: Disturbance {
            standstills: run.repetitions.standstills(),
            ..disturbance
        },
    })
}

/// The experiment under way.
struct Run<'a> {
    laboratory: &'a Laboratory,
    options: &'a Options,
    observer: &'a dyn Observer,
    repetitions: Repetitions,
    places: Vec<Place>,
    reboots_left: u32,
    dropped_rounds: Vec<String>,
}

impl Run<'_> {
    /// Every host's first steps, unmeasured: an emulator has to translate what has not run yet, and the first
    /// level would look slow for it.
    fn warm_up(&mut self) -> Result<()> {
        self.take_turns(0, Interference::Heavy).map(drop)
    }

    /// One round: each configuration's, in their order.
    fn measure_round(&mut self, round: u64) -> Result<Vec<RoundData>> {
        let mut measured: [Vec<LevelData>; 4] = Default::default();
        for level in levels_in(round) {
            measured[level as usize] = self.measure_level(round, level)?;
        }
        let [base, light, medium, heavy] = measured;
        let levels = base.into_iter().zip(light).zip(medium).zip(heavy);
        Ok(levels
            .map(|(((base, light), medium), heavy)| RoundData([base, light, medium, heavy]))
            .collect())
    }

    /// One level of interference with every configuration; again, if this machine stood still meanwhile.
    fn measure_level(&mut self, round: u64, level: Interference) -> Result<Vec<LevelData>> {
        loop {
            self.repetitions.begin();
            let measured = self.take_turns(round, level)?;
            if !self.repetitions.are_needed(level.title(), self.observer) {
                return Ok(measured);
            }
        }
    }

    /// Each configuration in turn, beginning with another one each round.
    fn take_turns(&mut self, round: u64, level: Interference) -> Result<Vec<LevelData>> {
        let configurations = &self.options.configurations;
        let count = configurations.len();
        let load = self.options.load(round);
        let mut measured: Vec<Option<LevelData>> = vec![None; count];
        for turn in 0..count {
            let index = (turn + round as usize) % count;
            let configuration = configurations[index];
            self.observer.tell(News::Advance {
                done: (level as usize * count + turn) as u64,
                of: (Interference::ALL.len() * count) as u64,
                detail: format!("{configuration}: {}", level.title()),
            });
            let place = self.places.iter_mut().find(|it| it.serves(configuration));
            let place = place.ok_or_else(|| {
                Error::machine(format!("measure {configuration}"), "it has no host")
            })?;
            measured[index] = Some(place.measure(configuration, level, &load)?);
        }
        Ok(measured.into_iter().flatten().collect())
    }

    /// After a machine died in a round: drops the whole round, so that no configuration keeps its better
    /// half, and boots what is broken.
    fn recover(&mut self, round: u64, error: Error) -> Result<()> {
        if self.reboots_left == 0 || error.blame != Blame::Machine {
            return Err(error);
        }
        self.reboots_left -= 1;
        self.dropped_rounds.push(format!(
            "round {} was dropped for all and measured again: {error}",
            round + 1
        ));
        self.observer
            .tell(News::Note(format!("{error}\n  booting that host again")));
        for place in self.places.iter_mut().filter(|place| place.is_broken()) {
            let setting = place.setting();
            *place = boot_place(self.laboratory, setting, 0, self.observer)?;
        }
        Ok(())
    }
}

/// The order of the levels in a round: each comes first in turn.
fn levels_in(round: u64) -> impl Iterator<Item = Interference> {
    let count = Interference::ALL.len();
    (0..count).map(move |turn| Interference::ALL[(turn + round as usize) % count])
}

/// Boots a host for each setting, as many at once as the machine has CPUs, each on one of its own.
fn boot_places(
    laboratory: &Laboratory,
    settings: &[Setting],
    observer: &dyn Observer,
) -> Result<Vec<Place>> {
    let tell = |settings: &[Setting]| {
        let names: Vec<String> = settings.iter().map(|it| it.name()).collect();
        observer.tell(News::Note(format!("booting: {}", names.join(", "))));
    };
    boot_side_by_side(settings, tell, |&setting, cpu| {
        boot_place(laboratory, setting, cpu, observer)
    })
}

fn boot_place(
    laboratory: &Laboratory,
    setting: Setting,
    on_cpu: usize,
    observer: &dyn Observer,
) -> Result<Place> {
    boot_again(observer, || {
        Place::boot(laboratory, setting, on_cpu, observer)
    })
}

/// Turns rounds of configurations into configurations of rounds.
fn by_configuration(options: &Options, rounds: Vec<Vec<RoundData>>) -> Vec<ConfigurationData> {
    let mut configurations: Vec<ConfigurationData> = options
        .configurations
        .iter()
        .map(|configuration| ConfigurationData {
            name: configuration.to_string(),
            rounds: Vec::new(),
        })
        .collect();
    for round in rounds {
        for (configuration, data) in configurations.iter_mut().zip(round) {
            configuration.rounds.push(data);
        }
    }
    configurations
}

#[cfg(test)]
mod tests {
    use super::*;

    type Spoil = fn(&mut Options);

    fn options() -> Options {
        Options {
            configurations: ["vanilla", "rt-poll-list:1"]
                .map(|name| name.parse().unwrap())
                .into(),
            endpoints: Endpoints::Vms,
            samples: 10,
            rounds: 3,
            stream_s: 2,
            seed: 7,
        }
    }

    #[test]
    fn rounds_share_the_samples_out_and_have_a_schedule_each() {
        let options = options();
        let loads: Vec<Load> = (0..3).map(|round| options.load(round)).collect();
        let samples: Vec<u64> = loads.iter().map(|load| load.samples).collect();
        assert_eq!(samples, [4, 3, 3]);
        assert_eq!(loads[2].seed, 9);
    }

    #[test]
    fn each_round_has_every_level_once_and_another_one_first() {
        let first: Vec<Interference> = (0..4).filter_map(|round| levels_in(round).next()).collect();
        assert_eq!(first, Interference::ALL);
        for round in 0..9 {
            let mut levels: Vec<Interference> = levels_in(round).collect();
            levels.sort_unstable();
            assert_eq!(levels, Interference::ALL);
        }
    }

    #[test]
    fn what_cannot_be_measured_is_refused_first() {
        options().check().unwrap();
        let spoilt: [Spoil; 5] = [
            |it| it.configurations.clear(),
            |it| it.rounds = 0,
            |it| it.samples = 2,
            |it| it.stream_s = 0,
            |it| {
                it.endpoints = Endpoints::Namespaces;
                it.configurations.push("preempt-rt:1".parse().unwrap());
            },
        ];
        for spoil in spoilt {
            let mut options = options();
            spoil(&mut options);
            let error = options.check().unwrap_err();
            assert_eq!(error.blame, Blame::Input, "{error}");
        }
    }
}
