//! This host as one file describes it: planned, put in force, looked at, kept in force.
//!
//! The file is steadyvm.toml. Its plan (`[host]`, tasks, services) is the analysis' part, its receive path (`[[nic]]`,
//! `[class.NAME]`) the host's. The way of a file to the settings of a host:
//!
//! 1. `site`, `drop_ins`: the owner's file and those beside it, read and planned; `cpus`, `budgets`, `ext`: on which CPUs,
//!    and what keeps the budgets; [`calibration`]: what the host's own work costs; `target`: what methods without a file are for
//! 2. `apply`, `undo`, [`watch`]: puts that in force, takes it back, keeps it; [`guard`] restores it after a measurement; [`peers`] says
//!    who else acts; [`bounds`] and [`checks`]: what of a plan's bounds `measure` and the watch have measured
//! 3. [`status`], [`capacity`], [`top`], [`exporter`], [`explain`]: looks, and changes nothing
//!
//! Nothing is printed here: an answer is a structure, and what a watch says goes to a function that it is given.

#![forbid(unsafe_code)]

pub mod apply;
pub mod attacks;
mod backoff;
pub mod bounds;
mod budgets;
pub mod calibration;
pub mod capacity;
pub mod checks;
mod control;
mod cpus;
mod drift;
mod drop_ins;
pub mod enforced;
mod error;
pub mod explain;
pub mod exporter;
mod ext;
pub mod guard;
mod pace;
pub mod peers;
pub mod request;
mod site;
mod source;
pub mod status;
mod target;
pub mod top;
pub mod undo;
pub mod watch;

pub use control::Control;
pub use cpus::CpusHere;
pub use drift::{Mended, ago, now_unix_s};
pub use drop_ins::DropIn;
pub use error::{Error, Result};
pub use site::{Done, NotServed, Site, host_cpus};
pub use source::{DEFAULT_FILE, Source};
pub use target::TargetNames;
