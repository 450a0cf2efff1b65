//! One attempt to make what is wanted: what was recorded, made, refused, and what becomes of a group that fails.

use super::failure::Failure;
use super::journal::{Header, Journal};
use super::stale::stale;
use super::undo;
use crate::error::HostError;
use crate::planner::{Group, Step, Wanted};
use crate::settings::Machine;
use crate::undone::Undone;

/// What a fault stops.
#[derive(Debug, Clone, Copy)]
pub(super) enum OnFault<'a> {
    /// Everything: what was in force before is in force again.
    StopAll,
    /// The group that it is in. What failed before and is too early to be tried again is held off.
    StopGroup { held_off: &'a [Failure] },
}

impl OnFault<'_> {
    /// What is wanted, unless a fault of planning stops everything.
    pub fn judge(self, mut wanted: Wanted) -> Result<Wanted, HostError> {
        if matches!(self, Self::StopAll) && !wanted.failed.is_empty() {
            return Err(wanted.failed.swap_remove(0).1);
        }
        Ok(wanted)
    }

    /// The groups that are not tried now, of those that have these steps to make.
    pub fn held_off(self, steps: &[Step]) -> Vec<Failure> {
        let Self::StopGroup { held_off } = self else {
            return Vec::new();
        };
        let held_off = held_off.iter().filter(|failure| failure.is_about(steps));
        held_off.cloned().collect()
    }
}

/// One attempt.
pub(super) struct Attempt<'a> {
    machine: &'a Machine,
    /// The header of the journal that it writes.
    pub header: &'a Header,
    /// The steps that were in force before.
    pub own: &'a [Step],
    on_fault: OnFault<'a>,
    /// Every step, before it was tried; none of a group that has failed since.
    pub recorded: Vec<Step>,
    /// Those that were made and are in force.
    pub made: Vec<Step>,
    /// Those that the kernel refused and the host can do without, and why.
    pub refused: Vec<(Step, String)>,
    /// The groups that failed.
    pub failed: Vec<Failure>,
    /// Steps of groups that failed which could not be taken back: undo tries them again.
    left: Vec<Step>,
}

impl<'a> Attempt<'a> {
    pub fn new(
        machine: &'a Machine,
        header: &'a Header,
        own: &'a [Step],
        on_fault: OnFault<'a>,
    ) -> Self {
        Self {
            machine,
            header,
            own,
            on_fault,
            recorded: Vec::new(),
            made: Vec::new(),
            refused: Vec::new(),
            failed: Vec::new(),
            left: Vec::new(),
        }
    }

    /// What is wanted, and nothing of the groups that have failed. A group that cannot be planned any more fails.
    pub fn judge(&mut self, wanted: Wanted) -> Result<Wanted, HostError> {
        let wanted = self.on_fault.judge(wanted)?;
        for (group, error) in &wanted.failed {
            if !self.has_failed(group) {
                self.fail(group, error, None);
            }
        }
        Ok(wanted)
    }

    /// Whether there is nothing to try any more: the kernel refused this very change, or its group has failed.
    pub fn is_settled(&self, step: &Step) -> bool {
        self.was_refused(step) || self.has_failed(&step.group)
    }

    /// Makes a step that the journal has.
    ///
    /// # Errors
    /// It is required, it failed, and that stops everything.
    pub fn make(&mut self, step: Step) -> Result<(), HostError> {
        if self.has_failed(&step.group) {
            return Ok(());
        }
        self.recorded.push(step.clone());
        match step.change.make(self.machine) {
            Ok(()) => self.made.push(step),
            // It ended, or went away: what is wanted now does not have it.
            Err(error) if error.is_vanished() => {}
            Err(error) if !step.required => self.refused.push((step, error.to_string())),
            Err(error) if matches!(self.on_fault, OnFault::StopAll) => return Err(error),
            Err(error) => self.fail(&step.group, &error, Some(step.change.subject())),
        }
        Ok(())
    }

    /// Fails a group: what this attempt has changed of it is as it was.
    fn fail(&mut self, group: &Group, error: &HostError, subject: Option<String>) {
        let is_its = |step: &Step| step.group == *group;
        let (its, others) = self.recorded.drain(..).partition(is_its);
        self.recorded = others;
        self.made.retain(|step| !is_its(step));
        self.refused.retain(|(step, _)| !is_its(step));
        let changed = Journal::of(self.header.clone(), its);
        let (undone, left) = undo::take_back(self.machine, &changed);
        self.left.extend(left);
        let mut error = error.to_string();
        for problem in undone.failed {
            error.push_str("; then: ");
            error.push_str(&problem);
        }
        self.failed.push(Failure {
            group: group.clone(),
            error,
            subject,
        });
    }

    fn has_failed(&self, group: &Group) -> bool {
        self.failed.iter().any(|failure| failure.group == *group)
    }

    fn was_refused(&self, step: &Step) -> bool {
        let mut refused = self.refused.iter();
        refused.any(|(refused, _)| {
            refused.change.same_subject(&step.change)
                && refused.change.new_text() == step.change.new_text()
        })
    }

    /// Every step that may be in force and is not among those of before.
    pub fn into_recorded(self) -> Vec<Step> {
        self.left.into_iter().chain(self.recorded).collect()
    }

    /// Takes back what is no longer wanted. Returns the whole journal of what is in force, each setting once, and what
    /// was taken back.
    pub fn settle(&self, wanted: &Wanted) -> (Journal, Undone) {
        let mut header = self.header.clone();
        let unwanted = stale(self.own, wanted, &self.failed, self.machine);
        let unwanted = Journal::of(header.clone(), unwanted);
        let (taken_back, mut kept) = undo::take_back(self.machine, &unwanted);
        // A group that failed has in force what it had before.
        let is_of_failed = |step: &&Step| self.has_failed(&step.group);
        let is_taken_back = |step: &&Step| first_of(unwanted.steps.iter(), step).is_some();
        let of_failed = self.own.iter().filter(is_of_failed);
        kept.extend(of_failed.filter(|step| !is_taken_back(step)).cloned());
        kept.extend(self.left.iter().cloned());
        for step in wanted.steps.iter().filter(|step| !is_of_failed(step)) {
            // What held before steadyvm came is not its to take back.
            let recorded = self.own.iter().chain(&self.recorded);
            let Some(first) = first_of(recorded, step) else {
                continue;
            };
            if self.was_refused(step) {
                header.skipped.push(step.change.subject());
                kept.extend(first_of(self.own.iter(), step).cloned());
                continue;
            }
            let change = step.change.clone().since(&first.change);
            if !change.is_empty() {
                kept.push(Step {
                    change,
                    since_unix_s: first.since_unix_s.or(Some(header.applied_unix_s)),
                    ..step.clone()
                });
            }
        }
        header.failed.clone_from(&self.failed);
        let mut journal = Journal::of(header, kept);
        journal.complete = true;
        (journal, taken_back)
    }
}

/// The first of some steps that is of the same setting.
fn first_of<'s>(mut steps: impl Iterator<Item = &'s Step>, of: &Step) -> Option<&'s Step> {
    steps.find(|step| step.change.same_subject(&of.change))
}
