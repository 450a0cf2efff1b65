//! Budgets of virtual CPUs by `sched_ext` as a setting of the host.

#[cfg(any(test, feature = "fake"))]
mod fake;
mod kernel;
mod kind;

pub use kernel::{KernelVcpuScheduler, VcpuScheduler};
pub use kind::VcpuBudgets;
