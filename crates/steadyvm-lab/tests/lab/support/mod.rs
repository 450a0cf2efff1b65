//! What tests of the lab have in common.

pub mod cases;
pub mod comparison;
pub mod debian;
pub mod files;
pub mod footprint;
pub mod guide;
pub mod host_program;
pub mod kernel_log;
pub mod libvirt;
pub mod outsourced;
pub mod profile;
pub mod programs;
pub mod sched;
pub mod shared;
pub mod thread_trace;
