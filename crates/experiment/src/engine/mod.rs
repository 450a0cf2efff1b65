//! What every experiment needs: rounds, turns, repetition after a pause of this machine, hosts that
//! died, and what a run says of itself.

mod bound;
mod disturbance;
pub mod latency;
mod output;
mod page;
pub mod plan;
mod record;
#[cfg(test)]
#[path = "../../../report/src/results_checks.rs"]
pub(crate) mod results_checks;
pub mod rounds;
mod watch;

pub use bound::Bound;
pub use disturbance::{CpuUse, Disturbance, Standstills};
pub use output::{Meta, Stored, read_run};
pub use page::Page;
pub use record::{KernelBuild, RunRecord};
pub use steadyvm_report::{Figures, Shown, of_record as answer, results, write_run};
pub use watch::{Limit, Repetitions, STANDSTILL, Watch};
