//! What is a file of procfs or sysfs.

#[cfg(any(test, feature = "fake"))]
mod fake;
mod file;
mod form;
mod irq_affinity;
pub(crate) mod known;
mod tree;

pub use file::File;
pub use form::Form;
pub use irq_affinity::{IrqAffinity, IrqCpus};
pub use tree::{HostTree, RootedTree};
