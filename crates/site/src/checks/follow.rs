//! Follows the requests of services on this host, by BPF programs, and reads what guests report.
//!
//! Threads and cards are looked for where the watch has looked at the host. A look at the counts is a few system calls.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use steadyvm_host::discover::{self, Processes};
use steadyvm_host::profile::Profile;
use steadyvm_host::{HostError, Machine, Thread};
use steadyvm_trace::requests::{Cards, Followed, Requests, STAGES, Seen};

use super::{Checked, Checks, News, Planned};
use crate::drift::now_unix_s;
use crate::enforced::{self, Reports};

/// How often the counts are read: each request is counted, whenever that is.
const LOOK_EVERY: Duration = Duration::from_secs(10);
/// What has not changed is written so often.
const WRITE_EVERY_S: u64 = 60;

/// Checks the bounds of a plan.
pub struct Checker {
    directory: PathBuf,
    planned: Vec<Planned>,
    requests: Option<Requests>,
    reports: Reports,
    news: News,
    checks: Checks,
    /// The next look; none while no service has a bound.
    due: Option<Instant>,
}

impl Checker {
    /// Checks nothing yet, and writes into this directory.
    pub fn new(directory: &Path) -> Self {
        Self {
            directory: directory.to_owned(),
            planned: Vec::new(),
            requests: None,
            reports: Reports::at(Path::new(enforced::DIRECTORY)),
            news: News::default(),
            checks: Checks::default(),
            due: None,
        }
    }

    /// How long to wait for the next look.
    pub fn wait(&self, now: Instant) -> Duration {
        self.due
            .map_or(Duration::MAX, |due| due.saturating_duration_since(now))
    }

    /// Goes on with these bounds, and the threads and cards that there are now. Why it cannot, if that is new.
    pub fn follow(
        &mut self,
        planned: Vec<Planned>,
        profile: &Profile,
        machine: &Machine,
    ) -> Option<String> {
        let is_another = self.planned != planned;
        if is_another {
            self.checks = Checks::default();
            self.news = News::default();
            self.planned = planned;
            self.due = None;
        }
        if is_another || self.planned.is_empty() {
            // What is written down is of another plan, or of a watch before. The next look writes it, if this fails.
            let _ = super::forget(&self.directory);
        }
        if self.planned.is_empty() {
            // No program stays where nothing is checked.
            self.requests = None;
            self.due = None;
            return None;
        }
        self.due.get_or_insert_with(Instant::now);
        let why_not = self.follow_on(profile, machine).err();
        let is_new = why_not != self.checks.why_not;
        if is_new {
            self.checks.why_not.clone_from(&why_not);
            // Written down at the next look.
            self.checks.unix_s = 0;
        }
        why_not
            .filter(|_| is_new)
            .map(|why| format!("bounds are not checked: {why}"))
    }

    fn follow_on(&mut self, profile: &Profile, machine: &Machine) -> Result<(), String> {
        let (vms, cards) =
            find(&self.planned, profile, machine).map_err(|error| error.to_string())?;
        let requests = if let Some(requests) = &mut self.requests {
            requests
        } else {
            let opened = Requests::open().map_err(|error| error.to_string())?;
            self.requests.insert(opened)
        };
        (requests.follow(&vms, &cards)).map_err(|error| error.to_string())
    }

    /// Looks if it is time. Each bound that is broken, in a sentence.
    pub fn look(&mut self, now: Instant) -> Vec<String> {
        if !self.wait(now).is_zero() {
            return Vec::new();
        }
        self.due = Some(now + LOOK_EVERY);
        let mut said = Vec::new();
        let vms = match self.found() {
            Ok(vms) => vms,
            Err(error) => {
                // A map that cannot be read is loaded anew at the next look at the host.
                self.requests = None;
                said.push(format!("what was counted of requests is lost: {error}"));
                return said;
            }
        };
        let unix_s = now_unix_s();
        let broken = self.news.of(&vms, unix_s);
        said.extend(broken.iter().map(super::Broken::sentence));
        let is_written = Checks::read(&self.directory).is_some();
        let is_old = unix_s.saturating_sub(self.checks.unix_s) >= WRITE_EVERY_S;
        if vms != self.checks.vms || is_old || !is_written {
            self.checks.vms = vms;
            self.checks.note(&broken);
            self.checks.unix_s = unix_s;
            if let Err(error) = self.checks.write(&self.directory) {
                said.push(format!("cannot write down how near bounds are: {error}"));
            }
        }
        said
    }

