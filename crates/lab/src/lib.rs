//! An emulated host: real kernels, real KVM, real guests, in QEMU on any machine.

mod accelerator;
pub mod agent;
pub mod artifact;
pub mod carry;
pub mod child;
pub mod emulator;
mod guest;
pub mod host;
mod host_kernel;
pub mod init;
pub mod laboratory;
mod machine_state;
mod macvtap;
mod monitor;
mod namespace;
mod one_card;
mod open_vswitch;
mod parts;
mod passthrough;
mod programs;
mod qemu;
mod qmp;
pub mod scheduling;
mod side_by_side;
mod socket_server;

pub use guest::Guest;
pub use namespace::Namespace;
pub use programs::Programs;
pub use steadyvm_fault::{At, Blame, Fault as Error, Result};
pub use steadyvm_progress as progress;
