//! The bounds of services beside each of their requests, for as long as a watch runs.
//!
//! A VM's packets do not say whose they are. So the terms are those of a VM; of several services of one the longest counts, which no
//! request of any may exceed.
//!
//! - `compare`: the terms of a plan, and what is news; pure
//! - `follow`: who follows the requests on this host
//!
//! The watch writes what it found into the state directory; `status`, `top` and the exporter show it. It is of what is in force, as
//! [`crate::bounds`] are.

mod compare;
mod follow;

use std::fmt::Write as _;
use std::io;
use std::path::Path;

use serde::{Deserialize, Serialize};
use steadyvm_host::engine::{Directory, Storage};
use steadyvm_sched::show::GuestReport;

pub use compare::{GUESTS_DEADLINES, News, Planned};
pub use follow::Checker;

const FILE: &str = "checks.json";
const BESIDE: &str = "checks.new";
const SCHEMA_VERSION: u32 = 1;
/// So many broken bounds are remembered.
const MOST_BROKEN: usize = 50;

/// What a watch found.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Checks {
    /// The version of this shape.
    pub schema_version: u32,
    /// When it was written, in seconds after 1970.
    pub unix_s: u64,
    /// Why requests are not followed; null if they are.
    pub why_not: Option<String>,
    /// The VMs with a bound.
    pub vms: Vec<Checked>,
    /// Terms that were broken, the last one last.
    pub broken: Vec<Broken>,
}

/// The bound of a VM's services beside what was measured.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Checked {
    /// The VM.
    pub vm: String,
    /// Its services with a bound.
    pub services: Vec<String>,
    /// What the bound has nothing for, in words; null if it is complete.
    pub lacks: Option<String>,
    /// In the order of the way; the last one is all of it.
    pub terms: Vec<Term>,
    /// What the guest says of its own deadlines; null if it says nothing.
    pub guest: Option<GuestReport>,
}

/// A term of a bound, and the requests that a watch has followed through it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Term {
    /// Its name, as `explain --plan` has it.
    pub term: String,
    /// The longest that the plan allows; null if it has no bound.
    pub planned_ns: Option<u64>,
    /// Requests.
    pub n: u64,
    /// Those that took longer.
    pub over: u64,
    /// The longest; null if there was none.
    pub longest_ns: Option<u64>,
    /// The longest over what is planned: 1 is the bound; null if one of them is not known.
    pub near: Option<f64>,
}

/// A term went beyond what is planned.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Broken {
    /// When the watch saw it, in seconds after 1970.
    pub unix_s: u64,
    /// The VM.
    pub vm: String,
    /// Its services.
    pub services: Vec<String>,
    /// The term that is the cause.
    pub term: String,
    /// What is planned; null for the guest's own deadlines.
    pub planned_ns: Option<u64>,
    /// The longest so far; null for the guest's own deadlines.
    pub longest_ns: Option<u64>,
    /// So many were over so far, of `n`.
    pub over: u64,
    /// So many were followed so far.
    pub n: u64,
}

impl Checked {
    /// The term that is nearest to what is planned, or furthest beyond.
    pub fn nearest(&self) -> Option<&Term> {
        let known = self.terms.iter().filter(|term| term.near.is_some());
        known.max_by(|a, b| a.near.unwrap_or(0.0).total_cmp(&b.near.unwrap_or(0.0)))
    }

    /// In words.
    pub fn sentence(&self) -> String {
        let (names, vm) = (self.services.join(", "), &self.vm);
        let head = format!("bound of {names} in {vm}");
        let Some(nearest) = self.nearest() else {
            return format!("{head}: no request was followed yet");
        };
        let share = |term: &Term| {
            let percent = 100.0 * term.near.unwrap_or(0.0);
            format!(
                "{percent:.1} % of \"{}\" ({:.3} ms, n = {}, {} over)",
                term.term,
                term.longest_ns.unwrap_or(0) as f64 / 1e6,
                term.n,
                term.over
            )
        };
        let mut text = format!("{head}: nearest {}", share(nearest));
        if let Some(all) = self.terms.last().filter(|all| *all != nearest && all.n > 0) {
            let _ = write!(text, "; {}", share(all));
        }
        if let Some(guest) = &self.guest {
            let _ = write!(
                text,
                "; its guest reports {} misses of {} jobs",
                guest.misses, guest.jobs
            );
        }
        text
    }
}

