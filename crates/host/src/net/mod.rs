//! The receive path's profile: one order of priorities from the NIC to the VM, on a kernel without
//! patches.
//!
//! [`file::parse`] reads it from a steadyvm.toml, [`Profile::of_target`] makes the one of method
//! `rt-profile`; [`plan`](plan::plan) turns it into [`Step`](crate::Step)s on a machine.
//! docs/design/rt-profile.md says why each setting is there.

mod batch;
mod budget;
mod cards;
mod demux;
pub mod file;
mod flows;
pub(crate) mod plan;
mod profile;
mod queues;
mod sockets;
mod softirqs;
pub mod tuned;
mod vcpu_scheduler;
mod vms;
mod wanted;

pub(crate) use batch::{send_buffers, set_send_buffer};
pub use budget::{USABLE_BY_EXT_PERCENT, USABLE_PERCENT, VcpuBudget};
pub use demux::DemuxProfile;
pub use profile::{
    Class, NicProfile, ProcessProfile, Profile, Softirqs, TapQdisc, ThreadPriority, VmProfile,
};
pub(crate) use sockets::bound_sockets;
pub use vcpu_scheduler::SchedulerProfile;
pub use vms::VmThreads;
pub(crate) use vms::taps_of;
pub(crate) use wanted::Wanted;
