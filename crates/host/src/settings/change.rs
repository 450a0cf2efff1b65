//! A change of one setting: how to make it, how to take it back. Written once for every kind.

use std::collections::BTreeMap;
use std::fmt;
use std::io;

use serde::{Deserialize, Serialize};

use super::demux::EarlyDemux;
use super::fair_server::FairServer;
#[cfg(test)]
use super::fake::FakeHost;
use super::files::{File, IrqAffinity};
use super::functions::{Functions, OwnFunction, XdpAddress, XdpBudget, XdpProgram};
use super::kind::{AnyChange, ChangeOf, Entries, Reading, SettingKind};
use super::links::{
    BroadcastCutoff, FlowRuleAt, FlowSteering, NapiDeferral, NapiThreading, RootQdisc, RxFrames,
    TapSendBuffer,
};
use super::machine::Machine;
use super::threads::{ThreadAffinity, ThreadPolicy};
use super::vcpu_budgets::VcpuBudgets;
use crate::error::HostError;

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

macro_rules! kinds {
    ($($kind:ident),+ $(,)?) => {
        /// A change of host state, with what is needed to take it back.
        #[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
        #[serde(tag = "kind", rename_all = "kebab-case")]
        pub enum Change {
            $(
                #[doc = concat!("See [`", stringify!($kind), "`].")]
                $kind(ChangeOf<$kind>),
            )+
        }

        $(
            impl From<ChangeOf<$kind>> for Change {
                fn from(change: ChangeOf<$kind>) -> Self {
                    Self::$kind(change)
                }
            }
        )+

        impl Change {
            fn inner(&self) -> &dyn AnyChange {
                match self {
                    $(Self::$kind(change) => change,)+
                }
            }

            /// Whether the other change is of the same setting.
            pub fn same_subject(&self, other: &Self) -> bool {
                match (self, other) {
                    $((Self::$kind(one), Self::$kind(other)) => {
                        one.setting.is_same_setting(&other.setting)
                    })+
                    _ => false,
                }
            }

            /// The same change from the value that `earlier`, of the same setting, found.
            #[must_use]
            pub fn since(mut self, earlier: &Self) -> Self {
                match (&mut self, earlier) {
                    $((Self::$kind(one), Self::$kind(earlier)) => {
                        one.old.clone_from(&earlier.old);
                    })+
                    _ => {}
                }
                self
            }
        }

        /// Reads all settings of every kind.
        pub(crate) fn snapshot(
            machine: &Machine,
        ) -> Result<BTreeMap<String, Entries>, HostError> {
            let mut all = BTreeMap::new();
            $(
                let mut entries = Entries::new();
                $kind::snapshot(machine, &mut entries)?;
                all.insert(kebab(stringify!($kind)), entries);
            )+
            Ok(all)
        }

        /// A change of each kind on a fake host.
        #[cfg(test)]
        pub(super) fn examples() -> Vec<(FakeHost, Change)> {
            vec![$({
                let host = crate::tests::scenario::paper_host(2);
                let change = $kind::example(&host);
                (host, change.into())
            },)+]
        }
    };
}

kinds!(
    ThreadPolicy,
    ThreadAffinity,
    IrqAffinity,
    File,
    FairServer,
    RootQdisc,
    FlowSteering,
    FlowRuleAt,
    RxFrames,
    TapSendBuffer,
    BroadcastCutoff,
    NapiDeferral,
    NapiThreading,
    EarlyDemux,
    Functions,
    OwnFunction,
    XdpProgram,
    XdpAddress,
    XdpBudget,
    VcpuBudgets,
);

/// `ThreadPolicy` as `thread-policy`, as the journal names it.
fn kebab(name: &str) -> String {
    let mut text = String::new();
    for character in name.chars() {
        if character.is_uppercase() && !text.is_empty() {
            text.push('-');
        }
        text.extend(character.to_lowercase());
    }
    text
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
