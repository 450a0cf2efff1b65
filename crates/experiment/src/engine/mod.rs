//! What every experiment needs: rounds, turns, repetition after a pause of this machine, hosts that
//! died, and what a run says of itself.

mod cpu;
mod disturbance;
mod form;
pub mod latency;
mod latency_record;
mod output;
mod plan;
mod record;
pub mod results;
pub mod rounds;
mod watch;

pub use cpu::CpuTimes;
pub use disturbance::{CpuUse, Disturbance, Standstills};
pub use form::{Form, ratio_figure, ratio_of};
pub use output::{Meta, report_meta, write_run};
pub use record::{KernelBuild, RunRecord};
pub use watch::{Limit, Repetitions, STANDSTILL, Watch};
