//! Taking back what the journal records.

use std::time::Duration;

use super::heirs;
use super::journal::Journal;
use crate::planner::Step;
use crate::settings::{Change, Machine, Restored};
use crate::undone::Undone;

/// How long undo waits for interrupts to move back to the CPU that served them. Without
/// interrupt remapping the kernel moves an interrupt when it next fires; drivers such as igb
/// fire each of theirs every two seconds.
const SETTLING_TIME: Duration = Duration::from_secs(5);
const SETTLING_STEP: Duration = Duration::from_millis(50);

impl Undone {
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
