//! What was measured of services beside their planned bounds.
//!
//! `measure` writes it into the state directory, `status` shows it. It is of what is in force: an `apply` that changes the host, `undo`
//! and a watch whose file has changed forget it. It is gone after a reboot, as the next kernel may be another.

use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use steadyvm_analysis::plan::ServiceReport;
use steadyvm_host::engine::{Directory, Storage};

use crate::checks;

const FILE: &str = "bounds.json";
const BESIDE: &str = "bounds.new";
const SCHEMA_VERSION: u32 = 1;

/// A service's bound as a plan of this host has it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bound {
    /// The service.
    pub service: String,
    /// Its VM.
    pub vm: String,
    /// From the wire to the wire.
    pub bound_ns: u64,
    /// What it has nothing for, in words; none if it is complete.
    pub lacks: Option<String>,
}

/// Round trips that were measured while the bound was in force.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RoundTrips {
    /// Those that were answered.
    pub answered: u64,
    /// Those that were not.
    pub lost: u64,
    /// Of those that were answered, how many took longer than the bound.
    pub over: u64,
    /// The longest.
    pub longest_ns: u64,
}

/// A bound, and the last measurement of its service.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Measured {
    /// The file that was planned.
    pub file: PathBuf,
    /// The bound as it was then.
    #[serde(flatten)]
    pub bound: Bound,
    /// What was measured.
    #[serde(flatten)]
    pub round_trips: RoundTrips,
    /// When, in seconds after 1970.
    pub unix_s: u64,
}

impl Bound {
    /// Of a service in a plan; none if the plan has no bound for it.
    pub fn of(service: &ServiceReport) -> Option<Self> {
        Some(Self {
            service: service.name.clone(),
            vm: service.vm.clone(),
            bound_ns: u64::try_from(service.bound?).ok()?,
            lacks: service.lacks(),
        })
    }

    /// What these round trips are to it.
    pub fn against(&self, rtts_ns: impl IntoIterator<Item = u64>, lost: u64) -> RoundTrips {
        let mut found = RoundTrips {
            lost,
            ..RoundTrips::default()
        };
        for rtt_ns in rtts_ns {
            found.answered += 1;
            found.over += u64::from(rtt_ns > self.bound_ns);
            found.longest_ns = found.longest_ns.max(rtt_ns);
        }
        found
    }
}

impl RoundTrips {
    /// In words, beside the bound.
    pub fn sentence(&self, bound: &Bound) -> String {
        let share = 100.0 * self.longest_ns as f64 / bound.bound_ns.max(1) as f64;
        let lost = match self.lost {
            0 => String::new(),
            lost => format!(", {lost} had no reply"),
        };
        let over = match self.over {
            0 => "none was over it".to_owned(),
            over => format!("{over} were over it"),
        };
        format!(
            "of {} round trips the longest took {:.3} ms ({share:.1} % of the bound), {over}{lost}",
            self.answered,
            self.longest_ns as f64 / 1e6
        )
    }
}

/// Keeps measurements for `status`; each takes the place of the last one of its file's service.
///
/// # Errors
/// The state directory cannot be written.
pub fn keep(directory: &Path, new: &[Measured]) -> io::Result<()> {
    if new.is_empty() {
        return Ok(());
    }
    let mut all = read(directory);
    let is_same =
        |a: &Measured, b: &Measured| (&a.file, &a.bound.service) == (&b.file, &b.bound.service);
    all.retain(|old| !new.iter().any(|it| is_same(it, old)));
    all.extend_from_slice(new);
    let directory = Directory::new(directory);
    directory.prepare()?;
    let mut file = directory.create(BESIDE)?;
    file.append(&serde_json::to_vec_pretty(&Kept {
        schema_version: SCHEMA_VERSION,
        services: all,
    })?)?;
    directory.rename(BESIDE, FILE)
}

/// Forgets them all, and what a watch has found: what is in force is another now, or nothing.
///
/// # Errors
/// The file cannot be removed.
pub fn forget(directory: &Path) -> io::Result<()> {
    checks::forget(directory)?;
    match std::fs::remove_file(directory.join(FILE)) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// What was kept; nothing if nothing was, or if it cannot be read.
pub fn read(directory: &Path) -> Vec<Measured> {
    let bytes = Directory::new(directory).read(FILE).ok().flatten();
    let kept: Option<Kept> = bytes.and_then(|bytes| serde_json::from_slice(&bytes).ok());
    kept.filter(|kept| kept.schema_version == SCHEMA_VERSION)
        .map_or_else(Vec::new, |kept| kept.services)
}

#[derive(Serialize, Deserialize)]
struct Kept {
    schema_version: u32,
    services: Vec<Measured>,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bound(service: &str) -> Bound {
        Bound {
            service: service.to_owned(),
            vm: "web".to_owned(),
            bound_ns: 2_000_000,
            lacks: None,
        }
    }

    #[test]
    fn round_trips_are_counted_against_the_bound() {
        let bound = bound("web");
        let found = bound.against([500_000, 2_000_000, 1], 0);
        assert_eq!((found.answered, found.over), (3, 0));
        assert_eq!(
            found.sentence(&bound),
            "of 3 round trips the longest took 2.000 ms (100.0 % of the bound), none was over it"
        );
        let found = bound.against([2_000_001, 3_000_000], 4);
        assert_eq!((found.over, found.longest_ns), (2, 3_000_000));
        let said = found.sentence(&bound);
        assert!(said.ends_with("2 were over it, 4 had no reply"), "{said}");
    }

    #[test]
    fn a_service_has_its_last_measurement() {
        let place = tempfile::tempdir().unwrap();
        let measured = |service: &str, unix_s| Measured {
            file: "/etc/steadyvm.toml".into(),
            bound: bound(service),
            round_trips: RoundTrips::default(),
            unix_s,
        };
        assert_eq!(read(place.path()), []);
        keep(place.path(), &[measured("web", 1), measured("cache", 1)]).unwrap();
        keep(place.path(), &[measured("web", 2)]).unwrap();
        keep(place.path(), &[]).unwrap();
        let others = Measured {
            file: "/root/other.toml".into(),
            ..measured("web", 3)
        };
        keep(place.path(), std::slice::from_ref(&others)).unwrap();
        let kept = read(place.path());
        assert_eq!(kept, [measured("cache", 1), measured("web", 2), others]);
        std::fs::write(place.path().join(FILE), "{").unwrap();
        assert_eq!(read(place.path()), []);
        forget(place.path()).unwrap();
        forget(place.path()).unwrap();
    }
}
