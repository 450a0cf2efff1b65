//! A small KVM monitor on the rust-vmm crates: it boots a distribution's stock Linux kernel with
//! outsourced sockets, or with virtio-net over vhost-net, so that network methods can be compared
//! inside one monitor.
//!
//! - [`configuration`]: what a VM is (`vm.toml`).
//! - [`life`]: a VM from start to end.
//! - [`shared`]: the sockets of a guest that QEMU runs.
//!
//! The decisions are in `docs/design/vmm.md`. The guest is hostile: the registers of its devices
//! are a state machine without input or output (`devices/transport.rs`), and guest memory is only
//! reached by volatile copies.

mod acpi;
mod allocator;
mod boot;
mod bus;
pub mod configuration;
mod cpu;
mod devices;
mod event;
mod force;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzzing;
mod jail;
mod layout;
pub mod life;
mod machine;
mod namespace;
mod output;
mod own_queues;
mod resources;
mod routing;
mod seccomp;
pub mod shared;
mod statistics;
mod terminal;
pub mod thread;
mod threads;
mod vcpu;

pub use resources::check;
pub use steadyvm_fault::{Fault as Error, Result};
pub use vcpu::End;
