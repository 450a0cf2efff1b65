//! The planned bounds of a row's services beside what is measured of them.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use steadyvm_host::Desired;
use steadyvm_load::netrt::ClientRun;
use steadyvm_site::bounds::{Bound, Measured};
use steadyvm_site::{DEFAULT_FILE, Site, Source, now_unix_s};

/// The service of a row's file that is measured.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Planned {
    file: PathBuf,
    service: Service,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
enum Service {
    /// The one that the file has, or that is named.
    Known(Bound),
    /// That one; the plan has no bound for it.
    WithoutBound(String),
    /// One of these.
    Unknown(Vec<String>),
}

impl Planned {
    /// Of a file; `name` is the service that is measured, where the file has several. None if the file has none, or none of that
    /// name.
    pub fn of(file: &Path, site: &Site, name: Option<&str>) -> Option<Self> {
        let mut services = site.bounds();
        services.retain(|(service, _)| name.is_none_or(|name| name == *service));
        let service = match services.as_slice() {
            [] => return None,
            [(_, Some(bound))] => Service::Known(bound.clone()),
            [(service, None)] => Service::WithoutBound((*service).to_owned()),
            several => {
                let names = several.iter().map(|(service, _)| (*service).to_owned());
                Service::Unknown(names.collect())
            }
        };
        let file = std::path::absolute(file).unwrap_or_else(|_| file.to_owned());
        Some(Self { file, service })
    }

    /// Of what was found in force, if it is what the host's file says.
    pub fn of_found(found: &Desired, name: Option<&str>) -> Option<Self> {
        let file = Path::new(DEFAULT_FILE);
        let site = Site::read(&Source::of(file)).ok()?;
        (site.desired() == *found).then(|| Self::of(file, &site, name))?
    }

    /// The bound of the service beside what was measured; none if either is not known.
    pub fn measured<'r>(
        &self,
        runs: impl Iterator<Item = &'r ClientRun> + Clone,
    ) -> Option<Measured> {
        let Service::Known(bound) = &self.service else {
            return None;
        };
        runs.clone().next()?;
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
            return vec![match &self.service {
                Service::Unknown(names) => format!(
                    "{row}: its plan has {} services; --bound NAME says which one is measured: {}",
                    names.len(),
                    names.join(", ")
                ),
                Service::WithoutBound(name) => {
                    format!("{row}: the plan has no bound for service {name}")
                }
                Service::Known(_) => format!("{row}: nothing is measured"),
            }];
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
        if round_trips.over + round_trips.lost > 0 {
            notes.push(format!(
                "{row}: `steadyvm explain --plan {}` shows where their time goes",
                self.file.display()
            ));
        }
        notes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_without_a_round_has_no_measurement() {
        let bound = Bound {
            service: "web".to_owned(),
            vm: "web".to_owned(),
            bound_ns: 1,
            lacks: None,
        };
        let planned = Planned {
            file: "/etc/steadyvm.toml".into(),
            service: Service::Known(bound),
        };
        assert_eq!(planned.measured(std::iter::empty()), None);
        let notes = planned.notes("with", std::iter::empty());
        assert_eq!(notes, ["with: nothing is measured"]);
    }
}
