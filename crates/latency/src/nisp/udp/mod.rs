//! With bursts of UDP packets at rising rates, as in the paper.
//!
//! A round has every rate, the first without any packet, for every method. So a method's jobs are held
//! against its own without packets, and what its receiver gets against the first method's, both by rounds.

mod assemble;
mod data;
mod results;
mod table;

pub use assemble::assemble;
pub use data::{MethodData, RateData, RoundData, RunData};
pub use results::{MethodResult, Point, Results, SCHEMA_VERSION};
pub use table::render;
pub(crate) use table::{READING, grids, introduction};

#[cfg(test)]
mod tests;