    fn found(&mut self) -> steadyvm_fault::Result<Vec<Checked>> {
        let seen = self.requests.as_ref().map(Requests::look).transpose()?;
        let seen = seen.unwrap_or_default();
        let reports = &mut self.reports;
        let planned = self.planned.iter();
        Ok(planned
            .map(|it| {
                let none = [Seen::default(); STAGES];
                let counted = seen.get(&it.vm).unwrap_or(&none);
                it.beside(counted, reports.of(&it.vm))
            })
            .collect())
    }
}

/// The threads of the VMs with a bound, and the cards of the profile.
fn find(
    planned: &[Planned],
    profile: &Profile,
    machine: &Machine,
) -> Result<(Vec<Followed>, Cards), HostError> {
    let threads = machine.all_threads()?;
    let processes = Processes::of(&threads);
    let of_vm = |planned: &Planned| {
        let mut warnings = Vec::new();
        let vm = profile.vms.iter().find(|vm| vm.name == planned.vm);
        let found = vm.and_then(|vm| {
            // What is wrong with it, the look at the host has told.
            let found = discover::find_vm(
                machine,
                &processes,
                &vm.selector(),
                &vm.users,
                &mut warnings,
            );
            found.ok().flatten()
        });
        let (workers, vcpus) = found.map_or_else(Default::default, |vm| {
            let workers = vm.vhost_workers.iter().map(|it| it.tid).collect();
            (workers, vm.vcpus.values().map(|it| it.tid).collect())
        });
        Followed {
            name: planned.vm.clone(),
            workers,
            vcpus,
            most_ns: planned.allowed_ns.map(|time| time.unwrap_or(u64::MAX)),
        }
    };
    let vms = planned.iter().map(of_vm).collect();
    Ok((vms, cards(profile, machine, &threads)))
}

/// A card that is not there is told by the look at the host.
fn cards(profile: &Profile, machine: &Machine, threads: &[Thread]) -> Cards {
    let own = profile.nics.iter().filter(|nic| !nic.is_other);
    let own = own.map(|nic| nic.name.as_str());
    let shared = profile.vms.iter().filter_map(|vm| vm.nic.as_deref());
    let names: BTreeSet<&str> = own.chain(shared).collect();
    let mut cards = Cards::default();
    for name in names {
        let number = machine.tree.read(&format!("/sys/class/net/{name}/ifindex"));
        let number = number.ok().and_then(|text| text.trim().parse::<u32>().ok());
        cards.interfaces.extend(number);
        // A thread that polls may run on another CPU than its interrupt.
        let nic = discover::nic(machine, threads, name).ok();
        let polled_there = nic.filter(|nic| nic.napi_threads.is_empty());
        let interrupts = polled_there
            .into_iter()
            .flat_map(|nic| nic.irqs.into_keys());
        cards.interrupts.extend(interrupts);
    }
    cards
}

#[cfg(test)]
mod tests {
    use super::*;

    fn planned(allowed_ns: u64) -> Planned {
        Planned {
            vm: "web".into(),
            services: vec!["http".into()],
            lacks: None,
            allowed_ns: [Some(allowed_ns); STAGES],
        }
    }

    /// Nobody reads that a bound is broken which is no longer that of the plan.
    #[test]
    fn what_was_found_of_another_plan_or_by_a_watch_before_is_forgotten() {
        let place = tempfile::tempdir().unwrap();
        let found = || {
            Checks::default().write(place.path()).unwrap();
            Checks::read(place.path()).is_some()
        };
        let (profile, machine) = (Profile::default(), Machine::real());
        let mut checker = Checker::new(place.path());
        for (plan, stays) in [
            (Vec::new(), false),
            (vec![planned(1)], false),
            (vec![planned(1)], true),
            (vec![planned(2)], false),
            (Vec::new(), false),
        ] {
            assert!(found());
            // Whether this kernel lets it follow anything is no matter.
            let _ = checker.follow(plan, &profile, &machine);
            assert_eq!(Checks::read(place.path()).is_some(), stays);
        }
    }
}
