//! A discrete-event simulator of one host: tasks in guests, VCPUs under every policy of `steadyvm-sched-policy`.
//!
//! The host's decisions are the policy's own code, the one the BPF scheduler runs. A simulation is a function of the
//! system, the seed and the duration: the same gives the same.
//!
//! | module | subject |
//! |---|---|
//! | [`system`] | what is simulated |
//! | [`server`] | the policy's servers, and the kernel's |
//! | [`plan`] | a system from a plan file |
//! | [`soundness`] | random systems: what the analysis accepts is never late |
//! | [`experiments`] | the dissertation's figures, simulated |
//! | [`gantt`], [`perfetto`] | pictures of what ran |
//! | [`engine`] | the simulation |
//! | [`cluster`] | many hosts, and VMs that come and go |
//! | [`observe`] | what it tells while it runs |
//! | [`outcome`] | what it found |
//! | [`shares`] | which share of jobs is in time, over many runs |
#![forbid(unsafe_code)]

pub mod cluster;
pub mod engine;
pub mod experiments;
pub mod gantt;
pub mod observe;
pub mod outcome;
pub mod perfetto;
pub mod plan;
pub mod server;
pub mod shares;
pub mod soundness;
pub mod system;
mod timers;

pub use engine::Engine;
pub use observe::{Nobody, Recorder};
pub use outcome::Outcome;
pub use system::{System, SystemError};

/// Simulates `system` for `duration_ns`.
///
/// # Errors
/// What [`System::check`] finds.
pub fn simulate(system: &System, seed: u64, duration_ns: u64) -> Result<Outcome, SystemError> {
    Engine::new(system, seed, duration_ns, &mut Nobody).map(Engine::run)
}
