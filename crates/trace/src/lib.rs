//! What the kernel does between the hard interrupt of a packet and the wake-up of its reader.
//!
//! [`Recorder`] records tracepoints through `perf_event_open`: the events end with the descriptors
//! that hold them, so nothing is left on the host however this process ends, and no file of
//! tracefs is written. So do the BPF programs of [`wake_ups`], [`softirqs`] and [`requests`]. All else is pure: [`format`](crate::format) and [`record`](crate::record)
//! read what the kernel wrote, [`event`](crate::event) gives it a meaning, and
//! [`receive_path`] says where the time went.

mod bpf;
pub mod event;
pub mod format;
mod name;
mod perf;
pub mod receive_path;
pub mod record;
mod recorder;
pub mod requests;
pub mod socket;
pub mod softirqs;
mod tracefs;
pub mod wake_ups;

pub use name::Name;
pub use recorder::{Recorder, Recording};
pub use steadyvm_fault::Fault;
pub use tracefs::softirq_lock_offset;
