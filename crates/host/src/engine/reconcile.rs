//! Bringing a host to a desired state, all or nothing.
//!
//! Rule: a step is recorded before it is made, and a journal in force is replaced only by one that
//! holds all of it. So after a crash or a full disk at any moment, undo restores everything.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

use super::desired::Desired;
use super::journal::{Header, Journal, JournalFile, Writer};
use super::lock::{Lock, Runtime};
use super::step::Step;
use super::storage::{Directory, Storage};
use super::undo::{self, Undone};
use crate::demux::Presence;
use crate::error::HostError;
use crate::machine::Machine;
use crate::method::Switches;
use crate::net::plan::{self, Context, Wanted};
use crate::net::{Profile, VmThreads, bound_sockets};

/// Making a step can bring threads into being that the desired state wants something of, and threads
/// are started while others are moved; each pass finds those of the one before.
const PASSES: usize = 10;

/// The engine of one host and one journal.
#[derive(Clone)]
pub struct Engine {
    pub(super) machine: Machine,
    pub(super) journal: JournalFile,
    runtime: Runtime,
    wait: Duration,
}

/// What reconciling would change.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Plan {
    /// The method.
    pub method: Switches,
    /// The CPU that would be dedicated, if one would.
    pub dedicated_cpu: Option<usize>,
    /// The steps, in order. Threads that a step starts are not among them yet.
    pub steps: Vec<Step>,
    /// Settings in force that are no longer wanted, and that would be taken back.
    pub taken_back: Vec<Step>,
    /// The VMs that the profile names.
    pub vms: Vec<VmThreads>,
    /// What the caller should know.
    pub warnings: Vec<String>,
}

/// What reconciling did.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Report {
    /// The method that is in force.
    pub method: Switches,
    /// The CPU that is dedicated, if one is.
    pub dedicated_cpu: Option<usize>,
    /// What was changed, in order; nothing if all of it was in force.
    pub steps: Vec<Step>,
    /// What the kernel refused and the host can do without.
    pub skipped: Vec<String>,
    /// Settings of an earlier state that were taken back.
    pub taken_back: Undone,
    /// How many settings are in force now.
    pub in_force: usize,
    /// What the caller should know.
    pub warnings: Vec<String>,
}

/// What was tried in one run.
#[derive(Debug, Default)]
struct Tried {
    /// Every step, before it was tried.
    recorded: Vec<Step>,
    /// Those that were made.
    made: Vec<Step>,
    /// Those that the kernel refused and the host can do without, and why.
    refused: Vec<(Step, String)>,
}

impl Engine {
    /// The engine of a host, with its journal in a directory.
    pub fn new(machine: Machine, state_directory: impl Into<PathBuf>) -> Self {
        Self::with_storage(machine, Arc::new(Directory::new(state_directory)))
    }

    /// The engine of a host, with its journal in a storage of the caller's.
    pub fn with_storage(machine: Machine, storage: Arc<dyn Storage>) -> Self {
        let beside = || storage.directory().parent().map(PathBuf::from);
        let runtime = machine.runtime.clone().or_else(beside).unwrap_or_default();
        Self {
            machine,
            runtime: Runtime::new(runtime),
            journal: JournalFile::new(storage),
            wait: Duration::ZERO,
        }
    }

    /// How long to wait for another process that changes the host.
    #[must_use]
    pub fn waiting(mut self, wait: Duration) -> Self {
        self.wait = wait;
        self
    }

    /// The host.
    pub fn machine(&self) -> &Machine {
        &self.machine
    }

    /// What reconciling would change. Reads only.
    ///
    /// # Errors
    /// As of [`Engine::reconcile`], but for what only trying can show.
    pub fn plan(&self, desired: &Desired) -> Result<Plan, HostError> {
        self.refuse_other_journals()?;
        let before = self.journal_of_this_boot()?;
        let before = before.filter(|journal| journal.complete);
        if let Some(before) = &before {
            self.must_follow(desired, before)?;
        }
        let own = before.map_or_else(Vec::new, |journal| journal.steps);
        let wanted = self.wanted(desired, &own, true)?;
        let mut taken_back = stale(&own, &wanted);
        taken_back.retain(|step| !step.change.is_postponed(&self.machine));
        Ok(Plan {
            method: desired.method,
            dedicated_cpu: desired.profile.dedicated_cpu,
            taken_back,
            steps: to_make(&self.machine, &wanted),
            vms: wanted.vms,
            warnings: wanted.warnings,
        })
    }