impl Broken {
    /// In words.
    pub fn sentence(&self) -> String {
        let (names, vm) = (self.services.join(", "), &self.vm);
        let Some((longest_ns, planned_ns)) = self.longest_ns.zip(self.planned_ns) else {
            return format!(
                "the bound of {names} in VM {vm} is broken: the guest reports {} missed deadlines of {} jobs",
                self.over, self.n
            );
        };
        format!(
            "the bound of {names} in VM {vm} is broken: \"{}\" took {:.3} ms, planned are {:.3} ms; {} of {} requests were over",
            self.term,
            longest_ns as f64 / 1e6,
            planned_ns as f64 / 1e6,
            self.over,
            self.n
        )
    }
}

impl Checks {
    /// Reads what a watch wrote; none if none did, or if it cannot be read.
    pub fn read(directory: &Path) -> Option<Self> {
        let bytes = Directory::new(directory).read(FILE).ok().flatten()?;
        let read: Self = serde_json::from_slice(&bytes).ok()?;
        (read.schema_version == SCHEMA_VERSION).then_some(read)
    }

    /// Writes it, so that nobody ever reads half of it.
    fn write(&mut self, directory: &Path) -> io::Result<()> {
        self.schema_version = SCHEMA_VERSION;
        let directory = Directory::new(directory);
        directory.prepare()?;
        let mut file = directory.create(BESIDE)?;
        file.append(&serde_json::to_vec_pretty(self)?)?;
        directory.rename(BESIDE, FILE)
    }

    fn note(&mut self, broken: &[Broken]) {
        self.broken.extend_from_slice(broken);
        let more = self.broken.len().saturating_sub(MOST_BROKEN);
        self.broken.drain(..more);
    }
}

/// Forgets what was found: what is in force is another now, or nothing.
///
/// # Errors
/// The file cannot be removed.
pub fn forget(directory: &Path) -> io::Result<()> {
    match std::fs::remove_file(directory.join(FILE)) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn broken(over: u64) -> Broken {
        Broken {
            unix_s: 7,
            vm: "web".to_owned(),
            services: vec!["http".to_owned()],
            term: "VCPU blackout".to_owned(),
            planned_ns: Some(1_000_000),
            longest_ns: Some(2_500_000),
            over,
            n: 100,
        }
    }

    #[test]
    fn what_a_watch_found_is_read_and_forgotten_and_the_last_broken_bounds_stay() {
        let place = tempfile::tempdir().unwrap();
        assert_eq!(Checks::read(place.path()), None);
        let mut checks = Checks::default();
        for over in 1..=60 {
            checks.note(&[broken(over)]);
        }
        checks.write(place.path()).unwrap();
        let read = Checks::read(place.path()).unwrap();
        assert_eq!(read, checks);
        let overs: Vec<u64> = read.broken.iter().map(|it| it.over).collect();
        assert_eq!(overs, (11..=60).collect::<Vec<u64>>());
        std::fs::write(place.path().join(FILE), "{").unwrap();
        assert_eq!(Checks::read(place.path()), None);
        forget(place.path()).unwrap();
        forget(place.path()).unwrap();
    }

    #[test]
    fn a_broken_bound_names_its_term_and_a_guests_report_its_jobs() {
        assert_eq!(
            broken(3).sentence(),
            "the bound of http in VM web is broken: \"VCPU blackout\" took 2.500 ms, planned are 1.000 ms; 3 of 100 requests \
             were over"
        );
        let reported = Broken {
            planned_ns: None,
            longest_ns: None,
            ..broken(2)
        };
        assert_eq!(
            reported.sentence(),
            "the bound of http in VM web is broken: the guest reports 2 missed deadlines of 100 jobs"
        );
    }
}
