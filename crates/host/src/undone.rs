//! What undo did: counts, and remarks for people.

use std::fmt::Write;

use serde::{Deserialize, Serialize};

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
}
