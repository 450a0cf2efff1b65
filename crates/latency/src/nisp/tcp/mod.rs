//! With a TCP stream at full speed, which the paper left open: "delaying interrupt handling can
//! defer TCP acknowledgments, and may make the TCP communication unstable".
//!
//! A round has a run of jobs without a stream, then one connection: first alone, then next to as
//! many jobs, then alone again. So what the stream carries after the jobs is held against what
//! the same connection carried before them, and a sender that has backed off shows in the first second.

mod assemble;
mod data;
mod results;
mod segments;
mod table;

pub use assemble::assemble;
pub use data::{MethodData, RoundData, RunData, StreamData};
pub use results::{MethodResult, Results, SCHEMA_VERSION, StreamResult};
pub use segments::Segments;
pub use table::render;
pub(crate) use table::{READING, grids, introduction};

#[cfg(test)]
mod tests;
