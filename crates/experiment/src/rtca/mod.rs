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

mod answer;
mod configuration;
mod data;
mod figures;
mod place;
mod shown;

pub use answer::answer;
pub use configuration::{Configuration, LARGEST_BATCH};
pub use data::{Cost, LevelData, StreamData, samples_table};
pub use figures::{ENDPOINTS, NAME, assemble, required};
pub use shown::{page, render};

#[cfg(test)]
mod results_tests;

use crate::engine::rounds::{self, Outcome, RowData, share};
use crate::testbed::{Endpoints, Interference, Setting};
use place::{Load, Place};
use steadyvm_lab::laboratory::Laboratory;
use steadyvm_lab::progress::{Observer, task};
use steadyvm_lab::{Error, Result};

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
            .what_to_do("see steadyvm-lab experiment rtca --help"))
    }

    fn load(&self, round: u64) -> Load {
        Load {
            seed: self.seed + round,
            samples: share(self.samples, self.rounds, round),
            stream_s: self.stream_s,
        }
    }
}

/// Measures everything. See the module's introduction for how.
///
/// # Errors
/// Options that cannot be measured, a host that does not come up, and hosts that die too often.
pub fn run(
    laboratory: &Laboratory,
    options: &Options,
    observer: &dyn Observer,
) -> Result<Outcome<Vec<RowData<LevelData>>>> {
    options.check()?;
    let experiment = Experiment {
        options,
        settings: configuration::settings(&options.configurations, options.endpoints),
    };
    let measured = rounds::run(laboratory, &experiment, observer)?;
    Ok(measured.by_row(&options.configurations))
}

/// A host for each setting; configurations that differ in their batch only share it.
struct Experiment<'a> {
    options: &'a Options,
    settings: Vec<Setting>,
}

impl rounds::Plan for Experiment<'_> {
    type Row = Configuration;
    type Cell = Interference;
    type Station = Place;
    type Sample = LevelData;

    fn rows(&self) -> &[Configuration] {
        &self.options.configurations
    }

    fn cells(&self) -> &[Interference] {
        &Interference::ALL
    }

    fn rounds(&self) -> u64 {
        self.options.rounds
    }

    fn boot(
        &self,
        laboratory: &Laboratory,
        row: Configuration,
        on_cpu: usize,
        observer: &dyn Observer,
    ) -> Result<Place> {
        let setting = row.setting(self.options.endpoints);
        Place::boot(laboratory, setting, row, on_cpu, observer)
    }

    fn measure(&self, place: &mut Place, level: Interference, round: u64) -> Result<LevelData> {
        place.measure(level, &self.options.load(round))
    }

    fn host_of(&self, row: usize) -> usize {
        let setting = self.options.configurations[row].setting(self.options.endpoints);
        let mut settings = self.settings.iter();
        settings.position(|it| *it == setting).unwrap_or(row)
    }

    fn turn_to(&self, place: &mut Place, configuration: Configuration) {
        place.configuration = configuration;
    }

    /// Every host's first steps, unmeasured: an emulator has to translate what has not run yet, and the first
    /// level would look slow for it.
    fn begin(&self, places: &mut [Place], observer: &dyn Observer) -> Result<()> {
        task(observer, "warm up", || {
            for (row, configuration) in self.options.configurations.iter().enumerate() {
                let place = &mut places[self.host_of(row)];
                self.turn_to(place, *configuration);
                self.measure(place, Interference::Heavy, 0)?;
            }
            Ok(())
        })
    }

    fn order(&self, round: u64) -> Vec<usize> {
        levels_in(round).map(|level| level as usize).collect()
    }
}

/// The order of the levels in a round: each comes first in turn.
fn levels_in(round: u64) -> impl Iterator<Item = Interference> {
    let count = Interference::ALL.len();
    (0..count).map(move |turn| Interference::ALL[(turn + round as usize) % count])
}

#[cfg(test)]
mod tests {
    use super::*;
    use steadyvm_lab::Blame;

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
