//! Bringing a host to a desired state: all or nothing, or group by group.
//!
//! Rule: a step is recorded before it is made, and a journal in force is replaced only by one that
//! holds all of it. So after a crash or a full disk at any moment, undo restores everything.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

use super::attempt::{Attempt, OnFault};
use super::desired::Desired;
use super::failure::Failure;
use super::journal::{Header, Journal, JournalFile, Writer};
use super::lock::{Lock, Runtime};
use super::stale::stale;
use super::storage::{Directory, Storage};
use super::undo;
use crate::error::HostError;
use crate::method::Switches;
use crate::planner::plan::{Context, plan};
use crate::planner::{Group, Step, VmThreads, Wanted};
use crate::profile::Profile;
use crate::settings::Machine;
use crate::settings::demux::{Presence, bound_sockets};
use crate::undone::Undone;
use crate::ways::{PacketWay, ways};

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
    may_change: Option<MayChange>,
}

/// Whether the host may be changed now: why not, if others have a say.
pub type MayChange = Arc<dyn Fn() -> Result<(), HostError> + Send + Sync>;

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
    /// The groups that could not be planned: the others would be served.
    pub failed: Vec<Failure>,
    /// The VMs that the profile names.
    pub vms: Vec<VmThreads>,
    /// The way of the packets of each of them that was looked for.
    pub packet_ways: Vec<PacketWay>,
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
    /// The groups that could not be served, and are as they were before.
    pub failed: Vec<Failure>,
    /// Settings of an earlier state that were taken back.
    pub taken_back: Undone,
    /// How many settings are in force now.
    pub in_force: usize,
    /// What the caller should know.
    pub warnings: Vec<String>,
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
            may_change: None,
        }
    }

    /// How long to wait for another process that changes the host.
    #[must_use]
    pub fn waiting(mut self, wait: Duration) -> Self {
        self.wait = wait;
        self
    }

    /// Asks before every change, when nobody else can change the host any more.
    #[must_use]
    pub fn only_if(mut self, may_change: MayChange) -> Self {
        self.may_change = Some(may_change);
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
        self.plan_as(desired, OnFault::StopAll)
    }

    /// What [`Engine::reconcile_each`] would change. Reads only.
    ///
    /// # Errors
    /// As of [`Engine::reconcile_each`].
    pub fn plan_each(&self, desired: &Desired) -> Result<Plan, HostError> {
        self.plan_as(desired, OnFault::StopGroup { held_off: &[] })
    }

    fn plan_as(&self, desired: &Desired, on_fault: OnFault<'_>) -> Result<Plan, HostError> {
        self.refuse_other_journals()?;
        let before = self.journal_of_this_boot()?;
        let before = before
            .filter(|journal| journal.complete || desired.may_follow(&journal.header.desired));
        if let Some(before) = &before {
            self.must_follow(desired, before)?;
        }
        let own = before.map_or_else(Vec::new, |journal| journal.steps);
        let wanted = on_fault.judge(self.wanted(desired, &own, true)?)?;
        let failed = failures(&wanted);
        let mut taken_back = stale(&own, &wanted, &failed, &self.machine);
        taken_back.retain(|step| !step.change.is_postponed(&self.machine));
        Ok(Plan {
            method: desired.method,
            dedicated_cpu: desired.profile.dedicated_cpu,
            taken_back,
            steps: to_make(&self.machine, &wanted),
            packet_ways: ways(&self.machine, &desired.profile, &wanted),
            failed,
            vms: wanted.vms,
            warnings: wanted.warnings,
        })
    }

    /// Makes the host what it is to be, or leaves it as it was.
    ///
    /// # Errors
    /// Something else is in force; the desired state does not fit the machine: nothing is changed. A
    /// step failed: what was in force before is in force again; what an interrupted apply has left is undone.
    pub fn reconcile(&self, desired: &Desired) -> Result<Report, HostError> {
        self.reconcile_as(desired, OnFault::StopAll)
    }

    /// Makes of the host what can be made: a group that fails is as it was before, and the others are served.
    /// A group in `held_off` is not tried again as long as trying it would make the setting that failed.
    ///
    /// # Errors
    /// Something else is in force; the host or the journal cannot be read or written: then what was in force before is
    /// in force again.
    pub fn reconcile_each(
        &self,
        desired: &Desired,
        held_off: &[Failure],
    ) -> Result<Report, HostError> {
        self.reconcile_as(desired, OnFault::StopGroup { held_off })
    }

    fn reconcile_as(&self, desired: &Desired, on_fault: OnFault<'_>) -> Result<Report, HostError> {
        self.journal.prepare()?;
        let _lock = self.lock()?;
        self.refuse_other_journals()?;
        let before = match self.journal_of_this_boot()? {
            None => {
                self.journal.remove()?;
                None
            }
            Some(journal) if journal.complete || desired.may_follow(&journal.header.desired) => {
                self.must_follow(desired, &journal)?;
                if !journal.complete {
                    self.end_halfway(&journal);
                }
                Some(journal)
            }
            Some(interrupted) => {
                self.must_be_readable(&interrupted)?;
                let left = self.undo_interrupted(&interrupted)?;
                (!left.is_empty()).then(|| Journal::of(interrupted.header, left))
            }
        };
        self.reconcile_from(desired, before, on_fault)
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
        let lock = self.runtime.lock(self.wait)?;
        self.may_change.as_ref().map_or(Ok(()), |ask| ask())?;
        Ok(lock)
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
                "{}; undo it with the steadyvm that wrote it, or give it up with `steadyvm undo \
                 --forget`",
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
            fix: "run `steadyvm undo` first".into(),
        })
    }

    /// Takes back what an interrupted apply has made half of, as the first of a fair server's two values: planning would take
    /// it for what somebody else has set.
    fn end_halfway(&self, journal: &Journal) {
        let is_halfway = |step: &&Step| {
            let now = step.change.read(&self.machine);
            now.is_ok_and(|now| !now.is_old && !now.is_new)
        };
        let halfway = journal.steps.iter().filter(is_halfway).cloned().collect();
        undo::take_back(&self.machine, &Journal::of(journal.header.clone(), halfway));
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
            fix: "remove the cause and run `steadyvm undo`".into(),
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

    /// As [`Engine::reconcile`], from what is in force. What an apply that was interrupted has left is adopted: VMs that
    /// run keep their settings while the rest is made.
    fn reconcile_from(
        &self,
        desired: &Desired,
        before: Option<Journal>,
        on_fault: OnFault<'_>,
    ) -> Result<Report, HostError> {
        let own = before.as_ref().map_or(&[][..], |journal| &journal.steps);
        let wanted = on_fault.judge(self.wanted(desired, own, true)?)?;
        self.refresh_demux(&desired.profile)?;
        let mut failed = failures(&wanted);
        let steps = to_make(&self.machine, &wanted);
        failed.extend(on_fault.held_off(&steps));
        let is_same = match &before {
            Some(journal) => {
                let header = &journal.header;
                journal.complete && header.desired == *desired && header.failed == failed
            }
            None => failed.is_empty() && desired.method.is_vanilla(),
        };
        let refused_before = |step: &Step| {
            let mut skipped = before.iter().flat_map(|journal| &journal.header.skipped);
            !step.required && skipped.any(|subject| *subject == step.change.subject())
        };
        let may_be_left =
            |step: &Step| refused_before(step) || failed.iter().any(|it| it.group == step.group);
        if is_same
            && steps.iter().all(may_be_left)
            && stale(own, &wanted, &failed, &self.machine).is_empty()
        {
            return Ok(Report {
                method: desired.method,
                dedicated_cpu: desired.profile.dedicated_cpu,
                steps: Vec::new(),
                skipped: Vec::new(),
                failed,
                taken_back: Undone::default(),
                in_force: own.len(),
                warnings: wanted.warnings,
            });
        }
        let header = self.header(desired, before.as_ref())?;
        let mut attempt = Attempt::new(&self.machine, &header, own, on_fault);
        attempt.failed = failed;
        match self.try_all(wanted, &mut attempt) {
            Ok(mut report) => {
                if report.taken_back.restored > 0 {
                    // Taking back may have replaced threads as well.
                    let again =
                        self.reconcile_from(desired, self.journal_of_this_boot()?, on_fault)?;
                    report.steps.extend(again.steps);
                    report.in_force = again.in_force;
                }
                Ok(report)
            }
            Err(cause) => {
                let recorded = attempt.into_recorded();
                Err(HostError::RolledBack {
                    cause: Box::new(cause),
                    undone: Box::new(self.roll_back(header, before, recorded)),
                })
            }
        }
    }

    /// Writes the journal, makes the steps, takes back what is no longer wanted.
    fn try_all(&self, wanted: Wanted, attempt: &mut Attempt<'_>) -> Result<Report, HostError> {
        self.runtime.set_in_force(&self.journal.directory())?;
        let begun = Journal::of(attempt.header.clone(), attempt.own.to_vec());
        let mut writer = self.journal.replace(&begun)?;
        let wanted = self.make_all(wanted, &mut writer, attempt)?;
        let (journal, taken_back) = attempt.settle(&wanted);
        self.journal.replace(&journal)?;
        Ok(Report {
            method: journal.header.desired.method,
            dedicated_cpu: journal.header.desired.profile.dedicated_cpu,
            steps: attempt.made.clone(),
            skipped: attempt.refused.iter().map(|(_, why)| why.clone()).collect(),
            failed: journal.header.failed,
            taken_back,
            in_force: journal.steps.len(),
            warnings: wanted.warnings,
        })
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
        plan(&self.machine, &desired.profile, &context)
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
            failed: Vec::new(),
        })
    }

    /// Makes the steps, and those that become possible by them. Returns what is wanted in the end.
    fn make_all(
        &self,
        mut wanted: Wanted,
        writer: &mut Writer,
        attempt: &mut Attempt<'_>,
    ) -> Result<Wanted, HostError> {
        for _ in 0..PASSES {
            let mut steps = to_make(&self.machine, &wanted);
            steps.retain(|step| !attempt.is_settled(step));
            if steps.is_empty() {
                return Ok(wanted);
            }
            // What comes behind would be of threads that are gone then: plan it again.
            let last = steps.iter().position(|step| step.change.replaces_threads());
            steps.truncate(last.map_or(steps.len(), |last| last + 1));
            writer.record(&steps)?;
            for step in steps {
                attempt.make(step)?;
            }
            let all: Vec<Step> = attempt
                .own
                .iter()
                .chain(&attempt.recorded)
                .cloned()
                .collect();
            wanted = attempt.judge(self.wanted(&attempt.header.desired, &all, false)?)?;
        }
        wanted.warnings.push(
            "settings were changed by others, or threads started faster than they could be moved, \
             while they were made: see `steadyvm status`"
                .into(),
        );
        Ok(wanted)
    }

    /// Undoes the steps of a failed apply, and gives the state before it its settings back; what an interrupted apply had
    /// left is taken back with it. What cannot be written to the journal stays in it as it was recorded: undo restores it.
    fn roll_back(&self, header: Header, before: Option<Journal>, recorded: Vec<Step>) -> Undone {
        let (in_force, interrupted) = match before {
            Some(journal) if journal.complete => (Some(journal), Vec::new()),
            Some(journal) => (None, journal.steps),
            None => (None, Vec::new()),
        };
        let steps = interrupted.into_iter().chain(recorded).collect();
        let (mut undone, left) =
            undo::take_back(&self.machine, &Journal::of(header.clone(), steps));
        let written = match in_force {
            None if left.is_empty() => self.journal.remove(),
            None => self.journal.replace(&Journal::of(header, left)).map(drop),
            Some(before) => self.return_to(before, left, &mut undone),
        };
        if let Err(error) = written {
            undone.failed.push(format!(
                "{error}; the journal still has every setting: run `steadyvm undo` to restore \
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
        let on_fault = OnFault::StopGroup {
            held_off: &before.header.failed,
        };
        let mut attempt = Attempt::new(&self.machine, &before.header, &before.steps, on_fault);
        let restored = self
            .wanted(&before.header.desired, &before.steps, false)
            .and_then(|wanted| {
                attempt.failed = on_fault.held_off(&to_make(&self.machine, &wanted));
                self.make_all(wanted, &mut writer, &mut attempt)
            });
        undone
            .failed
            .extend(restored.err().map(|error| error.to_string()));
        let failed = attempt.failed.iter();
        let new = failed.filter(|failure| !before.header.failed.contains(failure));
        undone.failed.extend(new.map(ToString::to_string));
        let recorded = attempt.into_recorded();
        before.complete = left.is_empty();
        for step in recorded {
            let is_known = |known: &Step| known.change.same_subject(&step.change);
            if !before.steps.iter().any(is_known) {
                before.steps.push(step);
            }
        }
        before.steps.extend(left);
        self.journal.replace(&before).map(drop)
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

fn failures(wanted: &Wanted) -> Vec<Failure> {
    let failed = wanted.failed.iter();
    let failure = |(group, error): &(Group, HostError)| Failure {
        group: group.clone(),
        error: error.to_string(),
        subject: None,
    };
    failed.map(failure).collect()
}

fn unix_now_s() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.unwrap_or_default().as_secs()
}
