//! Taking back what the journal records.

use std::fmt::Write;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::heirs;
use super::journal::Journal;
use super::step::Step;
use crate::machine::Machine;
use crate::settings::{Change, Restored};

/// How long undo waits for interrupts to move back to the CPU that served them. Without
/// interrupt remapping the kernel moves an interrupt when it next fires; drivers such as igb
/// fire each of theirs every two seconds.
const SETTLING_TIME: Duration = Duration::from_secs(5);
const SETTLING_STEP: Duration = Duration::from_millis(50);

/// What undo did.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Undone {
    /// Settings whose old value is in force again.
    pub restored: usize,
    /// Settings whose old value was in force already.
    pub already_old: usize,
    /// Settings of threads or files that are gone.
    pub vanished: usize,
    /// Threads started meanwhile that had inherited a setting and got the one before it.
    pub heirs: usize,
    /// Settings that someone else has changed since, and that are left alone.
    pub changed_by_others: Vec<String>,
    /// Settings that could not be restored; they stay in the journal.
    pub failed: Vec<String>,
    /// Settings that cannot be restored now, but may be later; they stay in the journal.
    pub postponed: Vec<String>,
    /// Remarks for people.
    pub notes: Vec<String>,
}

impl Undone {
    /// One line for people.
    pub fn summary(&self) -> String {
        let mut text = format!("{} restored", self.restored);
        let mut add = |count: usize, what: &str| {
            if count > 0 {
                let _ = write!(text, ", {count} {what}");
            }
        };
        add(self.already_old, "in place already");
        add(self.vanished, "gone");
        add(self.heirs, "inherited settings widened");
        add(self.changed_by_others.len(), "changed by others and left");
        add(self.postponed.len(), "postponed");
        add(self.failed.len(), "NOT restored");
        text
    }

    fn count(&mut self, change: &Change, outcome: Restored) -> bool {
        match outcome {
            Restored::Restored { note } => {
                self.restored += 1;
                self.notes.extend(note);
            }
            Restored::AlreadyOld => self.already_old += 1,
            Restored::Vanished => self.vanished += 1,
            Restored::ChangedByOthers { now } => self.changed_by_others.push(format!(
                "{}: set to {}, now {now}; not touched",
                change.subject(),
                change.new_text()
            )),
            Restored::Postponed { why } => {
                self.postponed.push(why);
                return false;
            }
            Restored::Failed { error } => {
                self.failed.push(error);
                return false;
            }
        }
        true
    }
}

/// Whether a setting that was changed more than once has the value of before an earlier change: an undo restored it, and
/// could not remove the journal then.
fn is_taken_back(machine: &Machine, change: &Change, earlier: &[Step]) -> bool {
    let mut same = earlier.iter().map(|step| &step.change);
    same.any(|first| {
        first.same_subject(change)
            && first
                .read(machine)
                .is_ok_and(|now| now.is_old && !now.is_new)
    })
}

/// Takes back all steps of a journal, the last first. Returns what it did, and the steps that
/// are left to be taken back. Running it again, or after it was interrupted, is safe.
pub(crate) fn take_back(machine: &Machine, journal: &Journal) -> (Undone, Vec<Step>) {
    let mut undone = Undone::default();
    let mut left = Vec::new();
    let mut to_settle: Vec<(&Step, Option<String>)> = Vec::new();
    for (index, step) in journal.steps.iter().enumerate().rev() {
        let change = &step.change;
        let outcome = match change.restore(machine) {
            Restored::ChangedByOthers { .. }
                if is_taken_back(machine, change, &journal.steps[..index]) =>
            {
                Restored::AlreadyOld
            }
            Restored::Restored { note } if change.settles() => {
                to_settle.push((step, note));
                continue;
            }
            Restored::Restored { note } => change.verify_old(machine, note),
            other => other,
        };
        if !undone.count(change, outcome) {
            left.push(step.clone());
        }
    }
    // After their parents, so that children started meanwhile are found too.
    undone.heirs = heirs::widen(machine, journal);
    let mut waited = Duration::ZERO;
    while waited < SETTLING_TIME
        && !to_settle
            .iter()
            .all(|(step, _)| step.change.is_settled(machine))
    {
        machine.tree.wait(SETTLING_STEP);
        waited += SETTLING_STEP;
    }
    for (step, _) in to_settle
        .iter()
        .filter(|(step, _)| !step.change.is_settled(machine))
    {
        undone.notes.push(format!(
            "{}: it did not fire meanwhile, so it may stay on the CPU that served it last",
            step.change.subject()
        ));
    }
    for (step, note) in to_settle {
        if !undone.count(&step.change, step.change.settle(machine, note)) {
            left.push(step.clone());
        }
    }
    for line in &journal.unreadable {
        undone.failed.push(format!(
            "the journal's {line}: what it recorded is not restored"
        ));
    }
    left.reverse();
    (undone, left)
}
