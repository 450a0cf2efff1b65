//! What a host is asked to be: one order of priorities from the card to the VM, budgets of virtual CPUs, a dedicated CPU.
//!
//! [`file::asking`] takes it from a steadyvm.toml, [`Profile::of_target`] makes the one of a method. Each section has its
//! type in a file here; `planner` turns a profile into [`Step`](crate::Step)s on a machine.
//! docs/design/rt-profile.md says why each setting is there.

pub(crate) mod budget;
pub(crate) mod class;
mod classes;
mod demux;
mod fields;
pub mod file;
mod flows;
mod host_service;
mod interfaces;
mod parts;
mod receive;
mod scheduler;
pub mod tuned;
mod whole;

pub use budget::{USABLE_BY_EXT_PERCENT, USABLE_PERCENT, VcpuBudget};
pub use class::{Class, HIGHEST_PRIORITY, TapQdisc, ThreadPriority};
pub use demux::DemuxProfile;
pub use parts::{
    HostServiceProfile, InterfaceProfile, NicProfile, ProcessProfile, Softirqs, VmProfile,
};
pub use scheduler::SchedulerProfile;
pub use tuned::TunedProfile;
pub use whole::Profile;
