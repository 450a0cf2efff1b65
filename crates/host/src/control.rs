//! The door to this crate: plan, apply, show, undo.

use std::collections::HashSet;
use std::path::PathBuf;
use std::time::{SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

use crate::change::Step;
use crate::dedicated;
use crate::demux::DemuxState;
use crate::error::HostError;
use crate::journal::{DEFAULT_STATE_DIRECTORY, Header, Journal, StateDirectory, Writer};
use crate::machine::{Machine, ThreadId};
use crate::method::{Method, Target};
use crate::net::Profile;
use crate::plan::{self, Dedication, Plan};
use crate::snapshot::Snapshot;
use crate::undo::{self, Undone};

/// How often threads are looked for that were started while others were moved.
const SWEEPS: usize = 8;

/// A host under steadyvm's control, and the journal of what is in force on it.
#[derive(Clone)]
pub struct HostControl {
    pub(crate) machine: Machine,
    pub(crate) state: StateDirectory,
}

/// What applying did.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Applied {
    /// The method that is in force.
    pub method: Method,
    /// The CPU that is dedicated, if one is.
    pub dedicated_cpu: Option<usize>,
    /// What was changed, in order.
    pub steps: Vec<Step>,
    /// What the kernel refused and the method can do without.
    pub skipped: Vec<String>,
    /// What the caller should know.
    pub warnings: Vec<String>,
}

/// What is in force.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Shown {
    /// Whether anything is, or may be.
    pub state: State,
    /// The method, if one was applied.
    pub method: Option<Method>,
    /// Since when, in seconds after 1970.
    pub applied_unix_s: Option<u64>,
    /// The CPU that is dedicated, if one is.
    pub dedicated_cpu: Option<usize>,
    /// The profile of the receive path, if one was applied.
    pub profile: Option<Profile>,
    /// What early demultiplexing has counted and knows, if it is in force.
    pub demux: Option<DemuxState>,
    /// The recorded settings.
    pub settings: Vec<Setting>,
    /// Threads that may run on the dedicated CPU without being meant to: those that were started
    /// later by the kernel, or moved there by someone.
    pub strays: Vec<String>,
    /// Lines of the journal that cannot be read.
    pub unreadable: Vec<String>,
}

/// The state of the journal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum State {
    /// Nothing is in force.
    None,
    /// A method is in force.
    Applied,
    /// Applying or undoing was interrupted: some of the settings may be in force.
    Incomplete,
    /// The journal is from before a reboot: nothing of it is in force.
    BeforeReboot,
}

/// One recorded setting and what is in force.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Setting {
    /// What.
    pub subject: String,
    /// The value before.
    pub old: String,
    /// The value that was set.
    pub new: String,
    /// Why.
    pub why: String,
    /// The value now; none if the thread or file is gone.
    pub now: Option<String>,
    /// Whether the set value is in force.
    pub holds: bool,
}

impl HostControl {
    /// A host, with its journal in a directory.
    pub fn new(machine: Machine, state_directory: impl Into<PathBuf>) -> Self {
        Self {
            machine,
            state: StateDirectory::new(state_directory),
        }
    }

    /// The running host, with its journal in [`DEFAULT_STATE_DIRECTORY`].
    pub fn real() -> Self {
        Self::new(Machine::real(), DEFAULT_STATE_DIRECTORY)
    }

    /// The host.
    pub fn machine(&self) -> &Machine {
        &self.machine
    }

    /// What a method would change. `dedicated` moves further threads that are started
    /// meanwhile. Reads only.
    pub fn plan(&self, target: &Target, method: Method) -> Result<Plan, HostError> {
        if method.is_profile() {
            return self.plan_as_profile(target, method);
        }
        let mut plan = plan::plan(&self.machine, target, method)?;
        if let Some(dedication) = plan.dedicated.clone() {
            let kept: HashSet<&ThreadId> = plan.beneficiaries.iter().collect();
            let moved = dedicated::stragglers(&self.machine, &dedication, |id| kept.contains(id))?;
            plan.steps.extend(moved);
        }
        Ok(plan)
    }

