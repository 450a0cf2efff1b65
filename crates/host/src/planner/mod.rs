//! From a profile and a machine's state to [`Step`]s. Reads, never writes.
//!
//! [`preset`] makes the profile of a method, and [`plan`](plan::plan) the steps of any profile. Each section of a profile
//! has its steps in a file here.

mod batch;
mod budget;
mod cards;
mod dedicated;
mod demux;
mod fair_server;
mod flows;
mod group;
mod host_services;
mod interfaces;
mod levels;
mod macvtaps;
pub(crate) mod plan;
pub(crate) mod preset;
mod queues;
mod shared_card;
mod softirqs;
mod step;
mod threads;
mod tuned;
mod vcpu_scheduler;
mod vm;
mod vms;
mod wanted;
mod xdp_card;

pub use group::Group;
pub(crate) use macvtaps::kernel_has_cutoff;
pub use step::Step;
pub use vms::VmThreads;
pub(crate) use wanted::Wanted;
