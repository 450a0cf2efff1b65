//! What a kind of setting is, and a change of one.

use std::collections::BTreeMap;
use std::fmt;
use std::io;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::machine::Machine;
use crate::error::HostError;
#[cfg(any(test, feature = "fake"))]
use crate::settings::fake::FakeHost;

/// What a host has of one kind: the subject, and the value as text.
pub type Entries = BTreeMap<String, String>;

/// A kind of setting: what identifies one, how it is read and written, and when two values are the
/// same to the kernel.
///
/// The value of a type is one setting (the policy of thread 42, the CPUs of interrupt 7). What has
/// a default here is what most kinds want.
pub trait SettingKind: Clone + fmt::Debug + PartialEq + Eq + Serialize + DeserializeOwned {
    /// What it is set to. As it is written to the journal, so it is given back to
    /// [`SettingKind::restore`]: a value may hold more than [`SettingKind::same`] compares.
    type Value: Clone + fmt::Debug + PartialEq + Eq + Serialize + DeserializeOwned;

    /// Whether making a change of this kind replaces threads of network interfaces by new ones. What
    /// is planned for after it is planned again then.
    const REPLACES_THREADS: bool = false;

    /// Whether restoring has a second half, [`SettingKind::settle`].
    const SETTLES: bool = false;

    /// What is set, for people.
    fn subject(&self) -> String;

    /// The thread that it is a setting of.
    fn thread(&self) -> Option<u32> {
        None
    }

    /// A value, for people.
    fn text(&self, value: &Self::Value) -> String;

    /// Whether the other is the same setting, although it may be described differently: threads
    /// rename themselves.
    fn is_same_setting(&self, other: &Self) -> bool {
        self == other
    }

    /// Reads what is in force.
    ///
    /// # Errors
    /// [`HostError::Vanished`] if what it is a setting of is gone.
    fn read(&self, machine: &Machine) -> Result<Self::Value, HostError>;

    /// Goes from the value that is in force to another. Called only after
    /// [`SettingKind::must_exist`].
    fn write(&self, machine: &Machine, from: &Self::Value, to: &Self::Value) -> io::Result<()>;

    /// Fails if the setting is not of what it was recorded of, although that has the same name or
    /// number now.
    ///
    /// # Errors
    /// [`HostError::Vanished`].
    fn must_exist(&self, _machine: &Machine) -> Result<(), HostError> {
        Ok(())
    }

    /// Goes back from `new` to the value of before. A remark for people if that was possible only
    /// in part.
    fn restore(
        &self,
        machine: &Machine,
        old: &Self::Value,
        new: &Self::Value,
    ) -> io::Result<Option<String>> {
        self.write(machine, new, old).map(|()| None)
    }

    /// Whether two values mean the same to the kernel.
    fn same(&self, one: &Self::Value, other: &Self::Value) -> bool {
        one == other
    }

    /// Whether `found` is what the kernel shows where `asked` is in force on this machine as it is
    /// now.
    fn shows(&self, _machine: &Machine, asked: &Self::Value, found: &Self::Value) -> bool {
        self.same(asked, found)
    }

    /// Whether `found` is neither of the two, but a value on the way between them, where an
    /// interrupted change left it: undo goes on from there.
    fn is_halfway(&self, _old: &Self::Value, _new: &Self::Value, _found: &Self::Value) -> bool {
        false
    }

    /// Whether it cannot be restored now, but may be later, and why: undo keeps it then.
    fn is_postponed(&self, _machine: &Machine) -> Option<String> {
        None
    }

    /// Whether the first half of restoring has taken effect, so that the second may follow.
    fn is_settled(&self, _machine: &Machine, _old: &Self::Value) -> bool {
        true
    }

    /// The second half of restoring.
    fn settle(&self, _machine: &Machine, _old: &Self::Value) -> io::Result<()> {
        Ok(())
    }

    /// What is known about the cause of an error of the kernel that refused `to`; starts with "; ".
    fn hint(&self, _machine: &Machine, _to: &Self::Value, _errno: i32) -> Option<&'static str> {
        None
    }

    /// Enters all settings of this kind that the host has.
    ///
    /// # Errors
    /// The host cannot be read at all. What vanishes meanwhile is left out.
    fn snapshot(machine: &Machine, entries: &mut Entries) -> Result<(), HostError>;

    /// Gives a fake host one such setting, and returns a change of it: the tests that hold for every
    /// kind run on it.
    #[cfg(any(test, feature = "fake"))]
    fn example(host: &FakeHost) -> ChangeOf<Self>;
}

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
