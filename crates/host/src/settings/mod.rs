//! Kinds of settings, a file each, and a change of any of them.
//!
//! **A new kind** is a file with a type that implements [`SettingKind`], and its name in the list of
//! `kinds!` below. Everything else (making a change and reading it back, restoring by comparison,
//! the journal, plans, `show`, the snapshot, the tests that hold for every kind) follows from that.

mod change;
pub(crate) mod device;
pub(crate) mod early_demux;
pub(crate) mod fair_server;
pub(crate) mod file;
pub(crate) mod flow_rule;
pub(crate) mod flow_steering;
pub(crate) mod irq_affinity;
pub(crate) mod root_qdisc;
pub(crate) mod rx_frames;
pub(crate) mod tap_send_buffer;
pub(crate) mod thread_affinity;
pub(crate) mod thread_policy;
pub(crate) mod vcpu_scheduler;

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::fmt;
use std::io;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

pub use change::{ChangeOf, Reading, Restored};
pub use device::Device;
pub use early_demux::{EarlyDemux, Installed};
pub use fair_server::FairServer;
pub use file::{File, Form};
pub use flow_rule::{FlowPlace, FlowRuleAt};
pub use flow_steering::FlowSteering;
pub use irq_affinity::{IrqAffinity, IrqCpus};
pub use root_qdisc::RootQdisc;
pub use rx_frames::RxFrames;
pub use tap_send_buffer::TapSendBuffer;
pub use thread_affinity::ThreadAffinity;
pub use thread_policy::ThreadPolicy;
pub use vcpu_scheduler::VcpuBudgets;

use crate::error::HostError;
#[cfg(any(test, feature = "fake"))]
use crate::fake::FakeHost;
use crate::machine::Machine;
use change::AnyChange;

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
        fn examples() -> Vec<(FakeHost, Change)> {
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
    EarlyDemux,
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