    /// Puts a method in force, or changes nothing: if a step fails that the method needs, what
    /// was done is undone.
    pub fn apply(&self, target: &Target, method: Method) -> Result<Applied, HostError> {
        let _lock = self.state.lock()?;
        self.refuse_if_in_force()?;
        if method.is_profile() {
            return self.apply_as_profile(target, method);
        }
        let plan = plan::plan(&self.machine, target, method)?;
        let mut applied = Applied {
            method,
            dedicated_cpu: plan.dedicated.as_ref().map(|dedication| dedication.cpu),
            steps: Vec::new(),
            skipped: Vec::new(),
            warnings: plan.warnings.clone(),
        };
        if method == Method::Vanilla {
            return Ok(applied);
        }
        let header = self.header(&plan, target)?;
        let mut writer = self.state.create(&header, &[])?;
        let outcome = self.carry_out(&plan, &mut writer, &mut applied);
        match outcome {
            Ok(()) => Ok(applied),
            Err(cause) => {
                let undone = match self.take_back() {
                    Ok(undone) => undone,
                    Err(error) => Undone {
                        failed: vec![error.to_string()],
                        ..Undone::default()
                    },
                };
                let undone = Box::new(undone);
                Err(HostError::RolledBack {
                    cause: Box::new(cause),
                    undone,
                })
            }
        }
    }

    /// Takes back whatever is in force. Nothing in force is no error.
    pub fn undo(&self) -> Result<Undone, HostError> {
        let _lock = self.state.lock()?;
        self.take_back()
    }

    /// Drops the journal without restoring anything: for settings that can never be restored.
    pub fn forget(&self) -> Result<(), HostError> {
        let _lock = self.state.lock()?;
        self.state.remove()
    }

    /// What is in force. Needs no lock and changes nothing.
    pub fn show(&self) -> Result<Shown, HostError> {
        let mut shown = Shown {
            state: State::None,
            method: None,
            applied_unix_s: None,
            dedicated_cpu: None,
            profile: None,
            demux: None,
            settings: Vec::new(),
            strays: Vec::new(),
            unreadable: Vec::new(),
        };
        let Some(journal) = self.state.read()? else {
            return Ok(shown);
        };
        shown.method = Some(journal.header.method);
        shown.applied_unix_s = Some(journal.header.applied_unix_s);
        shown.dedicated_cpu = journal.header.dedicated_cpu;
        shown.profile.clone_from(&journal.header.profile);
        shown.unreadable.clone_from(&journal.unreadable);
        if journal.header.boot_id != self.machine.boot_id()? {
            shown.state = State::BeforeReboot;
            return Ok(shown);
        }
        shown.state = if journal.complete {
            State::Applied
        } else {
            State::Incomplete
        };
        shown.demux = self.machine.demux.state().ok().flatten();
        shown.settings = journal
            .steps
            .iter()
            .map(|step| self.setting(step))
            .collect();
        if let (Some(cpu), Some(others)) = (
            journal.header.dedicated_cpu,
            journal.header.other_cpus.clone(),
        ) {
            let meant: HashSet<&ThreadId> = journal.header.beneficiaries.iter().collect();
            let dedication = Dedication { cpu, others };
            let steps = dedicated::stragglers(&self.machine, &dedication, |id| meant.contains(id))?;
            shown.strays = steps.iter().map(|step| step.change.subject()).collect();
        }
        Ok(shown)
    }

    /// A comparable dump of all host state that this crate can change. Reads only.
    pub fn snapshot(&self) -> Result<Snapshot, HostError> {
        Snapshot::take(&self.machine)
    }

    fn setting(&self, step: &Step) -> Setting {
        let now = step.change.read(&self.machine).ok();
        Setting {
            subject: step.change.subject(),
            old: step.change.old_text(),
            new: step.change.new_text(),
            why: step.why.clone(),
            holds: now.as_ref().is_some_and(|now| now.is_new),
            now: now.map(|now| now.text),
        }
    }

    fn plan_as_profile(&self, target: &Target, method: Method) -> Result<Plan, HostError> {
        let profile = plan::profile(&self.machine, target, method)?;
        let planned = self.plan_profile(&profile)?;
        Ok(Plan {
            method,
            steps: planned.steps,
            dedicated: None,
            warnings: planned.warnings,
            beneficiaries: Vec::new(),
        })
    }

    fn apply_as_profile(&self, target: &Target, method: Method) -> Result<Applied, HostError> {
        let profile = plan::profile(&self.machine, target, method)?;
        let done = self.bring_in_force(&profile, target, method)?;
        Ok(Applied {
            method,
            dedicated_cpu: None,
            steps: done.steps,
            skipped: Vec::new(),
            warnings: done.warnings,
        })
    }

