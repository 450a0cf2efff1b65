//! Kinds of settings, a change of any of them, and the [`Machine`] that they are settings of.
//!
//! A folder has one subject: its kinds, the system calls that they need (`kernel.rs`, or a file by the name of the call),
//! and how a fake host answers these (`fake.rs`). `files` has what is a file of procfs or sysfs.
//!
//! **A new kind** is a file with a type that implements [`SettingKind`], and its name in the list of
//! `kinds!` in change.rs. Everything else (making a change and reading it back, restoring by comparison,
//! the journal, plans, `show`, the snapshot, the tests that hold for every kind) follows from that.

mod change;
pub(crate) mod demux;
pub(crate) mod device;
pub(crate) mod fair_server;
#[cfg(any(test, feature = "fake"))]
pub(crate) mod fake;
pub(crate) mod files;
pub(crate) mod functions;
mod kind;
pub(crate) mod links;
pub(crate) mod lockdown;
mod machine;
pub(crate) mod threads;
pub(crate) mod vcpu_budgets;

#[cfg(test)]
mod tests;

pub(crate) use change::snapshot;
pub use change::{Change, Restored};
pub use demux::{EarlyDemux, Installed};
pub use device::Device;
pub use fair_server::FairServer;
pub use files::{File, Form, IrqAffinity, IrqCpus};
pub(crate) use functions::Counted;
pub use functions::{
    Functions, OwnFunction, Owner, PacketBudget, Program, Received, Way, XdpAddress, XdpBudget,
    XdpProgram,
};
pub use kind::{ChangeOf, Entries, Reading, SettingKind};
pub use links::{
    BroadcastCutoff, FlowPlace, FlowRuleAt, FlowSteering, NapiDeferral, NapiThreading, RootQdisc,
    RxFrames, TapSendBuffer,
};
pub use machine::{Machine, Namespaces, Thread, ThreadId};
pub use threads::{ThreadAffinity, ThreadPolicy};
pub use vcpu_budgets::VcpuBudgets;
