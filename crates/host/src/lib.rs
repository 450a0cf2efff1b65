//! The only code of steadyvm that changes host state: scheduling policies and CPUs of threads,
//! CPUs of interrupts, a few files of procfs and sysfs, queues and batches of network devices.
//!
//! Every change is written to a journal on disk before it is made, so that [`HostControl::undo`]
//! can take all of it back, in reverse order, also after the process was killed. What is planned
//! is separate from how it is done, and both work on a [`Machine`], which is the running host or
//! a fake one.
//!
//! ```no_run
//! use steadyvm_host::{HostControl, Method, RtVm, Target};
//!
//! # fn main() -> Result<(), steadyvm_host::HostError> {
//! let control = HostControl::real();
//! let target = Target {
//!     rt_nics: vec!["eth1".into()],
//!     rt_vms: vec![RtVm { pid: 4711, rt_vcpus: vec![1] }],
//!     ..Target::default()
//! };
//! let applied = control.apply(&target, Method::PreemptRt)?;
//! println!("{} settings in force", applied.steps.len());
//! println!("{}", control.undo()?.summary());
//! # Ok(())
//! # }
//! ```

mod control;
mod cpu_set;
mod dedicated;
mod demux;
pub mod discover;
pub mod doctor;
pub mod engine;
mod error;
mod fair_server;
#[cfg(any(test, feature = "fake"))]
pub mod fake;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzzing;
mod levels;
mod links;
mod lockdown;
mod machine;
mod method;
pub mod net;
pub mod parse;
mod preset;
pub mod settings;
mod threads;
mod tree;
mod vcpu_scheduler;
mod wanted_vm;
pub mod watcher;

pub use control::HostControl;
pub use cpu_set::{CpuSet, CpuSetError, MAX_CPU};
pub use demux::{Demultiplexer, DemuxState, KernelDemultiplexer, ListSockets, Presence};
pub use engine::{
    DEFAULT_STATE_DIRECTORY, Desired, Engine, Failure, Group, MayChange, Plan, Report, Setting,
    Snapshot, State, Status, Step, Undone,
};
pub use error::HostError;
pub use fair_server::{Reservation, longest as longest_fair_server};
pub use links::{
    FlowMatch, FlowRule, FlowTable, KernelLinks, Links, Moderation, PortProtocol, PortSocket,
    Qdisc, UNLIMITED_BYTES,
};
pub use machine::{Machine, Namespaces, Thread, ThreadId, is_command, printable};
pub use method::{Method, Priorities, RtVm, Switches, Target};
pub use settings::{Change, ChangeOf, Restored, SettingKind};
pub use steadyvm_fault::Blame;
pub use threads::{KernelThreads, Policy, RESET_ON_FORK, Scheduling, Threads};
pub use tree::{HostTree, RootedTree};
pub use vcpu_scheduler::{KernelVcpuScheduler, VcpuScheduler};
pub use wanted_vm::WantedVm;

#[cfg(test)]
mod tests;