    /// Makes the host what it is to be, or leaves it as it was. An apply that was interrupted is
    /// undone first.
    ///
    /// # Errors
    /// Something else is in force; the desired state does not fit the machine: nothing is changed. A
    /// step failed: what was in force before is in force again.
    pub fn reconcile(&self, desired: &Desired) -> Result<Report, HostError> {
        self.journal.prepare()?;
        let _lock = self.lock()?;
        self.refuse_other_journals()?;
        let (before, own) = match self.journal_of_this_boot()? {
            None => {
                self.journal.remove()?;
                (None, Vec::new())
            }
            Some(journal) if journal.complete => {
                self.must_follow(desired, &journal)?;
                let own = journal.steps.clone();
                (Some(journal), own)
            }
            Some(journal) => {
                self.must_be_readable(&journal)?;
                (None, self.undo_interrupted(&journal)?)
            }
        };
        self.reconcile_from(desired, before, &own)
    }

    /// Takes back whatever is in force. Nothing in force is no error.
    pub fn undo(&self) -> Result<Undone, HostError> {
        self.undo_if(|_| Ok(()))
    }

    /// As [`Engine::undo`], if a check of what is in force passes.
    pub(crate) fn undo_if(
        &self,
        check: impl FnOnce(&Journal) -> Result<(), HostError>,
    ) -> Result<Undone, HostError> {
        self.journal.prepare()?;
        let _lock = self.lock()?;
        self.refuse_other_journals()?;
        let Some(journal) = self.journal.read()? else {
            return Ok(Undone::default());
        };
        if journal.header.boot_id != self.machine.boot_id()? {
            self.journal.remove()?;
            return Ok(Undone {
                notes: vec!["the machine was rebooted since: nothing was in force".into()],
                ..Undone::default()
            });
        }
        self.must_be_here(&journal)?;
        check(&journal)?;
        self.take_back(&journal).map(|(undone, _)| undone)
    }

    /// Drops the journal without restoring anything: for settings that can never be restored.
    pub fn forget(&self) -> Result<(), HostError> {
        self.journal.prepare()?;
        let _lock = self.lock()?;
        self.journal.remove()
    }

    fn lock(&self) -> Result<Lock, HostError> {
        self.runtime.lock(self.wait)
    }

    /// Fails if another journal of this machine says that something is in force.
    fn refuse_other_journals(&self) -> Result<(), HostError> {
        let Some(directory) = self.runtime.in_force()? else {
            return Ok(());
        };
        if directory == self.journal.directory() {
            return Ok(());
        }
        let other = JournalFile::new(Arc::new(Directory::new(&directory)));
        let boot_id = self.machine.boot_id()?;
        match other.read()? {
            Some(journal) if journal.header.boot_id == boot_id => Err(HostError::InForce {
                what: format!(
                    "settings of another journal are in force: method {}",
                    journal.header.desired.method
                ),
                journal: other.path().display().to_string(),
                fix: format!("name it (--state-dir {})", directory.display()),
            }),
            _ => Ok(()),
        }
    }

    /// The journal, unless it is of an earlier boot: what that recorded is gone.
    fn journal_of_this_boot(&self) -> Result<Option<Journal>, HostError> {
        let Some(journal) = self.journal.read()? else {
            return Ok(None);
        };
        if journal.header.boot_id != self.machine.boot_id()? {
            return Ok(None);
        }
        self.must_be_here(&journal)?;
        Ok(Some(journal))
    }

    /// Names of devices and files are those of the namespaces in which they were recorded.
    fn must_be_here(&self, journal: &Journal) -> Result<(), HostError> {
        let (then, now) = (&journal.header.namespaces, self.machine.namespaces());
        let Some(kind) = then.first_difference(&now) else {
            return Ok(());
        };
        Err(HostError::Unsupported {
            missing: format!(
                "the settings of {} were made in another {kind} namespace",
                self.journal.path().display()
            ),
            fix: "run steadyvm in that one (nsenter -t 1 -n -m steadyvm …, if it is the host's)"
                .into(),
        })
    }

