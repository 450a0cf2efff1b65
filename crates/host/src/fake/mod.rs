//! A host in memory: files, threads and interrupts that behave as the kernel's do, and that fail
//! or crash when told to.

pub mod paper;

pub use crate::engine::fake_storage::{FaultyStorage, StorageFault};
pub use crate::settings::fake::{
    FakeFlowSteering, FakeHost, FakeIrq, FakeState, FakeThread, Fault,
};
