//! A cluster: VMs that come, go, move and grow, hosts that fail, and the policies that place VMs.
//!
//! | module | subject |
//! |---|---|
//! | [`scenario`] | what is simulated: the file, checked |
//! | [`trace`] | what happens whatever the policy does, drawn from a seed |
//! | [`claim`] | what a VM takes of a host, as the package for Nova counts it |
//! | [`judge`] | the analysis' word on a host, remembered |
//! | [`fleet`] | hosts, what they hold, and which of them takes a VM |
//! | [`replay`] | a trace under a policy: what came of it |
//! | [`study`] | policies and seeds together, with intervals |
//!
//! No job runs here: that a host that is admitted keeps its promises is what [`crate::soundness`] looks for.

pub mod claim;
pub mod fleet;
pub mod judge;
pub mod replay;
pub mod scenario;
pub mod study;
pub mod trace;

pub use replay::{Outcome, replay, replay_watched};
pub use scenario::Scenario;
pub use study::{FIGURES, Figure, Study, study};
pub use trace::Trace;
