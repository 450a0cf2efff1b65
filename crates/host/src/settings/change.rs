//! A change of one setting: how to make it, how to take it back. Written once for every kind.

use std::fmt;
use std::io;

use serde::{Deserialize, Serialize};

use super::{Change, SettingKind};
use crate::error::HostError;
use crate::machine::Machine;

/// A change of a setting from one value to another.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(bound = "")]
pub struct ChangeOf<K: SettingKind> {
    /// What is changed.
    #[serde(flatten)]
    pub setting: K,
    /// Before.
    pub old: K::Value,
    /// After.
    pub new: K::Value,
}

/// What is in force of a change's setting.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reading {
    /// The value before the change.
    pub is_old: bool,
    /// The value after it.
    pub is_new: bool,
    /// It is steadyvm's, neither old nor new: an interrupted undo or install. Undo goes on from
    /// there.
    pub is_halfway: bool,
    /// For people.
    pub text: String,
}

/// What became of taking a change back.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "outcome", rename_all = "kebab-case")]
pub enum Restored {
    /// The old value is in force again, with a remark for people if only in part.
    Restored {
        /// The remark.
        note: Option<String>,
    },
    /// The old value was in force already: the change was never made, or taken back before.
    AlreadyOld,
    /// The thread, file or device is gone.
    Vanished,
    /// Someone else has changed it since; it is left as it is.
    ChangedByOthers {
        /// What is in force.
        now: String,
    },
    /// It cannot be restored now, but may be later: it stays in the journal.
    Postponed {
        /// Why.
        why: String,
    },
    /// The kernel refused.
    Failed {
        /// Why.
        error: String,
    },
}

/// [`ChangeOf`] any kind.
pub(super) trait AnyChange {
    fn subject(&self) -> String;
    fn thread(&self) -> Option<u32>;
    fn old_text(&self) -> String;
    fn new_text(&self) -> String;
    fn is_empty(&self) -> bool;
    fn replaces_threads(&self) -> bool;
    fn settles(&self) -> bool;
    fn read(&self, machine: &Machine) -> Result<Reading, HostError>;
    fn must_exist(&self, machine: &Machine) -> Result<(), HostError>;
    fn write_new(&self, machine: &Machine) -> io::Result<()>;
    fn write_old(&self, machine: &Machine) -> io::Result<Option<String>>;
    fn is_postponed(&self, machine: &Machine) -> Option<String>;
    fn is_settled(&self, machine: &Machine) -> bool;
    fn settle(&self, machine: &Machine) -> io::Result<()>;
    fn hint(&self, machine: &Machine, errno: i32) -> Option<&'static str>;
}

impl<K: SettingKind> AnyChange for ChangeOf<K> {
    fn subject(&self) -> String {
        self.setting.subject()
    }

    fn thread(&self) -> Option<u32> {
        self.setting.thread()
    }

    fn old_text(&self) -> String {
        self.setting.text(&self.old)
    }

    fn new_text(&self) -> String {
        self.setting.text(&self.new)
    }

    fn is_empty(&self) -> bool {
        self.setting.same(&self.old, &self.new)
    }

    fn replaces_threads(&self) -> bool {
        K::REPLACES_THREADS
    }

    fn settles(&self) -> bool {
        K::SETTLES
    }

    fn read(&self, machine: &Machine) -> Result<Reading, HostError> {
        let Self { setting, old, new } = self;
        let now = setting.read(machine)?;
        Ok(Reading {
            is_old: setting.shows(machine, old, &now),
            is_new: setting.shows(machine, new, &now),
            is_halfway: setting.is_halfway(old, new, &now),
            text: setting.text(&now),
        })
    }

    fn must_exist(&self, machine: &Machine) -> Result<(), HostError> {
        self.setting.must_exist(machine)
    }

    fn write_new(&self, machine: &Machine) -> io::Result<()> {
        self.setting.write(machine, &self.old, &self.new)
    }

    fn write_old(&self, machine: &Machine) -> io::Result<Option<String>> {
        self.setting.restore(machine, &self.old, &self.new)
    }

    fn is_postponed(&self, machine: &Machine) -> Option<String> {
        self.setting.is_postponed(machine)
    }

    fn is_settled(&self, machine: &Machine) -> bool {
        self.setting.is_settled(machine, &self.old)
    }

    fn settle(&self, machine: &Machine) -> io::Result<()> {
        self.setting.settle(machine, &self.old)
    }

    fn hint(&self, machine: &Machine, errno: i32) -> Option<&'static str> {
        self.setting.hint(machine, &self.new, errno)
    }
}

impl Change {
    /// What is changed, for people.
    pub fn subject(&self) -> String {
        self.inner().subject()
    }

