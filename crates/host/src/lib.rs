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
//!
//! # Floors
//! A module uses those of its floor and below, never one above. `tools/check-modules` refuses an arrow up.
//!
//! 1. `error`, `undone`, `address`, `cpu_set`, `parse`, `printable`, `method`: words of the others; pure but for errors.
//! 2. `settings`: what can be read and set: a folder a subject, with its kinds, its system calls and its fake.
//! 3. `discover`: what serves a card, a VM or a process on this host.
//! 4. `profile`: what a host is asked to be.
//! 5. `planner`: from a profile and a machine to steps.
//! 6. `ways`, `receive`, `packet_cost`: what a plan means for the packets of each VM, and what receiving them costs.
//! 7. `engine`: makes steps, records and undoes them.
//! 8. `doctor`, `control`, `watcher`: what callers ask.
//! 9. `fake`, `fuzzing`: for tests.

mod address;
mod control;
mod cpu_set;
pub mod discover;
pub mod doctor;
pub mod engine;
mod error;
#[cfg(any(test, feature = "fake"))]
pub mod fake;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzzing;
mod method;
mod packet_cost;
pub mod parse;
mod planner;
mod printable;
pub mod profile;
mod receive;
pub mod settings;
mod undone;
pub mod watcher;
mod ways;

pub use address::Address;
pub use control::HostControl;
pub use cpu_set::{CpuSet, CpuSetError, MAX_CPU};
pub use discover::WantedVm;
pub use engine::{
    DEFAULT_STATE_DIRECTORY, Desired, Engine, Failure, MayChange, Plan, Report, Setting, Snapshot,
    State, Status,
};
pub use error::HostError;
pub use method::{Method, Priorities, RtVm, Switches, Target};
pub use packet_cost::{PacketAccount, PacketLook};
pub use planner::{Group, Step, VmThreads};
pub use printable::{is_command, printable};
pub use receive::{
    CardCounts, CardPackets, ReceiveEntity, ReceiveTime, ReceiveWork, SortedCard, receive_work,
};
pub use settings::demux::{Demultiplexer, DemuxState, KernelDemultiplexer, ListSockets, Presence};
pub use settings::fair_server::{Reservation, longest as longest_fair_server};
pub use settings::files::{HostTree, RootedTree};
pub use settings::functions::{Joint, KernelRedirects, PacketBudget, Received, Redirects};
pub use settings::links::{
    FlowMatch, FlowRule, FlowTable, KernelLinks, LinkMatch, Links, Moderation, Napi, PortProtocol,
    PortSocket, Qdisc, UNLIMITED_BYTES,
};
pub use settings::threads::{KernelThreads, Policy, RESET_ON_FORK, Scheduling, Threads};
pub use settings::vcpu_budgets::{KernelVcpuScheduler, VcpuScheduler};
pub use settings::{
    Change, ChangeOf, Machine, Namespaces, Restored, SettingKind, Thread, ThreadId,
};
pub use steadyvm_fault::Blame;
pub use undone::Undone;
pub use ways::{PacketWay, Way};

#[cfg(test)]
mod tests;
