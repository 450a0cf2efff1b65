//! Putting a profile in force, all or nothing, and bringing one in force up to date.
//!
//! Applying a profile again is no error: what it wants and does not find is set, what it no
//! longer wants is taken back, and the journal then holds each setting once, from the value
//! before the first apply to the one now. A failure leaves what was in force before.

use serde::{Deserialize, Serialize};

use super::plan::{self, Wanted};
use super::profile::Profile;
use super::sockets::bound_sockets;
use crate::change::Step;
use crate::control::HostControl;
use crate::demux::Presence;
use crate::error::HostError;
use crate::journal::{Header, Journal, Writer};
use crate::machine::Machine;
use crate::method::{Method, Target};
use crate::undo::{self, Undone};

/// Making a step can bring threads into being that the profile wants something of; each pass
/// finds those of the one before.
const PASSES: usize = 6;

/// What applying a profile would change.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProfilePlan {
    /// The steps, in order. NAPI threads that a step starts are not among them yet.
    pub steps: Vec<Step>,
    /// Settings in force that the profile no longer wants, and that would be taken back.
    pub taken_back: Vec<Step>,
    /// What the caller should know.
    pub warnings: Vec<String>,
}

/// What applying a profile did.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProfileApplied {
    /// What was changed, in order; nothing if all of it was in force.
    pub steps: Vec<Step>,
    /// Settings of an earlier profile that were taken back.
    pub taken_back: Undone,
    /// How many settings are in force now.
    pub in_force: usize,
    /// What the caller should know.
    pub warnings: Vec<String>,
}

impl HostControl {
    /// What applying a profile would change. Reads only.
    ///
    /// # Errors
    /// As of [`HostControl::apply_profile`], but for what only trying can show.
    pub fn plan_profile(&self, profile: &Profile) -> Result<ProfilePlan, HostError> {
        let own = self
            .profile_in_force()?
            .map_or_else(Vec::new, |journal| journal.steps);
        let wanted = plan::plan(&self.machine, profile, &own)?;
        Ok(ProfilePlan {
            taken_back: stale(&own, &wanted),
            steps: to_make(&self.machine, &wanted),
            warnings: wanted.warnings,
        })
    }

    /// Puts a profile in force, or brings the one in force up to date. An apply of a profile that was
    /// interrupted is undone first.
    ///
    /// # Errors
    /// A method is in force, or something was interrupted and cannot be undone; the profile does not fit the machine: nothing is
    /// changed. A step failed: what was in force before is in force again.
    pub fn apply_profile(&self, profile: &Profile) -> Result<ProfileApplied, HostError> {
        let _lock = self.state.lock()?;
        self.undo_interrupted()?;
        self.bring_in_force(profile, &Target::default(), Method::RtProfile)
    }

    /// Undoes what a process that was killed has left of a profile, so that a watch that is started again
    /// needs nobody's help.
    fn undo_interrupted(&self) -> Result<(), HostError> {
        match self.journal_of_this_boot()? {
            Some(journal) if journal.header.method.is_profile() && !journal.complete => {
                let undone = self.take_back()?;
                if undone.failed.is_empty() {
                    Ok(())
                } else {
                    Err(self.in_force(&journal))
                }
            }
            _ => Ok(()),
        }
    }

    /// Takes the profile back. Nothing in force is no error.
    ///
    /// # Errors
    /// Another method is in force.
    pub fn undo_profile(&self) -> Result<Undone, HostError> {
        let _lock = self.state.lock()?;
        if let Some(journal) = self.journal_of_this_boot()?
            && !journal.header.method.is_profile()
        {
            return Err(HostError::BadInput {
                what: format!(
                    "no network profile is in force, but method {}",
                    journal.header.method
                ),
                fix: "run `steadyvm host undo` to take that back".into(),
            });
        }
        self.take_back()
    }

