//! VCPU scheduling by `sched_ext`.
//!
//! `bpf/` is the scheduler: it does what the policy of `steadyvm-sched-policy` decides, with that policy's own code.
//! [`Scheduler`] loads it and keeps it: it is at work as long as that value, and the process, live. Then the kernel's own
//! scheduler has all threads back. [`service`] answers other processes; [`config`] is what a file asks of it.

mod abi;
mod client;
pub mod config;
pub mod core_scheduling;
pub mod ejection;
pub mod enforcement;
mod error;
pub mod exposition;
mod kicks;
mod metrics;
mod operations;
mod preferred;
pub mod process;
mod program;
mod protocol;
mod record;
mod scheduler;
pub mod service;
pub mod show;
mod timer;

pub use error::Error;
pub use scheduler::{SCHED_EXT, Scheduler, is_attached, is_attached_by};
pub use steadyvm_sched_policy::{Record, ReplayError};
pub use timer::FIFO_PRIORITY;
