//! Hierarchical schedulability: what each VM needs, and what a host can promise.
//!
//! Two levels: a host schedules VCPUs, each guest schedules its tasks on its VCPUs. A VM's *interface*
//! is the least budget and period with which its tasks meet their deadlines, whatever the other VMs do;
//! *admission* asks whether a host keeps every VCPU's promise.
//!
//! | module | subject |
//! |---|---|
//! | [`task`] | sporadic tasks: jitter, self-suspension, execution-time factor |
//! | [`supply`] | resource models: PRM, EDP, MPR, DMPR, multi-supply functions |
//! | [`guest`] | schedulability of tasks on a supply: EDF, fixed priority, global, partitioned |
//! | [`interface`] | the least budget for a period, the best period, the VCPUs |
//! | [`server`] | fixed-priority servers and the tasks in them |
//! | [`host`] | admission of VCPUs on CPUs, the least number of CPUs, overheads |
//! | [`latency`] | the bound of a request/response service |
//! | [`path`] | packets on a shared path: busy windows, jitter at the next path |
//! | [`plan`] | all of it for one host, from TOML or JSON |
//!
//! Decisions use whole numbers or exact fractions only. No input makes a function panic, no function
//! does I/O, and each test's work is bounded: what cannot be decided within the bound is never a yes.
#![forbid(unsafe_code)]
// Formulas in the headers have subscripts (C_i), which are no code.
#![allow(clippy::doc_markdown)]

pub mod error;
pub mod guest;
pub mod host;
pub mod interface;
pub mod latency;
pub mod path;
pub mod plan;
pub mod ratio;
pub mod server;
pub mod supply;
pub mod task;
pub mod time;
pub mod verdict;
pub mod work;
pub mod workload;

pub use error::Error;
pub use task::{PriorityOrder, Task};
pub use time::{Amount, Time};
pub use verdict::{Verdict, Violation};
pub use work::Work;
