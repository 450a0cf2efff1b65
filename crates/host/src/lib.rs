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

mod change;
mod control;
mod cpu_set;
mod dedicated;
mod demux;
pub mod discover;
pub mod doctor;
mod error;
mod fair_server;
#[cfg(any(test, feature = "fake"))]
pub mod fake;
mod heirs;
mod journal;
mod levels;
mod links;
mod machine;
mod method;
pub mod net;
pub mod parse;
mod plan;
mod restore;
mod snapshot;
mod threads;
mod tree;
mod undo;

pub use change::{Change, Form, Restored, Step};
pub use control::{Applied, HostControl, Setting, Shown, State};
pub use cpu_set::{CpuSet, CpuSetError, MAX_CPU};
pub use demux::{Demultiplexer, DemuxState, KernelDemultiplexer, ListSockets, Presence};
pub use error::{ErrorKind, HostError};
pub use fair_server::Reservation;
pub use journal::DEFAULT_STATE_DIRECTORY;
pub use links::{
    FlowMatch, FlowRule, FlowTable, KernelLinks, Links, Moderation, PortProtocol, PortSocket,
    Qdisc, UNLIMITED_BYTES,
};
pub use machine::{Machine, Thread, ThreadId, printable};
pub use method::{Method, Priorities, RtVm, Target};
pub use plan::{Dedication, Plan};
pub use snapshot::{IrqState, Snapshot, ThreadState};
pub use threads::{KernelThreads, Policy, RESET_ON_FORK, Scheduling, Threads};
pub use tree::{HostTree, RootedTree};
pub use undo::Undone;

#[cfg(test)]
mod tests;
