//! The experiment of RTCA: its data, its figures and their table.
//!
//! Xi, Li, Lu, Gill, "Limitations and Solutions for Real-Time Local Inter-Domain Communication in
//! Xen" (2012), section VI-B: round trips (Table I) and throughput (Figure 8) between two
//! high-priority domains of a host while none, one, two or three of the others on each core send.

mod assemble;
mod data;
mod results;
mod table;

pub use assemble::assemble;
pub use data::{
    ConfigurationData, Cost, Endpoints, Interference, LevelData, RoundData, RunData, StreamData,
};
pub use results::{ConfigurationResult, CostResult, LevelResult, Results, SCHEMA_VERSION};
pub use table::render;

#[cfg(test)]
mod tests;