    /// The thread that it is a setting of; none for what is no thread's.
    pub fn thread(&self) -> Option<u32> {
        self.inner().thread()
    }

    /// The value before, for people.
    pub fn old_text(&self) -> String {
        self.inner().old_text()
    }

    /// The value after, for people.
    pub fn new_text(&self) -> String {
        self.inner().new_text()
    }

    /// Whether the change would change nothing.
    pub fn is_empty(&self) -> bool {
        self.inner().is_empty()
    }

    /// Whether making it replaces threads of network interfaces by new ones: a driver may stop and
    /// start its device.
    pub fn replaces_threads(&self) -> bool {
        self.inner().replaces_threads()
    }

    /// Whether taking it back has a second half, [`Change::settle`].
    pub fn settles(&self) -> bool {
        self.inner().settles()
    }

    /// Reads what is in force.
    pub fn read(&self, machine: &Machine) -> Result<Reading, HostError> {
        self.inner().read(machine)
    }

    /// Makes the change, and reads it back.
    ///
    /// # Errors
    /// [`HostError::Vanished`] if what it is a setting of is gone; others if the kernel refuses it,
    /// or takes it and does not keep it.
    pub fn make(&self, machine: &Machine) -> Result<(), HostError> {
        let inner = self.inner();
        inner.must_exist(machine)?;
        inner
            .write_new(machine)
            .map_err(|cause| self.refused(machine, cause))?;
        let now = self.read(machine)?;
        if now.is_new {
            return Ok(());
        }
        // Something between old and new is in force, which undo would take for another's change.
        if !now.is_old {
            let _ = inner.write_old(machine);
        }
        Err(self.not_kept(self.new_text(), now.text))
    }

    /// Whether it cannot be taken back now, but may be later.
    pub(crate) fn is_postponed(&self, machine: &Machine) -> bool {
        self.inner().is_postponed(machine).is_some()
    }

    /// Takes the change back, but for the second half of what [settles](Change::settles).
    pub fn restore(&self, machine: &Machine) -> Restored {
        if let Some(why) = self.inner().is_postponed(machine) {
            return Restored::Postponed { why };
        }
        let now = match self.read(machine) {
            Ok(now) => now,
            Err(error) if error.is_vanished() => return Restored::Vanished,
            Err(error) => {
                return Restored::Failed {
                    error: error.to_string(),
                };
            }
        };
        // Where both look the same today, the kernel remembers the new one and shows it later.
        if now.is_old && !now.is_new && !now.is_halfway {
            return Restored::AlreadyOld;
        }
        if !now.is_old && !now.is_new && !now.is_halfway {
            return Restored::ChangedByOthers { now: now.text };
        }
        match self.inner().write_old(machine) {
            Ok(note) => Restored::Restored { note },
            Err(cause) => self.failed(cause),
        }
    }

    /// Whether the old value is in force, read again after [`Change::restore`], which left this
    /// remark.
    pub fn verify_old(&self, machine: &Machine, note: Option<String>) -> Restored {
        match self.read(machine) {
            Ok(now) if now.is_old || note.is_some() => Restored::Restored { note },
            Ok(now) => Restored::Failed {
                error: self.not_kept(self.old_text(), now.text).to_string(),
            },
            Err(error) if error.is_vanished() => Restored::Vanished,
            Err(error) => Restored::Failed {
                error: error.to_string(),
            },
        }
    }

    /// Whether [`Change::settle`] can follow.
    pub fn is_settled(&self, machine: &Machine) -> bool {
        self.inner().is_settled(machine)
    }

    /// The second half of restoring.
    pub fn settle(&self, machine: &Machine, note: Option<String>) -> Restored {
        match self.inner().settle(machine) {
            Ok(()) => self.verify_old(machine, note),
            Err(cause) => self.failed(cause),
        }
    }

    fn failed(&self, cause: io::Error) -> Restored {
        let error = HostError::io("restore", self.subject(), cause);
        if error.is_vanished() {
            return Restored::Vanished;
        }
        Restored::Failed {
            error: error.to_string(),
        }
    }

    /// An error of the kernel, with what is known about its cause.
    fn refused(&self, machine: &Machine, cause: io::Error) -> HostError {
        let errno = cause.raw_os_error();
        let hint = errno.and_then(|errno| self.inner().hint(machine, errno));
        match hint {
            None => HostError::io("set", self.subject(), cause),
            Some(hint) => HostError::Io {
                action: "set",
                subject: self.subject(),
                cause,
                hint,
            },
        }
    }

    fn not_kept(&self, asked: String, found: String) -> HostError {
        HostError::NotKept {
            what: self.subject(),
            asked,
            found,
        }
    }
}

impl fmt::Display for Change {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            formatter,
            "{}: {} -> {}",
            self.subject(),
            self.old_text(),
            self.new_text()
        )
    }
}