    fn refuse_if_in_force(&self) -> Result<(), HostError> {
        match self.journal_of_this_boot()? {
            Some(journal) => Err(self.in_force(&journal)),
            None => self.state.remove(),
        }
    }

    /// The journal, unless it is of an earlier boot: what that recorded is gone.
    pub(crate) fn journal_of_this_boot(&self) -> Result<Option<Journal>, HostError> {
        let Some(journal) = self.state.read()? else {
            return Ok(None);
        };
        let is_current = journal.header.boot_id == self.machine.boot_id()?;
        Ok(is_current.then_some(journal))
    }

    pub(crate) fn in_force(&self, journal: &Journal) -> HostError {
        let method = journal.header.method;
        let what = if journal.complete {
            format!("method {method} is in force already")
        } else {
            format!("an earlier apply or undo of method {method} was interrupted")
        };
        let journal = self.state.journal_path().display().to_string();
        HostError::InForce { what, journal }
    }

    fn header(&self, plan: &Plan, target: &Target) -> Result<Header, HostError> {
        let mut header = self.new_header(plan.method, target)?;
        header.beneficiaries.clone_from(&plan.beneficiaries);
        if let Some(dedication) = &plan.dedicated {
            header.dedicated_cpu = Some(dedication.cpu);
            header.other_cpus = Some(dedication.others.clone());
        }
        Ok(header)
    }

    pub(crate) fn new_header(&self, method: Method, target: &Target) -> Result<Header, HostError> {
        let now = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        Ok(Header {
            schema_version: Header::version(),
            method,
            target: target.clone(),
            applied_unix_s: now.as_secs(),
            applied_ticks: self.machine.now_ticks()?,
            boot_id: self.machine.boot_id()?,
            beneficiaries: Vec::new(),
            dedicated_cpu: None,
            other_cpus: None,
            profile: None,
        })
    }

    fn carry_out(
        &self,
        plan: &Plan,
        writer: &mut Writer,
        applied: &mut Applied,
    ) -> Result<(), HostError> {
        writer.record(&plan.steps)?;
        for step in &plan.steps {
            self.make(step, applied)?;
        }
        if let Some(dedication) = &plan.dedicated {
            self.sweep(plan, dedication, writer, applied)?;
        }
        writer.complete()
    }

    /// Moves all other threads off the dedicated CPU. A thread that starts while its parent is
    /// being moved may inherit the old CPUs, so look again until nobody new is there.
    fn sweep(
        &self,
        plan: &Plan,
        dedication: &Dedication,
        writer: &mut Writer,
        applied: &mut Applied,
    ) -> Result<(), HostError> {
        let mut known: HashSet<ThreadId> = plan.beneficiaries.iter().cloned().collect();
        for _ in 0..SWEEPS {
            let steps = dedicated::stragglers(&self.machine, dedication, |id| known.contains(id))?;
            if steps.is_empty() {
                return Ok(());
            }
            writer.record(&steps)?;
            for step in &steps {
                self.make(step, applied)?;
                if let crate::change::Change::ThreadAffinity { thread, .. } = &step.change {
                    known.insert(thread.clone());
                }
            }
        }
        applied.warnings.push(
            "threads were started faster than they could be moved: see the strays in \
             `steadyvm host show`"
                .into(),
        );
        Ok(())
    }

    fn make(&self, step: &Step, applied: &mut Applied) -> Result<(), HostError> {
        match step.change.make(&self.machine) {
            Ok(()) => applied.steps.push(step.clone()),
            Err(error) if step.required => return Err(error),
            Err(HostError::Vanished { .. }) => {}
            Err(error) => applied.skipped.push(error.to_string()),
        }
        Ok(())
    }

    pub(crate) fn take_back(&self) -> Result<Undone, HostError> {
        let Some(journal) = self.state.read()? else {
            return Ok(Undone::default());
        };
        if journal.header.boot_id != self.machine.boot_id()? {
            self.state.remove()?;
            return Ok(Undone {
                notes: vec!["the machine was rebooted since: nothing was in force".into()],
                ..Undone::default()
            });
        }
        let (undone, left) = undo::take_back(&self.machine, &journal);
        self.finish(&journal, left)?;
        Ok(undone)
    }

    fn finish(&self, journal: &Journal, left: Vec<Step>) -> Result<(), HostError> {
        if left.is_empty() {
            self.state.remove()
        } else {
            self.state.keep_only(journal, left)
        }
    }
}