    /// As [`HostControl::apply_profile`]; the caller holds the lock.
    pub(crate) fn bring_in_force(
        &self,
        profile: &Profile,
        target: &Target,
        method: Method,
    ) -> Result<ProfileApplied, HostError> {
        let before = self.profile_in_force()?;
        let old = before
            .as_ref()
            .map_or_else(Vec::new, |journal| journal.steps.clone());
        let wanted = plan::plan(&self.machine, profile, &old)?;
        self.refresh_demux(profile)?;
        let is_same = before
            .as_ref()
            .is_some_and(|journal| journal.header.profile.as_ref() == Some(profile));
        let steps = to_make(&self.machine, &wanted);
        if is_same && steps.is_empty() && stale(&old, &wanted).is_empty() {
            return Ok(ProfileApplied {
                steps,
                taken_back: Undone::default(),
                in_force: old.len(),
                warnings: wanted.warnings,
            });
        }
        let header = self.profile_header(profile, target, method, before.as_ref())?;
        let mut writer = self.state.create(&header, &old)?;
        let mut made = Vec::new();
        match self.make_all(profile, wanted, &old, &mut writer, &mut made) {
            Ok(wanted) => {
                let mut applied = self.settle_on(header, &old, made, wanted)?;
                if applied.taken_back.restored > 0 {
                    // Taking back may have replaced threads as well.
                    let again = self.bring_in_force(profile, target, method)?;
                    applied.steps.extend(again.steps);
                    applied.in_force = again.in_force;
                }
                Ok(applied)
            }
            Err(cause) => {
                let undone = Box::new(self.roll_back(header, before, made)?);
                let cause = Box::new(cause);
                Err(HostError::RolledBack { cause, undone })
            }
        }
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

    /// The profile's journal; none if nothing is in force.
    fn profile_in_force(&self) -> Result<Option<Journal>, HostError> {
        let Some(journal) = self.journal_of_this_boot()? else {
            return Ok(None);
        };
        if journal.header.method.is_profile() && journal.complete {
            return Ok(Some(journal));
        }
        Err(self.in_force(&journal))
    }

    fn profile_header(
        &self,
        profile: &Profile,
        target: &Target,
        method: Method,
        before: Option<&Journal>,
    ) -> Result<Header, HostError> {
        let mut header = self.new_header(method, target)?;
        header.profile = Some(profile.clone());
        if let Some(before) = before {
            // Threads have inherited settings since the first apply.
            header.applied_ticks = before.header.applied_ticks;
        }
        Ok(header)
    }

    /// Makes the steps, and those that become possible by them. `made` gets each before it is
    /// tried. Returns what is wanted in the end.
    fn make_all(
        &self,
        profile: &Profile,
        mut wanted: Wanted,
        old: &[Step],
        writer: &mut Writer,
        made: &mut Vec<Step>,
    ) -> Result<Wanted, HostError> {
        for _ in 0..PASSES {
            let steps = to_make(&self.machine, &wanted);
            if steps.is_empty() {
                return Ok(wanted);
            }
            // What comes behind would be of threads that are gone then: plan it again.
            let last = steps.iter().position(|step| step.change.replaces_threads());
            let steps = &steps[..last.map_or(steps.len(), |last| last + 1)];
            writer.record(steps)?;
            for step in steps {
                made.push(step.clone());
                step.change.make(&self.machine)?;
            }
            let own: Vec<Step> = old.iter().chain(made.iter()).cloned().collect();
            wanted = plan::plan(&self.machine, profile, &own)?;
        }
        wanted.warnings.push(
            "settings were changed by others while they were made: see `steadyvm net show`".into(),
        );
        Ok(wanted)
    }

    /// Takes back what is no longer wanted and writes the journal anew, each setting once.
    fn settle_on(
        &self,
        header: Header,
        old: &[Step],
        made: Vec<Step>,
        wanted: Wanted,
    ) -> Result<ProfileApplied, HostError> {
        let unwanted = Journal::of(header.clone(), stale(old, &wanted));
        let (taken_back, mut kept) = undo::take_back(&self.machine, &unwanted);
        let recorded: Vec<&Step> = old.iter().chain(&made).collect();
        for step in wanted.steps {
            let first = recorded
                .iter()
                .find(|earlier| earlier.change.same_subject(&step.change));
            // What held before steadyvm came is not its to take back.
            let Some(first) = first else { continue };
            let change = step.change.since(&first.change);
            if !change.is_empty() {
                kept.push(Step { change, ..step });
            }
        }
        let in_force = kept.len();
        let mut journal = Journal::of(header, kept);
        journal.complete = true;
        self.state.replace(&journal)?;
        Ok(ProfileApplied {
            steps: made,
            taken_back,
            in_force,
            warnings: wanted.warnings,
        })
    }

    /// Undoes the steps of a failed apply, and gives the profile before it its settings back.
    fn roll_back(
        &self,
        header: Header,
        before: Option<Journal>,
        made: Vec<Step>,
    ) -> Result<Undone, HostError> {
        let (mut undone, left) = undo::take_back(&self.machine, &Journal::of(header, made));
        let Some(mut journal) = before else {
            if left.is_empty() {
                self.state.remove()?;
            } else {
                self.keep(left)?;
            }
            return Ok(undone);
        };
        // The failed apply may have replaced threads, so the profile before it is planned again.
        let in_force = [journal.steps.as_slice(), &left].concat();
        let mut writer = self.state.create(&journal.header, &in_force)?;
        let profile = journal.header.profile.clone().unwrap_or_default();
        let mut again = Vec::new();
        let restored = plan::plan(&self.machine, &profile, &journal.steps).and_then(|wanted| {
            self.make_all(&profile, wanted, &journal.steps, &mut writer, &mut again)
        });
        undone
            .failed
            .extend(restored.err().map(|error| error.to_string()));
        journal.complete = left.is_empty();
        journal.steps.extend(again);
        journal.steps.extend(left);
        self.state.replace(&journal)?;
        Ok(undone)
    }

    fn keep(&self, left: Vec<Step>) -> Result<(), HostError> {
        match self.state.read()? {
            Some(journal) => self.state.keep_only(&journal, left),
            None => Ok(()),
        }
    }
}

/// The wanted steps that are not in force.
fn to_make(machine: &Machine, wanted: &Wanted) -> Vec<Step> {
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