    /// Lines that another version wrote are not dropped by the way.
    fn must_be_readable(&self, journal: &Journal) -> Result<(), HostError> {
        if journal.unreadable.is_empty() {
            return Ok(());
        }
        Err(HostError::Malformed {
            path: self.journal.path().display().to_string(),
            problem: format!(
                "{}; undo it with the steadyvm that wrote it, or give it up with `steadyvm host \
                 undo --forget`",
                journal.unreadable.join(", ")
            ),
        })
    }

    fn must_follow(&self, desired: &Desired, before: &Journal) -> Result<(), HostError> {
        self.must_be_readable(before)?;
        if desired.may_follow(&before.header.desired) {
            return Ok(());
        }
        let method = before.header.desired.method;
        Err(HostError::InForce {
            what: format!("method {method} is in force already"),
            journal: self.journal.path().display().to_string(),
            fix: "run `steadyvm host undo` first".into(),
        })
    }

    /// Returns the steps that cannot be taken back now, but may be later.
    fn undo_interrupted(&self, journal: &Journal) -> Result<Vec<Step>, HostError> {
        let (undone, left) = self.take_back(journal)?;
        if undone.failed.is_empty() {
            return Ok(left);
        }
        Err(HostError::InForce {
            what: format!(
                "an earlier apply or undo was interrupted and cannot be undone: {}",
                undone.failed.join("; ")
            ),
            journal: self.journal.path().display().to_string(),
            fix: "remove the cause and run `steadyvm host undo`".into(),
        })
    }

    /// Takes a journal back, and keeps of it what is left.
    fn take_back(&self, journal: &Journal) -> Result<(Undone, Vec<Step>), HostError> {
        let (undone, left) = undo::take_back(&self.machine, journal);
        if left.is_empty() && journal.unreadable.is_empty() {
            self.journal.remove()?;
        } else {
            let rest = Journal {
                steps: left.clone(),
                complete: false,
                ..journal.clone()
            };
            self.journal.replace(&rest)?;
        }
        Ok((undone, left))
    }

    /// As [`Engine::reconcile`], from a state: what is in force, and the steps of it.
    fn reconcile_from(
        &self,
        desired: &Desired,
        before: Option<Journal>,
        own: &[Step],
    ) -> Result<Report, HostError> {
        let wanted = self.wanted(desired, own, true)?;
        self.refresh_demux(&desired.profile)?;
        let is_same = match &before {
            Some(journal) => journal.header.desired == *desired,
            None => own.is_empty() && desired.method.is_vanilla(),
        };
        let steps = to_make(&self.machine, &wanted);
        let refused_before = |step: &Step| {
            let mut skipped = before.iter().flat_map(|journal| &journal.header.skipped);
            !step.required && skipped.any(|subject| *subject == step.change.subject())
        };
        if is_same && steps.iter().all(refused_before) && stale(own, &wanted).is_empty() {
            return Ok(Report {
                method: desired.method,
                dedicated_cpu: desired.profile.dedicated_cpu,
                steps: Vec::new(),
                skipped: Vec::new(),
                taken_back: Undone::default(),
                in_force: own.len(),
                warnings: wanted.warnings,
            });
        }
        let header = self.header(desired, before.as_ref())?;
        let mut tried = Tried::default();
        match self.try_all(&header, own, wanted, &mut tried) {
            Ok(mut report) => {
                if report.taken_back.restored > 0 {
                    // Taking back may have replaced threads as well.
                    let again = self.reconcile_again(desired)?;
                    report.steps.extend(again.steps);
                    report.in_force = again.in_force;
                }
                Ok(report)
            }
            Err(cause) => Err(HostError::RolledBack {
                cause: Box::new(cause),
                undone: Box::new(self.roll_back(header, before, own, tried.recorded)),
            }),
        }
    }

    fn reconcile_again(&self, desired: &Desired) -> Result<Report, HostError> {
        let before = self.journal_of_this_boot()?;
        let own = before.as_ref().map_or_else(Vec::new, |it| it.steps.clone());
        self.reconcile_from(desired, before, &own)
    }

