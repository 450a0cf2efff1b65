//! The planned bounds of a row's services beside what is measured of them.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use steadyvm_host::Desired;
use steadyvm_load::netrt::ClientRun;
use steadyvm_site::bounds::{Bound, Measured};
use steadyvm_site::{DEFAULT_FILE, Site, Source, now_unix_s};

/// The bounds that the plan of a row's file has.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Planned {
    file: PathBuf,
    bounds: Vec<Bound>,
}

impl Planned {
    /// Of a file; `name` is the service that is measured, where the file has several. None without a bound.
    pub fn of(file: &Path, site: &Site, name: Option<&str>) -> Option<Self> {
        let bounds = site.bounds(name);
        let file = std::path::absolute(file).unwrap_or_else(|_| file.to_owned());
        (!bounds.is_empty()).then_some(Self { file, bounds })
    }

    /// Of what was found in force, if it is what the host's file says.
    pub fn of_found(found: &Desired, name: Option<&str>) -> Option<Self> {
        let file = Path::new(DEFAULT_FILE);
        let site = Site::read(&Source::of(file)).ok()?;
        (site.desired() == *found).then(|| Self::of(file, &site, name))?
    }
}

impl Planned {
    /// The bound of the service beside what was measured; none where it is one of several.
    pub fn measured<'r>(
        &self,
        runs: impl Iterator<Item = &'r ClientRun> + Clone,
    ) -> Option<Measured> {
        let [bound] = self.bounds.as_slice() else {
            return None;
        };
        let lost = runs.clone().map(|run| run.counters.lost).sum();
        let rtts_ns = runs.flat_map(|run| run.samples.iter().map(|sample| sample.rtt_ns));
        Some(Measured {
            file: self.file.clone(),
            bound: bound.clone(),
            round_trips: bound.against(rtts_ns, lost),
            unix_s: now_unix_s(),
        })
    }

    /// What a reader is told of the bound in a row of this name, in sentences.
    pub fn notes<'r>(
        &self,
        row: &str,
        runs: impl Iterator<Item = &'r ClientRun> + Clone,
    ) -> Vec<String> {
        let Some(measured) = self.measured(runs) else {
            let services: Vec<&str> = self.bounds.iter().map(|it| &*it.service).collect();
            return vec![format!(
                "{row}: its plan has bounds of {} services; --bound NAME holds one against the measurement: {}",
                services.len(),
                services.join(", ")
            )];
        };
        let Measured {
            bound, round_trips, ..
        } = &measured;
        let mut notes = vec![format!(
            "{row}: the plan's bound of service {} is {} ms; {}; the wire and the client are in a round trip, and in no bound",
            bound.service,
            bound.bound_ns as f64 / 1e6,
            round_trips.sentence(bound)
        )];
        if let Some(lacks) = &bound.lacks {
            notes.push(format!("{row}: the bound is too small: {lacks}"));
        }
        if round_trips.over > 0 {
            notes.push(format!(
                "{row}: `steadyvm explain --plan {}` shows which term is broken",
                self.file.display()
            ));
        }
        notes
    }
}
