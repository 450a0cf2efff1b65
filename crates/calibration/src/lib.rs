//! What a host's own work costs, for its plans: measured without a VM, and kept in a file.
//!
//! - [`Calibration`]: the figures, as text and back; [`Stale`]: when they no longer count. Pure.
//! - [`store`]: the file.
//! - [`measure`]: takes the figures of the running host.
//!
//! The file is root's word on what VMs are promised: it is read only where nobody else can change it.

#![forbid(unsafe_code)]

mod calibration;
mod cost;
mod date;
pub mod measure;
mod stale;
pub mod store;

pub use calibration::{Calibration, MOST_DAYS, SCHEMA_VERSION, Unreadable};
pub use cost::Cost;
pub use date::{date, unix_s};
pub use stale::{Here, Stale};