    /// Writes the journal, makes the steps, takes back what is no longer wanted.
    fn try_all(
        &self,
        header: &Header,
        own: &[Step],
        wanted: Wanted,
        tried: &mut Tried,
    ) -> Result<Report, HostError> {
        self.runtime.set_in_force(&self.journal.directory())?;
        let begun = Journal::of(header.clone(), own.to_vec());
        let mut writer = self.journal.replace(&begun)?;
        let wanted = self.make_all(&header.desired, wanted, own, &mut writer, tried)?;
        self.settle_on(header.clone(), own, wanted, tried)
    }

    /// Enters what early demultiplexing in force has missed: ports that were never bound.
    fn refresh_demux(&self, profile: &Profile) -> Result<(), HostError> {
        let Some(demux) = &profile.demux else {
            return Ok(());
        };
        let failed = |error| HostError::io("refresh", "early demultiplexing", error);
        let presence = self.machine.demux.presence(&demux.specification);
        if presence.map_err(failed)? == Presence::Whole {
            let mut sockets = || bound_sockets(&self.machine);
            self.machine.demux.refresh(&mut sockets).map_err(failed)?;
        }
        Ok(())
    }

    pub(super) fn wanted(
        &self,
        desired: &Desired,
        own: &[Step],
        is_first: bool,
    ) -> Result<Wanted, HostError> {
        let context = Context { own, is_first };
        plan::plan(&self.machine, &desired.profile, &context)
    }

    fn header(&self, desired: &Desired, before: Option<&Journal>) -> Result<Header, HostError> {
        Ok(Header {
            schema_version: Header::version(),
            desired: desired.clone(),
            applied_unix_s: unix_now_s(),
            // Threads have inherited settings since the first apply.
            applied_ticks: match before {
                Some(before) => before.header.applied_ticks,
                None => self.machine.now_ticks()?,
            },
            boot_id: self.machine.boot_id()?,
            namespaces: self.machine.namespaces(),
            skipped: Vec::new(),
        })
    }

    /// Makes the steps, and those that become possible by them. Returns what is wanted in the end.
    fn make_all(
        &self,
        desired: &Desired,
        mut wanted: Wanted,
        own: &[Step],
        writer: &mut Writer,
        tried: &mut Tried,
    ) -> Result<Wanted, HostError> {
        for _ in 0..PASSES {
            let mut steps = to_make(&self.machine, &wanted);
            steps.retain(|step| !tried.was_refused(step));
            if steps.is_empty() {
                return Ok(wanted);
            }
            // What comes behind would be of threads that are gone then: plan it again.
            let last = steps.iter().position(|step| step.change.replaces_threads());
            steps.truncate(last.map_or(steps.len(), |last| last + 1));
            writer.record(&steps)?;
            for step in steps {
                tried.recorded.push(step.clone());
                match step.change.make(&self.machine) {
                    Ok(()) => tried.made.push(step),
                    // It ended, or went away: what is wanted now does not have it.
                    Err(error) if error.is_vanished() => {}
                    Err(error) if !step.required => {
                        tried.refused.push((step, error.to_string()));
                    }
                    Err(error) => return Err(error),
                }
            }
            let all: Vec<Step> = own.iter().chain(&tried.recorded).cloned().collect();
            wanted = self.wanted(desired, &all, false)?;
        }
        wanted.warnings.push(
            "settings were changed by others, or threads started faster than they could be moved, \
             while they were made: see `steadyvm host show`"
                .into(),
        );
        Ok(wanted)
    }

    /// Takes back what is no longer wanted and writes the journal anew, each setting once.
    fn settle_on(
        &self,
        mut header: Header,
        own: &[Step],
        wanted: Wanted,
        tried: &Tried,
    ) -> Result<Report, HostError> {
        let unwanted = Journal::of(header.clone(), stale(own, &wanted));
        let (taken_back, mut kept) = undo::take_back(&self.machine, &unwanted);
        let recorded: Vec<&Step> = own.iter().chain(&tried.recorded).collect();
        for step in wanted.steps {
            let first = recorded
                .iter()
                .find(|earlier| earlier.change.same_subject(&step.change));
            // What held before steadyvm came is not its to take back.
            let Some(first) = first else { continue };
            if tried.was_refused(&step) {
                header.skipped.push(step.change.subject());
                let mut earlier = own.iter();
                kept.extend(
                    earlier
                        .find(|own| own.change.same_subject(&step.change))
                        .cloned(),
                );
                continue;
            }
            let change = step.change.since(&first.change);
            if !change.is_empty() {
                let since_unix_s = first.since_unix_s.or(Some(header.applied_unix_s));
                kept.push(Step {
                    change,
                    since_unix_s,
                    ..step
                });
            }
        }
        let (method, in_force) = (header.desired.method, kept.len());
        let dedicated_cpu = header.desired.profile.dedicated_cpu;
        let mut journal = Journal::of(header, kept);
        journal.complete = true;
        self.journal.replace(&journal)?;
        Ok(Report {
            method,
            dedicated_cpu,
            steps: tried.made.clone(),
            skipped: tried.refused.iter().map(|(_, why)| why.clone()).collect(),
            taken_back,
            in_force,
            warnings: wanted.warnings,
        })
    }

    /// Undoes the steps of a failed apply, and gives the state before it its settings back. What
    /// cannot be written to the journal stays in it as it was recorded: undo restores it.
    fn roll_back(
        &self,
        header: Header,
        before: Option<Journal>,
        own: &[Step],
        recorded: Vec<Step>,
    ) -> Undone {
        let (mut undone, left) =
            undo::take_back(&self.machine, &Journal::of(header.clone(), recorded));
        let written = match before {
            None if left.is_empty() && own.is_empty() => self.journal.remove(),
            None => {
                let steps = own.iter().cloned().chain(left).collect();
                self.journal.replace(&Journal::of(header, steps)).map(drop)
            }
            Some(before) => self.return_to(before, left, &mut undone),
        };
        if let Err(error) = written {
            undone.failed.push(format!(
                "{error}; the journal still has every setting: run `steadyvm host undo` to restore \
                 them all"
            ));
        }
        undone
    }

    /// The failed apply may have taken settings back or replaced threads, so the state before it is
    /// planned again.
    fn return_to(
        &self,
        mut before: Journal,
        left: Vec<Step>,
        undone: &mut Undone,
    ) -> Result<(), HostError> {
        // Recorded already, whatever can be written now.
        for step in &before.steps {
            if step.change.read(&self.machine).is_ok_and(|now| now.is_new) {
                continue;
            }
            if let Err(error) = step.change.make(&self.machine)
                && !error.is_vanished()
            {
                undone.failed.push(error.to_string());
            }
        }
        let mut begun = Journal::of(before.header.clone(), before.steps.clone());
        begun.steps.extend(left.iter().cloned());
        let mut writer = self.journal.replace(&begun)?;
        let mut tried = Tried::default();
        let desired = &before.header.desired;
        let restored = self
            .wanted(desired, &before.steps, false)
            .and_then(|wanted| {
                self.make_all(desired, wanted, &before.steps, &mut writer, &mut tried)
            });
        undone
            .failed
            .extend(restored.err().map(|error| error.to_string()));
        before.complete = left.is_empty();
        for step in tried.recorded {
            let is_known = |known: &Step| known.change.same_subject(&step.change);
            if !before.steps.iter().any(is_known) {
                before.steps.push(step);
            }
        }
        before.steps.extend(left);
        self.journal.replace(&before).map(drop)
    }
}

impl Tried {
    /// Whether the kernel refused this very change in this run.
    fn was_refused(&self, step: &Step) -> bool {
        let mut refused = self.refused.iter();
        refused.any(|(refused, _)| {
            refused.change.same_subject(&step.change)
                && refused.change.new_text() == step.change.new_text()
        })
    }
}

/// The wanted steps that are not in force.
pub(super) fn to_make(machine: &Machine, wanted: &Wanted) -> Vec<Step> {
    let missing = |step: &&Step| {
        let holds = step.change.read(machine).is_ok_and(|now| now.is_new);
        !step.change.is_empty() && !holds
    };
    wanted.steps.iter().filter(missing).cloned().collect()
}

/// The recorded steps of settings that are no longer wanted.
fn stale(own: &[Step], wanted: &Wanted) -> Vec<Step> {
    let is_wanted = |step: &Step| {
        let mut all = wanted.steps.iter();
        all.any(|wanted| wanted.change.same_subject(&step.change))
    };
    own.iter()
        .filter(|step| !is_wanted(step))
        .cloned()
        .collect()
}

fn unix_now_s() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.unwrap_or_default().as_secs()
}
